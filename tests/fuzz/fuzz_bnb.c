/* libFuzzer target: any bytes as a safetensors file with matrices in 4 bits of bitsandbytes. What is accepted can be read up to
 * its last number, and its numbers are finite.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined ... fuzz_bnb.c; ./a.out CORPUS */
#include <math.h>

#include "framed.h"
#include "io/hf/bnb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const bnb_matrix *m) {
    float last[3 * NF4_BLOCK / 2];
    int64_t elems = m->rows * m->cols, n = elems < ARRAY_LEN(last) ? elems : ARRAY_LEN(last);
    bnb_read(m, elems - n, n, last);
    for (int64_t i = 0; i < n; i++) CHECK(isfinite(last[i]), "a weight of %g", (double)last[i]);
}

static void try_file(const uint8_t *data, size_t size) {
    st_reader *r;
    err e;
    if (st_open_bytes(&r, data, size, "fuzz", &e) != ST_OK) return;
    for (int64_t i = 0; i < st_count(r); i++) {
        bnb_matrix m;
        e = (err){0};
        if (bnb_find(r, st_get(r, i), &m, &e) != ST_OK)
            CHECK(e.message[0], "refused without a word");
        else if (m.bits)
            use(&m);
    }
    st_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_file(data, size);
    fuzz_framed(data, size, try_file);
    return 0;
}
