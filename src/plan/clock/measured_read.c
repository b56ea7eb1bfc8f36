/* Rows of published tables: a record becomes a row, with the sketch of its layers.
 *
 * Reading order: measured_read, read_all, take, and above it what a record says of model, layout, devices, speed. */
#include "plan/clock/measured.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/json.h"
#include "data/text/csv_record.h"
#include "model/presets.h"

enum { COLUMNS = 64, MOST_BYTES = 16 << 20, UNKNOWN_ZERO = 4 };

/* ---- records ---- */

typedef struct record {
    char name[COLUMNS][32];
    char value[COLUMNS][64];
    int columns;
} record;

static const char *text_of(const record *r, const char *name) {
    for (int i = 0; i < r->columns; i++)
        if (strcmp(r->name[i], name) == 0) return r->value[i];
    return "";
}

/* "~2400" and "1,024" are numbers, too. `without` where the column is absent or has none. */
static double number_of(const record *r, const char *name, double without) {
    char digits[64], *to = digits, *end;
    for (const char *s = text_of(r, name); *s; s++)
        if (*s != ',' && (*s != '~' || to > digits)) *to++ = *s;
    *to = '\0';
    double x = strtod(digits, &end);
    return *digits && !*end && x > -1e15 && x < 1e15 ? x : without;
}

/* -1, which nothing takes, where the cell has something else than such a number. */
static int int_of(const record *r, const char *name, int without) {
    const char *cell = text_of(r, name);
    bool empty = !*cell || strcmp(cell, "-") == 0;
    double x = empty ? without : number_of(r, name, -1);
    return x >= 0 && x <= 1 << 30 ? (int)x : -1;
}

static bool is_told(const record *r, const char *name) {
    const char *cell = text_of(r, name);
    return strcasecmp(cell, "true") == 0 || strcasecmp(cell, "yes") == 0 || int_of(r, name, 0) > 0;
}

/* One record into `to`, which is [COLUMNS] texts of `size`; returns its bytes. */
static size_t scan(const char *s, size_t n, char *to, size_t size, int *columns, const char **why) {
    int field[COLUMNS];
    field_value v[COLUMNS] = {{0}};
    csv_columns c = {COLUMNS, field};
    for (int i = 0; i < COLUMNS; i++) field[i] = i;
    size_t used = csv_record_scan(s, n, (csv_dialect){',', true}, &c, COLUMNS, v, columns, why);
    if (*columns > COLUMNS) *columns = COLUMNS;
    for (int i = 0; i < *columns; i++)
        snprintf(to + (size_t)i * size, size, "%.*s",
                 v[i].len < size ? (int)v[i].len : (int)size - 1, v[i].len ? v[i].s : "");
    return used;
}

/* ---- from a record to a row ---- */

/* Whatever its case. */
static bool starts(const char *s, const char *with) {
    return strncasecmp(s, with, strlen(with)) == 0;
}

static bool has(const char *s, const char *word) {
    return strcasestr(s, word) != NULL;
}

/* As this program calls it, in rows of its own. */
static bool own_schedule(const char *name, sketch_layout *l) {
    for (schedule_kind kind = 0; kind < SCHEDULES; kind++) {
        if (!schedule_runs(kind) || strcasecmp(name, schedule_name(kind)) != 0) continue;
        int chunks = schedule_chunks_of(kind);
        l->schedule = kind;
        if (chunks) l->chunks_of_stage = chunks;
        return true;
    }
    return false;
}

static bool schedule_of(const record *r, sketch_layout *l) {
    const char *name = text_of(r, "schedule");
    int v = l->pp > 1 ? int_of(r, "vpp", 1) : 1;
    if (v < 0) return false;
    l->schedule = v > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    l->chunks_of_stage = v > 1 ? v : 1;
    if (strcmp(name, "1F1B-I") == 0) {
        l->schedule = SCHEDULE_INTERLEAVED;
        l->chunks_of_stage = 3;
    } else if (strcmp(name, "ZB-1p") == 0 || strcmp(name, "ZB-H1") == 0)
        l->schedule = SCHEDULE_ZB_H1;
    else if (strcmp(name, "ZB-H2") == 0)
        l->schedule = SCHEDULE_ZB_H2;
    else if (strcmp(name, "ZB-2p") == 0)
        l->schedule = SCHEDULE_ZB_2P;
    else if (has(name, "interleaved") && l->pp > 1) {
        l->schedule = SCHEDULE_INTERLEAVED;
        l->chunks_of_stage = v > 1 ? v : 2; /* the least, where none is told */
    } else if (*name && strcasecmp(name, "1F1B") != 0)
        return own_schedule(name, l);
    return true;
}

