/* A model that was written, compared with its source (see compare.h).
 *
 * Reading order: compare_weights, compare_stores, compare_tensor; compare_models, make_prompts,
 * logits_of_source, logits_of_result, compare_row; compare_rounding. */
#include "interchange/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "interchange/open_model.h"

/* ---- weights ---- */

enum { BUFFER_ELEMS = 1 << 18 };

/* How far the numbers of a row may be from what they were: a share of their size (both as root mean
 * squares), and what fp16, in which numbers or the factors of blocks are stored, cannot tell from
 * zero. The bounds hold for the worst numbers: one of a block is large, and all others lose as much
 * as they can. That of F32 is for sums such as 1 + weight. */
typedef struct bound {
    double share, least;
} bound;

static bound bound_of(dtype dt) {
    switch (dt) {
        case DT_F32:
        case DT_F64: return (bound){1e-6, 2e-7};
        case DT_F16: return (bound){1e-3, 6e-8};
        case DT_BF16: return (bound){4e-3, 2e-7};
        case DT_Q8_0: return (bound){0.025, 8e-6};
        default: return (bound){0.4, 8e-6};
    }
}

typedef struct sums {
    double size2, error2;
    int64_t n;
} sums;

static void add_up(sums *s, const float *x, const float *y, int64_t n) {
    s->n += n;
    if (memcmp(x, y, sizeof *x * (size_t)n) == 0) return; /* their size is not needed */
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - y[i];
        s->size2 += (double)x[i] * x[i];
        s->error2 += d * d;
    }
}

static status judge(const sums *s, bound b, const char *name, int64_t row, err *e) {
    double size = sqrt(s->size2 / (double)s->n), error = sqrt(s->error2 / (double)s->n);
    if (error <= b.share * size + b.least) return ST_OK;
    char where[32] = "";
    if (row >= 0) snprintf(where, sizeof where, "row %lld of ", (long long)row);
    return err_at(
        e, ST_FAILED, name,
        "the result has other weights: the numbers of %stensor '%s' are about %.3g and differ "
        "by about %.3g",
        where, name, size, error);
}

/* Blocks run along rows in memory: where a folder holds those as columns, only the whole matrix has
 * a bound. */
static status compare_tensor(const st_tensor *a, const st_tensor *b, bool whole, bound limit,
                             float *x, float *y, err *e) {
    int64_t rows = a->rank == 2 ? a->dims[0] : 1, cols = 1;
    for (int i = a->rank == 2; i < a->rank; i++) cols *= a->dims[i];
    sums s = {0};
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t done = 0, n; done < cols; done += n) {
            n = cols - done < BUFFER_ELEMS ? cols - done : BUFFER_ELEMS;
            TRY(a->fill(a->ctx, row * cols + done, n, x, e));
            TRY(b->fill(b->ctx, row * cols + done, n, y, e));
            add_up(&s, x, y, n);
        }
        if (whole) continue;
        TRY(judge(&s, limit, a->name, rows > 1 ? row : -1, e));
        s = (sums){0};
    }
    return whole ? judge(&s, limit, a->name, -1, e) : ST_OK;
}

static status fill_zeros(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)ctx, (void)first, (void)e;
    memset(dst, 0, sizeof(float) * (size_t)n);
    return ST_OK;
}

static int embedding(const param_store *store) {
    int i = 0;
    while (param_at(store, i)->part != PART_EMBED) i++;
    return i;
}

/* What the source says of tensor r of the result. A format may want what the source leaves out: a
 * bias of zeros, or the embedding once more as the head. */
static bool counterpart(const model_source *source, const st_tensor *tensors, const param *r,
                        st_tensor *out) {
    int same = param_find(source->params, r->name);
    if (same < 0 && r->part == PART_HEAD && r->rank == 2 && source->config.tie_word_embeddings)
        same = embedding(source->params);
    if (same >= 0) *out = tensors[same], out->name = r->name;
    if (same >= 0 || !param_is_bias(r)) return same >= 0;
    *out = (st_tensor){.name = r->name, .rank = 1, .dims = {param_elems(r)}, .fill = fill_zeros};
    return true;
}

/* Every tensor of the source has one in the result, so that as many are left over as are extra; but a
 * GGUF file has no modules of multi-token prediction. */
