/* Files written by spans: byte for byte what one rank writes, and readable by whoever holds other
 * spans. */
#include "test.h"

#include "base/file_patch.h"
#include "io/hf/hf_load.h"
#include "io/hf/hf_model.h"
#include "io/hf/hf_part.h"
#include "io/store_test.h"
#include "io/whole_tensors.h"

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
        {.rows = 24,
         .cols = 5,
         .rank = 2,
         .order = ROWS_BY_HEAD,
         .heads = 2,
         .part_rows = {4, 4, 4}},
        {.rows = 12, .cols = 4, .rank = 2, .order = ROWS_PAIRS, .head_dim = 6, .rotary = 4},
        {.rows = 1,
         .cols = 24,
         .rank = 1,
         .order = ROWS_BY_HEAD,
         .heads = 2,
         .part_rows = {4, 4, 4}},
        {.rows = 1, .cols = 12, .rank = 1},
    };
    for (int i = 0; i < ARRAY_LEN(shapes); i++) {
        param whole = shapes[i], *p = &whole;
        int64_t cols = p->rank == 1 ? 1 : p->cols, rows = p->rows * p->cols / cols;
        p->split = (param_split){.rows = p->rows, .cols = p->cols};
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

static void write_whole(test_dir *d, const char *name, const st_tensor *t, int64_t n) {
    err e;
    assert_ok(st_write(path_join(d->mem, d->path, name), t, n, &e), e);
}

/* Hashes of the file "parts" are what they are called. */
static void check_hashes(test_dir *d, const st_tensor *t, int64_t n) {
    char *path = path_join(d->mem, d->path, "parts");
    uint64_t hash, want, hashes[256];
    st_reader *r;
    err e;
    assert_ok(st_hash(path, t, n, &hash, hashes, &e), e);
    assert_ok(hash_file(path, &want, &e), e);
    assert_true(hash == want);
    assert_ok(st_open(&r, path, &e), e);
    assert_int_equal(st_count(r), n);
    for (int64_t i = 0; i < n; i++) {
        const st_view *v = st_find(r, t[i].name);
        assert_true(hashes[i] == hash_bytes(v->data, v->bytes));
    }
    st_close(r);
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

/* Ranks: tp of them share weights by rows and columns, what each has, shards, and `stages` share
 * out the layers. */
typedef struct layout {
    int tp;
    param_sharding how;
    int stages; /* 0: one, which was told of no whole */
} layout;

static int ranks_of(const layout *l) {
    return l->tp * l->how.shards * (l->stages ? l->stages : 1);
}

enum { LAYERS = 3 };

static held_lab open_rank(const char *kind, dtype compute, const layout *l, int rank,
                          const held_lab *whole) {
    int each = l->tp * l->how.shards, stage = rank / each;
    param_ranks tp = {.n = l->tp, .rank = rank % l->tp};
    param_sharding how = l->how;
    how.rank = rank % each / l->tp;
    int stages = l->stages ? l->stages : 1;
    held_layers own = {whole->s, LAYERS * stage / stages, LAYERS * (stage + 1) / stages};
    return held_lab_open_layers(kind, compute, &tp, &how, l->stages ? &own : NULL);
}

/* What the file is of: masters, or both arrays of optimizer state. */
typedef struct content {
    dtype dt;
    hf_order order;
    bool states;
} content;

/* The states become what a rank has that keeps them in the format of the file. */
static void narrow_states(held_lab *l, const content *c) {
    int64_t n = param_store_sizes(l->s).state_bytes / 4;
    uint16_t *narrow = malloc((size_t)n * sizeof *narrow);
    for (int k = 0; k < 2 && c->states && c->dt == DT_BF16; k++) {
        dtype_convert(narrow, DT_BF16, l->state[k], DT_F32, n);
        memset(l->state[k], 0, (size_t)n * sizeof(float));
        memcpy(l->state[k], narrow, (size_t)n * sizeof *narrow);
    }
    free(narrow);
}

static int arrays_of(const held_lab *l, const content *c, held_array a[2]) {
    a[0] = c->states ? held_states(l->s, l->state[0], c->dt) : held_masters(l->s);
    a[1] = held_states(l->s, l->state[1], c->dt);
    return c->states ? 2 : 1;
}

static const char *prefix_of(const content *c, int array) {
    return !c->states ? "" : array ? "v." : "m.";
}

static st_tensor *declare(test_dir *d, const held_lab *l, const content *c, int arrays) {
    int each = param_count(param_store_whole(l->s));
    st_tensor *t = ARENA_ARRAY(d->mem, st_tensor, arrays * each);
    for (int k = 0; k < arrays; k++)
        memcpy(t + k * each, hf_declare(d->mem, l->s, prefix_of(c, k), c->dt, c->order),
               sizeof *t * (size_t)each);
    return t;
}

/* As one rank writes it; returns the number of tensors. */
static int write_whole_content(test_dir *d, const held_lab *whole, const content *c) {
    held_array arrays[2];
    int each = param_count(whole->s), n = arrays_of(whole, c, arrays);
    st_tensor *t = ARENA_ARRAY(d->mem, st_tensor, n * each);
    for (int k = 0; k < n; k++) {
        const float *first = arrays[k].first;
        memcpy(t + k * each,
               whole_tensors(d->mem, whole->s, first, prefix_of(c, k), c->dt, c->order),
               sizeof *t * (size_t)each);
    }
    write_whole(d, "whole", t, n * each);
    return n * each;
}

/* Every rank of the layout, in turn, writes its part. */
static void write_parts(test_dir *d, const char *kind, dtype compute, const layout *l,
                        const content *c, const held_lab *whole) {
    char *path = path_join(d->mem, d->path, "parts");
    err e;
    int ranks = ranks_of(l), n = write_whole_content(d, whole, c);
    for (int r = ranks - 1; r >= 0; r--) {
        held_lab lab = open_rank(kind, compute, l, r, whole);
        held_lab_copy(&lab, whole);
        narrow_states(&lab, c);
        held_array arrays[2];
        int count = arrays_of(&lab, c, arrays);
        st_tensor *t = declare(d, &lab, c, count);
        if (r == ranks - 1) assert_ok(st_create(path, t, n, &e), e);
        assert_ok(hf_write_part(path, t, arrays, count, c->order, &e), e);
        if (r == 0) check_hashes(d, t, n);
        held_lab_close(&lab);
    }
    same_files(d, "whole", "parts");
}

/* What a rank of the layout reads from "whole" is what the whole store has there. */
static void read_parts(test_dir *d, const char *kind, dtype compute, const layout *l,
                       const content *c, const held_lab *whole) {
    err e;
    st_reader *reader;
    assert_ok(st_open(&reader, path_join(d->mem, d->path, "whole"), &e), e);
    for (int r = 0; r < ranks_of(l); r++) {
        held_lab got = open_rank(kind, compute, l, r, whole);
        held_lab want = open_rank(kind, compute, l, r, whole);
        held_lab_copy(&want, whole);
        narrow_states(&want, c);
        held_array a[2];
        int n = arrays_of(&got, c, a);
        for (int k = 0; k < n; k++)
            assert_ok(hf_read_array(&a[k], reader, prefix_of(c, k), HF_MEMORY, &e), e);
        param_sizes z = param_store_sizes(got.s);
        for (int k = 0; k < n && c->states; k++)
            assert_memory_equal(got.state[k], want.state[k], z.state_bytes);
        if (!c->states)
            assert_memory_equal(param_master(got.s), param_master(want.s), z.master_bytes);
        held_lab_close(&got);
        held_lab_close(&want);
    }
    st_close(reader);
}

static void check_files(test_dir *d, const char *kind, dtype compute, const layout *l,
                        const layout *reads) {
    held_lab whole = held_lab_open(kind, compute, NULL, NULL);
    held_lab_fill(&whole);
    const content weights = {compute, HF_FILES, false}, masters = {DT_F32, HF_MEMORY, false},
                  states = {DT_F32, HF_MEMORY, true}, narrow = {DT_BF16, HF_MEMORY, true};
    write_parts(d, kind, compute, l, &weights, &whole);
    write_parts(d, kind, compute, l, &masters, &whole);
    read_parts(d, kind, compute, reads, &masters, &whole);
    write_parts(d, kind, compute, l, &states, &whole);
    read_parts(d, kind, compute, reads, &states, &whole);
    write_parts(d, kind, compute, l, &narrow, &whole);
    read_parts(d, kind, compute, reads, &narrow, &whole);
    held_lab_close(&whole);
}

static void check_layout(test_dir *d, const char *kind, dtype compute, int tp, int zero,
                         int shards) {
    layout l = {tp, {.shards = shards, .zero = zero, .bucket_elems = 2000}, 0};
    layout other = {2, {.shards = shards == 3 ? 2 : 3, .zero = 4 - zero, .bucket_elems = 1}, 0};
    check_files(d, kind, compute, &l, &other);
}

static const char *const kinds[] = {"llama", "llama-untied", "gpt2", "gpt_neox", "pairs"};

static void test_sharded(void **state) {
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int zero = 1; zero <= 3; zero++)
            for (int shards = 2; shards <= 4; shards++)
                check_layout(*state, kinds[k], (zero + shards + k) % 2 ? DT_BF16 : DT_F32, 1, zero,
                             shards);
    check_layout(*state, "gpt2", DT_F32, 1, 0, 1); /* one rank, laid out */
}

/* With four ranks two hold the same of llama's key heads, and one of them writes. */
static void test_tensor_parallel(void **state) {
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int tp = 2; tp <= 4; tp += 2) {
            check_layout(*state, kinds[k], k % 2 ? DT_BF16 : DT_F32, tp, 0, 1);
            check_layout(*state, kinds[k], k % 2 ? DT_F32 : DT_BF16, tp, 1 + (k + tp) % 3, 2);
        }
}

