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

/* Whose run it was: a number of measured_predict_published, or not known yet. */
enum { OWN, NANOTRON, MEGATRON, TORCHTITAN, MEGATRON_CORE, UNNAMED };

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

/* "~2400", "1,024" and "43%" are numbers, too. `without` where the column is absent or has none. */
static double number_of(const record *r, const char *name, double without) {
    char digits[64], *to = digits, *end;
    for (const char *s = text_of(r, name); *s; s++)
        if (*s != ',' && (*s != '~' || to > digits) && (*s != '%' || s[1])) *to++ = *s;
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

/* Without what people write differently: "LLAMA3_70B", "Llama-3 70B", and what they add in brackets. */
static void plain_name(const char *s, char out[64]) {
    size_t n = 0;
    for (; *s && *s != '(' && n < 63; s++)
        if (isalnum((unsigned char)*s)) out[n++] = (char)tolower((unsigned char)*s);
    out[n] = '\0';
}

/* Columns as configs and tables of others call them, without what they write differently. The first of a line is ours. */
enum { NAMES = 10 };
static const char *const column_names[][NAMES] = {
    {"source"},
    {"gpus", "numgpus", "ngpus", "gpucount", "worldsize", "devices", "numdevices"},
    {"gpus_pp"},
    {"gpu", "device", "gputype", "hardware", "accelerator"},
    {"nodes", "numnodes", "nnodes"},
    {"model", "modelname"},
    {"layers", "numlayers", "nlayers", "nlayer", "numhiddenlayers"},
    {"hidden", "hiddensize", "dmodel", "nembd", "dim", "embdim"},
    {"heads", "numheads", "nheads", "nhead", "numattentionheads"},
    {"kv_heads", "kv", "numkvheads", "nkvheads", "numkeyvalueheads", "numquerygroups"},
    {"ffn", "ffnhiddensize", "intermediatesize", "dff", "ffnhidden", "ffndim"},
    {"activation", "hiddenact", "mlptype", "mlp"},
    {"vocab", "vocabsize", "paddedvocabsize"},
    {"seq", "seqlen", "seqlength", "sequencelength", "contextlength"},
    {"tied_emb", "tiewordembeddings", "tied", "tiedembeddings"},
    {"experts", "numexperts", "nexperts"},
    {"experts_per_token", "topk", "numexpertspertok", "activeexperts"},
    {"tp", "tensorparallel", "tensorparallelsize", "tpsize", "tensormodelparallelsize"},
    {"pp", "pipelineparallel", "pipelineparallelsize", "ppsize", "pipelinemodelparallelsize"},
    {"vpp", "vp", "virtualpipeline", "virtualpipelinesize", "virtualpipelineparallelsize"},
    {"cp", "contextparallel", "contextparallelsize", "cpsize"},
    {"ep", "expertparallel", "expertparallelsize", "epsize", "expertmodelparallelsize"},
    {"zero", "zerostage", "sharding", "shardingstrategy"},
    {"schedule", "pipelineschedule", "ppschedule"},
    {"recompute", "activationcheckpointing", "ac", "actckpt", "gradientcheckpointing"},
    {"precision", "dtype", "datatype"},
    {"mbs", "microbatch", "microbatchsize", "microbsz"},
    {"grad_acc", "gradaccum", "gradientaccumulation", "gradientaccumulationsteps", "ga", "gas"},
    {"microbatches", "nummicrobatches"},
    {"gbs_seqs", "gbs", "globalbatchsize", "globalbatch"},
    {"gbs_tokens", "tokensperbatch", "tokensperstep", "globalbatchtokens"},
    {"peak_tf"},
    {"flops_kind"},
    {"status"},
    {"bubble"},
    {"iter_time_s", "itertime", "iterationtime", "steptime", "steptimes", "iterationtimes",
     "secperiter", "timeperglobalstep"},
    {"iter_time_ms", "steptimems", "iterationtimems", "msperiter"},
    {"samples_per_gpu_s"},
    {"tok_s_gpu", "tokensperspergpu", "tokenspersecpergpu", "tokenspersecondpergpu",
     "tokensspergpu", "tokenssecgpu", "tokenssgpu", "tokenspergpupersecond", "tgs"},
    {"tok_s", "tokenspers", "tokenspersec", "tokenspersecond", "tokenss"},
    {"tflops_gpu", "tflops", "tflopspergpu", "modeltflopspergpu", "modeltflopsecgpu"},
    {"mfu_pct", "mfu", "mfupercent"},
    {"gpu_mem_GB"},
    {"mem_GB", "peakmemgb"},
    {"mem_GiB", "peakmemgib"}};

/* NULL: nothing reads it. */
static const char *usual_column(const char *name) {
    char plain[64], known[64];
    plain_name(name, plain);
    for (int i = 0; i < ARRAY_LEN(column_names); i++)
        for (int k = 0; k < NAMES && column_names[i][k]; k++) {
            plain_name(column_names[i][k], known);
            if (strcmp(plain, known) == 0) return column_names[i][0];
        }
    return NULL;
}

static bool has_column(const record *names, const char *name) {
    for (int i = 0; i < names->columns; i++)
        if (strcmp(names->name[i], name) == 0) return true;
    return false;
}

/* "Global batch size" is gbs_seqs, unless a column has that name already. */
static void name_columns(record *names) {
    for (int i = 0; i < names->columns; i++) {
        const char *name = usual_column(names->name[i]);
        if (name && !has_column(names, name))
            snprintf(names->name[i], sizeof names->name[i], "%s", name);
    }
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

static status schedule_of(const record *r, sketch_layout *l, err *e) {
    const char *name = text_of(r, "schedule");
    int v = l->pp > 1 ? int_of(r, "vpp", 1) : 1;
    if (v < 0) return err_set(e, ST_FORMAT, "vpp '%s' is no count", text_of(r, "vpp"));
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
    else if (strcasecmp(name, "DualPipe") == 0)
        l->schedule = SCHEDULE_DUALPIPE;
    else if (has(name, "interleaved") && l->pp > 1) {
        l->schedule = SCHEDULE_INTERLEAVED;
        l->chunks_of_stage = v > 1 ? v : 2; /* the least, where none is told */
    } else if (*name && strcasecmp(name, "1F1B") != 0 && !own_schedule(name, l))
        return err_set(e, ST_FORMAT,
                       "there is no schedule '%s': 1f1b, interleaved and zb-v are near most others",
                       name);
    return ST_OK;
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

/* Whether the feed-forward part has a gate, as its activation says; else Nemotron's has none, nor has one of four times the width in a
 * row that tells nothing newer. */
static bool is_gated(const record *r, int h, int ffn) {
    const char *act = text_of(r, "activation"), *model = text_of(r, "model");
    if (*act) return has(act, "glu") || has(act, "gated") || has(act, "silu");
    if (has(model, "Nemotron")) return false;
    return ffn != 4 * h || starts(model, "Llama") || *text_of(r, "tied_emb");
}

typedef struct sizes {
    int h, heads, kv, layers, ffn, vocab, experts, picks;
    double seq;
} sizes;

static status check_sizes(const record *r, const sizes *z, err *e) {
    if (z->h < 1 || z->h > 1 << 20 || z->layers < 1 || z->layers > 1024 || z->heads < 1 ||
        z->h % z->heads)
        return err_set(e, ST_FORMAT,
                       "layers, hidden and heads are no sizes of a model: '%s', '%s', '%s'",
                       text_of(r, "layers"), text_of(r, "hidden"), text_of(r, "heads"));
    if (z->ffn < 1 || z->ffn > 1 << 22 || z->vocab < 2 || z->vocab > 1 << 24)
        return err_set(e, ST_FORMAT, "ffn '%s' or vocab '%s' is no size", text_of(r, "ffn"),
                       text_of(r, "vocab"));
    if (z->experts < 0 || z->experts > 1024 ||
        (z->experts > 1 && (z->picks < 1 || z->picks > z->experts)))
        return err_set(e, ST_FORMAT, "experts '%s' with experts_per_token '%s' are none",
                       text_of(r, "experts"), text_of(r, "experts_per_token"));
    return ST_OK;
}

static json_t *model_of_sizes(const record *r, const sizes *z) {
    bool tied = is_told(r, "tied_emb"), gated = is_gated(r, z->h, z->ffn);
    if (z->experts > 1)
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:i,s:i}", "model_type", "mixtral",
                         "hidden_size", z->h, "num_hidden_layers", z->layers, "num_attention_heads",
                         z->heads, "num_key_value_heads", z->kv, "intermediate_size", z->ffn,
                         "vocab_size", z->vocab, "tie_word_embeddings", tied, "num_experts",
                         z->experts, "num_experts_per_tok", z->picks);
    if (!gated && z->kv == z->heads && z->ffn == 4 * z->h && !*text_of(r, "tied_emb"))
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", z->h,
                         "n_layer", z->layers, "n_head", z->heads, "vocab_size", z->vocab,
                         "n_positions", (int)z->seq);
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:s}", "model_type", "llama", "hidden_size",
                     z->h, "num_hidden_layers", z->layers, "num_attention_heads", z->heads,
                     "num_key_value_heads", z->kv, "intermediate_size", z->ffn, "vocab_size",
                     z->vocab, "tie_word_embeddings", tied, "mlp_type", gated ? "gated" : "plain");
}

