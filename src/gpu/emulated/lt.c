/* cuBLASLt for the emulated device: keeps descriptors, checks what the library checks and what it
 * leaves to the caller, and multiplies on the host, in the stream's order. Matrices are column-major,
 * as cuBLASLt's are by default.
 *
 *   D = alpha op(A) op(B) + beta C (+ bias, one number for each row)
 *   D = (alpha op(A) op(B) + beta C) gelu'(aux)
 *
 * Every element is one chain of float additions in the order of k, whatever the number of threads.
 * The workspace that a choice asks for is overwritten, as the library does: nothing may lie there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "gpu/emulated/device.h"
#include "gpu/lt.h"

struct lt_context {
    int unused;
};

struct lt_desc_handle {
    int compute, scale;
    int32_t turned[2]; /* A, B */
    uint32_t epilogue;
    const void *bias, *aux;
    int64_t aux_ld;
};

struct lt_layout_handle {
    int type;
    int64_t rows, cols, ld;
};

struct lt_preference_handle {
    uint64_t workspace_bytes;
    uint32_t alignment[4]; /* A, B, C, D */
};

/* What lt_algorithm holds here: what the choice was made for. */
typedef struct choice {
    int64_t m, n, k;
    uint64_t workspace_bytes;
    uint32_t alignment[4];
    uint32_t epilogue;
} choice;
_Static_assert(sizeof(choice) <= sizeof(lt_algorithm), "an algorithm has room for a choice");

/* ---- descriptors ---- */

static lt_result emu_create(lt_handle *h) {
    *h = xcalloc(1, sizeof **h);
    return 0;
}
static lt_result emu_destroy(lt_handle h) {
    free(h);
    return 0;
}

static lt_result emu_desc_create(lt_desc *d, int compute, int scale) {
    *d = xcalloc(1, sizeof **d);
    **d = (struct lt_desc_handle){.compute = compute, .scale = scale, .epilogue = LT_EPILOGUE_NONE};
    return 0;
}
static lt_result emu_desc_destroy(lt_desc d) {
    free(d);
    return 0;
}

static lt_result take(void *to, size_t to_bytes, const void *value, size_t bytes) {
    if (!value || bytes != to_bytes) return LT_INVALID_VALUE;
    memcpy(to, value, bytes);
    return 0;
}

static lt_result emu_desc_set(lt_desc d, int attribute, const void *value, size_t bytes) {
    switch (attribute) {
        case LT_DESC_TRANSPOSE_A: return take(&d->turned[0], sizeof d->turned[0], value, bytes);
        case LT_DESC_TRANSPOSE_B: return take(&d->turned[1], sizeof d->turned[1], value, bytes);
        case LT_DESC_EPILOGUE: return take(&d->epilogue, sizeof d->epilogue, value, bytes);
        case LT_DESC_BIAS: return take(&d->bias, sizeof d->bias, value, bytes);
        case LT_DESC_AUX: return take(&d->aux, sizeof d->aux, value, bytes);
        case LT_DESC_AUX_LD: return take(&d->aux_ld, sizeof d->aux_ld, value, bytes);
        default: return LT_INVALID_VALUE;
    }
}

static lt_result emu_layout_create(lt_layout *l, int type, uint64_t rows, uint64_t cols,
                                   int64_t ld) {
    *l = xmalloc(sizeof **l);
    **l = (struct lt_layout_handle){type, (int64_t)rows, (int64_t)cols, ld};
    return 0;
}
static lt_result emu_layout_destroy(lt_layout l) {
    free(l);
    return 0;
}

static lt_result emu_preference_create(lt_preference *p) {
    *p = xmalloc(sizeof **p);
    **p = (struct lt_preference_handle){0, {256, 256, 256, 256}};
    return 0;
}
static lt_result emu_preference_destroy(lt_preference p) {
    free(p);
    return 0;
}

static lt_result emu_preference_set(lt_preference p, int attribute, const void *value,
                                    size_t bytes) {
    if (attribute == LT_PREFER_WORKSPACE_BYTES)
        return take(&p->workspace_bytes, sizeof p->workspace_bytes, value, bytes);
    if (attribute < LT_PREFER_ALIGNMENT_A || attribute > LT_PREFER_ALIGNMENT_D)
        return LT_INVALID_VALUE;
    return take(&p->alignment[attribute - LT_PREFER_ALIGNMENT_A], sizeof(uint32_t), value, bytes);
}

/* ---- what the library checks ---- */

static int type_bytes(int type) {
    return type == LT_R_32F ? 4 : 2;
}

