/* libFuzzer target: any bytes as a GGUF model. A model that opens must be one that can be declared,
 * whose every weight lies in the file, and whose masters can be read. */
#include <stdlib.h>
#include <string.h>

#include "io/gguf/gguf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ELEMS = 1 << 20 }; /* read as masters */

static void use_places(gguf_model *m, const uint8_t *data, size_t size) {
    arena *a = arena_new("fuzz");
    param_store *s = param_store_new(a, DT_F32);
    param_store_map(s, gguf_model_locate, m);
    model_declare(&m->config, s);
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (!p->mapped) continue;
        const uint8_t *at = (const uint8_t *)m->base + p->offset;
        size_t bytes = (size_t)(dtype_span_bytes(p->stored, p->cols) * p->rows);
        CHECK(at >= data && at + bytes <= data + size, "%s lies outside", p->name);
    }
    arena_free(a);
}

static void use_masters(const gguf_model *m) {
    arena *a = arena_new("fuzz");
    param_store *s = param_store_new(a, DT_F32);
    model_config hf = gguf_model_hf_config(m);
    model_declare(&hf, s);
    int64_t n = param_store_sizes(s).flat_elems;
    err e = {0};
    if (n <= MAX_ELEMS) {
        float *master = xcalloc((size_t)n + 1, sizeof *master);
        param_store_bind(s, NULL, &(param_arrays){.master = master});
        CHECK(gguf_model_read(m, s, &e) == ST_OK, "%s", e.message);
        free(master);
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gguf_model m;
    err e = {0};
    /* the reader's own target gives any address; a mapping is aligned */
    uint8_t *copy = aligned_alloc(64, (size + 64) / 64 * 64);
    memcpy(copy, data, size);
    if (gguf_model_open_bytes(&m, copy, size, "fuzz", &e) == ST_OK) {
        tok_ids end = {0};
        use_places(&m, copy, size);
        use_masters(&m);
        gguf_model_end_ids(&m, &end);
        tok_ids_free(&end);
    } else {
        CHECK(e.message[0], "an error without words");
    }
    gguf_model_close(&m);
    free(copy);
    return 0;
}
