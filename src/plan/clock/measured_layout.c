/* What a record says of its model and layout (measured_int.h). Order: schedule, model, bounds, layout. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "model/presets.h"
#include "plan/clock/measured_int.h"

enum { ZERO_UNKNOWN = 4 };

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

/* As others call it. */
static bool others_schedule(const char *name, sketch_layout *l) {
    static const struct {
        const char *plain;
        schedule_kind kind;
    } known[] = {{"zb1p", SCHEDULE_ZB_H1},       {"zbh1", SCHEDULE_ZB_H1},
                 {"zerobubble", SCHEDULE_ZB_H1}, {"zbh2", SCHEDULE_ZB_H2},
                 {"zb2p", SCHEDULE_ZB_2P},       {"zbv", SCHEDULE_ZB_V},
                 {"gpipe", SCHEDULE_AFAB},       {"dualpipe", SCHEDULE_DUALPIPE}};
    char plain[64];
    record_plain_name(name, plain);
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(plain, known[i].plain) != 0) continue;
        l->schedule = known[i].kind;
        l->chunks_of_stage = schedule_chunks_of(known[i].kind);
        return true;
    }
    return false;
}

static status schedule_of(const record *r, sketch_layout *l, err *e) {
    const char *name = record_text(r, "schedule");
    int v = l->pp > 1 ? record_degree(r, "vpp") : 1;
    l->schedule = v > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    l->chunks_of_stage = v > 1 ? v : 1;
    if (strcmp(name, "1F1B-I") == 0) { /* of the zero-bubble paper */
        l->schedule = SCHEDULE_INTERLEAVED;
        l->chunks_of_stage = 3;
    } else if (others_schedule(name, l)) {
        return ST_OK;
    } else if ((has(name, "interleaved") || starts(name, "vpp")) && l->pp > 1) {
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
    if (has(record_text(r, "source"), "athanor")) return NULL; /* which names the family */
    record_plain_name(record_text(r, "model"), want);
    for (int i = 0; preset_name(i); i++) {
        record_plain_name(preset_name(i), is);
        if (strcmp(usual_name(want), is) == 0)
            return json_loads(preset_json(preset_name(i)), 0, NULL);
    }
    return NULL;
}

typedef enum gate { GATE_UNTOLD, GATED, PLAIN, GATE_UNKNOWN } gate;

static gate gate_of(const record *r) {
    static const char *const gated[] = {"glu", "gated", "silu", "swish"};
    const char *act = record_text(r, "activation");
    if (!*act) return GATE_UNTOLD;
    for (int i = 0; i < ARRAY_LEN(gated); i++)
        if (has(act, gated[i])) return GATED;
    return has(act, "relu") || has(act, "gelu") || starts(act, "plain") ? PLAIN : GATE_UNKNOWN;
}

/* Whether the feed-forward part has a gate, as its activation says; else Nemotron's has none, nor has one of four times the width in a
 * row that tells nothing newer. */
static bool is_gated(const record *r, int h, int ffn) {
    const char *model = record_text(r, "model");
    if (gate_of(r) != GATE_UNTOLD) return gate_of(r) == GATED;
    if (has(model, "Nemotron")) return false;
    return ffn != 4 * h || starts(model, "Llama") || *record_text(r, "tied_emb");
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
                       record_text(r, "layers"), record_text(r, "hidden"), record_text(r, "heads"));
    if (z->ffn < 1 || z->ffn > 1 << 22 || z->vocab < 2 || z->vocab > 1 << 24)
        return err_set(e, ST_FORMAT, "ffn '%s' or vocab '%s' is no size", record_text(r, "ffn"),
                       record_text(r, "vocab"));
    if (gate_of(r) == GATE_UNKNOWN)
        return err_set(e, ST_FORMAT, "activation '%s' is none of SwiGLU, GELU, ReLU and their kin",
                       record_text(r, "activation"));
    if (z->experts < 0 || z->experts > 1024 ||
        (z->experts > 1 && (z->picks < 1 || z->picks > z->experts)))
        return err_set(e, ST_FORMAT, "experts '%s' with experts_per_token '%s' are none",
                       record_text(r, "experts"), record_text(r, "experts_per_token"));
    return ST_OK;
}

