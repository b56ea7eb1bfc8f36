/* Shared by the checkpoint tests: writes small checkpoints whose content depends on the step. */
#ifndef TESTS_IO_CHECKPOINT_TEST_H
#define TESTS_IO_CHECKPOINT_TEST_H

#include "io/checkpoint/checkpoint_team.h"
#include "io/io_test.h"

/* A file that the caller of the writer makes itself. */
static inline status test_make_cursor(checkpoint_writer *w, err *e) {
    file_out f;
    TRY(file_out_open(&f, checkpoint_writer_path(w, "state/cursor.json"), e));
    status st = file_out_write(&f, "{}", 2, e);
    if (st == ST_OK) return file_out_close(&f, NULL, e);
    file_out_abandon(&f);
    return st;
}

static inline status test_add_tensors(checkpoint_writer *w, const char *name, const st_tensor *t,
                                      int64_t n, err *e) {
    TRY(checkpoint_writer_create_tensors(w, name, t, n, e));
    TRY(st_write(checkpoint_writer_path(w, name), t, n, e));
    return checkpoint_writer_await_team(w, e);
}

static inline status test_add_files(checkpoint_writer *w, int64_t step, err *e) {
    float weights[64], moments[32];
    for (int i = 0; i < 64; i++) weights[i] = (float)(step * 100 + i);
    for (int i = 0; i < 32; i++) moments[i] = (float)(step * 1000 - i);
    uint16_t bf16[64];
    dtype_convert(bf16, DT_BF16, weights, DT_F32, 64);
    st_tensor model = {.name = "w", .dt = DT_BF16, .rank = 2, .dims = {8, 8}, .data = bf16};
    st_tensor state[] = {{.name = "m", .dt = DT_F32, .rank = 1, .dims = {32}, .data = moments},
                         {.name = "v", .dt = DT_F32, .rank = 1, .dims = {32}, .data = moments}};
    TRY(checkpoint_writer_add_blob(w, "config.json", "{\"model_type\":\"llama\"}", 22, e));
    TRY(test_add_tensors(w, "model.safetensors", &model, 1, e));
    TRY(test_add_tensors(w, "state/optimizer.safetensors", state, 2, e));
    TRY(test_make_cursor(w, e));
    return checkpoint_writer_add_file(w, "state/cursor.json", e);
}

/* A score of NaN: none. */
static inline status test_save_scored(const char *run, int64_t step, double score, err *e) {
    checkpoint_writer *w;
    TRY(checkpoint_writer_begin(&w, run, step, 4096, e));
    checkpoint_writer_set_score(w, score);
    status st = test_add_files(w, step, e);
    if (st == ST_OK) return checkpoint_writer_commit(w, e);
    checkpoint_writer_abort(w);
    return st;
}

static inline status test_save(const char *run, int64_t step, err *e) {
    return test_save_scored(run, step, 2.5, e);
}

static inline void test_save_step(test_dir *d, int64_t step) {
    err e;
    assert_ok(test_save(d->path, step, &e), e);
}

/* A file of a step's checkpoint. */
static inline char *test_path_in(test_dir *d, int64_t step, const char *name) {
    return path_join(d->mem, checkpoint_path(d->mem, d->path, step), name);
}

/* Replaces a file by its first n bytes, with one bit of byte `at` flipped (at < 0: none). */
static inline void test_damage(const char *path, size_t n, long at) {
    char *data;
    size_t len;
    err e;
    assert_ok(file_read_all(path, &data, &len, &e), e);
    if (at >= 0) data[at] ^= 4;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n < len ? n : len, f), n < len ? n : len);
    fclose(f);
    free(data);
}

/* Every tensor of the folder holds what test_save wrote for the step. */
static inline void test_content(arena *a, const char *dir, int64_t step) {
    st_reader *r;
    err e;
    float f = 0;
    assert_ok(st_open(&r, dir, &e), e);
    assert_ok(st_view_read(st_find(r, "w"), 0, 1, &f, DT_F32, &e), e);
    assert_true(f == bf16_to_f32(f32_to_bf16((float)(step * 100))));
    st_close(r);
    assert_ok(st_open(&r, path_join(a, dir, "state/optimizer.safetensors"), &e), e);
    assert_ok(st_view_read(st_find(r, "v"), 31, 1, &f, DT_F32, &e), e);
    assert_true(f == (float)(step * 1000 - 31));
    st_close(r);
}

/* The newest good step of the run, with its content checked; -1 when there is none. */
static inline int64_t test_newest(arena *a, const char *run) {
    char *dir;
    int64_t step;
    err e;
    assert_ok(checkpoint_find_newest(a, run, &dir, &step, NULL, NULL, &e), e);
    if (dir) test_content(a, dir, step);
    return step;
}

/* Hidden names left in RUN/checkpoints. */
static inline int test_leftovers(arena *a, const char *run) {
    char **names;
    int n, hidden = 0;
    err e;
    assert_ok(file_list_dir(a, path_join(a, run, "checkpoints"), &names, &n, &e), e);
    for (int i = 0; i < n; i++) hidden += names[i][0] == '.';
    return hidden;
}

#endif