static status compare_names(const model_source *source, const model_source *result, err *e) {
    for (int i = 0; i < param_count(source->params); i++) {
        const param *p = param_at(source->params, i);
        const char *name = p->name;
        if (param_find(result->params, name) >= 0) continue;
        if (result->config.num_nextn_predict_layers == 0 &&
            model_param_is_ahead(&source->config, p))
            continue;
        return err_set(e, ST_FAILED, "the result has no tensor '%s'", name);
    }
    return ST_OK;
}

static status compare_stores(const model_source *source, const model_source *result, dtype dt,
                             err *e) {
    TRY(compare_names(source, result, e));
    arena *mem = arena_new("weights");
    st_tensor *a = model_source_folder_tensors(source, mem, DT_F32), from;
    st_tensor *b = model_source_folder_tensors(result, mem, DT_F32);
    float *x = xmalloc(sizeof *x * BUFFER_ELEMS), *y = xmalloc(sizeof *y * BUFFER_ELEMS);
    status st = ST_OK;
    for (int i = 0; i < param_count(result->params) && st == ST_OK; i++) {
        const param *p = param_at(result->params, i);
        bool whole = p->transposed && dtype_is_blocks(dt);
        if (!counterpart(source, a, p, &from)) {
            st = err_set(e, ST_FAILED, "the source has no tensor '%s'", p->name);
            break;
        }
        CHECK(from.rank == b[i].rank && from.dims[0] == b[i].dims[0] &&
                  (from.rank == 1 || from.dims[1] == b[i].dims[1]),
              "%s has two shapes", p->name);
        st = compare_tensor(&from, &b[i], whole, bound_of(dt), x, y, e);
    }
    free(x);
    free(y);
    arena_free(mem);
    return st;
}

status compare_weights(const model_source *source, const char *result, dtype dt, err *e) {
    model_source r;
    status st = model_source_open(&r, result, NULL, 0, e);
    if (st == ST_OK) st = compare_stores(source, &r, dt, e);
    model_source_close(&r);
    return st;
}

/* ---- logits: prompts ---- */

enum { PROMPT_TOK = 64, MOST_PROMPTS = 4, MOST_LOGITS_BYTES = 128 << 20 };

/* What tokenizers stumble over: spaces, digits, contractions, other scripts, code. */
static const char *const texts[] = {
    "Once upon a time there was a little furnace that turned lead into gold, one ember at a time.",
    "In 1867 it cost $1,234.50 - or 12% more than they'd thought; he didn't ask.\n\n  Indented.",
    "int main(void) {\n\treturn printf(\"%d\\n\", 42) < 0;\n}\n",
    "La neige tombait déjà à 7 heures; Ärger über Öl, señor?",
    "今天天气很好，我们去公园散步吧。こんにちは世界。",
    "Привет, мир! नमस्ते दुनिया 👩‍🔬🔥",
};

compare_limits compare_limits_of(dtype dt) {
    switch (dt) {
        case DT_F32:
        case DT_F64: return (compare_limits){1e-4, 1e-6};
        case DT_F16: return (compare_limits){2e-2, 1e-4};
        case DT_BF16: return (compare_limits){1e-1, 1e-2};
        case DT_Q8_0: return (compare_limits){1e-1, 2e-2};
        default: return (compare_limits){1.0, 1.0};
    }
}

typedef struct prompts {
    int n, T;
    int32_t *ids; /* [n,T] */
} prompts;

/* Text as the source's tokenizer has it, then ids at random. */
static void make_prompts(const model_source *s, prompts *p) {
    int64_t V = s->config.vocab_size, ctx = model_plain_tokens(&s->config);
    p->T = (int)(ctx < PROMPT_TOK ? ctx : PROMPT_TOK);
    int64_t most = MOST_LOGITS_BYTES / (p->T * V * (int64_t)sizeof(float));
    p->n = (int)(most > MOST_PROMPTS ? MOST_PROMPTS : most < 1 ? 1 : most);
    int64_t total = (int64_t)p->n * p->T;
    p->ids = xmalloc(sizeof *p->ids * (size_t)total);
    rng_key key = rng_key_named(1, "prompts");
    tok_ids all = {0};
    for (int i = 0; s->tok && i < ARRAY_LEN(texts); i++) {
        err not_here; /* a tokenizer of characters does not know them all */
        if (tok_encode(s->tok, texts[i], strlen(texts[i]), 0, &all, &not_here) != ST_OK) continue;
    }
    for (int64_t i = 0; i < total; i++) {
        bool text = i < all.n && i < total - p->T / 2 && all.id[i] < V;
        p->ids[i] = text ? all.id[i] : (int32_t)(rng_u32(key, (uint64_t)i) % (uint64_t)V);
    }
    tok_ids_free(&all);
}

