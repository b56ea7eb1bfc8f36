/* The run folder: lock, config file, the decision between new and resume. See folder.h. */
#include "run/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "interchange/ledger.h"
#include "io/checkpoint/checkpoint.h"

/* The files that the program writes into a run's folder, checkpoints aside (io/checkpoint), and so
 * what --fresh removes. The config goes last: a removal that is cut short leaves a run. */
static const char *const FILES[] = {"metrics.jsonl", "report.html", "upload.log",
                                    "plan.json",     "data.json",   "machine.json",
                                    "reference",     "eval",        "config.json"};

#define NEW_FOLDER "choose a folder that can be written with run=NEW"

struct run_folder {
    arena *memory; /* of paths */
    char *path;
    int lock_fd;
};

static bool is_run_config(const json_t *value) {
    return json_is_object(json_object_get(value, "model")) &&
           json_is_object(json_object_get(value, "train"));
}

/* The stored config, without keys that old runs have and that are none any more. */
static status read_stored(json_t **out, const char *path, err *e) {
    TRY(run_read_json(out, path, "config.json", e));
    json_object_del(json_object_get(*out, "parallel"), "link");
    return ST_OK;
}

/* What config.json says; NULL: there is none. Refuses the folder of something else. */
static status read_own_config(json_t **out, const char *path, err *e) {
    status st = read_stored(out, path, e);
    if (st == ST_FORMAT)
        err_hint(e, "restore it from a copy, or remove it: then the newest checkpoint says with "
                    "which keys the run was trained");
    TRY(st);
    if (!*out || is_run_config(*out)) return ST_OK;
    json_decref(*out);
    *out = NULL;
    err_set(e, ST_USAGE, "%s already holds something else: its config.json is not a run's", path);
    err_where(e, "%s/config.json", path);
    return err_hint(e, "choose another folder with run=NEW");
}

static json_t *config_of_checkpoint(const char *dir) {
    json_t *ledger = ledger_read(dir);
    json_t *c = json_incref(json_object_get(json_object_get(ledger, "run"), "config"));
    json_decref(ledger);
    if (is_run_config(c)) return c;
    json_decref(c);
    return NULL;
}

/* The config of the run that is in the folder; NULL: there is none. Without a config.json the newest checkpoint says all
 * of it but `parallel`, in which a run is free. */
static status read_begun(json_t **out, const char *path, err *e) {
    int64_t *steps;
    int n = 0;
    TRY(read_own_config(out, path, e));
    if (*out) return ST_OK;
    arena *a = arena_new("run folder");
    status st = checkpoint_list(a, path, &steps, &n, e);
    for (int i = n; st == ST_OK && i-- > 0 && !*out;)
        *out = config_of_checkpoint(checkpoint_path(a, path, steps[i]));
    arena_free(a);
    if (st != ST_OK || n == 0 || *out) return st;
    err_at(e, ST_FORMAT, path,
           "%s has checkpoints, but neither a config.json nor one in them says how it was trained",
           path);
    return err_hint(e, "put its config.json back, train elsewhere with run=NEW, or add --fresh to "
                       "start anew there (its checkpoints are removed)");
}

/* ---- lock ---- */

/* Someone who lists runs holds the lock for a moment (run_is_locked), so a taken lock is tried
 * again. */
static bool try_lock(int fd) {
    for (int i = 0; i < 5; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    return false;
}

static status lock_taken(int fd, const char *path, err *e) {
    char text[32] = {0};
    long pid = pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
    if (pid > 0)
        err_set(e, ST_FAILED, "another athanor (pid %ld) is training in %s", pid, path);
    else
        err_set(e, ST_FAILED, "another athanor is training in %s", path);
    err_where(e, "%s/.lock", path);
    return err_hint(e, "wait for it, or train elsewhere with run=OTHER");
}

static status take_lock(const char *path, const char *lock_path, int *out, err *e) {
    int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        err_errno(e, lock_path, "cannot open %s", lock_path);
        return err_hint(e, NEW_FOLDER);
    }
    status st = ST_OK;
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (!try_lock(fd))
        st = errno == EWOULDBLOCK ? lock_taken(fd, path, e)
                                  : err_errno(e, lock_path, "cannot lock %s", lock_path);
    else if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        st = err_errno(e, lock_path, "cannot write %s", lock_path);
    if (st == ST_OK)
        *out = fd;
    else
        close(fd);
    return st;
}

status run_open(run_folder **out, const char *path, err *e) {
    *out = NULL;
    int fd = -1;
    json_t *stored;
    TRY(read_own_config(&stored, path, e)); /* before anything is written there */
    json_decref(stored);
    if (file_make_dirs_synced(path, e) != ST_OK) return err_hint(e, NEW_FOLDER);
    arena *a = arena_new("run folder");
    status st = take_lock(path, path_join(a, path, ".lock"), &fd, e);
    if (st != ST_OK) {
        arena_free(a);
        return st;
    }
    *out = ARENA_NEW(a, run_folder);
    **out = (run_folder){.memory = a, .path = arena_strdup(a, path), .lock_fd = fd};
    return ST_OK;
}

void run_close(run_folder *r) {
    if (!r) return;
    /* This frees the lock. The file stays: if it were removed, one process could hold the lock of the
     * removed file while another locks a new one. */
    close(r->lock_fd);
    arena_free(r->memory); /* r itself lies in it */
}

