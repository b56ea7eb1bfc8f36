/* fp8 blocks, shards, and results that appear only when they are complete. */
#include "test.h"

#include "io/safetensors/fp8.h"
#include "io/io_test.h"
#include "io/hf/hf_model.h"
#include "io/hf/hf_weights.h"
#include "io/hf/model_folder.h"

static void test_e4m3(void **state) {
    (void)state;
    static const struct {
        uint8_t bits;
        float value;
    } known[] = {{0x00, 0},  {0x01, 0x1p-9f}, {0x07, 7 * 0x1p-9f}, {0x08, 0x1p-6f},
                 {0x38, 1},  {0x39, 1.125f},  {0x40, 2},           {0x7e, 448},
                 {0xb8, -1}, {0xfe, -448}};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        assert_float_equal(fp8_e4m3(known[i].bits), known[i].value, 0);
    assert_true(isnan(fp8_e4m3(0x7f)) && isnan(fp8_e4m3(0xff)));
}

/* A matrix of 130 x 200: four blocks, the outer ones incomplete; any stretch of it. */
static void test_blocks(void **state) {
    (void)state;
    enum { R = 130, N = 200 };
    static uint8_t bits[R * N];
    static float out[R * N];
    const float scale[4] = {1, 2, 4, 8};
    memset(bits, 0x38, sizeof bits);
    fp8_grid g = {(const uint8_t *)scale, DT_F32, 128, 128, 2};
    fp8_blocks_to_f32(out, bits, &g, N, 0, R * N);
    for (int r = 0; r < R; r++)
        for (int c = 0; c < N; c++)
            assert_float_equal(out[r * N + c], scale[r / 128 * 2 + c / 128], 0);
    float part[300];
    fp8_blocks_to_f32(part, bits, &g, N, 127 * N + 77, 300);
    assert_memory_equal(part, out + 127 * N + 77, sizeof part);
    uint16_t halves[5] = {0}; /* from an odd address */
    for (int i = 0; i < 4; i++) {
        uint16_t half = f32_to_bf16(scale[i]);
        memcpy((uint8_t *)halves + 1 + 2 * i, &half, sizeof half);
    }
    g.scale = (const uint8_t *)halves + 1, g.dt = DT_BF16;
    fp8_blocks_to_f32(part, bits, &g, N, 127 * N + 77, 300);
    assert_memory_equal(part, out + 127 * N + 77, sizeof part);
}

/* A file of one fp8 matrix [1,1] and its factor. */
static char *with_factor(test_dir *d, float factor) {
    const char *header = "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1],\"data_offsets\":[0,1]},"
                         "\"w_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1,1],"
                         "\"data_offsets\":[1,5]}}";
    char *path = path_join(d->mem, d->path, "fp8.safetensors"), bytes[512] = {0};
    size_t n = strlen(header);
    bytes[0] = (char)n;
    memcpy(bytes + 8, header, n);
    bytes[8 + n] = 0x38;
    memcpy(bytes + 8 + n + 1, &factor, sizeof factor);
    err e;
    assert_ok(file_write_atomic(path, bytes, 8 + n + 5, &e), e);
    return path;
}

static void test_factors_are_finite(void **state) {
    const struct {
        float factor;
        bool fits;
    } cases[] = {{2, true},          {0, true},  {(float)NAN, false}, {(float)INFINITY, false},
                 {-INFINITY, false}, {-1, false}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        err e = {0};
        st_reader *r;
        bool differs;
        assert_ok(st_open(&r, with_factor(*state, cases[i].factor), &e), e);
        const st_view *w = st_find(r, "w");
        status st = hf_head_differs(r, w, w, &differs, &e);
        assert_int_equal(st, cases[i].fits ? ST_OK : ST_FORMAT);
        if (!cases[i].fits) assert_non_null(strstr(e.message, "w_scale_inv has the factor"));
        st_close(r);
    }
}

