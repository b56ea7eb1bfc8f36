/* Reading order: plan_by_formula; how a config becomes the few sizes that formulas know; what is said. */
#include "app/plan/by_formula.h"

#include <string.h>

#include "app/frame/model_arg.h"
#include "app/plan/on_cluster.h"
#include "base/json.h"
#include "model/family.h"
#include "model/layer.h"
#include "optim/optim.h"
#include "plan/clock/network.h"
#include "plan/published/published.h"
#include "train/axes.h"
#include "train/setup.h"
#include "train/shares.h"

static const double MIB = 1 << 20, GIB = 1 << 30;

/* ---- from a config ---- */

/* Formulas are of dense decoders whose layers are alike. */
static status check_model(const config *c, const model_config *m, err *e) {
    const struct {
        bool is;
        const char *what;
    } all[] = {{m->num_experts > 0, "experts"},
               {m->kv_lora_rank > 0, "latent attention"},
               {m->linear_layers > 0, "linear layers"},
               {m->num_encoder_layers > 0, "encoder"},
               {m->block_repeat > 1, "repeated blocks"},
               {m->intermediate_size_of || m->num_attention_heads_of || m->num_key_value_heads_of,
                "layers of several widths"}};
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        if (!all[i].is) continue;
        config_error(c, e, "model", "published formulas know no %s", all[i].what);
        return err_hint(e, "without --model the plan is of the model as it is");
    }
    return ST_OK;
}

static published_model sizes_of(const model_config *m) {
    return (published_model){.layers = (double)m->num_hidden_layers,
                             .hidden = (double)m->hidden_size,
                             .heads = (double)m->num_attention_heads,
                             .kv_heads = (double)m->num_key_value_heads,
                             .head_dim = (double)m->head_dim,
                             .ffn = (double)m->intermediate_size,
                             .vocab = (double)m->vocab_size,
                             .tied = m->tie_word_embeddings,
                             .gated = m->mlp == MLP_GATED,
                             .relu = m->act == ACT_RELU};
}

/* What no program can share out evenly is refused, as the plan refuses it. Stages may have unlike numbers of layers. */
static status check_layout(const config *c, const model_config *m, err *e) {
    int64_t chunks = c->parallel.pp * c->parallel.virtual;
    TRY(setup_check_length(c, m, e));
    if (c->parallel.ep > 1) TRY(axes_check_experts(c, m, e));
    if (model_check_ranks(m, (int)c->parallel.tp, e) != ST_OK) {
        config_locate(c, "parallel.tp", e);
        return ST_USAGE;
    }
    if (chunks <= m->num_hidden_layers) return ST_OK;
    config_error(c, e, "parallel.pp", "%ld layers do not make %ld chunks",
                 (long)m->num_hidden_layers, (long)chunks);
    return err_hint(e, "parallel.pp times parallel.virtual is %ld or less",
                    (long)m->num_hidden_layers);
}

static status read_model(const config *c, published_model *out, err *e) {
    arena *a = arena_new("formula");
    model_config m;
    status st = model_config_read(a, c->model, 0, &m, e);
    if (st == ST_OK) st = check_model(c, &m, e);
    if (st == ST_OK) st = check_layout(c, &m, e);
    if (st == ST_OK) *out = sizes_of(&m);
    arena_free(a);
    return st;
}

/* Which of them; also the order of their names. */
enum { FORMULA, WIDGET, PREDICTOR, MODELS };
static const char *const models[MODELS] = {"formula", "widget", "predictor"};

