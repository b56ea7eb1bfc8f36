/* Which model, and how many steps: the largest of a few sizes that sees enough text in the time
 * there is, by a measurement of this very machine. The same steps that will be trained are timed,
 * by the trainer itself, in a folder that is removed again. */
#include <jansson.h>
#include <stdlib.h>

#include "app/quickstart/quickstart.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "run/metrics.h"

enum {
    TIMED_STEPS = 6,
    WARM_STEPS = 2,
    LONGEST_T = 128,
    SHORTEST_T = 16,
    MOST_VALID_TOK = 1 << 17
};

/* More passes over the same text than this and the model learns it by heart. */
static const double MOST_EPOCHS = 6;
static const int FEWEST_STEPS = 20;

/* From small to large. A size is taken when `tokens` of it can be trained in the time there is.
 * Only the third row was tuned on full runs (tinyshakespeare and the King James Bible); the rates
 * and bounds of the others are scaled from it. */
static const quick_size SIZES[] = {
    {.C = 64, .L = 2, .H = 2, .F = 192, .batch = 8, .lr = 4e-3, .tokens = 0},
    {.C = 96, .L = 3, .H = 3, .F = 256, .batch = 8, .lr = 4e-3, .tokens = 0.4e6},
    {.C = 128, .L = 4, .H = 4, .F = 352, .batch = 8, .lr = 4e-3, .tokens = 0.8e6},
    {.C = 192, .L = 4, .H = 6, .F = 512, .batch = 8, .lr = 2.5e-3, .tokens = 3e6},
    {.C = 256, .L = 6, .H = 8, .F = 704, .batch = 16, .lr = 2e-3, .tokens = 8e6},
    {.C = 384, .L = 8, .H = 12, .F = 1024, .batch = 16, .lr = 1.5e-3, .tokens = 20e6},
};

/* ---- the config ---- */

int quick_eval_batches(const quick *q) {
    int batch_tok = q->plan.size->batch * q->plan.T;
    return q->data.valid.tokens > MOST_VALID_TOK ? MOST_VALID_TOK / batch_tok : 0;
}

/* The config of q->plan as YAML. */
static void config_text(const quick *q, strbuf *out) {
    const quick_plan *p = &q->plan;
    const quick_size *z = p->size;
    arena *a = q->a;
    int64_t quarter = (p->steps + 3) / 4;
    strbuf_printf(out,
                  "# Written by `athanor quickstart`; change it and run `athanor train` on it.\n"
                  "# Model and steps were chosen from a measurement of this machine.\n"
                  "run: %s\n"
                  "model:\n  model_type: llama\n  hidden_size: %d\n  num_hidden_layers: %d\n"
                  "  num_attention_heads: %d\n  num_key_value_heads: %d\n"
                  "  intermediate_size: %d\n  vocab_size: auto\n"
                  "  max_position_embeddings: %d\n  tie_word_embeddings: true\n",
                  json_quoted(a, q->run), z->C, z->L, z->H, z->H, z->F, 2 * p->T);
    strbuf_printf(out, "tokenizer: %s\ndata:\n  train: %s\n  valid: %s\n",
                  json_quoted(a, path_join(a, q->run, "tokenizer.json")),
                  json_quoted(a, path_join(a, q->run, "shards/train")),
                  json_quoted(a, path_join(a, q->run, "shards/valid")));
    strbuf_printf(out,
                  "train:\n  steps: %lld\n  seq_len: %d\n  global_batch_size: %d\n"
                  "  micro_batch_size: %d\noptim:\n  lr: %g\n  betas: [0.9, 0.99]\n"
                  "  weight_decay: 0.1\n  schedule: {kind: cosine, warmup_steps: %lld, "
                  "min_lr: %g}\n",
                  (long long)p->steps, p->T, z->batch, z->batch, z->lr, (long long)p->warmup,
                  z->lr / 30);
    strbuf_printf(out,
                  "checkpoint: {every: 0, keep: 2}\neval: {every: %lld, batches: %d}\nsample:\n"
                  "  every: %lld\n  max_new: 96\n  prompts:\n",
                  (long long)quarter, quick_eval_batches(q), (long long)quarter);
    for (int i = 0; i < QUICK_PROMPTS; i++)
        strbuf_printf(out, "    - %s\n", json_quoted(a, q->corpus.prompts[i]));
}

