/* Which of the algorithms that cuBLASLt names for a product is the fastest on this GPU, remembered in
 * a file: cublaslt.json beside the file of machine.h.
 *
 * The file is JSON: {"gpu", "cublaslt", "products": [..]}, where "algorithm" of a product is its place
 * in the library's own list, the first being 0. A file of another GPU or version counts as empty. */
#ifndef OP_CUDA_PRODUCT_CHOICE_H
#define OP_CUDA_PRODUCT_CHOICE_H

#include "base/dtype.h"
#include "base/status.h"

enum { PRODUCT_CANDIDATES = 8 };

/* Everything on which the library's list depends; compared as bytes. */
typedef struct product_key {
    int64_t m, n, k, lda, ldb, ldc, ld_add;
    int64_t ld_slope;      /* 0: no slope_at */
    uint16_t alignment[4]; /* of cuBLASLt's A, B, C and D */
    uint8_t a_trans, b_trans, ab_dt, c_dt, bias;
    uint8_t zero[3];
} product_key;

typedef struct product_choice {
    product_key key;
    int algorithm, candidates;
    double seconds[PRODUCT_CANDIDATES]; /* of one product by each */
} product_choice;

typedef struct product_choices {
    product_choice *item;
    int n, cap;
} product_choices;

/* The fastest, but another than the first only if it is at least 2 % faster. */
int product_choice_fastest(const double seconds[], int n);

/* False: there is no home for it. */
bool product_choices_path(char *out, size_t bytes);
/* ST_OK with no items when there is no file, or one of another GPU or library; ST_FORMAT for a
 * damaged one. */
status product_choices_read(product_choices *c, const char *gpu, size_t version, const char *path,
                            err *e) ATH_MUST_USE;
status product_choices_write(const product_choices *c, const char *gpu, size_t version,
                             const char *path, err *e) ATH_MUST_USE;
const product_choice *product_choices_find(const product_choices *c, const product_key *key);
void product_choices_free(product_choices *c);

#endif