/* A name without what people write differently: "LLAMA3_70B", "Llama-3 70B", and what they add in brackets. */
static void plain_name(const char *s, char out[64]) {
    size_t n = 0;
    for (; *s && *s != '(' && n < 63; s++)
        if (isalnum((unsigned char)*s)) out[n++] = (char)tolower((unsigned char)*s);
    out[n] = '\0';
}

/* What some call presets. */
static const char *usual_name(const char *plain) {
    static const char *const known[][2] = {{"qwen3moe30b", "qwen330ba3b"},
                                           {"qwen3moe235b", "qwen3235ba22b"},
                                           {"deepseekv3671b", "deepseekv3"}};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(plain, known[i][0]) == 0) return known[i][1];
    return plain;
}

/* The preset that the row names; NULL: none. */
static json_t *preset_of(const record *r) {
    char want[64], is[64];
    if (has(text_of(r, "source"), "athanor")) return NULL; /* which names the family */
    plain_name(text_of(r, "model"), want);
    for (int i = 0; preset_name(i); i++) {
        plain_name(preset_name(i), is);
        if (strcmp(usual_name(want), is) == 0)
            return json_loads(preset_json(preset_name(i)), 0, NULL);
    }
    return NULL;
}

/* By the sizes of the row; where it tells none, by its name. */
static json_t *model_of(const record *r, double *seq) {
    int h = int_of(r, "hidden", 0), heads = int_of(r, "heads", 0), layers = int_of(r, "layers", 0);
    int ffn = int_of(r, "ffn", h <= 1 << 20 ? 4 * h : 0), vocab = int_of(r, "vocab", 51200);
    *seq = number_of(r, "seq", 0);
    if (h < 1 || h > 1 << 20 || ffn > 1 << 22 || vocab > 1 << 24 || heads < 1 || h % heads ||
        layers < 1 || layers > 1024 || ffn < 1 || vocab < 2 || *seq < 1 || *seq > 1 << 20)
        return !h && !layers && *seq >= 1 && *seq <= 1 << 20 ? preset_of(r) : NULL;
    int experts = int_of(r, "experts", 0), kv = int_of(r, "kv_heads", int_of(r, "kv", heads));
    int picks = int_of(r, "experts_per_token", 2);
    if (experts < 0 || experts > 1024 || (experts > 1 && (picks < 1 || picks > experts)))
        return NULL;
    if (experts > 1)
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:i,s:i}", "model_type", "mixtral",
                         "hidden_size", h, "num_hidden_layers", layers, "num_attention_heads",
                         heads, "num_key_value_heads", kv, "intermediate_size", ffn, "vocab_size",
                         vocab, "tie_word_embeddings", is_told(r, "tied_emb"), "num_experts",
                         experts, "num_experts_per_tok", picks);
    if (ffn == 4 * h && !starts(text_of(r, "model"), "Llama") && !*text_of(r, "tied_emb"))
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", h, "n_layer",
                         layers, "n_head", heads, "vocab_size", vocab, "n_positions", (int)*seq);
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b}", "model_type", "llama", "hidden_size", h,
                     "num_hidden_layers", layers, "num_attention_heads", heads,
                     "num_key_value_heads", kv, "intermediate_size", ffn, "vocab_size", vocab,
                     "tie_word_embeddings", is_told(r, "tied_emb"));
}

/* Within what can be reckoned: a schedule is drawn item by item. */
static bool is_in_bounds(const measured_row *x) {
    const sketch_layout *l = &x->layout;
    return x->gpus >= 1 && x->gpus <= 1 << 20 && l->key.tp >= 1 && l->key.tp <= 1024 &&
           l->pp >= 1 && l->pp <= 128 && l->key.micro_batch >= 1 && l->key.micro_batch <= 1 << 16 &&
           l->zero <= 3 && l->chunks_of_stage <= 32;
}