/* By the sizes of the row; where it tells none, by its name. */
static status model_of(const record *r, double *seq, json_t **out, err *e) {
    sizes z = {.h = int_of(r, "hidden", 0),
               .heads = int_of(r, "heads", 0),
               .layers = int_of(r, "layers", 0),
               .vocab = int_of(r, "vocab", 51200),
               .experts = int_of(r, "experts", 0),
               .picks = int_of(r, "experts_per_token", 2),
               .seq = number_of(r, "seq", 0)};
    *seq = z.seq;
    if (z.seq < 1 || z.seq > 1 << 20)
        return err_set(e, ST_FORMAT,
                       *text_of(r, "seq") ? "seq '%s' is no number of tokens"
                                          : "seq, its tokens, is not told%s",
                       text_of(r, "seq"));
    if (!z.h && !z.layers) {
        *out = preset_of(r);
        return *out ? ST_OK
                    : err_set(e, ST_FORMAT,
                              "model '%s' is no preset: tell its layers, hidden, heads, ffn, vocab",
                              text_of(r, "model"));
    }
    z.ffn = int_of(r, "ffn", z.h <= 1 << 20 ? 4 * z.h : 0);
    z.kv = int_of(r, "kv_heads", int_of(r, "kv", z.heads));
    TRY(check_sizes(r, &z, e));
    *out = model_of_sizes(r, &z);
    return ST_OK;
}