status quick_write_config(quick *q, const char **path, err *e) {
    strbuf text = {0};
    config_text(q, &text);
    *path = path_join(q->a, q->run, "quickstart.yaml");
    status st = file_write_atomic(*path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

/* ---- the measurement ---- */

/* The quickest of the steps after the first ones. */
static void note_step(void *ctx, const json_t *event) {
    double *best_ms = ctx, ms = metrics_num(event, "step_ms");
    if (!metrics_is(event, "step") || metrics_int(event, "step", 0) <= WARM_STEPS) return;
    if (*best_ms == 0 || ms < *best_ms) *best_ms = ms;
}

/* Seconds per step of a size. */
static status measure(quick *q, const quick_size *size, double *step_s, err *e) {
    const char *path;
    char *folder = path_join(q->a, q->run, ".measure");
    const char *const overrides[] = {arena_printf(q->a, "run=%s", json_quoted(q->a, folder)),
                                     "data.valid=null", "sample.prompts=[]"};
    double best_ms = 0;
    train_options opt = {.fresh = true, .on_event = note_step, .ctx = &best_ms};
    q->plan.size = size;
    q->plan.steps = TIMED_STEPS;
    q->plan.warmup = 1;
    TRY(quick_write_config(q, &path, e));
    status st = quick_train(path, overrides, ARRAY_LEN(overrides), &opt, e);
    status removed = file_remove_tree(folder, st == ST_OK ? e : NULL);
    *step_s = best_ms / 1e3;
    return st == ST_OK ? removed : st;
}

/* ---- the choice ---- */

/* Multiply-adds per token, forward: what step times are proportional to. */
static double work_per_tok(const quick *q, const quick_size *z) {
    double C = z->C;
    return z->L * (4 * C * C + 3 * C * z->F + C * q->plan.T) + C * q->vocab;
}

static double work_per_step(const quick *q, const quick_size *z) {
    return work_per_tok(q, z) * z->batch * q->plan.T;
}

static int64_t steps_for(const quick *q, const quick_size *z, double step_s) {
    double by_time = q->budget_s / step_s;
    double by_text = MOST_EPOCHS * (double)q->data.train.tokens / ((double)z->batch * q->plan.T);
    double steps = by_time < by_text ? by_time : by_text;
    return steps > FEWEST_STEPS ? (int64_t)steps : FEWEST_STEPS;
}

/* The largest size that would see enough tokens, if `size` takes step_s per step. */
static const quick_size *choose(const quick *q, const quick_size *size, double step_s) {
    for (int i = ARRAY_LEN(SIZES) - 1; i > 0; i--) {
        double s = step_s * work_per_step(q, &SIZES[i]) / work_per_step(q, size);
        int64_t steps = steps_for(q, &SIZES[i], s);
        if ((double)(steps * SIZES[i].batch * q->plan.T) >= SIZES[i].tokens) return &SIZES[i];
    }
    return &SIZES[0];
}

/* Sequences must be shorter than the held-out part. */
static status choose_length(quick *q, err *e) {
    int T = LONGEST_T;
    while (T > SHORTEST_T && (uint64_t)T * 4 > q->data.valid.tokens) T /= 2;
    q->plan.T = T;
    if ((uint64_t)T * 2 <= q->data.valid.tokens) return ST_OK;
    err_at(e, ST_USAGE, q->corpus.path, "%s holds too little text to learn from: %llu bytes",
           q->corpus.path, (unsigned long long)q->corpus.bytes);
    return err_hint(e, "give some hundred kilobytes at least; a megabyte is better");
}

status quick_choose_size(quick *q, err *e) {
    TRY(choose_length(q, e));
    const quick_size *first = &SIZES[2];
    double step_s;
    TRY(measure(q, first, &step_s, e));
    const quick_size *size = choose(q, first, step_s);
    if (size != first) TRY(measure(q, size, &step_s, e));
    q->plan.size = size;
    q->plan.step_s = step_s;
    q->plan.steps = steps_for(q, size, step_s);
    q->plan.warmup = q->plan.steps / 20 + 1;
    return ST_OK;
}
