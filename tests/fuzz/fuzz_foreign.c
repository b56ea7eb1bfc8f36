/* libFuzzer target: any bytes as weights of llama2.c and of llm.c. Tensors lie inside the file. */
#include <stdlib.h>

#include "io/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(const foreign_model *m, const uint8_t *data, size_t len) {
    for (int64_t i = 0; i < m->n; i++) {
        const st_tensor *t = &m->tensors[i];
        const uint8_t *at = t->data;
        size_t bytes =
            dtype_bytes(t->dt) * (size_t)t->dims[0] * (size_t)(t->rank == 2 ? t->dims[1] : 1);
        CHECK(at >= data && at + bytes <= data + len, "%s lies outside the file", t->name);
    }
    json_decref(m->config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    arena *a = arena_new("fuzz");
    foreign_model m;
    err e;
    bool looks = llama2c_looks_weights(data, len);
    bool read = llama2c_parse(a, data, len, "fuzz", &m, &e) == ST_OK;
    CHECK(looks == read, "what looks like a file is one");
    if (read) check(&m, data, len);
    if (llmc_parse(a, data, len, "fuzz", &m, &e) == ST_OK) check(&m, data, len);
    arena_free(a);
    return 0;
}