/* Within what can be reckoned: a schedule is drawn item by item. */
static status check_bounds(const record *r, const measured_row *x, err *e) {
    const sketch_layout *l = &x->layout;
    const struct {
        const char *name;
        int is, most;
    } bounds[] = {{"gpus", x->gpus, 1 << 20},
                  {"tp", l->key.tp, 1024},
                  {"pp", l->pp, 128},
                  {"cp", l->key.cp, 1024},
                  {"ep", l->key.ep, 1024},
                  {"mbs", l->key.micro_batch, 1 << 16},
                  {"vpp", l->chunks_of_stage, 32}};
    for (int i = 0; i < ARRAY_LEN(bounds); i++)
        if (bounds[i].is < 1 || bounds[i].is > bounds[i].most)
            return err_set(e, ST_FORMAT, "%s '%s' is no number from 1 to %d", bounds[i].name,
                           text_of(r, bounds[i].name), bounds[i].most);
    if (l->zero >= UNKNOWN_ZERO)
        return err_set(e, ST_FORMAT, "zero '%s' is none of 0 to 3, FSDP and HSDP",
                       text_of(r, "zero"));
    return ST_OK;
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
    bool in_nodes = has(s, "hybrid") || has(s, "hsdp");
    if (has(s, "grad_op") || has(s, "zero2")) return 2;
    if (has(s, "fsdp") || has(s, "full_shard") || (in_nodes && !has(s, "zero"))) return 3;
    long stage = digit ? strtol(digit, NULL, 10) : 0;
    return stage < UNKNOWN_ZERO ? (int)stage : UNKNOWN_ZERO;
}

