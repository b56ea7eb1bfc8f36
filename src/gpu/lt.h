/* The functions of cuBLASLt that this program uses, as a table: the library's own, opened at run
 * time, or those of the emulated device (emulated/lt.c). Names and meanings are those of cuBLASLt 13
 * (cublasLtMatmulDescCreate is desc_create); handles are opaque. All return 0 or a cublasStatus_t.
 * tests/gpu/cublas_facts.c compares the numbers with NVIDIA's header. */
#ifndef GPU_LT_H
#define GPU_LT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "gpu/driver.h"

typedef int lt_result; /* cublasStatus_t */
typedef struct lt_context *lt_handle;
typedef struct lt_desc_handle *lt_desc;
typedef struct lt_layout_handle *lt_layout;
typedef struct lt_preference_handle *lt_preference;

enum { LT_INVALID_VALUE = 7, LT_NOT_SUPPORTED = 15 }; /* cublasStatus_t */
enum { LT_R_32F = 0, LT_R_16F = 2, LT_R_16BF = 14 };  /* cudaDataType */
enum { LT_COMPUTE_32F = 68 };                         /* cublasComputeType_t */
enum { LT_AS_IT_IS = 0, LT_TRANSPOSED = 1 };          /* cublasOperation_t */
/* cublasLtEpilogue_t. DGELU: D = the sum times the slope of gelu, in its tanh form, at what aux has. */
enum { LT_EPILOGUE_NONE = 1, LT_EPILOGUE_BIAS = 4, LT_EPILOGUE_DGELU = 192 };
/* cublasLtMatmulDescAttributes_t: two int32_t, a uint32_t, the address of a bias, which has D's
 * type and as many numbers as D has rows, and the address of aux, which has D's type and size, and whose
 * columns are an int64_t of elements apart, a multiple of 8. Both lie at multiples of 16. */
enum {
    LT_DESC_TRANSPOSE_A = 3,
    LT_DESC_TRANSPOSE_B = 4,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS = 8,
    LT_DESC_AUX = 11,
    LT_DESC_AUX_LD = 12
};
/* cublasLtMatmulPreferenceAttributes_t: a uint64_t, and four uint32_t in bytes. */
enum {
    LT_PREFER_WORKSPACE_BYTES = 1,
    LT_PREFER_ALIGNMENT_A = 5,
    LT_PREFER_ALIGNMENT_B = 6,
    LT_PREFER_ALIGNMENT_C = 7,
    LT_PREFER_ALIGNMENT_D = 8
};

typedef struct lt_algorithm {
    uint64_t data[8];
} lt_algorithm;

/* cublasLtMatmulHeuristicResult_t */
typedef struct lt_choice {
    lt_algorithm algorithm;
    size_t workspace_bytes;
    lt_result state;
    float waves;
    int reserved[4];
} lt_choice;

/* X(name, symbol in the library, arguments) */
#define LT_FUNCTIONS(X)                                                                            \
    X(create, "cublasLtCreate", (lt_handle * h))                                                   \
    X(destroy, "cublasLtDestroy", (lt_handle h))                                                   \
    X(desc_create, "cublasLtMatmulDescCreate", (lt_desc * d, int compute, int scale))              \
    X(desc_destroy, "cublasLtMatmulDescDestroy", (lt_desc d))                                      \
    X(desc_set, "cublasLtMatmulDescSetAttribute",                                                  \
      (lt_desc d, int attribute, const void *value, size_t bytes))                                 \
    X(layout_create, "cublasLtMatrixLayoutCreate",                                                 \
      (lt_layout * l, int type, uint64_t rows, uint64_t cols, int64_t ld))                         \
    X(layout_destroy, "cublasLtMatrixLayoutDestroy", (lt_layout l))                                \
    X(preference_create, "cublasLtMatmulPreferenceCreate", (lt_preference * p))                    \
    X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (lt_preference p))                    \
    X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                      \
      (lt_preference p, int attribute, const void *value, size_t bytes))                           \
    X(choose, "cublasLtMatmulAlgoGetHeuristic",                                                    \
      (lt_handle h, lt_desc d, lt_layout la, lt_layout lb, lt_layout lc, lt_layout ld,             \
       lt_preference p, int most, lt_choice *choices, int *n))                                     \
    X(multiply, "cublasLtMatmul",                                                                  \
      (lt_handle h, lt_desc desc, const void *alpha, const void *a, lt_layout la, const void *b,   \
       lt_layout lb, const void *beta, const void *c, lt_layout lc, void *d, lt_layout ld,         \
       const lt_algorithm *algorithm, void *ws, size_t ws_bytes, cu_stream s))

typedef struct lt_library {
#define LT_MEMBER(name, symbol, arguments) lt_result(*name) arguments;
    LT_FUNCTIONS(LT_MEMBER)
#undef LT_MEMBER
    size_t (*version)(void);               /* cublasLtGetVersion: 130002 is 13.0.2 */
    const char *(*status_text)(lt_result); /* cublasLtGetStatusString */
    void *library;                         /* of dlopen; NULL: emulated */
} lt_library;

/* The emulated device's, or else the library, looked for in the folders of ATHANOR_CUDA_LIBS
 * (separated by ':') and then where the loader looks. ST_USAGE: it is not there, or too old. */
status lt_open(lt_library *lt, bool emulated, err *e) ATH_MUST_USE;
void lt_close(lt_library *lt);

void emu_lt_fill(lt_library *lt);

#endif
