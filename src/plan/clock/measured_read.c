/* Rows of published tables: a record becomes a row, with the sketch of its layers.
 *
 * Reading order: measured_read, read_all, take, and above it what a record says of devices and speed. */

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/clock/measured_int.h"

enum { MOST_DEVICES = 32, MOST_BYTES = 16 << 20 };

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
    json_object_set_new_nocheck(table, key, json_integer(n)); /* names may be of any bytes */
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
    if (starts(record_text(r, "flops_kind"), "causal")) unseen = 0;
    return s->model_flops * l->key.tp / tokens + unseen;
}

/* 43, "43%" and 0.43 are the same; "0.5%" is what it says. */
static double mfu_of(const record *r) {
    double x = record_number(r, "mfu_pct", 0);
    return x > 1 || strchr(record_text(r, "mfu_pct"), '%') ? x / 100 : x;
}

/* Tokens a second from the FLOPs that a device reached, or from their share of its peak. */
static double rate_of_flops(const record *r, const sketch *s, const sketch_layout *l,
                            const cluster *c) {
    double peak = record_number(r, "peak_tf", c->peak_flops[DT_BF16] / 1e12);
    double reached = record_number(r, "tflops_gpu", mfu_of(r) * peak);
    bool again =
        starts(record_text(r, "flops_kind"), "hardware") && l->key.recompute == RECOMPUTE_FULL;
    return reached * 1e12 * (again ? 0.75 : 1) / published_flops(r, s, l);
}

/* Else a batch is assumed, and the time of a step says nothing of tokens. */
static bool tells_batch(const record *r) {
    static const char *const known[] = {"grad_acc", "microbatches", "gbs_seqs", "gbs_tokens"};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (record_number(r, known[i], 0) > 0) return true;
    return false;
}

static double measured_rate(const record *r, const measured_row *x, const sketch *s,
                            const cluster *c) {
    double samples = record_number(r, "samples_per_gpu_s", 0),
           tokens = record_number(r, "tok_s_gpu", 0);
    double all = record_number(r, "tok_s", 0);
    double step = record_number(r, "iter_time_s", record_number(r, "iter_time_ms", 0) / 1e3);
    if (all <= 0 && step > 0 && tells_batch(r)) all = x->batch * s->spec.T / step;
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
    const char *gpu = record_text(r, "gpu");
    if (has(gpu, "A100") && (has(gpu, "40g") || has(gpu, "40 g"))) return &small;
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        const char *at = strcasestr(gpu, known[i].word);
        if (at && !isdigit((unsigned char)at[strlen(known[i].word)])) return &known[i]; /* no L40 */
    }
    if (*gpu) return NULL;
    return &known[*record_text(r, "schedule")
                      ? 0
                      : 2]; /* rows of Qi et al. 2023, on A100, name a schedule, not a device */
}

/* A limit on its power that the row tells; 0: none below what it may take. */
static double limit_of(const record *r, const known_device *d) {
    const char *end = record_text(r, "gpu");
    while ((end = strchr(end + (*end == 'W'), 'W'))) {
        const char *digit = end;
        while (digit > record_text(r, "gpu") && isdigit((unsigned char)digit[-1])) digit--;
        double watts = digit < end ? strtod(digit, NULL) : 0;
        if (watts > 0 && watts < d->watts) return watts;
    }
    return 0;
}

/* Power grows as the third power of the clock: with its voltage squared. */
static void slow_down(cluster *c, double share) {
    for (int i = 0; i < ARRAY_LEN(c->peak_flops); i++) c->peak_flops[i] *= cbrt(share);
}

/* Of a machine, where the row tells that its nodes have fewer; 0: as usual, and in racks, whose links go beyond nodes. */
static int per_node_of(const record *rec, const cluster *usual) {
    enum { MOST_IN_NODE = 16 };
    if (usual->per_node > MOST_IN_NODE) return 0;
    int nodes = record_int(rec, "nodes", 0), gpus = record_int(rec, "gpus", 0);
    int each = nodes > 1 && gpus % nodes == 0 ? gpus / nodes : 0;
    return each < usual->per_node ? each : 0;
}