/* How many of the ranks share a state: those of a node under HSDP, "groups of 16"; 0: all. */
static int group_of(const record *r, int per_node) {
    const char *s = text_of(r, "zero"), *of = strcasestr(s, "group");
    const char *digit = of ? strpbrk(of, "0123456789") : NULL;
    if (digit) return (int)strtol(digit, NULL, 10);
    return has(s, "hybrid") || has(s, "hsdp") ? per_node : 0;
}

/* ZeRO within groups of its ranks. */
static status share_in_groups(const record *r, int per_node, sketch_layout *l, err *e) {
    int beside = l->key.tp * l->key.cp,
        group = group_of(r, per_node > beside ? per_node / beside : 1);
    if (group < 1 || group >= l->dp) return ST_OK;
    if (l->dp % group)
        return err_set(e, ST_FORMAT, "%d data-parallel ranks are no whole groups of %d", l->dp,
                       group);
    l->replicas = l->dp / group;
    return ST_OK;
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
    if (x->whose != OWN && x->whose != UNNAMED && key->ep % key->tp == 0) key->ep /= key->tp;
}

static recompute_policy recompute_of(const record *r) {
    const char *s = text_of(r, "recompute");
    return starts(s, "full") || starts(s, "true") ? RECOMPUTE_FULL
           : starts(s, "selective")               ? RECOMPUTE_SELECTIVE
                                                  : RECOMPUTE_NONE;
}

static status check_batch(const record *r, const sketch_layout *l, err *e) {
    if (l->micro_batches < 1)
        return err_set(e, ST_FORMAT, "a batch of gbs_seqs '%s' is less than dp %d x mbs %d",
                       text_of(r, "gbs_seqs"), l->dp, l->key.micro_batch);
    if (l->schedule == SCHEDULE_INTERLEAVED && l->micro_batches % l->pp)
        return err_set(e, ST_FORMAT,
                       "interleaved stages take micro-batches by pp: %lld are no multiple of %d",
                       (long long)l->micro_batches, l->pp);
    return ST_OK;
}

static status layout_of(const record *r, measured_row *to, err *e) {
    sketch_layout *l = &to->layout;
    l->key.tp = int_of(r, "tp", 1);
    l->pp = int_of(r, "pp", int_of(r, "gpus_pp", 1));
    l->zero = zero_of(r);
    l->key.micro_batch = int_of(r, "mbs", 1);
    l->key.ep = int_of(r, "ep", 1);
    l->key.cp = int_of(r, "cp", 1);
    l->key.recompute = recompute_of(r);
    to->gpus = int_of(r, "gpus", int_of(r, "gpus_pp", 0));
    TRY(schedule_of(r, l, e));
    TRY(check_bounds(r, to, e));
    int copy = l->key.tp * l->pp * l->key.cp;
    if (to->gpus % copy)
        return err_set(e, ST_FORMAT, "gpus %d are no multiple of tp %d x pp %d x cp %d", to->gpus,
                       l->key.tp, l->pp, l->key.cp);
    fold_experts(to, &l->key);
    l->dp = to->gpus / copy;
    l->micro_batches = steps_of(r, l);
    TRY(check_batch(r, l, e));
    if (!read_precision(text_of(r, "precision"), to))
        return err_set(e, ST_FORMAT, "precision '%s' is none of bf16, fp16, fp8, fp32",
                       text_of(r, "precision"));
    if (l->dp * l->key.cp % l->key.ep)
        return err_set(e, ST_FORMAT, "dp %d x cp %d ranks cannot share experts by ep %d", l->dp,
                       l->key.cp, l->key.ep);
    return ST_OK;
}

