/* Shared by the tests of `data`: a temporary folder, files in it, shard sets from id lists. */
#ifndef TESTS_DATA_TEST_H
#define TESTS_DATA_TEST_H
#include "test.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/shard/shards.h"

typedef struct scene {
    char dir[64];
    arena *mem;
} scene;

static inline int scene_open(void **state) {
    scene *s = xcalloc(1, sizeof *s);
    strcpy(s->dir, "/tmp/athanor-data-XXXXXX");
    if (!mkdtemp(s->dir)) return -1;
    s->mem = arena_new("test");
    *state = s;
    return 0;
}

static inline int scene_close(void **state) {
    scene *s = *state;
    err e;
    int rc = file_remove_tree(s->dir, &e) == ST_OK ? 0 : -1;
    arena_free(s->mem);
    free(s);
    return rc;
}

static inline const char *in_scene(scene *s, const char *name) {
    return path_join(s->mem, s->dir, name);
}

static inline const char *put_bytes(scene *s, const char *name, const void *data, size_t n) {
    const char *path = in_scene(s, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *put_text(scene *s, const char *name, const char *text) {
    return put_bytes(s, name, text, strlen(text));
}

#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        err ok_err_ = {0};                                                                         \
        err *e = &ok_err_;                                                                         \
        if ((expr) != ST_OK) fail_msg("%s: %s", #expr, ok_err_.message);                           \
    } while (0)

/* Document lengths by a fixed rule: many short ones (length 1 included), some long. */
static inline int64_t doc_length(uint64_t i, int64_t longest) {
    uint64_t r = mix64(i + 17);
    return (int64_t)(r % 4 == 0   ? 1
                     : r % 7 == 0 ? 1 + (r >> 8) % (uint64_t)longest
                                  : 1 + (r >> 8) % 9);
}

/* A set whose i-th token (running through all documents) is i % vocab; without EOS. */
static inline const char *counting_set(scene *s, const char *name, int n_docs, int64_t longest,
                                       int32_t vocab, uint64_t shard_tokens) {
    const char *dir = in_scene(s, name);
    shard_writer_options opt = {
        .tok_hash = 0x1234, .vocab_size = vocab, .eos = -1, .shard_tokens = shard_tokens};
    shard_writer *w;
    assert_ok(shard_writer_open(&w, dir, &opt, e));
    int32_t *ids = xcalloc((size_t)longest + 16, sizeof *ids);
    uint64_t at = 0;
    for (int d = 0; d < n_docs; d++) {
        int64_t n = doc_length((uint64_t)d, longest);
        for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(at++ % (uint64_t)vocab);
        shard_record r = {.ids = ids,
                          .n = n,
                          .source = d % 2 ? "odd.txt" : "even.txt",
                          .line = (uint32_t)d + 1,
                          .text_offset = 3 * (at - (uint64_t)n),
                          .text_bytes = (uint64_t)n * 3};
        assert_ok(shard_writer_add(w, &r, e));
    }
    free(ids);
    assert_ok(shard_writer_finish(w, e));
    shard_writer_free(w);
    return dir;
}

/* Opens a set with nothing but its path given. */
static inline status open_set(shards **out, const char *dir, err *e) {
    return shards_open(out, &(shards_spec){.path = dir, .eos = -1}, e);
}

/* What is known about document `doc`, which is not empty. */
static inline shard_place document_of(const shards *s, uint64_t doc, arena *a) {
    err e = {0};
    uint64_t end;
    shard_place p = {0};
    assert_int_equal(shards_bounds(s, doc, 1, &end, NULL, &e), ST_OK);
    assert_int_equal(shards_locate(s, end - 1, a, &p, &e), ST_OK);
    return p;
}

#endif
