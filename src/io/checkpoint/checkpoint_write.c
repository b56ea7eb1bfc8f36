/* Writes checkpoints.
 *
 * Invariant: until the last rename, nothing that an earlier checkpoint needs is touched; after it
 * the new one is complete on disk.
 *
 * Reading order: checkpoint_writer_begin, the add functions, checkpoint_writer_commit, abort;
 * checkpoint_copy. */
#include "io/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file_fault.h"
#include "base/log.h"
#include "io/checkpoint/checkpoint_layout.h"
#include "io/checkpoint/checkpoint_manifest.h"
#include "io/checkpoint/checkpoint_meet.h"

/* A file of tensors that ranks fill. */
typedef struct created_file {
    const char *name;
    const st_tensor *tensors;
    int64_t n;
} created_file;

struct checkpoint_writer {
    arena *mem;
    const char *parent; /* RUN/checkpoints */
    const char *temp;   /* RUN/checkpoints/.tmp-step-N-PID, or -ATTEMPT of several ranks */
    const char *final;  /* RUN/checkpoints/step-N */
    uint64_t need_bytes;
    uint64_t done_bytes, created_bytes;
    manifest list;
    checkpoint_team team;
    created_file *created;
    int n_created, cap_created;
};

static uint64_t free_bytes(const char *path) {
    struct statvfs s;
    return statvfs(path, &s) == 0 ? (uint64_t)s.f_bavail * s.f_frsize : UINT64_MAX;
}

/* Adds to any error which checkpoint was not written, how many bytes it needs and how many are
 * free. */
static status explain(const checkpoint_writer *w, status st, err *e) {
    uint64_t left = free_bytes(w->parent);
    err_rename(e, w->temp, w->final);
    err_context(e, "checkpoint %s was not written", w->final);
    err_where(e, "%s", w->final);
    if (st == ST_RANK) return st;
    err_hint(e,
             "it needs %llu bytes and %llu are free there; earlier checkpoints are untouched, so "
             "free some space and start the run again",
             (unsigned long long)w->need_bytes, (unsigned long long)left);
    return st;
}

/* Refuses what cannot fit before writing it. */
static status require_space(checkpoint_writer *w, uint64_t more_bytes, err *e) {
    if (w->need_bytes < w->done_bytes + more_bytes) w->need_bytes = w->done_bytes + more_bytes;
    uint64_t left = free_bytes(w->parent);
    if (more_bytes <= left) return ST_OK;
    return err_set(e, ST_FAILED, "%s: %llu bytes are needed, but only %llu are free", w->parent,
                   (unsigned long long)more_bytes, (unsigned long long)left);
}

static status make_folders(checkpoint_writer *w, err *e) {
    TRY(file_make_dirs_synced(w->parent, e));
    TRY(file_remove_tree(w->temp, e));
    TRY(require_space(w, w->need_bytes, e));
    return file_make_dirs(path_join(w->mem, w->temp, STATE_DIR), e);
}

status checkpoint_writer_begin_team(checkpoint_writer **out, const char *run_dir, int64_t step,
                                    uint64_t need_bytes, const checkpoint_team *team, err *e) {
    CHECK(step >= 0, "a checkpoint of step %lld", (long long)step);
    arena *mem = arena_new("checkpoint");
    checkpoint_writer *w = ARENA_NEW(mem, checkpoint_writer);
    w->mem = mem;
    w->parent = path_join(mem, run_dir, CHECKPOINT_DIR);
    w->final = checkpoint_path(mem, run_dir, step);
    w->team = *team;
    w->temp = meet_folder(mem, run_dir, step, team->attempt);
    w->need_bytes = need_bytes;
    w->list.step = step;
    w->list.score = (double)NAN;
    status st = make_folders(w, e);
    if (st != ST_OK) {
        explain(w, st, e);
        checkpoint_writer_abort(w);
        w = NULL;
    }
    *out = w;
    return st;
}

status checkpoint_writer_begin(checkpoint_writer **out, const char *run_dir, int64_t step,
                               uint64_t need_bytes, err *e) {
    checkpoint_team alone = {.ranks = 1, .attempt = (uint64_t)getpid()};
    return checkpoint_writer_begin_team(out, run_dir, step, need_bytes, &alone, e);
}

const char *checkpoint_writer_path(checkpoint_writer *w, const char *name) {
    CHECK(manifest_name_ok(name), "'%s' is no name of a file in a checkpoint", name);
    return path_join(w->mem, w->temp, name);
}

static manifest_file *record(checkpoint_writer *w, const char *name, uint64_t bytes,
                             uint64_t hash) {
    for (int i = 0; i < w->list.n; i++)
        CHECK(strcmp(w->list.files[i].name, name) != 0, "'%s' is added twice", name);
    manifest_file f = {.name = arena_strdup(w->mem, name), .bytes = bytes, .hash = hash};
    VEC_PUSH(w->list.files, w->list.n, w->list.cap, f);
    w->done_bytes += bytes;
    return &w->list.files[w->list.n - 1];
}