enum { MOST_DEVICES = 32 };

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

/* 43, "43%" and 0.43 are the same. */
static double mfu_of(const record *r) {
    double x = number_of(r, "mfu_pct", 0);
    return x > 1 ? x / 100 : x;
}

/* Tokens a second from the FLOPs that a device reached, or from their share of its peak. */
static double rate_of_flops(const record *r, const sketch *s, const sketch_layout *l,
                            const cluster *c) {
    double peak = number_of(r, "peak_tf", c->peak_flops[DT_BF16] / 1e12);
    double reached = number_of(r, "tflops_gpu", mfu_of(r) * peak);
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
    double all = number_of(r, "tok_s", 0);
    double step = number_of(r, "iter_time_s", number_of(r, "iter_time_ms", 0) / 1e3);
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
                                         {"L4", "l4", 72},         {"4090", "rtx4090", 450},
                                         {"A800", "a800", 400},    {"H20", "h20", 500}};
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

/* Of a machine, where the row tells that its nodes have fewer; 0: as usual. */
static int per_node_of(const record *rec, const cluster *usual) {
    int nodes = int_of(rec, "nodes", 0), gpus = int_of(rec, "gpus", 0);
    int each = nodes > 1 && gpus % nodes == 0 ? gpus / nodes : 0;
    return each < usual->per_node ? each : 0;
}

static status find_device(rows_reading *k, const record *rec, int *out, err *e) {
    measured_rows *r = k->rows;
    char name[64];
    cluster usual;
    const known_device *d = device_of(rec);
    if (!d && !k->given) {
        if (!*r->unknown) snprintf(r->unknown, sizeof r->unknown, "%s", text_of(rec, "gpu"));
        return err_set(e, ST_FORMAT,
                       "nothing is known of '%s': cluster=FILE says what such a device can do",
                       text_of(rec, "gpu"));
    }
    if (k->given) {
        *out = 0;
        return ST_OK;
    }
    CHECK(cluster_preset(&usual, d->preset), "no preset %s", d->preset);
    double watts = limit_of(rec, d);
    int each = per_node_of(rec, &usual);
    if (watts > 0) slow_down(&usual, watts / d->watts);
    if (each) usual.per_node = each;
    snprintf(name, sizeof name, "%s-%.0fw-%d", d->preset, watts, usual.per_node);
    snprintf(usual.name, sizeof usual.name, "%s", watts > 0 || each ? name : d->preset);
    for (*out = 0; *out < r->n_devices; ++*out)
        if (strcmp(r->device[*out].name, usual.name) == 0) return ST_OK;
    if (r->n_devices == MOST_DEVICES)
        return err_set(e, ST_FORMAT, "the file has more than %d kinds of devices", MOST_DEVICES);
    r->device[r->n_devices] = usual;
    if (r->n_devices++ == 0) r->c = r->device[0];
    return ST_OK;
}

/* The sketch of that key; one without layers where none can be made, for a reason that e has the first time. */
static int find_sketch(const rows_reading *k, const char *key, const json_t *model, double seq,
                       const measured_row *x, err *e) {
    measured_rows *r = k->rows;
    int i = number_for(r->sketch_key, key);
    if (i < r->n_sketches) return i;
    r->sketch = arena_grow(r->a, r->sketch, r->n_sketches, &r->cap_sketches, sizeof *r->sketch);
    r->sketch[i] = (sketch){.layers = 0};
    if (make_sketch(k, model, seq, x, &r->sketch[i], e) != ST_OK) r->sketch[i].layers = 0;
    r->n_sketches++;
    return i;
}