/* A file of an fp8 matrix [130,200] of byte i % 120 at element i, and factors 1, 2, ... of `down` x `across` blocks. */
static char *with_grid(test_dir *d, int down, int across) {
    enum { BITS = 130 * 200 };
    char *path = path_join(d->mem, d->path, "grid.safetensors");
    uint8_t *bytes = arena_alloc(d->mem, 1024 + BITS + 4 * (size_t)(down * across));
    int n = snprintf((char *)bytes + 8, 512,
                     "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[130,200],\"data_offsets\":[0,%d]},"
                     "\"w_scale\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}}",
                     BITS, down, across, BITS, BITS + 4 * down * across);
    memcpy(bytes, &(uint64_t){(uint64_t)n}, 8);
    for (int i = 0; i < BITS; i++) bytes[8 + n + i] = (uint8_t)(i % 120);
    for (int i = 0; i < down * across; i++)
        memcpy(bytes + 8 + n + BITS + 4 * i, &(float){1.0f + (float)i}, 4);
    err e;
    assert_ok(
        file_write_atomic(path, bytes, 8 + (size_t)n + BITS + 4 * (size_t)(down * across), &e), e);
    return path;
}

/* A matrix that stays in its file has its rows' numbers, whatever shares a factor; blocks that are narrower than kernels read do
 * not stay, nor does anything if the caller cannot use it. */
static void test_fp8_stays(void **state) {
    test_dir *d = *state;
    const struct {
        int down, across;
        bool stays;
    } cases[] = {{1, 1, true}, {130, 1, true}, {2, 2, true}, {2, 7, true}, {2, 13, false}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        err e = {0};
        hf_model m = {.a = d->mem, .fp8_stays = true};
        param p = {
            .name = "w", .rank = 2, .rows = 130, .cols = 200, .split = {.rows = 130, .cols = 200}};
        assert_ok(st_open(&m.file, with_grid(d, cases[i].down, cases[i].across), &e), e);
        const st_view *v = st_find(m.file, "w");
        dtype stored;
        int64_t at;
        m.base = v->data;
        assert_int_equal(hf_model_locate(&m, &p, &stored, &at), cases[i].stays);
        if (cases[i].stays) {
            assert_int_equal(stored, DT_FP8);
            const fp8_row *rows = (const void *)((uintptr_t)m.base + (uintptr_t)at);
            int across = cases[i].across, block = across == 1 ? 200 : across == 2 ? 128 : 32;
            float got[200];
            for (int r = 0; r < 130; r++) {
                int down = cases[i].down == 130 ? r : cases[i].down == 2 ? r / 128 : 0;
                assert_ptr_equal(rows[r].bits, v->data + r * 200);
                fp8_row_read(&rows[r], 0, 200, got);
                for (int c = 0; c < 200; c++)
                    assert_float_equal(got[c],
                                       fp8_e4m3((uint8_t)((r * 200 + c) % 120)) *
                                           (float)(1 + down * across + c / block),
                                       0);
            }
        }
        m.fp8_stays = false;
        assert_false(hf_model_locate(&m, &p, &stored, &at));
        st_close(m.file);
    }
}

static st_tensor vector_of(const char *name, const float *data, int64_t n) {
    return (st_tensor){.name = name, .dt = DT_F32, .rank = 1, .dims = {n}, .data = data};
}

static void test_shards(void **state) {
    test_dir *d = *state;
    const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const st_tensor list[] = {vector_of("a", data, 2), vector_of("b", data + 2, 4),
                              vector_of("c", data + 6, 2)};
    const struct {
        uint64_t most;
        int files;
    } cases[] = {{0, 1}, {32, 1}, {31, 2}, {24, 2}, {23, 3}, {1, 3}};
    for (int i = 0; i < ARRAY_LEN(cases); i++) {
        char *dir = arena_printf(d->mem, "%s/%d", d->path, i);
        err e;
        int files;
        st_reader *r;
        const st_view *v;
        assert_ok(file_make_dirs(dir, &e), e);
        assert_ok(shards_write(dir, list, 3, cases[i].most, &files, &e), e);
        assert_int_equal(files, cases[i].files);
        assert_int_equal(file_exists(path_join(d->mem, dir, "model.safetensors")), files == 1);
        assert_ok(st_open(&r, dir, &e), e);
        assert_int_equal(st_count(r), 3);
        assert_ok(st_require(r, "c", &v, &e), e);
        assert_memory_equal(v->data, data + 6, 8);
        assert_int_equal(st_require(r, "absent", &v, &e), ST_FORMAT);
        const char *where = files == 1 ? path_join(d->mem, dir, "model.safetensors") : dir;
        assert_string_equal(e.message, arena_printf(d->mem, "%s has no tensor 'absent'", where));
        st_close(r);
    }
}