static status write_blob(const char *path, const void *data, size_t len, uint64_t *hash, err *e) {
    file_out f;
    TRY(file_out_open(&f, path, e));
    status st = file_out_write(&f, data, len, e);
    if (st == ST_OK) return file_out_close(&f, hash, e);
    file_out_abandon(&f);
    return st;
}

status checkpoint_writer_add_blob(checkpoint_writer *w, const char *name, const void *data,
                                  size_t len, err *e) {
    uint64_t hash = 0;
    status st = require_space(w, len, e);
    if (st == ST_OK) st = write_blob(checkpoint_writer_path(w, name), data, len, &hash, e);
    if (st != ST_OK) return explain(w, st, e);
    record(w, name, len, hash);
    return ST_OK;
}

static void record_tensors(checkpoint_writer *w, manifest_file *f, const st_tensor *tensors,
                           int64_t n, const uint64_t *hashes) {
    f->tensors = ARENA_ARRAY(w->mem, manifest_tensor, n);
    f->n_tensors = n;
    for (int64_t i = 0; i < n; i++)
        f->tensors[i] = (manifest_tensor){arena_strdup(w->mem, tensors[i].name), hashes[i]};
}

/* ---- tensors of several ranks ---- */

status checkpoint_writer_create_tensors(checkpoint_writer *w, const char *name,
                                        const st_tensor *tensors, int64_t n, err *e) {
    uint64_t bytes = st_file_bytes(tensors, n);
    status st = require_space(w, w->created_bytes + bytes, e);
    if (st == ST_OK) st = st_create(checkpoint_writer_path(w, name), tensors, n, e);
    if (st != ST_OK) return explain(w, st, e);
    w->created_bytes += bytes;
    created_file f = {arena_strdup(w->mem, name), tensors, n};
    w->created = arena_grow(w->mem, w->created, w->n_created, &w->cap_created, sizeof f);
    w->created[w->n_created++] = f;
    return ST_OK;
}

status checkpoint_writer_call_team(checkpoint_writer *w, err *e) {
    if (w->team.ranks == 1) return ST_OK;
    status st = meet_mark(path_join(w->mem, w->temp, MARK_BEGUN), e);
    return st == ST_OK ? st : explain(w, st, e);
}

static status await_rank(checkpoint_writer *w, int rank, err *e) {
    const char *what = arena_printf(w->mem, "rank %d to write its part of %s", rank, w->final);
    const char *done = meet_done(w->mem, w->temp, rank);
    const char *failed = meet_failed(w->mem, w->temp, rank);
    const char *begun = path_join(w->mem, w->temp, MARK_BEGUN);
    meet_wait wait = meet_wait_for(&w->team, what);
    while (!file_exists(done)) {
        if (file_exists(failed))
            return err_set(e, ST_FAILED, "rank %d could not write its part: %s", rank,
                           meet_complaint(w->mem, failed));
        if (!file_exists(begun))
            return err_set(e, ST_FAILED,
                           "a rank could not write its part, nor a file that says so");
        TRY(meet_pause(&wait, e));
    }
    file_sys_unlinkat(AT_FDCWD, done, 0); /* one that stays is ignored by all who read */
    return ST_OK;
}

/* Hashes a file that all ranks have filled and synced, and enters it in the manifest. */
static status add_created(checkpoint_writer *w, const created_file *f, err *e) {
    uint64_t hash = 0, *hashes = ARENA_ARRAY(w->mem, uint64_t, f->n);
    TRY(st_hash(checkpoint_writer_path(w, f->name), f->tensors, f->n, &hash, hashes, e));
    uint64_t bytes = st_file_bytes(f->tensors, f->n);
    record_tensors(w, record(w, f->name, bytes, hash), f->tensors, f->n, hashes);
    return ST_OK;
}

status checkpoint_writer_await_team(checkpoint_writer *w, err *e) {
    status st = ST_OK;
    for (int r = 1; r < w->team.ranks && st == ST_OK; r++) st = await_rank(w, r, e);
    if (w->team.ranks > 1) file_sys_unlinkat(AT_FDCWD, path_join(w->mem, w->temp, MARK_BEGUN), 0);
    for (int i = 0; i < w->n_created && st == ST_OK; i++) st = add_created(w, &w->created[i], e);
    w->n_created = 0;
    w->created_bytes = 0;
    return st == ST_OK ? st : explain(w, st, e);
}

/* ---- the end ---- */