/* Micro-batches of a step, told or from the global batch; where neither is there as many as stages, with which a pipeline is full. */
static int64_t steps_of(const record *r, const sketch_layout *l) {
    double m = number_of(r, "grad_acc", number_of(r, "microbatches", 0));
    double batch = number_of(r, "gbs_seqs", number_of(r, "gbs_tokens", 0) / number_of(r, "seq", 1));
    if (m < 1) m = batch > 0 ? floor(batch / l->dp / l->key.micro_batch) : l->pp;
    return m >= 1 && m <= 1 << 24 ? (int64_t)m : 0;
}

/* A stage as a number, "ZeRO-1", or as PyTorch and Composer call it. */
static int zero_of(const record *r) {
    const char *s = text_of(r, "zero"), *digit = strpbrk(s, "0123456789");
    if (has(s, "hybrid") || has(s, "hsdp")) return UNKNOWN_ZERO; /* in groups of some ranks */
    if (has(s, "grad_op")) return 2;
    if (has(s, "fsdp") || has(s, "full_shard")) return 3;
    long stage = digit ? strtol(digit, NULL, 10) : 0;
    return stage < UNKNOWN_ZERO ? (int)stage : UNKNOWN_ZERO;
}

/* Of kernels: the format that is named first. False: another one. */
static bool read_precision(const char *s, measured_row *to) {
    static const struct {
        const char *word;
        int bits;
    } known[] = {{"bf16", 16},     {"fp16", 16},    {"fp8", 8},    {"fp32", 32},
                 {"bfloat16", 16}, {"float16", 16}, {"float8", 8}, {"float32", 32}};
    const char *first = NULL;
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        const char *at = strcasestr(s, known[i].word);
        if (!at || (first && at > first)) continue;
        first = at;
        to->fp8 = known[i].bits == 8;
        to->fp32 = known[i].bits == 32;
    }
    return first || !*s;
}

/* In rows of this program `ep` ranks share out experts, and the tp ranks of each share each expert's columns. In rows of others `ep` counts both:
 * each of these ranks has whole experts (Liu et al. 2025, "MoE Parallel Folding"). So the layout here that has as many weights of experts on a
 * rank has ep / tp. Whose row it is decides, whatever runtime predicts it: what a column means does not depend on that. */
static void fold_experts(const measured_row *x, sketch_key *key) {
    if (x->whose && key->ep % key->tp == 0) key->ep /= key->tp;
}

static bool layout_of(const record *r, measured_row *to) {
    sketch_layout *l = &to->layout;
    const char *recompute = text_of(r, "recompute");
    l->key.tp = int_of(r, "tp", 1);
    l->pp = int_of(r, "pp", int_of(r, "gpus_pp", 1));
    l->zero = zero_of(r);
    l->key.micro_batch = int_of(r, "mbs", 1);
    l->key.ep = int_of(r, "ep", 1);
    l->key.cp = int_of(r, "cp", 1);
    if (l->key.tp >= 1) fold_experts(to, &l->key);
    to->gpus = int_of(r, "gpus", int_of(r, "gpus_pp", 0));
    if (!schedule_of(r, l) || !is_in_bounds(to) || l->key.cp < 1 || l->key.cp > 1024 ||
        to->gpus % (l->key.tp * l->pp * l->key.cp))
        return false;
    l->dp = to->gpus / (l->key.tp * l->pp * l->key.cp);
    l->micro_batches = steps_of(r, l);
    l->key.recompute = starts(recompute, "full") || starts(recompute, "true") ? RECOMPUTE_FULL
                       : starts(recompute, "selective")                       ? RECOMPUTE_SELECTIVE
                                                                              : RECOMPUTE_NONE;
    return read_precision(text_of(r, "precision"), to) && l->micro_batches > 0 && l->key.ep >= 1 &&
           l->key.ep <= 1024 && l->dp * l->key.cp % l->key.ep == 0 &&
           (l->schedule != SCHEDULE_INTERLEAVED || l->micro_batches % l->pp == 0);
}