/* An odd head is laid out as the next even one. */
static json_t *with_head_dim(const record *r, const sizes *z, json_t *model) {
    int told = record_int(r, "head_dim", 0), each = z->h / z->heads;
    int dim = told > 0 ? told : each + each % 2;
    if (dim != each) json_object_set_new(model, "head_dim", json_integer(dim));
    return model;
}

static json_t *model_of_sizes(const record *r, const sizes *z) {
    bool tied = record_tells(r, "tied_emb"), gated = is_gated(r, z->h, z->ffn);
    if (z->experts > 1)
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:i,s:i}", "model_type", "mixtral",
                         "hidden_size", z->h, "num_hidden_layers", z->layers, "num_attention_heads",
                         z->heads, "num_key_value_heads", z->kv, "intermediate_size", z->ffn,
                         "vocab_size", z->vocab, "tie_word_embeddings", tied, "num_experts",
                         z->experts, "num_experts_per_tok", z->picks);
    if (!gated && z->kv == z->heads && z->ffn == 4 * z->h && !*record_text(r, "tied_emb"))
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", z->h,
                         "n_layer", z->layers, "n_head", z->heads, "vocab_size", z->vocab,
                         "n_positions", (int)z->seq);
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:s}", "model_type", "llama", "hidden_size",
                     z->h, "num_hidden_layers", z->layers, "num_attention_heads", z->heads,
                     "num_key_value_heads", z->kv, "intermediate_size", z->ffn, "vocab_size",
                     z->vocab, "tie_word_embeddings", tied, "mlp_type", gated ? "gated" : "plain");
}

status measured_model_of(const record *r, double *seq, json_t **out, err *e) {
    sizes z = {.h = record_int(r, "hidden", 0),
               .heads = record_int(r, "heads", 0),
               .layers = record_int(r, "layers", 0),
               .vocab = record_int(r, "vocab", 51200),
               .experts = record_int(r, "experts", 0),
               .picks = record_int(r, "experts_per_token", 2),
               .seq = record_number(r, "seq", 0)};
    *seq = z.seq;
    if (z.seq < 1 || z.seq > 1 << 20)
        return err_set(e, ST_FORMAT,
                       *record_text(r, "seq") ? "seq '%s' is no number of tokens"
                                              : "seq, its tokens, is not told%s",
                       record_text(r, "seq"));
    if (!z.h && !z.layers) {
        *out = preset_of(r);
        return *out ? ST_OK
                    : err_set(e, ST_FORMAT,
                              "model '%s' is no preset: tell its layers, hidden, heads, ffn, vocab",
                              record_text(r, "model"));
    }
    z.ffn = record_int(r, "ffn", z.h <= 1 << 20 ? 4 * z.h : 0);
    z.kv = record_int(r, "kv_heads", record_int(r, "kv", z.heads));
    TRY(check_sizes(r, &z, e));
    *out = with_head_dim(r, &z, model_of_sizes(r, &z));
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
                           record_text(r, bounds[i].name), bounds[i].most);
    if (l->zero >= ZERO_UNKNOWN)
        return err_set(e, ST_FORMAT, "zero '%s' is none of 0 to 3, FSDP and HSDP",
                       record_text(r, "zero"));
    return ST_OK;
}

double measured_batch_of(const record *r) {
    return record_number(r, "gbs_seqs",
                         record_number(r, "gbs_tokens", 0) / record_number(r, "seq", 1));
}

/* The nearest multiple of `unit`, where x is within 5 % of one, as it is of a batch told in round numbers of tokens. */
static double near_multiple(double x, double unit) {
    double nearest = rint(x / unit) * unit;
    return nearest >= 1 && fabs(x / nearest - 1) <= 0.05 ? nearest : 0;
}