/* The rows of the table of cublasLtMatmul that this program uses: C has D's type. */
static bool types_are_known(lt_layout a, lt_layout b, lt_layout c, lt_layout d) {
    bool floats = a->type == LT_R_32F || a->type == LT_R_16F || a->type == LT_R_16BF;
    return floats && a->type == b->type && c->type == d->type &&
           (d->type == LT_R_32F || d->type == a->type);
}

static bool sizes_agree(lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d) {
    int64_t m = desc->turned[0] ? a->cols : a->rows, k = desc->turned[0] ? a->rows : a->cols;
    int64_t n = desc->turned[1] ? b->rows : b->cols, k_of_b = desc->turned[1] ? b->cols : b->rows;
    return m > 0 && n > 0 && k > 0 && k == k_of_b && d->rows == m && d->cols == n && c->rows == m &&
           c->cols == n && a->ld >= a->rows && b->ld >= b->rows && c->ld >= c->rows &&
           d->ld >= d->rows;
}

/* This program asks for a slope in 16 bits only. */
static const char *wrong_in_aux(lt_desc desc, lt_layout d) {
    if (d->type == LT_R_32F) return "gelu's slope is for results of 16 bits";
    if (desc->aux_ld < d->rows || desc->aux_ld % 8)
        return "columns of aux overlap, or are no multiple of 8 elements apart";
    if (!desc->aux || (uintptr_t)desc->aux % 16) return "aux is absent, or not aligned to 16";
    return NULL;
}

/* What is wrong with the operation, or NULL. */
static const char *wrong_in(lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d) {
    if (desc->compute != LT_COMPUTE_32F || desc->scale != LT_R_32F)
        return "sums must be float, and so must alpha and beta";
    if (!types_are_known(a, b, c, d)) return "cuBLASLt has no product of these types";
    if (!sizes_agree(desc, a, b, c, d)) return "the sizes of A, B, C and D do not agree";
    if (desc->epilogue == LT_EPILOGUE_DGELU) return wrong_in_aux(desc, d);
    if (desc->epilogue != LT_EPILOGUE_NONE && desc->epilogue != LT_EPILOGUE_BIAS)
        return "this epilogue is not known";
    return NULL;
}

enum { WS_MOST = 1 << 20 }; /* more is not worth the time */

static choice choice_of(lt_desc desc, lt_layout a, lt_layout d, lt_preference p) {
    choice c = {d->rows, d->cols, desc->turned[0] ? a->rows : a->cols, 0, {0}, desc->epilogue};
    uint64_t parts = (uint64_t)(c.m * c.n) * sizeof(float); /* as if k were split */
    bool fits = parts <= p->workspace_bytes && parts <= WS_MOST;
    c.workspace_bytes = fits ? parts : 0;
    memcpy(c.alignment, p->alignment, sizeof c.alignment);
    return c;
}

static lt_result emu_choose(lt_handle h, lt_desc desc, lt_layout a, lt_layout b, lt_layout c,
                            lt_layout d, lt_preference p, int most, lt_choice *choices, int *n) {
    *n = 0;
    if (!h || most <= 0) return LT_INVALID_VALUE;
    if (wrong_in(desc, a, b, c, d)) return LT_NOT_SUPPORTED;
    choice made = choice_of(desc, a, d, p);
    while (*n < most && *n < 2) { /* the second needs no workspace */
        choices[*n] = (lt_choice){.workspace_bytes = made.workspace_bytes};
        memcpy(&choices[(*n)++].algorithm, &made, sizeof made);
        made.workspace_bytes = 0;
    }
    return 0;
}

/* ---- a product ---- */

typedef struct product {
    emu_device *device;
    struct lt_desc_handle desc;
    struct lt_layout_handle layout[4];
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    void *ws;
    size_t ws_bytes;
} product;

static gpu_range range_of(const char *name, const void *at, const struct lt_layout_handle *l,
                          gpu_access access) {
    int64_t item = type_bytes(l->type);
    return (gpu_range){name, at, l->cols, l->rows * item, l->ld * item, access, (int32_t)item};
}

static struct lt_layout_handle layout_of_aux(const product *p) {
    struct lt_layout_handle l = p->layout[3];
    l.ld = p->desc.aux_ld;
    return l;
}

/* Whether any row of one has a byte of a row of the other. */
static bool overlap(const gpu_range *a, const gpu_range *b) {
    for (int64_t row = 0; row < b->rows; row++) {
        int64_t from = (const char *)b->at + row * b->stride - (const char *)a->at;
        int64_t end = from + b->row_bytes, near = from > 0 ? from / a->stride : 0;
        for (int64_t k = near; k < a->rows && k <= near + 1; k++)
            if (k * a->stride < end && from < k * a->stride + a->row_bytes) return true;
    }
    return false;
}

