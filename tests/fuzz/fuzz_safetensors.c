/* libFuzzer target: any bytes as a safetensors file. What is accepted must keep its promises.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined ... fuzz_safetensors.c; ./a.out CORPUS */
#include "framed.h"
#include "io/safetensors/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_file(const uint8_t *data, size_t size) {
    st_reader *r;
    err e;
    if (st_open_bytes(&r, data, size, "fuzz", &e) != ST_OK) return;
    unsigned sum = 0;
    for (int64_t i = 0; i < st_count(r); i++) {
        const st_view *v = st_get(r, i);
        CHECK(v->data >= data && v->data + v->bytes <= data + size, "a view outside the file");
        for (size_t k = 0; k < v->bytes; k++) sum += v->data[k];
        CHECK(st_find(r, v->name) == v, "lookup of '%s'", v->name);
        double number;
        if (v->numel && st_view_read(v, v->numel - 1, 1, &number, DT_F64, &e) == ST_OK)
            sum += number != number;
    }
    const st_view *near;
    CHECK(st_require(r, sum & 1 ? "absent\n" : "model", &near, &e) == ST_OK || !near, "a view");
    st_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_file(data, size);
    fuzz_framed(data, size, try_file);
    return 0;
}