/* Micro-batches of a step, told or from the global batch, of which a part of a micro-batch is left out; where neither is there as many
 * as stages, with which a pipeline is full. */
static int64_t steps_of(const record *r, const sketch_layout *l) {
    double m = record_number(r, "grad_acc", record_number(r, "microbatches", 0));
    double made = measured_batch_of(r) / l->dp / l->key.micro_batch;
    if (m < 1 && made > 0 && l->schedule == SCHEDULE_INTERLEAVED) m = near_multiple(made, l->pp);
    if (m < 1 && made > 0) m = near_multiple(made, 1);
    if (m < 1) m = made > 0 ? floor(made) : l->pp;
    return m >= 1 && m <= 1 << 24 ? (int64_t)m : 0;
}

/* Where neither micro-batch nor steps of accumulation are told, and no pipeline needs several: the rank's share of the batch, if that is
 * no more than usual. */
static int untold_micro_batch(const record *r, const sketch_layout *l) {
    enum { USUAL_TOKENS = 16384 };
    double share = rint(measured_batch_of(r) / l->dp), seq = record_number(r, "seq", 1);
    bool told =
        *record_text(r, "mbs") || *record_text(r, "grad_acc") || *record_text(r, "microbatches");
    if (told || l->pp > 1 || share < 1 || share > 1 << 16) return l->key.micro_batch;
    int b = (int)fmin(share, fmax(1, floor(USUAL_TOKENS / seq)));
    while ((int)share % b) b--;
    return b;
}

/* Whether the cell begins with one of the words: "none (tp_recompute_allgather)", "NO_SHARD", "full AC". */
static bool says(const char *cell, const char *const *words, int n) {
    for (int i = 0; i < n; i++)
        if (starts(cell, words[i]) && !isalnum((unsigned char)cell[strlen(words[i])])) return true;
    return false;
}

static bool says_none(const char *cell) {
    static const char *const words[] = {"0", "no", "none",    "false", "off", "disabled",
                                        "n", "w",  "without", "ddp",   "dp",  "ptd"};
    return !*cell || says(cell, words, ARRAY_LEN(words));
}

/* "1", "ZeRO-1", "DeepSpeed stage 1", "1 in groups of 16". */
static int stage_in(const char *s) {
    static const char *const before[] = {"deepspeed", "zero", "stage", "z"};
    for (int i = 0; i <= ARRAY_LEN(before); i++) {
        s += strspn(s, " -_");
        if (i < ARRAY_LEN(before) && starts(s, before[i])) s += strlen(before[i]);
    }
    bool whole = *s >= '0' && *s < '0' + ZERO_UNKNOWN && !isalnum((unsigned char)s[1]);
    return whole && s[1] != '.' ? *s - '0' : ZERO_UNKNOWN;
}

/* Whether the ranks of a node share, and nodes do not. */
static bool is_in_nodes(const char *zero) {
    return has(zero, "hybrid") || has(zero, "hsdp") || has(zero, "mics");
}

int measured_zero_of(const record *r) {
    static const char *const optimizer[] = {"distributed", "dist", "distopt"}, *const all[] = {
                                                                                   "fully", "full",
                                                                                   "on", "yes",
                                                                                   "true"};
    const char *s = record_text(r, "zero");
    if (has(s, "grad_op")) return 2;
    if (says(s, optimizer, ARRAY_LEN(optimizer))) return 1;
    if (has(s, "fsdp") || has(s, "full_shard") || says(s, all, ARRAY_LEN(all)) ||
        (is_in_nodes(s) && !strpbrk(s, "0123456789")))
        return 3;
    return says_none(s) ? 0 : stage_in(s);
}