/* ---- logits ---- */

static void run_prompts(open_model *m, const prompts *p, float *logits) {
    int64_t each = (int64_t)p->T * model_logits(&m->config);
    for (int i = 0; i < p->n; i++)
        memcpy(logits + i * each, open_model_logits(m, p->ids + (int64_t)i * p->T, p->T),
               sizeof *logits * (size_t)each);
}

typedef status load_fn(const model_source *s, const param_store *store, err *e);

/* Of a config with the weights of a source, in fp32. */
static status logits_of_config(const model_config *mc, const model_source *weights, load_fn *load,
                               const prompts *p, float *logits, err *e) {
    open_model m = {.config = *mc};
    plan_spec spec = {.model = *mc, .compute = DT_F32, .T = 1, .logits_T = p->T};
    dev_kind kind;
    status st = dev_find_kind(NULL, &kind, e);
    if (st == ST_OK) st = dev_open(&m.dev, kind, 0, e);
    if (st == ST_OK) st = plan_new(&m.plan, m.dev, &spec, e);
    if (st == ST_OK) st = plan_check_fits(m.plan, 0, e);
    if (st == ST_OK) st = plan_commit(m.plan, e);
    if (st == ST_OK) st = load(weights, m.plan->store, e);
    if (st == ST_OK) run_prompts(&m, p, logits);
    plan_free(m.plan);
    dev_close(m.dev);
    return st;
}

/* Also compares the tokenizers, while both are there. */
static status logits_of_result(const char *path, const char *base, const prompts *p, float *logits,
                               const tok *theirs, model_comparison *c, err *e) {
    open_model m;
    status st = open_model_read_on(&m, path, base, NULL, 0, e);
    /* a router that is near a tie would pick another expert where activations are rounded on one side only */
    m.exact = true;
    if (st == ST_OK) st = open_model_load(&m, 0, p->T, e);
    if (st == ST_OK) run_prompts(&m, p, logits);
    c->ids_equal = true;
    if (st == ST_OK && theirs) c->ids_equal = m.tok != NULL;
    for (int i = 0; st == ST_OK && theirs && m.tok && i < ARRAY_LEN(texts); i++) {
        tok_ids a = {0}, b = {0};
        err ignored;
        size_t n = strlen(texts[i]);
        status one = tok_encode(theirs, texts[i], n, TOK_ADD_SPECIAL, &a, &ignored);
        status two = tok_encode(m.tok, texts[i], n, TOK_ADD_SPECIAL, &b, &ignored);
        c->texts += one == ST_OK;
        if (one != two || (one == ST_OK &&
                           (a.n != b.n || (a.n && memcmp(a.id, b.id, sizeof *a.id * (size_t)a.n)))))
            c->ids_equal = false;
        tok_ids_free(&a);
        tok_ids_free(&b);
    }
    open_model_close(&m);
    return st;
}

static status logits_of_source(const model_source *s, const prompts *p, float *logits, err *e) {
    model_comparison unused = {0};
    bool opens = s->kind == MODEL_SOURCE_GGUF || s->kind == MODEL_SOURCE_ADAPTER;
    if (!opens) return logits_of_config(&s->config, s, model_source_load, p, logits, e);
    return logits_of_result(s->path, s->base, p, logits, NULL, &unused, e);
}

/* A model that has diverged, or whose file is damaged, cannot be told from another. */
static status check_finite(const float *logits, int64_t n, err *e) {
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(logits[i])) continue;
        err_set(e, ST_NONFINITE, "the source computes logits that are no finite numbers");
        return err_hint(e, "its weights may be damaged, or have diverged in training; --no-verify "
                           "takes them as they are");
    }
    return ST_OK;
}

/* ---- distances ---- */