/* Ranks have some of the layers each, and may share those as well. */
static void test_layers(void **state) {
    for (int k = 0; k < ARRAY_LEN(kinds); k++)
        for (int stages = 1; stages <= LAYERS; stages++) {
            layout alone = {1, {.shards = 1}, stages};
            layout shared = {2, {.shards = 2, .zero = 1 + k % 3, .bucket_elems = 2000}, stages};
            dtype compute = (k + stages) % 2 ? DT_BF16 : DT_F32;
            check_files(*state, kinds[k], compute, &alone, &shared);
            check_files(*state, kinds[k], compute, &shared, &alone);
        }
}

/* A rank reads some of a file, and all of it is judged. */
static void test_layers_of_a_wrong_file(void **state) {
    test_dir *d = *state;
    held_lab whole = held_lab_open("llama-untied", DT_F32, NULL, NULL);
    held_layers own[] = {{whole.s, 0, 2}, {whole.s, 2, LAYERS}};
    int n = param_count(whole.s);
    st_tensor *t = whole_tensors(d->mem, whole.s, param_master(whole.s), "", DT_F32, HF_MEMORY);
    st_tensor *more = ARENA_ARRAY(d->mem, st_tensor, n + 1);
    memcpy(more, t, sizeof *t * (size_t)n);
    more[n] = t[0];
    more[n].name = "model.layers.3.mlp.gate_proj.weight";
    for (int k = 0; k < 2; k++) {
        held_lab lab = held_lab_open_layers("llama-untied", DT_F32, NULL, NULL, &own[k]);
        st_reader *r;
        err e;
        write_whole(d, "model.safetensors", more, n + 1);
        assert_int_equal(hf_load_weights(lab.s, d->path, &e), ST_FORMAT);
        assert_non_null(strstr(e.message, more[n].name));
        for (int without = 0; without < 2; without++) { /* the first, the last */
            write_whole(d, "model.safetensors", t + (without == 0), n - 1);
            const char *name = t[without ? n - 1 : 0].name;
            assert_int_equal(hf_load_weights(lab.s, d->path, &e), ST_FORMAT);
            assert_non_null(strstr(e.message, name));
            assert_ok(st_open(&r, d->path, &e), e);
            held_array masters = held_masters(lab.s);
            assert_int_equal(hf_read_array(&masters, r, "", HF_MEMORY, &e), ST_FORMAT);
            assert_non_null(strstr(e.message, name));
            st_close(r);
        }
        held_lab_close(&lab);
    }
    held_lab_close(&whole);
}

