/* Copies a checkpoint into another run, through the same atomic writer. */
#include <stdlib.h>

#include "io/checkpoint_layout.h"
#include "io/checkpoint_manifest.h"

static status read_manifest(arena *a, const char *dir, manifest *m, err *e) {
    char *text;
    size_t len;
    TRY(file_read_all(path_join(a, dir, MANIFEST_NAME), &text, &len, e));
    status st = manifest_decode(a, m, text, len, e);
    free(text);
    return st;
}

static status copy_file(checkpoint_writer *w, const char *path, const char *name, err *e) {
    file_map map;
    TRY(file_map_open(&map, path, e));
    status st = checkpoint_writer_add_blob(w, name, map.data, map.len, e);
    file_map_close(&map);
    return st;
}

static status copy_files(arena *a, const char *dir, const manifest *m, const char *run_dir,
                         err *e) {
    checkpoint_writer *w;
    uint64_t bytes = 0;
    for (int i = 0; i < m->n; i++) bytes += m->files[i].bytes;
    TRY(checkpoint_writer_begin(&w, run_dir, m->step, bytes, e));
    for (int i = 0; i < m->n; i++) {
        status st = copy_file(w, path_join(a, dir, m->files[i].name), m->files[i].name, e);
        if (st == ST_OK) continue;
        checkpoint_writer_abort(w);
        return st;
    }
    return checkpoint_writer_commit(w, e);
}

status checkpoint_copy(const char *dir, const char *run_dir, err *e) {
    arena *a = arena_new("checkpoint copy");
    manifest m = {0};
    status st = read_manifest(a, dir, &m, e);
    if (st == ST_OK) st = copy_files(a, dir, &m, run_dir, e);
    arena_free(a);
    return st;
}