enum { MOST_DEVICES = 16 };

/* A file that is being read. */
typedef struct rows_reading {
    measured_rows *rows;
    dev *meta;
    bool given; /* there is one cluster, whatever rows say */
} rows_reading;

static int number_for(json_t *table, const char *key) {
    json_t *v = json_object_get(table, key);
    if (v) return (int)json_integer_value(v);
    int n = (int)json_object_size(table);
    json_object_set_new(table, key, json_integer(n));
    return n;
}

/* Where n layers make no equal parts, and with the embedding and the head as one layer each do, they are cut so (Qi et al. 2023; Megatron's
 * account_for_embedding_in_pipeline_split). */
static bool has_ends_apart(const measured_row *x, int layers) {
    int parts = x->layout.pp * x->layout.chunks_of_stage;
    return parts > 1 && layers % parts && (layers + 2) % parts == 0;
}

/* What layer x has beside an ordinary one. */
static sketch_layer end_of(const sketch_layer *x, const sketch_layer *ordinary) {
    sketch_layer end = *x;
    double *d = (double *)&end;
    const double *less = (const double *)ordinary;
    for (size_t i = 0; i < sizeof end / sizeof *d; i++) d[i] = d[i] > less[i] ? d[i] - less[i] : 0;
    end.scratch_bytes = x->scratch_bytes;
    end.trained.tied = x->trained.tied;
    return end;
}

/* The ends as layers of their own, beside n ordinary ones. */
static void set_ends_apart(sketch *s, arena *a) {
    int n = s->layers;
    sketch_layer *layer = ARENA_ARRAY(a, sketch_layer, n + 2), *last = &s->layer[n - 1];
    for (int i = 0; i < n; i++) layer[1 + i] = s->layer[i];
    layer[0] = end_of(&s->layer[0], &s->layer[1]);
    layer[1] = s->layer[1];
    layer[n] = s->layer[n - 2];
    layer[n + 1] = end_of(last, &s->layer[n - 2]);
    s->layer = layer;
    s->layers = n + 2;
}

static int layers_of(const json_t *model) {
    const char *key = json_object_get(model, "n_layer") ? "n_layer" : "num_hidden_layers";
    return (int)json_integer_value(json_object_get(model, key));
}

static status make_sketch(const rows_reading *k, const json_t *model, double seq,
                          const measured_row *x, sketch *out, err *e) {
    measured_rows *r = k->rows;
    plan_spec spec = {.compute = x->fp32 ? DT_F32 : DT_BF16,
                      .T = (int)seq,
                      .train_B = 1,
                      .expert_load = 1, /* published runs of experts balance them */
                      .optim = optim_find("adamw")};
    TRY(model_config_read(r->a, model, 0, &spec.model, e));
    if (spec.model.max_position_embeddings < spec.T) spec.model.max_position_embeddings = spec.T;
    if (x->layout.key.ep > 1 &&
        (!spec.model.num_experts || spec.model.num_experts % x->layout.key.ep))
        return err_set(e, ST_USAGE, "its ranks cannot share out its experts evenly");
    TRY(sketch_new(out, r->a, k->meta, &spec, x->layout.key, &r->device[x->device], e));
    if (out->layers > 2 && has_ends_apart(x, out->layers)) set_ends_apart(out, r->a);
    return ST_OK;
}

/* Of a token, as tables count them: products of the model, and all pairs of attention, of which a causal model needs half, unless
 * the row says that only these are counted. */
static double published_flops(const record *r, const sketch *s, const sketch_layout *l) {
    const model_config *mc = &s->spec.model;
    double tokens = (double)l->key.micro_batch * s->spec.T / l->key.cp;
    double width = (double)(mc->num_attention_heads * mc->head_dim);
    double unseen =
        6.0 * (double)mc->num_hidden_layers * width * s->spec.T; /* ends are no layers */
    if (starts(text_of(r, "flops_kind"), "causal")) unseen = 0;
    return s->model_flops * l->key.tp / tokens + unseen;
}

