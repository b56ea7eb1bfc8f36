/* Logits of a source and of what was written from it.
 *
 * Reading order: compare_models, make_prompts, logits_of_source, logits_of_result, compare_row. */
#include "interchange/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "interchange/open_model.h"

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

/* ---- prompts ---- */

typedef struct prompts {
    int n, T;
    int32_t *ids; /* [n,T] */
} prompts;

/* Text as the source's tokenizer has it, then ids at random. */
static void make_prompts(const model_source *s, prompts *p) {
    int64_t V = s->config.vocab_size, ctx = s->config.max_position_embeddings;
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
    int64_t each = (int64_t)p->T * m->config.vocab_size;
    for (int i = 0; i < p->n; i++)
        memcpy(logits + i * each, open_model_logits(m, p->ids + (int64_t)i * p->T, p->T),
               sizeof *logits * (size_t)each);
}

/* The source as it lies, where it is no folder or file that opens by itself. */
static status logits_of_foreign(const model_source *s, const prompts *p, float *logits, err *e) {
    open_model m = {.config = s->config};
    plan_spec spec = {.model = s->config, .compute = DT_F32, .T = 1, .logits_T = p->T};
    dev_kind kind;
    status st = dev_find_kind(NULL, &kind, e);
    if (st == ST_OK) st = dev_open(&m.dev, kind, 0, e);
    if (st == ST_OK) st = plan_new(&m.plan, m.dev, &spec, e);
    if (st == ST_OK) st = plan_check_fits(m.plan, 0, e);
    if (st == ST_OK) st = plan_commit(m.plan, e);
    if (st == ST_OK) st = model_source_load(s, m.plan->store, e);
    if (st == ST_OK) run_prompts(&m, p, logits);
    plan_free(m.plan);
    dev_close(m.dev);
    return st;
}

/* Also compares the tokenizers, while both are there. */
static status logits_of_result(const char *path, const prompts *p, float *logits, const tok *theirs,
                               model_comparison *c, err *e) {
    open_model m;
    status st = open_model_read(&m, path, 0, e);
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
    if (s->kind != MODEL_SOURCE_GGUF) return logits_of_foreign(s, p, logits, e);
    return logits_of_result(s->path, p, logits, NULL, &unused, e);
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

static void compare_all(const float *a, const float *b, const prompts *p, int64_t V,
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

status compare_models(const model_source *source, const char *result, compare_limits limits,
                      model_comparison *out, err *e) {
    prompts p = {0};
    *out = (model_comparison){.limits = limits};
    make_prompts(source, &p);
    int64_t V = source->config.vocab_size, n = (int64_t)p.n * p.T * V;
    size_t bytes = sizeof(float) * (size_t)n;
    float *a = xmalloc(bytes), *b = xmalloc(bytes);
    status st = logits_of_source(source, &p, a, e);
    if (st == ST_OK) st = check_finite(a, n, e);
    if (st == ST_OK) st = logits_of_result(result, &p, b, source->tok, out, e);
    if (st == ST_OK) compare_all(a, b, &p, V, out);
    if (st == ST_MEMORY) err_hint(e, "--no-verify writes without running the model");
    free(a);
    free(b);
    free(p.ids);
    return st;
}