/* As its source says. MegaScale hides its collectives as this program does. */
static int whose_of(const record *r) {
    static const struct {
        const char *word;
        int whose;
    } known[] = {{"athanor", OWN},        {"torchtitan", TORCHTITAN}, {"Korthikanti", MEGATRON},
                 {"Narayanan", MEGATRON}, {"Megatron", MEGATRON},     {"NeMo", MEGATRON},
                 {"nanotron", NANOTRON},  {"smollm", NANOTRON},       {"picotron", NANOTRON},
                 {"MegaScale", OWN},      {"foundry", TORCHTITAN},    {"Mosaic", TORCHTITAN},
                 {"FSDP", TORCHTITAN},    {"pytorch", TORCHTITAN}};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (has(text_of(r, "source"), known[i].word)) return known[i].whose;
    if (*text_of(r, "schedule"))
        return MEGATRON; /* the zero-bubble paper's, which is Megatron's, neither */
    /* the playbook's table of runs, nanotron's, names no source */
    return *text_of(r, "status") ? NANOTRON : zero_of(r) == 3 ? TORCHTITAN : UNNAMED;
}

/* "arXiv:2311.05610" and "Hagemann et al. 2023" are of 2023; 0: no year is told. */
static int year_of(const char *source) {
    const char *id = strcasestr(source, "arxiv:");
    if (id && strspn(id + 6, "0123456789") == 4) return 2000 + (id[6] - '0') * 10 + id[7] - '0';
    for (const char *s = source; *s; s++) {
        size_t n = strspn(s, "0123456789");
        if (n == 4 && s[0] == '2' && s[1] == '0') return (int)strtol(s, NULL, 10);
        s += n ? n - 1 : 0;
    }
    return 0;
}

/* The runtime fitted to Megatron's is of 2022, before FlashAttention: on devices that came later it is that of today. GPUs of a program
 * that nobody names run no faster than others: what has no pipeline is PyTorch's, pipelines and experts are Megatron's. */
static int runtime_of_row(const rows_reading *k, const measured_row *x) {
    const cluster *c = &k->rows->device[x->device];
    const sketch_layout *l = &x->layout;
    int whose = x->whose;
    if (whose == UNNAMED)
        whose = c->kind == DEV_CPU ? OWN : l->pp > 1 || l->key.ep > 1 ? MEGATRON : TORCHTITAN;
    return whose == MEGATRON && !starts(c->name, "a100") && !starts(c->name, "a800") ? MEGATRON_CORE
                                                                                     : whose;
}

static void read_measured(const rows_reading *k, const record *rec, measured_row *x) {
    measured_rows *r = k->rows;
    const char *state = text_of(rec, "status");
    x->ok = !*state || strcmp(state, "ok") == 0;
    x->tok_per_s_gpu =
        x->ok ? measured_rate(rec, x, &r->sketch[x->sketch], &r->device[x->device]) : 0;
    double bubble = number_of(rec, "bubble_rate_theory(Table5)", number_of(rec, "bubble", 0));
    x->only_bubble = x->ok && x->tok_per_s_gpu <= 0 && bubble > 0 && bubble < 1;
    if (x->only_bubble) x->tok_per_s_gpu = 1 - bubble;
    x->measured_bytes = number_of(rec, "gpu_mem_GB", number_of(rec, "mem_GB", 0)) * 1e9;
    if (x->measured_bytes <= 0) x->measured_bytes = number_of(rec, "mem_GiB", 0) * (1 << 30);
    /* a class of one published table, which tells how rows ended: nanotron's */
    x->stalls =
        x->whose == NANOTRON && x->layout.zero == 0 && x->layout.pp > 1 && x->nodes > 1 && *state;
}