/* Tokens a second from the FLOPs that a device reached, or from their share of its peak. */
static double rate_of_flops(const record *r, const sketch *s, const sketch_layout *l,
                            const cluster *c) {
    double peak = number_of(r, "peak_tf", c->peak_flops[DT_BF16] / 1e12);
    double reached = number_of(r, "tflops_gpu", number_of(r, "mfu_pct", 0) / 100 * peak);
    bool again = starts(text_of(r, "flops_kind"), "hardware") && l->key.recompute == RECOMPUTE_FULL;
    return reached * 1e12 * (again ? 0.75 : 1) / published_flops(r, s, l);
}

/* Else a batch is assumed, and the time of a step says nothing of tokens. */
static bool tells_batch(const record *r) {
    static const char *const known[] = {"grad_acc", "microbatches", "gbs_seqs", "gbs_tokens"};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (number_of(r, known[i], 0) > 0) return true;
    return false;
}

static double measured_rate(const record *r, const measured_row *x, const sketch *s,
                            const cluster *c) {
    double samples = number_of(r, "samples_per_gpu_s", 0), tokens = number_of(r, "tok_s_gpu", 0);
    double all = number_of(r, "tok_s", 0), step = number_of(r, "iter_time_s", 0);
    if (all <= 0 && step > 0 && tells_batch(r)) all = (double)x->batch * s->spec.T / step;
    if (tokens > 0 || samples > 0) return tokens > 0 ? tokens : samples * s->spec.T;
    return all > 0 ? all / x->gpus : rate_of_flops(r, s, &x->layout, c);
}

/* What tables call devices. watts: what each may take, unless a table says "500W". */
typedef struct known_device {
    const char *word, *preset;
    double watts;
} known_device;

/* That of the row; A100 and H100 where it names none. Of a cluster that was given there is one. NULL: another device. */
static const known_device *device_of(const record *r) {
    static const known_device small = {"A100", "a100-40g", 400},
                              known[] = {{"A100", "a100", 400},    {"GH200", "gh200", 900},
                                         {"H100", "h100", 700},    {"H800", "h800", 700},
                                         {"H200", "h200", 700},    {"GB200", "gb200", 1200},
                                         {"GB300", "gb300", 1400}, {"B200", "b200", 1000},
                                         {"B300", "b300", 1100},   {"L40S", "l40s", 350},
                                         {"L4", "l4", 72},         {"4090", "rtx4090", 450}};
    const char *gpu = text_of(r, "gpu");
    if (has(gpu, "A100") && has(gpu, "40g")) return &small;
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        const char *at = strcasestr(gpu, known[i].word);
        if (at && !isdigit((unsigned char)at[strlen(known[i].word)])) return &known[i]; /* no L40 */
    }
    if (*gpu) return NULL;
    return &known[*text_of(r, "schedule")
                      ? 0
                      : 2]; /* rows of Qi et al. 2023, on A100, name a schedule, not a device */
}

/* A limit on its power that the row tells; 0: none below what it may take. */
static double limit_of(const record *r, const known_device *d) {
    const char *end = text_of(r, "gpu");
    while ((end = strchr(end + (*end == 'W'), 'W'))) {
        const char *digit = end;
        while (digit > text_of(r, "gpu") && isdigit((unsigned char)digit[-1])) digit--;
        double watts = digit < end ? strtod(digit, NULL) : 0;
        if (watts > 0 && watts < d->watts) return watts;
    }
    return 0;
}

/* Power grows as the third power of the clock: with its voltage squared. */
static void slow_down(cluster *c, double share) {
    for (int i = 0; i < ARRAY_LEN(c->peak_flops); i++) c->peak_flops[i] *= cbrt(share);
}

