/* Files written by spans: byte for byte what one rank writes, and readable by whoever holds other
 * spans. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/file_patch.h"
#include "io/hf_part.h"
#include "io/hf_weights.h"
#include "io/store_test.h"

/* ---- runs ---- */

static int64_t file_index(const param *p, hf_order order, int64_t w) {
    int64_t cols = p->rank == 1 ? 1 : p->cols, r = w / cols, c = w % cols;
    if (held_is_transposed(p, order)) return c * p->rows + r;
    return (held_is_reordered(p, order) ? param_file_row(p, r) : r) * cols + c;
}

typedef struct cover {
    int64_t *held; /* by element of the file; -1: none */
} cover;

static status note_run(void *ctx, const held_run *r, err *e) {
    (void)e;
    const cover *c = ctx;
    assert_true(r->n > 0);
    for (int64_t i = 0; i < r->n; i++) {
        assert_int_equal(c->held[r->file + i], -1);
        c->held[r->file + i] = r->held + i * r->step;
    }
    return ST_OK;
}

static void check_walk(const param *p, const vec_span *k, hf_order order) {
    int64_t n = p->rows * p->cols, found = 0;
    cover c = {malloc((size_t)n * sizeof(int64_t))};
    for (int64_t i = 0; i < n; i++) c.held[i] = -1;
    assert_int_equal(held_walk(p, k, order, note_run, &c, NULL), ST_OK);
    for (int64_t i = 0; i < k->n; i++)
        assert_int_equal(c.held[file_index(p, order, vec_whole_index(k, i))], k->at + i);
    for (int64_t i = 0; i < n; i++) found += c.held[i] >= 0;
    assert_int_equal(found, k->n);
    free(c.held);
}

/* Of a part with `elems` elements every range that begins and ends at odd places. */
static void check_ranges(const param *p, vec_span part, int64_t elems) {
    static const hf_order orders[] = {HF_MEMORY, HF_FILES, HF_FILES_PAIRS};
    for (int64_t from = 0; from < elems; from += 1 + elems / 7)
        for (int64_t n = 1; from + n <= elems; n += 1 + elems / 5)
            for (int o = 0; o < ARRAY_LEN(orders); o++) {
                part.at = 3 + from;
                part.skip = from;
                part.n = n;
                check_walk(p, &part, orders[o]);
            }
}

static void test_every_run(void **state) {
    (void)state;
    const param shapes[] = {
        {.rows = 12, .cols = 10, .rank = 2},
        {.rows = 12, .cols = 10, .rank = 2, .transposed = true},
        {.rows = 24, .cols = 5, .rank = 2, .order = ROWS_BY_HEAD, .heads = 2, .head_dim = 4},
        {.rows = 12, .cols = 4, .rank = 2, .order = ROWS_PAIRS, .head_dim = 6, .rotary = 4},
        {.rows = 1, .cols = 24, .rank = 1, .order = ROWS_BY_HEAD, .heads = 2, .head_dim = 4},
        {.rows = 1, .cols = 12, .rank = 1},
    };
    for (int i = 0; i < ARRAY_LEN(shapes); i++) {
        const param *p = &shapes[i];
        int64_t cols = p->rank == 1 ? 1 : p->cols, rows = p->rows * p->cols / cols;
        check_ranges(p, (vec_span){0}, rows * cols);
        /* some rows of each third, as of q|k|v */
        int64_t each = rows / 3 * cols, run = rows / 6 * cols;
        check_ranges(p, (vec_span){.index = run, .run = run, .stride = each}, 3 * run);
        /* rows of one third, as tensor-parallel ranks have them */
        check_ranges(p, (vec_span){.index = each, .run = run, .stride = run}, run);
        if (p->rank == 2) /* columns */
            check_ranges(p, (vec_span){.index = 1, .run = 3, .stride = cols}, 3 * rows);
    }
}

/* ---- files ---- */

static void write_whole(test_dir *d, const char *name, const st_tensor *t, int64_t n,
                        uint64_t *hash, uint64_t *hashes) {
    err e;
    assert_ok(st_write(path_join(d->mem, d->path, name), t, n, hash, hashes, &e), e);
}