static status find_device(rows_reading *k, const record *rec, int *out, err *e) {
    measured_rows *r = k->rows;
    char name[64];
    cluster usual;
    const known_device *d = device_of(rec);
    if (!d && !k->given) {
        if (!*r->unknown) snprintf(r->unknown, sizeof r->unknown, "%s", record_text(rec, "gpu"));
        text_make_plain(r->unknown);
        return err_set(e, ST_FORMAT,
                       "nothing is known of '%s': cluster=FILE says what such a device can do",
                       record_text(rec, "gpu"));
    }
    if (k->given) {
        *out = 0;
        return ST_OK;
    }
    CHECK(cluster_preset(&usual, d->preset), "no preset %s", d->preset);
    double watts = limit_of(rec, d);
    int each = per_node_of(rec, &usual), nodes = record_int(rec, "nodes", 0);
    if (nodes > 0 && record_int(rec, "gpus", 0) / nodes > usual.per_node)
        return err_set(e, ST_FORMAT, "gpus %s on nodes %s are more than the %d of a node of %s",
                       record_text(rec, "gpus"), record_text(rec, "nodes"), usual.per_node,
                       d->preset);
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
    } known[] = {{"athanor", ROWS_OWN},          {"torchtitan", ROWS_TORCHTITAN},
                 {"Korthikanti", ROWS_MEGATRON}, {"Narayanan", ROWS_MEGATRON},
                 {"Megatron", ROWS_MEGATRON},    {"NeMo", ROWS_MEGATRON},
                 {"nanotron", ROWS_NANOTRON},    {"smollm", ROWS_NANOTRON},
                 {"picotron", ROWS_NANOTRON},    {"MegaScale", ROWS_OWN},
                 {"foundry", ROWS_TORCHTITAN},   {"Mosaic", ROWS_TORCHTITAN},
                 {"FSDP", ROWS_TORCHTITAN},      {"pytorch", ROWS_TORCHTITAN}};
    const char *source = record_text(r, "source");
    if (has(source, "AutoModel") && record_degree(r, "ep") == 1)
        return ROWS_TORCHTITAN; /* NeMo's, by PyTorch's means; its experts are as fast as Megatron's */
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (has(source, known[i].word)) return known[i].whose;
    if (*record_text(r, "schedule"))
        return ROWS_MEGATRON; /* the zero-bubble paper's, which is Megatron's, neither */
    /* the playbook's table of runs, nanotron's, names no source */
    bool unnamed = !*source, pipeline = record_int(r, "pp", 1) > 1;
    return unnamed && *record_text(r, "status")    ? ROWS_NANOTRON
           : measured_zero_of(r) == 3 && !pipeline ? ROWS_TORCHTITAN
                                                   : ROWS_UNNAMED;
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
    if (whose == ROWS_UNNAMED)
        whose = c->kind == DEV_CPU           ? ROWS_OWN
                : l->pp > 1 || l->key.ep > 1 ? ROWS_MEGATRON
                                             : ROWS_TORCHTITAN;
    return whose == ROWS_MEGATRON && !starts(c->name, "a100") && !starts(c->name, "a800")
               ? ROWS_MEGATRON_CORE
               : whose;
}

static void read_measured(const rows_reading *k, const record *rec, measured_row *x) {
    measured_rows *r = k->rows;
    x->ok = record_went_well(rec);
    x->tok_per_s_gpu =
        x->ok ? measured_rate(rec, x, &r->sketch[x->sketch], &r->device[x->device]) : 0;
    double bubble = record_number(rec, "bubble", 0);
    x->only_bubble = x->ok && x->tok_per_s_gpu <= 0 && bubble > 0 && bubble < 1;
    if (x->only_bubble) x->tok_per_s_gpu = 1 - bubble;
    x->measured_bytes = record_number(rec, "gpu_mem_GB", record_number(rec, "mem_GB", 0)) * 1e9;
    if (x->measured_bytes <= 0) x->measured_bytes = record_number(rec, "mem_GiB", 0) * (1 << 30);
    /* a class of one published table, which tells how rows ended: nanotron's */
    x->stalls = x->whose == ROWS_NANOTRON && x->layout.zero == 0 && x->layout.pp > 1 &&
                x->nodes > 1 && *record_text(rec, "status");
}