/* False: there is nothing known of them. */
static bool find_device(rows_reading *k, const record *rec, int *out) {
    measured_rows *r = k->rows;
    char name[64];
    const known_device *d = device_of(rec);
    if (!d && !k->given) {
        if (!*r->unknown) snprintf(r->unknown, sizeof r->unknown, "%s", text_of(rec, "gpu"));
        return false;
    }
    double watts = d ? limit_of(rec, d) : 0;
    if (d) snprintf(name, sizeof name, watts > 0 ? "%s-%.0fw" : "%s", d->preset, watts);
    for (*out = 0; *out < r->n_devices; ++*out)
        if (k->given || strcmp(r->device[*out].name, name) == 0) return true;
    cluster *c = &r->device[r->n_devices];
    if (r->n_devices == MOST_DEVICES || !cluster_preset(c, d->preset)) return false;
    if (watts > 0) slow_down(c, watts / d->watts);
    snprintf(c->name, sizeof c->name, "%s", name);
    if (r->n_devices++ == 0) r->c = r->device[0];
    return true;
}

/* The sketch of that key; one without layers where none can be made. */
static int find_sketch(const rows_reading *k, const char *key, const json_t *model, double seq,
                       const measured_row *x) {
    measured_rows *r = k->rows;
    err ignored = {0};
    int i = number_for(r->sketch_key, key);
    if (i < r->n_sketches) return i;
    r->sketch = arena_grow(r->a, r->sketch, r->n_sketches, &r->cap_sketches, sizeof *r->sketch);
    r->sketch[i] = (sketch){.layers = 0};
    if (make_sketch(k, model, seq, x, &r->sketch[i], &ignored) != ST_OK) r->sketch[i].layers = 0;
    r->n_sketches++;
    return i;
}

/* Whose run it was, as its source says: a number of measured_predict_published. */
static int whose_of(const record *r) {
    static const struct {
        const char *word;
        int whose;
    } known[] = {{"athanor", 0},  {"torchtitan", 3}, {"Korthikanti", 2}, {"Narayanan", 2},
                 {"Megatron", 2}, {"NeMo", 2},       {"nanotron", 1},    {"smollm", 1},
                 {"picotron", 1}, {"foundry", 3},    {"Mosaic", 3},      {"FSDP", 3},
                 {"pytorch", 3}};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (has(text_of(r, "source"), known[i].word)) return known[i].whose;
    if (*text_of(r, "schedule"))
        return 2; /* the zero-bubble paper's, which is Megatron's, neither */
    /* the playbook's table of runs, nanotron's, names no source */
    return *text_of(r, "status") ? 1 : zero_of(r) == 3 ? 3 : 0;
}

/* The runtime fitted to Megatron's is of 2022, before FlashAttention: on devices that came later it is that of today. */
static int runtime_of_row(const rows_reading *k, const measured_row *x) {
    bool later = !starts(k->rows->device[x->device].name, "a100");
    return x->whose == 2 && later ? 4 : x->whose;
}

/* False: the row cannot be reckoned. */
static bool take(rows_reading *k, const record *rec, int line) {
    measured_rows *r = k->rows;
    measured_row x = {.line = line, .whose = whose_of(rec)};
    double seq;
    char key[2048];
    json_t *model = model_of(rec, &seq);
    if (!model || !layout_of(rec, &x) || !find_device(k, rec, &x.device) ||
        (x.layout.key.cp > 1 && fmod(seq, 2 * x.layout.key.cp) > 0)) {
        json_decref(model);
        return false;
    }
    x.whose = runtime_of_row(k, &x);
    char *text = json_dumps(model, JSON_SORT_KEYS | JSON_COMPACT);
    int per_node = r->device[x.device].per_node;
    x.nodes = (x.gpus + per_node - 1) / per_node;
    snprintf(key, sizeof key, "%s %s %s %s %d", text_of(rec, "layers"), text_of(rec, "hidden"),
             text_of(rec, "vocab"), *text_of(rec, "hidden") ? "" : text_of(rec, "model"), x.nodes);
    x.batch = x.layout.micro_batches * x.layout.dp * x.layout.key.micro_batch;
    x.cell = number_for(r->cell_key, key);
    snprintf(key, sizeof key, "%d %s %g %d %d %d %d %d %d%s", x.device, text, seq, x.layout.key.tp,
             x.layout.key.cp, x.layout.key.ep, x.layout.key.micro_batch, x.layout.key.recompute,
             (int)x.fp32, has_ends_apart(&x, layers_of(model)) ? " apart" : "");
    free(text);
    x.sketch = find_sketch(k, key, model, seq, &x);
    json_decref(model);
    if (r->sketch[x.sketch].layers < x.layout.pp * x.layout.chunks_of_stage) return false;
    const char *state = text_of(rec, "status");
    x.ok = !*state || strcmp(state, "ok") == 0;
    x.tok_per_s_gpu = x.ok ? measured_rate(rec, &x, &r->sketch[x.sketch], &r->device[x.device]) : 0;
    double bubble = number_of(rec, "bubble_rate_theory(Table5)", number_of(rec, "bubble", 0));
    x.only_bubble = x.ok && x.tok_per_s_gpu <= 0 && bubble > 0 && bubble < 1;
    if (x.only_bubble) x.tok_per_s_gpu = 1 - bubble;
    x.measured_bytes = number_of(rec, "gpu_mem_GB", number_of(rec, "mem_GB", 0)) * 1e9;
    if (x.measured_bytes <= 0) x.measured_bytes = number_of(rec, "mem_GiB", 0) * (1 << 30);
    /* a class of one published table, which tells how rows ended: nanotron's */
    x.stalls = x.whose == 1 && x.layout.zero == 0 && x.layout.pp > 1 && x.nodes > 1 && *state;
    r->row = arena_grow(r->a, r->row, r->n, &r->cap, sizeof x);
    r->row[r->n++] = x;
    return true;
}