static void same_files(test_dir *d, const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    err e;
    assert_ok(file_read_all(path_join(d->mem, d->path, a), &x, &n, &e), e);
    assert_ok(file_read_all(path_join(d->mem, d->path, b), &y, &m, &e), e);
    assert_int_equal(n, m);
    if (memcmp(x, y, n) != 0) fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* Every rank of the layout writes its part of "parts" of masters, or of both states. */
static void write_parts(test_dir *d, const char *kind, dtype compute, const param_sharding *how,
                        dtype dt, hf_order order, bool states, const held_lab *whole) {
    char *path = path_join(d->mem, d->path, "parts");
    err e;
    uint64_t hash, want, *hashes = NULL, *wanted = NULL;
    for (int r = how->shards - 1; r >= 0; r--) {
        param_sharding mine = *how;
        mine.rank = r;
        held_lab l = held_lab_open(kind, compute, &mine);
        held_lab_copy(&l, whole);
        int each = param_count(l.s), n = states ? 2 * each : each;
        st_tensor *t = ARENA_ARRAY(d->mem, st_tensor, n);
        memcpy(t, hf_declare(d->mem, l.s, states ? "m." : "", dt, order), sizeof *t * (size_t)each);
        if (states)
            memcpy(t + each, hf_declare(d->mem, l.s, "v.", dt, order), sizeof *t * (size_t)each);
        if (r == how->shards - 1) assert_ok(st_create(path, t, n, &e), e);
        held_array arrays[] = {{l.s, states ? l.state[0] : NULL, states}, {l.s, l.state[1], true}};
        assert_ok(hf_write_part(path, t, arrays, states ? 2 : 1, order, &e), e);
        if (r == 0) {
            hashes = ARENA_ARRAY(d->mem, uint64_t, n);
            wanted = ARENA_ARRAY(d->mem, uint64_t, n);
            assert_ok(st_hash(path, t, n, &hash, hashes, &e), e);
            st_tensor *all = ARENA_ARRAY(d->mem, st_tensor, n);
            const float *first = states ? whole->state[0] : param_master(whole->s);
            memcpy(all, hf_tensors(d->mem, whole->s, first, states ? "m." : "", dt, order),
                   sizeof *t * (size_t)each);
            if (states)
                memcpy(all + each, hf_tensors(d->mem, whole->s, whole->state[1], "v.", dt, order),
                       sizeof *t * (size_t)each);
            write_whole(d, "whole", all, n, &want, wanted);
            assert_true(hash == want);
            assert_memory_equal(hashes, wanted, sizeof *hashes * (size_t)n);
        }
        held_lab_close(&l);
    }
    same_files(d, "whole", "parts");
}

/* What a rank of the layout reads from "whole" is what the whole store has there. */
static void read_parts(test_dir *d, const char *kind, dtype compute, const param_sharding *how,
                       bool states, const held_lab *whole) {
    err e;
    st_reader *r;
    assert_ok(st_open(&r, path_join(d->mem, d->path, "whole"), &e), e);
    for (int rank = 0; rank < how->shards; rank++) {
        param_sharding mine = *how;
        mine.rank = rank;
        held_lab got = held_lab_open(kind, compute, &mine);
        held_lab want = held_lab_open(kind, compute, &mine);
        held_lab_copy(&want, whole);
        held_array a = {got.s, states ? got.state[1] : NULL, states};
        assert_ok(hf_read_array(&a, r, states ? "v." : "", &e), e);
        if (states)
            assert_memory_equal(got.state[1], want.state[1], param_store_sizes(got.s).state_bytes);
        else
            assert_memory_equal(param_master(got.s), param_master(want.s),
                                param_store_sizes(got.s).master_bytes);
        held_lab_close(&got);
        held_lab_close(&want);
    }
    st_close(r);
}

static void check_layout(test_dir *d, const char *kind, dtype compute, int zero, int shards) {
    param_sharding how = {.shards = shards, .zero = zero, .bucket_elems = 2000};
    param_sharding other = {.shards = shards == 3 ? 2 : 3, .zero = 4 - zero, .bucket_elems = 1};
    held_lab whole = held_lab_open(kind, compute, NULL);
    held_lab_fill(&whole);
    write_parts(d, kind, compute, &how, compute, HF_FILES, false, &whole);
    write_parts(d, kind, compute, &how, DT_F32, HF_MEMORY, false, &whole);
    read_parts(d, kind, compute, &other, false, &whole);
    write_parts(d, kind, compute, &how, DT_F32, HF_MEMORY, true, &whole);
    read_parts(d, kind, compute, &other, true, &whole);
    held_lab_close(&whole);
}

static void test_layouts(void **state) {
    test_dir *d = *state;
    static const char *const kinds[] = {"llama", "llama-untied", "gpt2", "gpt_neox", "pairs"};
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int zero = 1; zero <= 3; zero++)
            for (int shards = 2; shards <= 4; shards++)
                check_layout(d, kinds[k], (zero + shards + k) % 2 ? DT_BF16 : DT_F32, zero, shards);
    check_layout(d, "gpt2", DT_F32, 0, 1); /* one rank, laid out */
}