/* The sketch of the row, and its cell. */
static status take_model(rows_reading *k, const record *rec, const json_t *model, double seq,
                         measured_row *x, err *e) {
    measured_rows *r = k->rows;
    char key[2048], *text = json_dumps(model, JSON_SORT_KEYS | JSON_COMPACT);
    int per_node = r->device[x->device].per_node;
    x->nodes = (x->gpus + per_node - 1) / per_node;
    snprintf(key, sizeof key, "%s %s %s %s %d", record_text(rec, "layers"),
             record_text(rec, "hidden"), record_text(rec, "vocab"),
             *record_text(rec, "hidden") ? "" : record_text(rec, "model"), x->nodes);
    x->batch = measured_batch_of(rec);
    if (x->batch <= 0)
        x->batch = (double)x->layout.micro_batches * x->layout.dp * x->layout.key.micro_batch;
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
    TRY(record_check(rec, e));
    TRY(measured_layout_of(rec, &x, e));
    TRY(find_device(k, rec, &x.device, e));
    TRY(measured_share_in_groups(rec, r->device[x.device].per_node, &x.layout, e));
    int year = year_of(record_text(rec, "source"));
    x.flash = year >= 2023 || (year == 0 && x.whose == ROWS_UNNAMED);
    x.whose = runtime_of_row(k, &x);
    if (x.whose == ROWS_OWN && !has(record_text(rec, "source"), "athanor") && x.layout.pp > 1 &&
        x.layout.zero == 2)
        x.layout.zero = 1; /* others' pipelines send sums of gradients once a step */
    TRY(measured_model_of(rec, &seq, &model, e));
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
    int i = number_for(r->refused_key, why);
    if (i < r->n_refused) {
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
        if (record_has_column(names, known[k])) return true;
    return false;
}

static status read_all(rows_reading *k, const char *path, const char *s, size_t n, err *e) {
    record rec = {.columns = 0};
    const char *why = NULL;
    size_t at = record_scan(s, n, rec.name[0], sizeof rec.name[0], &rec.columns, &why);
    if (!why) record_name_columns(&rec);
    if (why || !tells_speed(&rec)) {
        err_at(e, ST_FORMAT, path, "%s has no column of what was measured: tok_s_gpu, for example",
               path);
        return err_hint(
            e, "rows are those of a table of measurements, with a header; docs/planning.md "
               "says which columns there are");
    }
    for (int line = 2; at < n; line++) {
        int columns = 0;
        at += record_scan(s + at, n - at, rec.value[0], sizeof rec.value[0], &columns, &why);
        if (why) return err_at(e, ST_FORMAT, path, "%s: record %d %s", path, line, why);
        if (columns == 0) continue;
        for (int i = columns; i < rec.columns; i++) rec.value[i][0] = '\0';
        k->rows->all++;
        err reason = {0};
        if (columns > rec.columns && !record_ends_in_notes(&rec))
            err_set(&reason, ST_FORMAT, "it has %d cells, %d more than the header", columns,
                    columns - rec.columns);
        if (reason.code != ST_OK || take(k, &rec, line, &reason) != ST_OK) {
            text_make_plain(reason.message); /* which holds cells of the file */
            refuse(k->rows, line, reason.message);
        }
    }
    return ST_OK;
}

status measured_parse(measured_rows *out, const char *path, const char *text, size_t n,
                      const cluster *c, err *e) {
    dev *meta;
    *out = (measured_rows){.a = arena_new("rows"),
                           .sketch_key = json_object(),
                           .cell_key = json_object(),
                           .refused_key = json_object()};
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
    json_decref(r->refused_key);
    arena_free(r->a);
}
