/* Copies a checkpoint into another run, through the same atomic writer. */
#include "io/checkpoint/checkpoint_layout.h"
#include "io/checkpoint/checkpoint_manifest.h"

static status copy_file(checkpoint_writer *w, const char *path, const manifest_file *f, err *e) {
    file_map map;
    TRY(file_map_open(&map, path, e));
    status st = checkpoint_writer_add_known(w, f, map.data, map.len, e);
    file_map_close(&map);
    return st;
}

static status copy_files(arena *a, const char *dir, const manifest *m, const char *run_dir,
                         err *e) {
    checkpoint_writer *w;
    uint64_t bytes = 0;
    for (int i = 0; i < m->n; i++) bytes += m->files[i].bytes;
    TRY(checkpoint_writer_begin(&w, run_dir, m->step, bytes, e));
    checkpoint_writer_set_score(w, m->score);
    for (int i = 0; i < m->n; i++) {
        status st = copy_file(w, path_join(a, dir, m->files[i].name), &m->files[i], e);
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