static void test_staged(void **state) {
    test_dir *d = *state;
    char *path = path_join(d->mem, d->path, "out"), *file = path_join(d->mem, path, "config.json");
    staged s;
    err e;
    assert_ok(staged_begin(&s, d->mem, path, true, false, &e), e);
    assert_ok(file_write_atomic(path_join(d->mem, s.temp, "config.json"), "1", 1, &e), e);
    assert_false(file_exists(path));
    assert_ok(staged_commit(&s, &e), e);
    assert_int_equal(file_size(file), 1);
    assert_int_equal(staged_begin(&s, d->mem, path, true, false, &e), ST_USAGE);
    assert_ok(staged_begin(&s, d->mem, path, true, true, &e), e);
    staged_abandon(&s, NULL);
    assert_int_equal(file_size(file), 1); /* as it was */
    assert_ok(staged_begin(&s, d->mem, path, true, true, &e), e);
    assert_ok(file_write_atomic(path_join(d->mem, s.temp, "config.json"), "22", 2, &e), e);
    assert_ok(staged_commit(&s, &e), e);
    assert_int_equal(file_size(file), 2);
    char **names;
    int n;
    assert_ok(file_list_dir(d->mem, d->path, &names, &n, &e), e);
    assert_int_equal(n, 1); /* nothing is left beside it */
}

/* --force is no rm -rf. */
static void test_staged_spares_other_folders(void **state) {
    test_dir *d = *state;
    staged s;
    err e;
    test_write(d, "thesis.tex", "x");
    assert_int_equal(staged_begin(&s, d->mem, d->path, true, true, &e), ST_USAGE);
    assert_true(file_exists(path_join(d->mem, d->path, "thesis.tex")));
    test_write(d, "config.json", "{}"); /* as in many projects, and in runs */
    assert_int_equal(staged_begin(&s, d->mem, d->path, true, true, &e), ST_USAGE);
    assert_non_null(strstr(e.message, "thesis.tex"));
    const char *link = path_join(d->mem, d->path, "link");
    assert_int_equal(symlink("nowhere", link), 0);
    assert_ok(staged_begin(&s, d->mem, link, true, false, &e), e); /* written to: what it names */
    assert_string_equal(s.path, path_join(d->mem, d->path, "nowhere"));
    staged_abandon(&s, NULL);
}

/* A file goes by what is in it. */
static void test_staged_replaces_gguf_files_only(void **state) {
    test_dir *d = *state;
    staged s;
    err e;
    const char *text = path_join(d->mem, d->path, "a.gguf"),
               *model = path_join(d->mem, d->path, "model");
    test_write(d, "a.gguf", "notes");
    test_write(d, "model", "GGUF and so on");
    assert_int_equal(staged_begin(&s, d->mem, text, false, true, &e), ST_USAGE);
    assert_ok(staged_begin(&s, d->mem, model, false, true, &e), e);
    assert_ok(file_write_atomic(s.temp, "new", 3, &e), e);
    assert_ok(staged_commit(&s, &e), e);
    assert_int_equal(file_size(model), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_blocks),
        IO_TEST(test_factors_are_finite),
        IO_TEST(test_fp8_stays),
        IO_TEST(test_shards),
        IO_TEST(test_staged),
        IO_TEST(test_staged_spares_other_folders),
        IO_TEST(test_staged_replaces_gguf_files_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