/* What a formula leaves out is refused where the config has it: its bytes would be of another run. */
static status check_terms(const config *c, int which, const char *convention, err *e) {
    enum { OF_FORMULA = 1 << FORMULA, OF_WIDGET = 1 << WIDGET, OF_PREDICTOR = 1 << PREDICTOR };
    const optim_class *o = optim_at(c->optim.name);
    int compute = (int)c->train.precision.compute;
    bool fp32 = compute == CONFIG_PRECISION_FP32, counts_fp32 = strcmp(convention, "fp32") == 0;
    bool afab = c->parallel.pp > 1 && c->parallel.pp_schedule == CONFIG_PP_AFAB;
    const struct {
        const char *key;
        bool is;
        int without; /* those that have no term for it */
    } all[] = {
        {"lora.rank", config_adapts(c) != NULL, OF_FORMULA | OF_WIDGET | OF_PREDICTOR},
        {"parallel.offload", c->parallel.offload != CONFIG_OFFLOAD_NONE,
         OF_FORMULA | OF_WIDGET | OF_PREDICTOR},
        {"distill.teacher", c->distill.teacher != NULL, OF_FORMULA | OF_WIDGET | OF_PREDICTOR},
        {"train.reference", c->train.reference != NULL, OF_FORMULA | OF_WIDGET | OF_PREDICTOR},
        {"parallel.dp_replicate", c->parallel.dp_replicate > 1,
         OF_FORMULA | OF_WIDGET | OF_PREDICTOR},
        {"parallel.pp", c->parallel.pp > 1, OF_WIDGET},
        {"parallel.cp", c->parallel.cp > 1, OF_WIDGET | OF_PREDICTOR},
        {"parallel.virtual", c->parallel.virtual > 1, OF_WIDGET | OF_PREDICTOR},
        {"parallel.pp_schedule", afab, OF_FORMULA | OF_PREDICTOR},
        {"train.recompute", c->train.recompute != RECOMPUTE_NONE, OF_PREDICTOR},
        {"optim.name", o->declare_states != NULL, OF_WIDGET},
        {"optim.name", o->declare_states || o->n_states != 2, OF_FORMULA | OF_PREDICTOR},
        {"train.precision", fp32, OF_PREDICTOR},
        {"train.precision", fp32 && !counts_fp32, OF_FORMULA},
        {"train.precision", compute == CONFIG_PRECISION_FP8, OF_FORMULA | OF_WIDGET | OF_PREDICTOR},
        {"train.precision.optim", c->train.precision.optim == CONFIG_PRECISION_BF16,
         OF_FORMULA | OF_WIDGET | OF_PREDICTOR}};
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        if (!all[i].is || !(all[i].without >> which & 1)) continue;
        config_error(c, e, all[i].key, "the %s has no term for what %s says", models[which],
                     all[i].key);
        return err_hint(e, which == FORMULA && fp32 && !counts_fp32
                               ? "--convention fp32 counts 4 bytes"
                               : "without --model the plan is of the run as it is");
    }
    return ST_OK;
}

/* Micro-batches as a real number would hide that a batch cannot be reached. */
static status read_batch(const config *c, published_run *r, err *e) {
    int64_t dp = (int64_t)r->dp, micro = config_micro_batch(c, dp);
    TRY(shares_check_sequences(c, micro, c->train.seq_len, e));
    TRY(shares_check_batch(c, c->train.global_batch_size, dp, micro, e));
    r->micro_batch = (double)micro;
    r->micro_batches = (double)(c->train.global_batch_size / (dp * micro));
    return ST_OK;
}

static status read_run(config *c, const cluster *on, published_run *r, err *e) {
    const optim_class *o = optim_at(c->optim.name);
    if (on) TRY(on_cluster_ranks(c, on, e));
    *r = (published_run){.seq = (double)c->train.seq_len,
                         .dp = c->parallel.dp == CONFIG_AUTO ? 1 : (double)c->parallel.dp,
                         .tp = (double)c->parallel.tp,
                         .cp = (double)c->parallel.cp,
                         .pp = (double)c->parallel.pp,
                         .chunks = (double)c->parallel.virtual,
                         .zero = (int)c->parallel.zero,
                         .sequence_parallel = c->parallel.sp,
                         .recompute = (recompute_policy)c->train.recompute,
                         .mixed = c->train.precision.compute != CONFIG_PRECISION_FP32,
                         .states = o->n_states,
                         .schedule = (schedule_kind)c->parallel.pp_schedule};
    TRY(read_model(c, &r->m, e));
    return read_batch(c, r, e);
}

/* ---- what is said ---- */

typedef struct saying {
    const cli_args *args;
    published_run run;
    const published_convention *convention; /* of the formula; else NULL */
    const cluster *on;                      /* NULL: none */
    published_memory memory;
    published_memory components; /* of the predictor's peak; of others none */
    double overhead;             /* of the predictor */
} saying;

static json_t *memory_json(const published_memory *m) {
    json_t *o = json_object();
    for (int i = 0; i < m->n; i++)
        json_object_set_new(o, m->part[i].name, json_f64(m->part[i].bytes));
    json_object_set_new(o, "total", json_f64(m->total));
    return o;
}

/* What a rank sends along an axis goes by its node's links, unless ranks of the axis are in other nodes. */
static double link_of(const saying *s, mesh_axis axis) {
    const published_run *r = &s->run;
    mesh_shape shape = {
        .dp = (int)r->dp, .dp_replicate = 1, .tp = (int)r->tp, .cp = (int)r->cp, .pp = (int)r->pp};
    network_group g = network_group_of(s->on, &shape, axis);
    return g.per_node < g.ranks ? s->on->network.bytes_per_s : s->on->node.bytes_per_s;
}

static published_overlap overlap_of(const saying *s) {
    published_links by = {.data = link_of(s, MESH_DATA),
                          .dp = link_of(s, MESH_DP),
                          .tp = link_of(s, MESH_TP),
                          .pp = link_of(s, MESH_PP)};
    return published_overlap_of(&s->run, s->on->peak_flops[s->run.mixed ? DT_BF16 : DT_F32], &by);
}