static bool tells_speed(const record *names) {
    static const char *const known[] = {"tok_s_gpu",         "tok_s",      "iter_time_s",
                                        "samples_per_gpu_s", "tflops_gpu", "mfu_pct"};
    for (int i = 0; i < names->columns; i++)
        for (int k = 0; k < ARRAY_LEN(known); k++)
            if (strcmp(names->name[i], known[k]) == 0) return true;
    return false;
}

static status read_all(rows_reading *k, const char *path, const char *s, size_t n, err *e) {
    record rec = {.columns = 0};
    const char *why = NULL;
    size_t at = scan(s, n, rec.name[0], sizeof rec.name[0], &rec.columns, &why);
    if (why || !tells_speed(&rec)) {
        err_at(e, ST_FORMAT, path, "%s has no column of what was measured: tok_s_gpu, for example",
               path);
        return err_hint(
            e, "rows are those of a table of measurements, with a header; docs/planning.md "
               "says which columns there are");
    }
    for (int line = 2; at < n; line++) {
        int columns = 0;
        at += scan(s + at, n - at, rec.value[0], sizeof rec.value[0], &columns, &why);
        if (why) return err_at(e, ST_FORMAT, path, "%s: record %d %s", path, line, why);
        if (columns == 0) continue;
        for (int i = columns; i < rec.columns; i++) rec.value[i][0] = '\0';
        k->rows->all++;
        (void)take(k, &rec, line);
    }
    return ST_OK;
}

status measured_parse(measured_rows *out, const char *path, const char *text, size_t n,
                      const cluster *c, err *e) {
    dev *meta;
    *out = (measured_rows){
        .a = arena_new("rows"), .sketch_key = json_object(), .cell_key = json_object()};
    out->device = ARENA_ARRAY(out->a, cluster, MOST_DEVICES);
    if (c) out->c = out->device[out->n_devices++] = *c;
    TRY(dev_open_meta(&meta, c ? c->kind : DEV_CUDA, 1, e));
    rows_reading k = {out, meta, c != NULL};
    status st = read_all(&k, path, text, n, e);
    dev_close(meta);
    if (out->n_devices == 0) CHECK(cluster_preset(&out->c, "h100"), "no preset of the usual name");
    return st;
}

status measured_read(measured_rows *out, const char *path, const cluster *c, err *e) {
    char *text;
    size_t n;
    *out = (measured_rows){.a = NULL};
    TRY(file_read_input(path, MOST_BYTES, &text, &n, e));
    status st = measured_parse(out, path, text, n, c, e);
    free(text);
    return st;
}

void measured_free(measured_rows *r) {
    if (!r->a) return; /* nothing was read */
    json_decref(r->sketch_key);
    json_decref(r->cell_key);
    arena_free(r->a);
}