/* A folder of whole weights, in the file's order, into pieces and their compute copies. */
static void check_weights_of_a_folder(test_dir *d, const char *kind, const layout *l) {
    err e;
    held_lab whole = held_lab_open(kind, DT_BF16, NULL, NULL);
    held_lab_fill(&whole);
    st_tensor *t = whole_tensors(d->mem, whole.s, param_master(whole.s), "", DT_F32, HF_FILES);
    write_whole(d, "model.safetensors", t, param_count(whole.s));
    for (int rank = 0; rank < ranks_of(l); rank++) {
        held_lab got = open_rank(kind, DT_BF16, l, rank, &whole);
        held_lab want = open_rank(kind, DT_BF16, l, rank, &whole);
        held_lab_copy(&want, &whole);
        param_refresh_work(want.s);
        assert_ok(hf_load_weights(got.s, d->path, &e), e);
        param_sizes z = param_store_sizes(got.s);
        assert_memory_equal(param_master(got.s), param_master(want.s), z.master_bytes);
        assert_memory_equal(param_work(got.s), param_work(want.s), z.work_bytes);
        held_lab_close(&got);
        held_lab_close(&want);
    }
    held_lab_close(&whole);
}

static void test_weights_of_a_folder(void **state) {
    for (int stages = 0; stages <= 2; stages++) {
        layout l = {2, {.shards = 2, .zero = 2, .bucket_elems = 3000}, stages};
        for (int k = 0; k < ARRAY_LEN(kinds); k++) check_weights_of_a_folder(*state, kinds[k], &l);
    }
}