/* The library writes D while it still reads the others. */
static bool is_apart(const product *p, const gpu_range *d, const gpu_range *others, int n) {
    char text[64];
    for (int i = 0; i < n; i++) {
        if (!overlap(&others[i], d)) continue;
        snprintf(text, sizeof text, "D lies over %s", others[i].name);
        emu_library_fault(p->device, "cublasLtMatmul", text);
        return false;
    }
    return true;
}

static bool may_touch(const product *p) {
    gpu_range r[6];
    struct lt_layout_handle aux = layout_of_aux(p);
    int n = 0;
    r[n++] = range_of("A", p->a, &p->layout[0], GPU_READ);
    r[n++] = range_of("B", p->b, &p->layout[1], GPU_READ);
    int64_t bias_bytes = p->layout[3].rows * type_bytes(p->layout[3].type);
    if (p->desc.epilogue == LT_EPILOGUE_BIAS)
        r[n++] = (gpu_range){"bias", p->desc.bias, 1, bias_bytes, bias_bytes, GPU_READ, 1};
    if (p->desc.epilogue == LT_EPILOGUE_DGELU)
        r[n++] = range_of("aux", p->desc.aux, &aux, GPU_READ);
    int64_t ws_bytes = (int64_t)p->ws_bytes;
    if (p->ws_bytes > 0)
        r[n++] = (gpu_range){"workspace", p->ws, 1, ws_bytes, ws_bytes, GPU_WRITE, 1};
    int apart = n; /* C may be D */
    if (p->beta != 0) {
        r[n++] = range_of("C", p->c, &p->layout[2], GPU_READ);
        apart += p->c != p->d;
    }
    r[n++] = range_of("D", p->d, &p->layout[3], GPU_WRITE);
    return is_apart(p, &r[n - 1], r, apart) &&
           emu_library_access(p->device, "cublasLtMatmul", r, n);
}

static float number_at(const void *p, int type, int64_t i) {
    if (type == LT_R_32F) return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return type == LT_R_16F ? f16_to_f32(h) : bf16_to_f32(h);
}

static void put_number(void *p, int type, int64_t i, float v) {
    if (type == LT_R_32F)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = type == LT_R_16F ? f32_to_f16(v) : f32_to_bf16(v);
}

/* [outer, inner] floats without gaps: element (o, i) is at o * ld + i, or at i * ld + o if turned. */
static float *widen(const void *p, const struct lt_layout_handle *l, int64_t outer, int64_t inner,
                    bool turned) {
    float *out = xmalloc(sizeof *out * (size_t)(outer * inner));
#pragma omp parallel for if (outer * inner > 1 << 16)
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            out[o * inner + i] = number_at(p, l->type, turned ? i * l->ld + o : o * l->ld + i);
    return out;
}