static void print_json(const saying *s) {
    const published_run *r = &s->run;
    json_t *o = json_pack("{s:s,s:o}", "model", cli_value(s->args, "model"), "bytes",
                          memory_json(&s->memory));
    if (s->convention) {
        json_object_update_new(
            o, json_pack("{s:s,s:o,s:o,s:o}", "convention", s->convention->name, "params",
                         json_f64(published_params(r, s->convention->count)), "bubble",
                         json_f64(published_bubble(r)), "flops", json_f64(published_flops(r))));
    }
    if (s->convention && s->on) {
        published_overlap x = overlap_of(s);
        json_object_set_new(
            o, "exposed",
            json_pack("{s:f,s:f,s:f,s:f}", "dp", x.dp, "zero3", x.zero3, "tp", x.tp, "pp", x.pp));
    }
    if (s->components.n > 0) json_object_set_new(o, "components", memory_json(&s->components));
    if (s->overhead > 0) json_object_set_new(o, "overhead_bytes", json_f64(s->overhead));
    cli_print_json(o);
}

static void print_bytes(const char *name, double bytes) {
    printf("  %-27s %10.2f GiB %12.0f MiB\n", name, bytes / GIB, bytes / MIB);
}

static void print_overlap(const char *name, double x) {
    if (x > 0)
        printf("  %-27s %10.3f of the time that hides it%s\n", name, x, x > 1 ? ": it shows" : "");
}

static void print_text(const saying *s) {
    const published_run *r = &s->run;
    printf("%s%s%s: bytes of a rank as it has them, not as this program would run\n",
           cli_value(s->args, "model"), s->convention ? ", as " : "",
           s->convention ? s->convention->of : "");
    for (int i = 0; i < s->memory.n; i++)
        print_bytes(s->memory.part[i].name, s->memory.part[i].bytes);
    print_bytes(s->overhead > 0 ? "most of them" : "together", s->memory.total);
    if (s->overhead > 0) print_bytes("beside them", s->overhead);
    if (s->components.n > 0) printf("what is there at the most\n");
    for (int i = 0; i < s->components.n; i++)
        if (s->components.part[i].bytes > 0)
            print_bytes(s->components.part[i].name, s->components.part[i].bytes);
    if (!s->convention) return;
    if (r->pp > 1)
        printf("  %-27s %10.4f of the work of a stage%s\n", "bubble", published_bubble(r),
               r->schedule == SCHEDULE_ZB_V ? ", which begins a step before others have ended the "
                                              "last; plan schedule counts that as waiting, too"
                                            : "");
    printf("  %-27s %10.3g in a step of all ranks\n", "FLOPs", published_flops(r));
    if (!s->on) return;
    published_overlap x = overlap_of(s);
    print_overlap("gradients", x.dp);
    print_overlap("gathers of ZeRO-3", x.zero3);
    print_overlap("gathers of tp", x.tp);
    print_overlap("sends between stages", x.pp);
}

static status reckon(saying *s, err *e) {
    const char *model = cli_value(s->args, "model"), *name = cli_value(s->args, "convention");
    if (strcmp(model, "widget") == 0) {
        s->memory = published_widget(&s->run);
    } else if (strcmp(model, "predictor") == 0) {
        s->memory = published_predictor(&s->run);
        s->components = published_predictor_components(&s->run);
        s->overhead = published_predictor_overhead(&s->run);
    } else {
        s->convention = published_convention_find(name ? name : "mixed");
        if (!s->convention) {
            err_at(e, ST_USAGE, "--convention", "'%s' is no way to count bytes", name);
            return err_hint(e, "there are %s", published_convention_names);
        }
        s->memory = published_formula(&s->run, s->convention);
    }
    if (s->args->json)
        print_json(s);
    else
        print_text(s);
    return ST_OK;
}

static status of_config(const cli_args *args, int which, err *e) {
    config *c;
    cluster on;
    saying s = {.args = args};
    TRY(model_arg_load(args->inputs[0], args, &c, e));
    status st = config_check_supported(c, e);
    if (st == ST_OK && c->cluster) {
        st = on_cluster_find(c, &on, e);
        s.on = &on;
    }
    const char *convention = cli_value(args, "convention");
    if (st == ST_OK) st = check_terms(c, which, convention ? convention : "mixed", e);
    if (st == ST_OK) st = read_run(c, s.on, &s.run, e);
    if (st == ST_OK) st = reckon(&s, e);
    config_free(c);
    return st;
}

status plan_by_formula(const cli_args *args, err *e) {
    const char *model = cli_value(args, "model");
    int which = 0;
    while (which < MODELS && strcmp(model, models[which]) != 0) which++;
    if (which == MODELS) {
        err_at(e, ST_USAGE, "--model", "'%s' is no published model of memory", model);
        return err_hint(e, "there are formula, widget and predictor");
    }
    if (which != FORMULA && cli_has(args, "convention"))
        return err_at(e, ST_USAGE, "--convention", "the %s counts in one way only", model);
    saying s = {.args = args};
    if (which != WIDGET || !published_widget_preset(args->inputs[0], &s.run))
        return of_config(args, which, e);
    TRY(cli_refuse_overrides(args, "the widget's examples are as they are", e));
    return reckon(&s, e);
}