/* How many of the ranks share a state: those of a node under HSDP, "groups of 16"; 0: all; -1: of groups that have no size. */
static int group_of(const record *r, int per_node) {
    const char *s = record_text(r, "zero"), *of = strcasestr(s, "group");
    const char *digit = of ? strpbrk(of, "0123456789") : NULL;
    long size = digit ? strtol(digit, NULL, 10) : 0;
    if (of) return size > 0 && size <= 1 << 20 ? (int)size : -1;
    return is_in_nodes(s) ? per_node : 0;
}

status measured_share_in_groups(const record *r, int per_node, sketch_layout *l, err *e) {
    int beside = l->key.tp * l->key.cp,
        group = group_of(r, per_node > beside ? per_node / beside : 1);
    if (group < 0)
        return err_set(e, ST_FORMAT, "zero '%s' does not tell how many ranks its groups have",
                       record_text(r, "zero"));
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
    } known[] = {{"bf16", 16},    {"fp16", 16},  {"fp8", 8},      {"fp32", 32}, {"bfloat16", 16},
                 {"float16", 16}, {"float8", 8}, {"float32", 32}, {"e4m3", 8}};
    static const char *const sixteen[] = {"mixed", "amp", "half", "16-"};
    const char *first = NULL;
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        const char *at = strcasestr(s, known[i].word);
        if (!at || (first && at > first)) continue;
        first = at;
        to->fp8 = known[i].bits == 8;
        to->fp32 = known[i].bits == 32;
    }
    for (int i = 0; i < ARRAY_LEN(sixteen) && !first; i++) first = strcasestr(s, sixteen[i]);
    return first || !*s;
}

/* In rows of this program `ep` ranks share out experts, and the tp ranks of each share each expert's columns. In rows of others `ep` counts both:
 * each of these ranks has whole experts (Liu et al. 2025, "MoE Parallel Folding"). So the layout here that has as many weights of experts on a
 * rank has ep / tp. Whose row it is decides, whatever runtime predicts it: what a column means does not depend on that. */
static void fold_experts(const measured_row *x, sketch_key *key) {
    if (x->whose != ROWS_OWN && x->whose != ROWS_UNNAMED && key->ep % key->tp == 0)
        key->ep /= key->tp;
}

/* Cheap parts of a layer, as Megatron-LM names them, cost next to nothing to be made again, and count as none. */
static status read_recompute(const record *r, recompute_policy *out, err *e) {
    static const char *const full[] = {"full",
                                       "true",
                                       "yes",
                                       "y",
                                       "on",
                                       "1",
                                       "all",
                                       "block",
                                       "layer",
                                       "layers",
                                       "every layer",
                                       "uniform",
                                       "enabled",
                                       "ac",
                                       "ckpt",
                                       "checkpoint",
                                       "checkpointing",
                                       "activation checkpointing",
                                       "gradient checkpointing",
                                       "✓"};
    static const char *const some[] = {"selective",  "select",    "sel",   "sac",  "partial",
                                       "per op sac", "op",        "every", "core", "core_attn",
                                       "attn",       "attention", "moe",   "mlp"};
    static const char *const parts[] = {"moe_act", "layernorm", "norm", "mla_up_proj", "✗"};
    const char *s = record_text(r, "recompute");
    bool layers = has(s, "layer") && *s >= '2' && *s <= '9'; /* so many of them */
    bool none = says_none(s) || has(s, "=false") || says(s, parts, ARRAY_LEN(parts));
    *out = none                                       ? RECOMPUTE_NONE
           : says(s, full, ARRAY_LEN(full))           ? RECOMPUTE_FULL
           : layers || says(s, some, ARRAY_LEN(some)) ? RECOMPUTE_SELECTIVE
                                                      : RECOMPUTE_NONE;
    if (none || *out != RECOMPUTE_NONE) return ST_OK;
    return err_set(e, ST_FORMAT, "recompute '%s' is none of full, selective, none", s);
}