/* The slope of 0.5 x (1 + tanh(c (x + 0.044715 x^3))). */
static float gelu_slope(float x) {
    const float c = 0.79788456f, cubic = 0.044715f; /* c = sqrt(2/pi) */
    float t = tanhf(c * (x + cubic * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * c * (1 + 3 * cubic * x * x);
}

/* Column j of D, from row 0: `a` is [k, m], b [k] belongs to the column. */
static void product_column(const product *p, int64_t j, const float *a, const float *b, int64_t k) {
    enum { PIECE = 256 };
    const struct lt_layout_handle *lc = &p->layout[2], *ld = &p->layout[3];
    int64_t m = ld->rows;
    for (int64_t first = 0; first < m; first += PIECE) {
        int64_t n = m - first < PIECE ? m - first : PIECE;
        float sum[PIECE] = {0};
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < n; i++) sum[i] += b[l] * a[l * m + first + i];
        for (int64_t i = 0; i < n; i++) {
            float v = p->alpha * sum[i];
            if (p->beta != 0) v += p->beta * number_at(p->c, lc->type, j * lc->ld + first + i);
            if (p->desc.epilogue == LT_EPILOGUE_BIAS)
                v += number_at(p->desc.bias, ld->type, first + i);
            if (p->desc.epilogue == LT_EPILOGUE_DGELU)
                v *= gelu_slope(number_at(p->desc.aux, ld->type, j * p->desc.aux_ld + first + i));
            put_number(p->d, ld->type, j * ld->ld + first + i, v);
        }
    }
}

static void run_product(const void *args) {
    const product *p = args;
    if (!may_touch(p)) return;
    if (p->ws_bytes > 0) memset(p->ws, 0xff, p->ws_bytes);
    int64_t m = p->layout[3].rows, n = p->layout[3].cols;
    int64_t k = p->desc.turned[0] ? p->layout[0].rows : p->layout[0].cols;
    float *a = widen(p->a, &p->layout[0], k, m, p->desc.turned[0]);
    float *b = widen(p->b, &p->layout[1], n, k, p->desc.turned[1]);
#pragma omp parallel for if (m * n * k > 1 << 18)
    for (int64_t j = 0; j < n; j++) product_column(p, j, a, b + j * k, k);
    free(a);
    free(b);
}

static bool aligned(const void *p, uint32_t bytes) {
    return (uintptr_t)p % bytes == 0;
}

/* What is wrong with the memory that the call names, or NULL. */
static const char *wrong_with_memory(const product *p, const choice *made, size_t ws_bytes) {
    const void *at[4] = {p->a, p->b, p->c, p->d};
    static const char *const names[4] = {
        "A is less aligned than was said", "B is less aligned than was said",
        "C is less aligned than was said", "D is less aligned than was said"};
    for (int i = 0; i < 4; i++)
        if (!aligned(at[i], made->alignment[i]) ||
            !aligned(at[i], (uint32_t)type_bytes(p->layout[i].type)))
            return names[i];
    if (ws_bytes < made->workspace_bytes)
        return "the workspace is smaller than the algorithm needs";
    if (made->workspace_bytes > 0 && !aligned(p->ws, 256))
        return "the workspace is not aligned to 256";
    if (p->desc.epilogue == LT_EPILOGUE_BIAS && (!p->desc.bias || !aligned(p->desc.bias, 16)))
        return "the bias is absent, or not aligned to 16";
    if (p->c == p->d && p->layout[2].ld != p->layout[3].ld)
        return "C and D are the same memory with different layouts";
    return NULL;
}

static const char *wrong_with_choice(const product *p, const choice *made) {
    int64_t k = p->desc.turned[0] ? p->layout[0].rows : p->layout[0].cols;
    bool same = made->m == p->layout[3].rows && made->n == p->layout[3].cols && made->k == k &&
                made->epilogue == p->desc.epilogue;
    return same ? NULL : "the algorithm was chosen for another operation";
}

typedef struct wrong_call {
    emu_device *device;
    const char *what;
} wrong_call;

static void run_wrong(const void *args) {
    const wrong_call *w = args;
    emu_library_fault(w->device, "cublasLtMatmul", w->what);
}

/* What is wrong is a fault when the stream comes to it, so that the fault names the op. */
static lt_result emu_multiply(lt_handle h, lt_desc desc, const void *alpha, const void *a,
                              lt_layout la, const void *b, lt_layout lb, const void *beta,
                              const void *c, lt_layout lc, void *d, lt_layout ld,
                              const lt_algorithm *algorithm, void *ws, size_t ws_bytes,
                              cu_stream s) {
    choice made;
    memcpy(&made, algorithm, sizeof made);
    product p = {emu_stream_device(s),
                 *desc,
                 {*la, *lb, *lc, *ld},
                 a,
                 b,
                 c,
                 d,
                 .ws = ws,
                 .ws_bytes = made.workspace_bytes};
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    const char *wrong = h ? wrong_in(desc, la, lb, lc, ld) : "there is no handle";
    if (!wrong) wrong = wrong_with_choice(&p, &made);
    if (!wrong) wrong = wrong_with_memory(&p, &made, ws_bytes);
    if (wrong)
        emu_stream_call(s, run_wrong, NULL, &(wrong_call){p.device, wrong}, sizeof(wrong_call));
    else
        emu_stream_call(s, run_product, p.d, &p, sizeof p);
    return 0;
}

static size_t emu_version(void) {
    return 130002;
}

static const char *emu_status_text(lt_result r) {
    return r == LT_NOT_SUPPORTED ? "there is no such product" : "a wrong argument";
}

void emu_lt_fill(lt_library *lt) {
    *lt = (lt_library){
        .create = emu_create,
        .destroy = emu_destroy,
        .desc_create = emu_desc_create,
        .desc_destroy = emu_desc_destroy,
        .desc_set = emu_desc_set,
        .layout_create = emu_layout_create,
        .layout_destroy = emu_layout_destroy,
        .preference_create = emu_preference_create,
        .preference_destroy = emu_preference_destroy,
        .preference_set = emu_preference_set,
        .choose = emu_choose,
        .multiply = emu_multiply,
        .version = emu_version,
        .status_text = emu_status_text,
    };
}