/* ---- files of fewer tokens ---- */

enum { FEWER = 5 };

static bool is_of_tokens(const param *p) {
    return p->part == PART_EMBED || p->part == PART_HEAD;
}

/* The last rows of embedding and head become the mean of those before. */
static void put_means(const held_lab *whole) {
    for (int i = 0; i < param_count(whole->s); i++) {
        const param *p = param_at(whole->s, i);
        float *m = whole->at.master + p->offset;
        int64_t cols = p->rank == 1 ? 1 : p->cols, rows = param_elems(p) / cols, old = rows - FEWER;
        for (int64_t k = 0; k < cols && is_of_tokens(p); k++) {
            double sum = 0;
            for (int64_t r = 0; r < old; r++) sum += (double)m[r * cols + k];
            for (int64_t r = old; r < rows; r++) m[r * cols + k] = (float)(sum / (double)old);
        }
    }
}

/* The same of a folder that is opened to be read where it lies: embedding and head are not there. */
static void check_mapped(test_dir *d, const char *kind, const held_lab *whole) {
    err e;
    hf_model m;
    held_lab got = {.a = arena_new("mapped")};
    model_config *mc = held_lab_config(kind, got.a);
    mc->from_vocab = mc->vocab_size - FEWER;
    assert_ok(hf_model_open(&m, d->path, mc, &e), e);
    got.s = param_store_new(got.a, DT_F32);
    param_store_map(got.s, hf_model_locate, &m);
    model_declare(mc, got.s);
    got.at.master = held_lab_array(param_store_sizes(got.s).master_bytes);
    param_store_bind(got.s, NULL, &got.at);
    assert_ok(hf_model_load_rest(&m, got.s, &e), e);
    for (int i = 0; i < param_count(got.s); i++) {
        const param *p = param_at(got.s, i), *w = param_at(whole->s, i);
        if (is_of_tokens(p)) assert_false(p->mapped);
        if (!p->mapped)
            assert_memory_equal(got.at.master + p->offset, whole->at.master + w->offset,
                                sizeof(float) * (size_t)param_elems(p));
    }
    hf_model_close(&m);
    free(got.at.master);
    arena_free(got.a);
}

static void check_fewer_tokens(test_dir *d, const char *kind, const layout *l) {
    err e;
    held_lab whole = held_lab_open(kind, DT_F32, NULL, NULL);
    held_lab_fill(&whole);
    st_tensor *t = whole_tensors(d->mem, whole.s, param_master(whole.s), "", DT_F32, HF_FILES);
    int64_t vocab = 0;
    for (int i = 0; i < param_count(whole.s); i++)
        if (is_of_tokens(param_at(whole.s, i))) vocab = t[i].dims[0] -= FEWER;
    write_whole(d, "model.safetensors", t, param_count(whole.s));
    put_means(&whole);
    for (int rank = 0; rank < ranks_of(l); rank++) {
        held_lab got = open_rank(kind, DT_F32, l, rank, &whole);
        held_lab want = open_rank(kind, DT_F32, l, rank, &whole);
        held_lab_copy(&want, &whole);
        assert_int_equal(hf_load_weights(got.s, d->path, &e), ST_FORMAT);
        assert_int_equal(hf_load_grown(got.s, d->path, vocab - 1, &e), ST_FORMAT);
        assert_ok(hf_load_grown(got.s, d->path, vocab, &e), e);
        assert_memory_equal(param_master(got.s), param_master(want.s),
                            param_store_sizes(got.s).master_bytes);
        held_lab_close(&got);
        held_lab_close(&want);
    }
    if (ranks_of(l) == 1) check_mapped(d, kind, &whole);
    held_lab_close(&whole);
}

static void test_fewer_tokens(void **state) {
    const layout layouts[] = {{1, {.shards = 1}, 0},
                              {4, {.shards = 1}, 0},
                              {1, {.shards = 3, .zero = 3, .bucket_elems = 500}, 0},
                              {2, {.shards = 2, .zero = 2, .bucket_elems = 3000}, 2}};
    const char *const more[] = {"llama", "llama-untied", "gpt2", "gpt_neox", "pairs", "phi"};
    for (int i = 0; i < ARRAY_LEN(layouts); i++)
        for (int k = 0; k < ARRAY_LEN(more); k++) check_fewer_tokens(*state, more[k], &layouts[i]);
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
        cmocka_unit_test(test_every_run),     IO_TEST(test_sharded),
        IO_TEST(test_tensor_parallel),        IO_TEST(test_layers),
        IO_TEST(test_layers_of_a_wrong_file), IO_TEST(test_weights_of_a_folder),
        IO_TEST(test_fewer_tokens),           IO_TEST(test_patches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
