/* A rank's part of a checkpoint that another commits (see checkpoint_team.h).
 *
 * Reading order: checkpoint_part_begin, checkpoint_part_end, await_fate. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "io/checkpoint/checkpoint_meet.h"

struct checkpoint_part {
    arena *mem;
    checkpoint_team team;
    const char *temp, *final;
    int fd; /* of temp: while it is open its inode is not given to another folder (is_committed) */
};

static status given_up(const checkpoint_part *p, err *e) {
    return err_at(e, ST_FAILED, p->final, "rank 0 has given up writing %s, and says why", p->final);
}

static bool has_given_up(const checkpoint_part *p) {
    return file_exists(meet_given_up(p->mem, p->temp));
}

static status await_begin(checkpoint_part *p, err *e) {
    meet_wait w =
        meet_wait_for(&p->team, arena_printf(p->mem, "rank 0 to begin checkpoint %s", p->final));
    const char *begun = path_join(p->mem, p->temp, MARK_BEGUN);
    bool seen = false; /* the folder was there; before that, its absence may only be a delay */
    while (!file_exists(begun)) {
        bool there = file_exists(p->temp);
        if (has_given_up(p) || (seen && !there)) return given_up(p, e);
        seen = there;
        TRY(meet_pause(&w, e));
    }
    p->fd = open(p->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->fd >= 0 ? ST_OK : given_up(p, e);
}

static void part_free(checkpoint_part *p) {
    if (p->fd >= 0) close(p->fd);
    arena_free(p->mem);
}

status checkpoint_part_begin(checkpoint_part **out, const char *run_dir, int64_t step,
                             const checkpoint_team *team, err *e) {
    arena *mem = arena_new("part of a checkpoint");
    checkpoint_part *p = ARENA_NEW(mem, checkpoint_part);
    *p = (checkpoint_part){.mem = mem,
                           .team = *team,
                           .temp = meet_folder(mem, run_dir, step, team->attempt),
                           .final = checkpoint_path(mem, run_dir, step),
                           .fd = -1};
    status st = await_begin(p, e);
    if (st != ST_OK) part_free(p);
    *out = st == ST_OK ? p : NULL;
    return st;
}

const char *checkpoint_part_path(checkpoint_part *p, const char *name) {
    return path_join(p->mem, p->temp, name);
}

static bool is_committed(const checkpoint_part *p) {
    struct stat mine, its;
    return fstat(p->fd, &mine) == 0 && stat(p->final, &its) == 0 && mine.st_dev == its.st_dev &&
           mine.st_ino == its.st_ino;
}

static status await_fate(checkpoint_part *p, err *e) {
    meet_wait w =
        meet_wait_for(&p->team, arena_printf(p->mem, "rank 0 to complete checkpoint %s", p->final));
    while (!is_committed(p)) {
        bool gone = !file_exists(p->temp);
        if (is_committed(p)) break;
        if (gone || has_given_up(p)) return given_up(p, e);
        TRY(meet_pause(&w, e));
    }
    return ST_OK;
}

status checkpoint_part_end(checkpoint_part *p, status st, err *e) {
    err why = {0};
    if (st == ST_OK) {
        st = meet_mark(meet_done(p->mem, p->temp, p->team.rank), &why);
        if (st != ST_OK && e) *e = why;
    } else if (e) {
        why = *e;
    }
    if (st == ST_OK)
        st = await_fate(p, e);
    else if (has_given_up(p) || !file_exists(p->temp))
        st = given_up(p, e);
    else if (!meet_complain(meet_failed(p->mem, p->temp, p->team.rank), why.message))
        file_sys_unlinkat(AT_FDCWD, path_join(p->mem, p->temp, MARK_BEGUN), 0);
    part_free(p);
    return st;
}