static double log_sum_exp(const float *x, int64_t n, int64_t *best) {
    double sum = 0;
    *best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[*best]) *best = i;
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - x[*best]);
    return x[*best] + log(sum);
}

/* One position. */
static void compare_row(const float *a, const float *b, int64_t V, double *largest,
                        model_comparison *c) {
    int64_t best_a, best_b;
    double za = log_sum_exp(a, V, &best_a), zb = log_sum_exp(b, V, &best_b), kl = 0;
    for (int64_t i = 0; i < V; i++) {
        double diff = fabs((double)a[i] - b[i]);
        if (isnan(diff) || diff > c->max_abs_diff) c->max_abs_diff = diff; /* NaN stays */
        if (fabs((double)a[i]) > *largest) *largest = fabs((double)a[i]);
        kl += exp(a[i] - za) * ((a[i] - za) - (b[i] - zb));
    }
    c->mean_kl += kl > 0 || isnan(kl) ? kl : 0;
    c->top1 += best_a == best_b;
}

static void compare_positions(const float *a, const float *b, const prompts *p, int64_t V,
                              model_comparison *c) {
    double largest = 0;
    c->positions = (int64_t)p->n * p->T;
    for (int64_t i = 0; i < c->positions; i++) compare_row(a + i * V, b + i * V, V, &largest, c);
    c->mean_kl /= (double)c->positions;
    c->top1 /= (double)c->positions;
    c->max_relative = largest > 0 ? c->max_abs_diff / largest : c->max_abs_diff;
    c->verified =
        c->ids_equal && c->max_relative <= c->limits.relative && c->mean_kl <= c->limits.kl;
}

/* rounded: its weights, read as a folder for the config mc, stand for those of the source; NULL: the source as it is. */
static status compare_on_prompts(const model_source *source, const model_config *mc,
                                 const model_source *rounded, const char *result,
                                 model_comparison *out, err *e) {
    prompts p = {0};
    make_prompts(source, &p);
    int64_t V = model_logits(mc), n = (int64_t)p.n * p.T * V;
    size_t bytes = sizeof(float) * (size_t)n;
    float *a = xmalloc(bytes), *b = xmalloc(bytes);
    status st = rounded ? logits_of_config(mc, rounded, model_source_load_folder, &p, a, e)
                        : logits_of_source(source, &p, a, e);
    if (st == ST_OK && !rounded) st = check_finite(a, n, e);
    if (st == ST_OK) st = logits_of_result(result, NULL, &p, b, source->tok, out, e);
    if (st == ST_OK) compare_positions(a, b, &p, V, out);
    if (st == ST_MEMORY) err_hint(e, "--no-verify writes without running the model");
    free(a);
    free(b);
    free(p.ids);
    return st;
}

status compare_models(const model_source *source, const char *result, compare_limits limits,
                      model_comparison *out, err *e) {
    /* what is rounded can pick another expert at a few positions, which the mean shows well enough */
    if (source->config.num_experts > 0 && limits.relative > 1e-3) limits.relative = 1;
    *out = (model_comparison){.limits = limits};
    return compare_on_prompts(source, &source->config, NULL, result, out, e);
}

/* ---- rounding ---- */

static bool has_all(const param_store *theirs, const param_store *s) {
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        int at = param_find(theirs, p->name);
        if (at < 0) return false;
        const param *q = param_at(theirs, at);
        if (p->rows != q->rows || p->cols != q->cols) return false;
    }
    return true;
}

status compare_rounding(const model_source *source, const char *result, model_comparison *c,
                        err *e) {
    model_source r;
    model_comparison rounded = {.limits = compare_limits_of(DT_F32)};
    model_config mc = model_source_folder_config(source);
    status st = model_source_open(&r, result, NULL, 0, e);
    if (st == ST_OK && r.config.num_nextn_predict_layers == 0)
        mc.num_nextn_predict_layers = 0; /* modules, of which logits know nothing */
    arena *a = arena_new("rounding");
    param_store *store = param_store_new(a, DT_F32);
    model_declare(&mc, store);
    if (st == ST_OK && has_all(r.params, store))
        st = compare_on_prompts(source, &mc, &r, result, &rounded, e);
    c->verified = c->by_rounding = st == ST_OK && rounded.verified;
    arena_free(a);
    model_source_close(&r);
    return st;
}
