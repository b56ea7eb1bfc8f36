/* Marks and waiting (see checkpoint_meet.h). Marks are not synced: only running processes read
 * them, and after a crash the folder is removed anyway. */
#include "io/checkpoint/checkpoint_meet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "io/checkpoint/checkpoint_layout.h"

enum { FIRST_PAUSE_NS = 1000 * 1000, LONGEST_PAUSE_NS = 50 * 1000 * 1000 };

char *meet_folder(arena *a, const char *run_dir, int64_t step, uint64_t attempt) {
    return arena_printf(a, "%s/" TMP_PREFIX "step-%lld-%016llx",
                        path_join(a, run_dir, CHECKPOINT_DIR), (long long)step,
                        (unsigned long long)attempt);
}

char *meet_done(arena *a, const char *dir, int rank) {
    return arena_printf(a, "%s/.done-%d", dir, rank);
}

char *meet_failed(arena *a, const char *dir, int rank) {
    return arena_printf(a, "%s/.failed-%d", dir, rank);
}

char *meet_given_up(arena *a, const char *dir) {
    return arena_printf(a, "%s.failed", dir);
}

status meet_mark(const char *path, err *e) {
    int fd = file_sys_create(path);
    if (fd < 0 || close(fd) != 0) return err_errno(e, path, "cannot create %s", path);
    return ST_OK;
}

bool meet_complain(const char *path, const char *why) {
    return file_write_atomic(path, why, strlen(why), NULL) == ST_OK ||
           meet_mark(path, NULL) == ST_OK;
}

char *meet_complaint(arena *a, const char *path) {
    char *text;
    size_t len;
    if (file_read_part(path, sizeof(err), &text, &len, NULL) != ST_OK) return arena_strdup(a, "");
    char *kept = arena_strndup(a, text, len);
    free(text);
    return kept;
}

meet_wait meet_wait_for(const checkpoint_team *team, const char *what) {
    return (meet_wait){
        .team = team, .what = what, .wait = clock_begin_wait(), .pause_ns = FIRST_PAUSE_NS};
}

status meet_pause(meet_wait *w, err *e) {
    const checkpoint_team *t = w->team;
    if (t->failed && t->failed(t->ctx)) {
        err_set(e, ST_RANK, "a rank is gone; waited in vain for %s", w->what);
        return ST_RANK;
    }
    if (clock_waited_s(&w->wait) > t->limit_s) {
        err_set(e, ST_RANK, "waited %g s in vain for %s", t->limit_s, w->what);
        return err_hint(
            e, "see that all ranks live, and that all see the run folder on one file system");
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)w->pause_ns}, NULL);
    if (w->pause_ns < LONGEST_PAUSE_NS) w->pause_ns += w->pause_ns / 2;
    return ST_OK;
}