/* A batch that is told twice is the same, but for what a round number of tokens hides. */
static status check_told(const record *r, const sketch_layout *l, err *e) {
    static const char *const told[] = {"grad_acc", "microbatches"};
    double batch = measured_batch_of(r);
    for (int i = 0; i < ARRAY_LEN(told); i++) {
        double m = record_number(r, told[i], 0), made = m * l->dp * l->key.micro_batch;
        if (m > 0 && batch > 0 && fabs(made / batch - 1) > 0.05)
            return err_set(e, ST_FORMAT,
                           "%s %.0f x dp %d x mbs %d are a batch of %.0f, where the row has %g",
                           told[i], m, l->dp, l->key.micro_batch, made, batch);
        if (m > 0 && m != (double)l->micro_batches)
            return err_set(e, ST_FORMAT, "grad_acc '%s' and microbatches '%s' are not the same",
                           record_text(r, "grad_acc"), record_text(r, "microbatches"));
    }
    return ST_OK;
}

static status check_batch(const record *r, const sketch_layout *l, err *e) {
    TRY(check_told(r, l, e));
    if (l->micro_batches < 1)
        return err_set(e, ST_FORMAT, "a batch of gbs_seqs '%s' is less than dp %d x mbs %d",
                       record_text(r, "gbs_seqs"), l->dp, l->key.micro_batch);
    if (l->schedule == SCHEDULE_INTERLEAVED && l->micro_batches % l->pp)
        return err_set(e, ST_FORMAT,
                       "interleaved stages take micro-batches by pp: %lld are no multiple of %d",
                       (long long)l->micro_batches, l->pp);
    return ST_OK;
}

/* Whole nodes of the GPUs. */
static status check_nodes(const record *r, int gpus, err *e) {
    int nodes = record_int(r, "nodes", 1);
    if (nodes > 0 && gpus % nodes == 0) return ST_OK;
    return err_set(e, ST_FORMAT, "gpus %d do not make nodes '%s' of equally many", gpus,
                   record_text(r, "nodes"));
}

/* FSDP keeps the weights of a stage from its forward to its backward, as ZeRO-2 does: Llama Team 2024, section 3.3.2, and torchtitan. A
 * row that says 3 has 3. */
static int in_pipeline(const char *cell, int zero, int pp) {
    return zero == 3 && pp > 1 && !strchr(cell, '3') ? 2 : zero;
}

status measured_layout_of(const record *r, measured_row *to, err *e) {
    sketch_layout *l = &to->layout;
    l->key.tp = record_degree(r, "tp");
    l->pp = *record_text(r, "pp") ? record_degree(r, "pp") : record_int(r, "gpus_pp", 1);
    l->zero = in_pipeline(record_text(r, "zero"), measured_zero_of(r), l->pp);
    l->key.micro_batch = record_int(r, "mbs", 1);
    l->key.ep = record_degree(r, "ep");
    l->key.cp = record_degree(r, "cp");
    TRY(read_recompute(r, &l->key.recompute, e));
    to->gpus = record_int(r, "gpus", record_int(r, "gpus_pp", 0));
    TRY(schedule_of(r, l, e));
    TRY(check_bounds(r, to, e));
    TRY(check_nodes(r, to->gpus, e));
    int copy = l->key.tp * l->pp * l->key.cp;
    if (to->gpus % copy)
        return err_set(e, ST_FORMAT, "gpus %d are no multiple of tp %d x pp %d x cp %d", to->gpus,
                       l->key.tp, l->pp, l->key.cp);
    fold_experts(to, &l->key);
    l->dp = to->gpus / copy;
    l->key.micro_batch = untold_micro_batch(r, l);
    l->micro_batches = steps_of(r, l);
    TRY(check_batch(r, l, e));
    if (!read_precision(record_text(r, "precision"), to))
        return err_set(e, ST_FORMAT, "precision '%s' is none of bf16, fp16, fp8, fp32",
                       record_text(r, "precision"));
    if (l->dp * l->key.cp % l->key.ep)
        return err_set(e, ST_FORMAT, "dp %d x cp %d ranks cannot share experts by ep %d", l->dp,
                       l->key.cp, l->key.ep);
    return ST_OK;
}