status checkpoint_writer_add_file(checkpoint_writer *w, const char *name, err *e) {
    const char *path = checkpoint_writer_path(w, name);
    uint64_t hash = 0;
    status st = file_sync(path, e);
    if (st == ST_OK) st = hash_file(path, &hash, e);
    if (st != ST_OK) return explain(w, st, e);
    record(w, name, (uint64_t)file_size(path), hash);
    return ST_OK;
}

void checkpoint_writer_set_score(checkpoint_writer *w, double val_loss) {
    w->list.score = val_loss;
}

static status write_manifest(checkpoint_writer *w, err *e) {
    uint64_t hash;
    char *text = manifest_encode(&w->list);
    status st = write_blob(path_join(w->mem, w->temp, MANIFEST_NAME), text, strlen(text), &hash, e);
    free(text);
    TRY(st);
    TRY(file_sync_dir(path_join(w->mem, w->temp, STATE_DIR), e));
    return file_sync_dir(w->temp, e);
}

/* An earlier step-N gets another name until the new one has its own; after a crash between the
 * two, checkpoint_clean renames it back. */
static status give_name(checkpoint_writer *w, err *e) {
    const char *old =
        arena_printf(w->mem, "%s/" OLD_PREFIX "step-%lld", w->parent, (long long)w->list.step);
    bool replaces = file_is_dir(w->final);
    if (replaces) {
        TRY(file_remove_tree(old, e));
        TRY(file_rename(w->final, old, e));
    }
    status st = file_rename(w->temp, w->final, e);
    if (st != ST_OK) {
        if (replaces && file_rename(old, w->final, NULL) != ST_OK)
            log_warn("%s waits under the name %s until the run is started again", w->final, old);
        return st;
    }
    TRY(file_sync_dir(w->parent, e));
    if (replaces && checkpoint_remove(old, NULL) != ST_OK)
        log_warn("cannot remove %s; the next start of the run will", old);
    return ST_OK;
}

static void writer_free(checkpoint_writer *w) {
    free(w->list.files);
    arena_free(w->mem);
}

status checkpoint_writer_commit(checkpoint_writer *w, err *e) {
    status st = write_manifest(w, e);
    if (st == ST_OK) st = give_name(w, e);
    if (st == ST_OK) {
        writer_free(w);
        return ST_OK;
    }
    explain(w, st, e);
    checkpoint_writer_abort(w);
    return st;
}

/* Other ranks may still write into the folder, so it is renamed before it is removed. */
static bool leave_team(const checkpoint_writer *w) {
    if (w->team.ranks == 1) return false;
    (void)meet_complain(meet_given_up(w->mem, w->temp), "");
    return checkpoint_remove(w->temp, NULL) == ST_OK;
}

void checkpoint_writer_abort(checkpoint_writer *w) {
    if (!w) return;
    err e = {0};
    if (!leave_team(w) && file_remove_tree(w->temp, &e) != ST_OK)
        log_warn("%s; the next start of the run will remove it", e.message);
    writer_free(w);
}

/* ---- copying into another run ---- */

/* A file whose entry is known from another checkpoint; bytes that do not match it are refused. */
static status add_known(checkpoint_writer *w, const char *path, const manifest_file *f, err *e) {
    file_map map;
    uint64_t hash = 0;
    TRY(file_map_open(&map, path, e));
    status st = require_space(w, map.len, e);
    if (st == ST_OK)
        st = write_blob(checkpoint_writer_path(w, f->name), map.data, map.len, &hash, e);
    if (st == ST_OK && (map.len != f->bytes || hash != f->hash))
        st = err_set(e, ST_FORMAT, "%s: checksum differs (file damaged)", f->name);
    file_map_close(&map);
    if (st != ST_OK) return explain(w, st, e);
    manifest_file *mine = record(w, f->name, f->bytes, hash);
    mine->tensors = f->tensors; /* they live until the copy is complete */
    mine->n_tensors = f->n_tensors;
    return ST_OK;
}

static status copy_files(arena *a, const char *dir, const manifest *m, const char *run_dir,
                         err *e) {
    checkpoint_writer *w;
    uint64_t bytes = 0;
    for (int i = 0; i < m->n; i++) bytes += m->files[i].bytes;
    TRY(checkpoint_writer_begin(&w, run_dir, m->step, bytes, e));
    checkpoint_writer_set_score(w, m->score);
    for (int i = 0; i < m->n; i++) {
        status st = add_known(w, path_join(a, dir, m->files[i].name), &m->files[i], e);
        if (st == ST_OK) continue;
        checkpoint_writer_abort(w);
        return st;
    }
    return checkpoint_writer_commit(w, e);
}

status checkpoint_copy(const char *dir, const char *run_dir, err *e) {
    arena *a = arena_new("checkpoint copy");
    manifest m;
    status st = manifest_read(a, &m, dir, e);
    if (st == ST_OK) st = copy_files(a, dir, &m, run_dir, e);
    arena_free(a);
    return st;
}