bool run_is_locked(const char *path) {
    arena *a = arena_new("run folder");
    int fd = open(path_join(a, path, ".lock"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    arena_free(a);
    if (fd < 0) return false;
    bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

/* ---- files ---- */

status run_read_json(json_t **out, const char *path, const char *name, err *e) {
    *out = NULL;
    arena *a = arena_new("run folder");
    char *file = path_join(a, path, name);
    bool absent = access(file, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
    status st = absent ? ST_OK : json_read_file(out, file, JSON_FILE_MAX_BYTES, e);
    arena_free(a);
    return st;
}

status run_write_json(const run_folder *r, const char *name, const json_t *value, err *e) {
    strbuf text = {0};
    json_format(&text, value, 2);
    strbuf_putc(&text, '\n');
    status st = file_write_atomic(path_join(r->memory, r->path, name), text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

status run_write_config(const run_folder *r, const config *c, err *e) {
    json_t *value = config_to_json(c);
    status st = run_write_json(r, "config.json", value, e);
    json_decref(value);
    return st;
}

status run_read_config(json_t **out, const char *path, err *e) {
    TRY(read_stored(out, path, e));
    if (is_run_config(*out)) return ST_OK;
    json_decref(*out);
    *out = NULL;
    err_set(e, ST_FORMAT, "%s is not a run folder", path);
    err_where(e, "%s/config.json", path);
    return err_hint(e, "a run folder is what `athanor train` writes; `athanor runs list` shows "
                       "those under runs/");
}

status run_load_config(config **out, const char *path, err *e) {
    json_t *stored;
    TRY(run_read_config(&stored, path, e));
    status st = config_from_json(out, stored, NULL, path, NULL, 0, e);
    json_decref(stored);
    return st;
}

status run_load_begun(config **out, const char *path, err *e) {
    json_t *stored;
    *out = NULL;
    TRY(read_begun(&stored, path, e));
    status st = stored ? config_from_json(out, stored, NULL, path, NULL, 0, e) : ST_OK;
    json_decref(stored);
    return st;
}

bool run_is_run(const char *path) {
    json_t *value = NULL;
    bool is_run = run_read_json(&value, path, "config.json", NULL) == ST_OK && is_run_config(value);
    json_decref(value);
    return is_run;
}

/* ---- new or resume ---- */

/* Longer values (lists of sources, say) are cut so that the sentence stays one. */
static void put_value(strbuf *out, const json_t *value) {
    enum { SHOWN_BYTES = 60 };
    strbuf text = {0};
    if (json_is_string(value))
        strbuf_puts(&text, json_string_value(value));
    else if (value)
        json_format(&text, value, 0);
    else
        strbuf_puts(&text, "absent");
    if (text.len <= SHOWN_BYTES)
        strbuf_append(out, text.data, text.len);
    else
        strbuf_printf(out, "%.*s...", (int)SHOWN_BYTES, text.data);
    strbuf_free(&text);
}

static bool is_auto(const json_t *value) {
    return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

static int list_changes(strbuf *out, const config *c, const json_t *differences, int stage) {
    int n = 0;
    size_t i;
    json_t *row;
    json_array_foreach(differences, i, row) {
        const char *key = json_string_value(json_object_get(row, "key"));
        json_t *then = json_object_get(row, "a"), *now = json_object_get(row, "b");
        if (config_key_is_free_in(key, stage) || is_auto(now)) continue;
        if (config_is_resolved(c, key, then)) continue;
        strbuf_printf(out, "%s%s was ", n++ ? "; " : "", key);
        put_value(out, then);
        strbuf_puts(out, ", is now ");
        put_value(out, now);
    }
    return n;
}

/* `name` is the run. */
static status compare_config(const char *name, const json_t *stored, const config *now, int stage,
                             err *e) {
    config *then;
    if (config_from_json(&then, stored, NULL, "config.json", NULL, 0, e) != ST_OK)
        return err_context(e, "the stored config of %s cannot be read", name);
    json_t *differences = config_diff(then, now);
    strbuf changes = {0};
    status st = ST_OK;
    if (list_changes(&changes, now, differences, stage) > 0) {
        st = err_set(e, ST_USAGE, "%s was started with another config: %s", name, changes.data);
        err_where(e, "%s%s", name, run_is_run(name) ? "/config.json" : "/checkpoints");
        err_hint(e, "add --fresh to start anew in the same folder (its checkpoints are removed), "
                    "or --fork NEW to go on with the new keys in another one");
    }
    strbuf_free(&changes);
    json_decref(differences);
    config_free(then);
    return st;
}

status run_check(const char *path, const config *c, int stage, err *e) {
    json_t *stored;
    TRY(read_begun(&stored, path, e));
    status st = stored ? compare_config(path, stored, c, stage, e) : ST_OK;
    json_decref(stored);
    return st;
}

/* In the folder of no run these names may be the user's. */
static status clear_run(const run_folder *r, err *e) {
    int64_t *steps;
    int n;
    TRY(checkpoint_list(r->memory, r->path, &steps, &n, e));
    if (n == 0 && !run_is_run(r->path)) return ST_OK;
    TRY(checkpoint_remove_all(r->path, e));
    for (int i = 0; i < ARRAY_LEN(FILES); i++)
        TRY(file_remove_tree(path_join(r->memory, r->path, FILES[i]), e));
    return ST_OK;
}

status run_prepare(run_folder *r, const config *c, int stage, bool fresh, run_start *out, err *e) {
    *out = RUN_START_NEW;
    json_t *stored;
    if (fresh) return clear_run(r, e);
    TRY(read_begun(&stored, r->path, e));
    if (!stored) return ST_OK;
    *out = RUN_START_RESUME;
    status st = compare_config(r->path, stored, c, stage, e);
    json_decref(stored);
    return st;
}