/* The sketch of the row, and its cell. */
static status take_model(rows_reading *k, const record *rec, const json_t *model, double seq,
                         measured_row *x, err *e) {
    measured_rows *r = k->rows;
    char key[2048], *text = json_dumps(model, JSON_SORT_KEYS | JSON_COMPACT);
    int per_node = r->device[x->device].per_node;
    x->nodes = (x->gpus + per_node - 1) / per_node;
    snprintf(key, sizeof key, "%s %s %s %s %d", text_of(rec, "layers"), text_of(rec, "hidden"),
             text_of(rec, "vocab"), *text_of(rec, "hidden") ? "" : text_of(rec, "model"), x->nodes);
    x->batch = x->layout.micro_batches * x->layout.dp * x->layout.key.micro_batch;
    x->cell = number_for(r->cell_key, key);
    snprintf(key, sizeof key, "%d %s %g %d %d %d %d %d %d%s", x->device, text, seq,
             x->layout.key.tp, x->layout.key.cp, x->layout.key.ep, x->layout.key.micro_batch,
             x->layout.key.recompute, (int)x->fp32,
             has_ends_apart(x, layers_of(model)) ? " apart" : "");
    free(text);
    err why = {.message = "its model or layout cannot be laid out"};
    x->sketch = find_sketch(k, key, model, seq, x, &why);
    const sketch *s = &r->sketch[x->sketch];
    if (s->layers == 0) return err_set(e, ST_FORMAT, "%s", why.message);
    if (s->layers < x->layout.pp * x->layout.chunks_of_stage)
        return err_set(e, ST_FORMAT, "%d layers are too few for pp %d with %d chunks a stage",
                       s->layers, x->layout.pp, x->layout.chunks_of_stage);
    sketch_result timed; /* whether its schedule goes with its stages and micro-batches */
    cluster on = r->device[x->device];
    on.nodes = x->nodes;
    return sketch_time(s, &x->layout, &on, &runtime_athanor, &timed, e);
}

/* ST_FORMAT: the row cannot be reckoned. */
static status take(rows_reading *k, const record *rec, int line, err *e) {
    measured_rows *r = k->rows;
    measured_row x = {.line = line, .whose = whose_of(rec)};
    double seq;
    json_t *model;
    TRY(layout_of(rec, &x, e));
    TRY(find_device(k, rec, &x.device, e));
    TRY(share_in_groups(rec, r->device[x.device].per_node, &x.layout, e));
    int year = year_of(text_of(rec, "source"));
    x.flash = year >= 2023 || (year == 0 && x.whose == UNNAMED);
    x.whose = runtime_of_row(k, &x);
    TRY(model_of(rec, &seq, &model, e));
    status st =
        x.layout.key.cp > 1 && fmod(seq, 2 * x.layout.key.cp) > 0
            ? err_set(e, ST_FORMAT, "seq %g is no multiple of 2 x cp %d", seq, x.layout.key.cp)
            : take_model(k, rec, model, seq, &x, e);
    json_decref(model);
    TRY(st);
    read_measured(k, rec, &x);
    r->row = arena_grow(r->a, r->row, r->n, &r->cap, sizeof x);
    r->row[r->n++] = x;
    if (!x.ok || x.tok_per_s_gpu > 0) return ST_OK;
    return err_set(e, ST_FORMAT,
                   "it tells no speed: tok_s_gpu, tok_s, tflops_gpu, mfu_pct, or iter_time_s with "
                   "gbs_seqs or grad_acc");
}

/* Rows with the same reason count together. */
static void refuse(measured_rows *r, int line, const char *why) {
    for (int i = 0; i < r->n_refused; i++)
        if (strcmp(r->refused[i].why, why) == 0) {
            r->refused[i].rows++;
            return;
        }
    r->refused = arena_grow(r->a, r->refused, r->n_refused, &r->cap_refused, sizeof *r->refused);
    r->refused[r->n_refused++] = (measured_refusal){line, 1, arena_strdup(r->a, why)};
}

static bool tells_speed(const record *names) {
    static const char *const known[] = {
        "tok_s_gpu",         "tok_s",      "iter_time_s", "iter_time_ms",
        "samples_per_gpu_s", "tflops_gpu", "mfu_pct"};
    for (int k = 0; k < ARRAY_LEN(known); k++)
        if (has_column(names, known[k])) return true;
    return false;
}

static status read_all(rows_reading *k, const char *path, const char *s, size_t n, err *e) {
    record rec = {.columns = 0};
    const char *why = NULL;
    size_t at = scan(s, n, rec.name[0], sizeof rec.name[0], &rec.columns, &why);
    if (!why) name_columns(&rec);
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
        err reason = {0};
        if (take(k, &rec, line, &reason) != ST_OK) refuse(k->rows, line, reason.message);
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