/* A folder of whole weights, in the file's order, into pieces and their compute copies. */
static void test_weights_of_a_folder(void **state) {
    test_dir *d = *state;
    static const char *const kinds[] = {"gpt2", "gpt_neox", "pairs"};
    err e;
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int rank = 0; rank < 3; rank++) {
            param_sharding how = {.shards = 3, .rank = rank, .zero = 2, .bucket_elems = 3000};
            held_lab whole = held_lab_open(kinds[k], DT_BF16, NULL);
            held_lab got = held_lab_open(kinds[k], DT_BF16, &how);
            held_lab want = held_lab_open(kinds[k], DT_BF16, &how);
            held_lab_fill(&whole);
            held_lab_copy(&want, &whole);
            param_refresh_work(want.s);
            st_tensor *t = hf_tensors(d->mem, whole.s, param_master(whole.s), "", DT_F32, HF_FILES);
            write_whole(d, "model.safetensors", t, param_count(whole.s), NULL, NULL);
            assert_ok(hf_load_weights(got.s, d->path, &e), e);
            param_sizes z = param_store_sizes(got.s);
            assert_memory_equal(param_master(got.s), param_master(want.s), z.master_bytes);
            assert_memory_equal(param_work(got.s), param_work(want.s), z.work_bytes);
            held_lab_close(&whole);
            held_lab_close(&got);
            held_lab_close(&want);
        }
}

/* ---- pieces of files ---- */

static void test_patches(void **state) {
    test_dir *d = *state;
    enum { N = 3 << 20 };
    char *path = path_join(d->mem, d->path, "p"), *want = malloc(N), *got;
    err e;
    memset(want, '.', N);
    want[N - 1] = '\n';
    assert_ok(file_write_atomic(path, want, N, &e), e);
    file_patch f;
    assert_ok(file_patch_open(&f, path, &e), e);
    const struct {
        uint64_t at;
        size_t n;
    } pieces[] = {{100, 3}, {103, 5}, {7, 2}, {1 << 20, 2 << 20}, {9, 1}, {64, 1 << 20}, {1, 5}};
    for (int i = 0; i < ARRAY_LEN(pieces); i++) {
        memset(want + pieces[i].at, 'a' + i, pieces[i].n);
        if (i % 2) {
            assert_ok(file_patch_write(&f, pieces[i].at, want + pieces[i].at, pieces[i].n, &e), e);
            continue;
        }
        void *room;
        if (pieces[i].n > FILE_PATCH_BYTES) continue;
        assert_ok(file_patch_room(&f, pieces[i].at, pieces[i].n, &room, &e), e);
        assert_int_equal((uintptr_t)room % 64, pieces[i].at % 64);
        memset(room, 'a' + i, pieces[i].n);
    }
    assert_ok(file_patch_close(&f, true, &e), e);
    size_t len;
    assert_ok(file_read_all(path, &got, &len, &e), e);
    assert_int_equal(len, N);
    assert_memory_equal(got, want, N);
    free(got);
    free(want);
    assert_int_equal(file_patch_open(&f, path_join(d->mem, d->path, "none"), &e), ST_FAILED);
    assert_non_null(strstr(e.message, "none"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_run),
        IO_TEST(test_layouts),
        IO_TEST(test_weights_of_a_folder),
        IO_TEST(test_patches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
