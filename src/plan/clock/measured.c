/* Reading order: measured_read (a record becomes a row), measured_predict, measured_judge, measured_fit. */
#include "plan/clock/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/yaml.h"
#include "data/text/csv_record.h"

enum { COLUMNS = 64, MOST_BYTES = 16 << 20, FEW_LAYERS = 3 };

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

/* `without` where the column is absent or empty. */
static double number_of(const record *r, const char *name, double without) {
    const char *s = text_of(r, name);
    char *end;
    if (*s == '~') s++;
    double x = strtod(s, &end);
    return *s && !*end && x > -1e15 && x < 1e15 ? x : without;
}

static int int_of(const record *r, const char *name, int without) {
    double x = number_of(r, name, without);
    return x >= 0 && x <= 1 << 30 ? (int)x : without;
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

static bool starts(const char *s, const char *with) {
    return strncmp(s, with, strlen(with)) == 0;
}

/* As this program calls it, in rows of its own. */
static bool own_schedule(const char *name, sketch_layout *l) {
    for (schedule_kind kind = 0; kind < SCHEDULES; kind++) {
        if (!schedule_runs(kind) || strcmp(name, schedule_name(kind)) != 0) continue;
        l->schedule = kind;
        return true;
    }
    return false;
}

static bool schedule_of(const record *r, sketch_layout *l) {
    const char *name = text_of(r, "schedule");
    int v = int_of(r, "vpp", 1);
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
    else if (*name && strcmp(name, "1F1B") != 0)
        return own_schedule(name, l);
    return true;
}

static json_t *model_of(const record *r, double *seq) {
    int h = int_of(r, "hidden", 0), heads = int_of(r, "heads", 0), layers = int_of(r, "layers", 0);
    int ffn = int_of(r, "ffn", 4 * h), vocab = int_of(r, "vocab", 51200);
    *seq = number_of(r, "seq", 0);
    if (h < 1 || h > 1 << 20 || ffn > 1 << 22 || vocab > 1 << 24 || heads < 1 || h % heads ||
        layers < 1 || layers > 1024 || ffn < 1 || vocab < 2 || *seq < 1 || *seq > 1 << 20)
        return NULL;
    if (ffn == 4 * h && !starts(text_of(r, "model"), "Llama") && !*text_of(r, "tied_emb"))
        return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i}", "model_type", "gpt2", "n_embd", h, "n_layer",
                         layers, "n_head", heads, "vocab_size", vocab, "n_positions", (int)*seq);
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b}", "model_type", "llama", "hidden_size", h,
                     "num_hidden_layers", layers, "num_attention_heads", heads,
                     "num_key_value_heads", int_of(r, "kv_heads", int_of(r, "kv", heads)),
                     "intermediate_size", ffn, "vocab_size", vocab, "tie_word_embeddings",
                     int_of(r, "tied_emb", 0));
}

/* Within what can be reckoned: a schedule is drawn item by item. */
static bool is_in_bounds(const measured_row *x) {
    const sketch_layout *l = &x->layout;
    return x->gpus >= 1 && x->gpus <= 1 << 20 && l->key.tp >= 1 && l->key.tp <= 1024 &&
           l->pp >= 1 && l->pp <= 128 && l->key.micro_batch >= 1 && l->key.micro_batch <= 1 << 16 &&
           l->zero <= 3 && l->chunks_of_stage <= 16;
}

/* Micro-batches of a step, told or from the global batch; where neither is there as many as stages, with which a pipeline is full. */
static int64_t steps_of(const record *r, const sketch_layout *l) {
    double m = number_of(r, "grad_acc", number_of(r, "microbatches", 0));
    double batch = number_of(r, "gbs_seqs", 0);
    if (m < 1) m = batch > 0 ? floor(batch / l->dp / l->key.micro_batch) : l->pp;
    return m >= 1 && m <= 1 << 24 ? (int64_t)m : 0;
}

static bool layout_of(const record *r, measured_row *to) {
    sketch_layout *l = &to->layout;
    const char *recompute = text_of(r, "recompute"), *precision = text_of(r, "precision");
    l->key.tp = int_of(r, "tp", 1);
    l->pp = int_of(r, "pp", int_of(r, "gpus_pp", 1));
    l->zero = int_of(r, "zero", 0);
    l->key.micro_batch = int_of(r, "mbs", l->pp > 1 ? 1 : 0);
    l->key.cp = int_of(r, "cp", 1);
    to->gpus = int_of(r, "gpus", int_of(r, "gpus_pp", 0));
    if (!schedule_of(r, l) || !is_in_bounds(to) || l->key.cp < 1 || l->key.cp > 1024 ||
        to->gpus % (l->key.tp * l->pp * l->key.cp))
        return false;
    l->dp = to->gpus / (l->key.tp * l->pp * l->key.cp);
    l->micro_batches = steps_of(r, l);
    l->key.recompute = starts(recompute, "full")        ? RECOMPUTE_FULL
                       : starts(recompute, "selective") ? RECOMPUTE_SELECTIVE
                                                        : RECOMPUTE_NONE;
    to->fp8 = starts(precision, "fp8");
    to->fp32 = starts(precision, "fp32");
    bool known = !*precision || starts(precision, "bf16") || starts(precision, "fp16") ||
                 to->fp32 || to->fp8;
    return known && l->micro_batches > 0 &&
           (l->schedule != SCHEDULE_INTERLEAVED || l->micro_batches % l->pp == 0);
}

enum { MOST_DEVICES = 4 };

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

/* Runs whose table names schedules cut n layers with the embedding and the head as one layer each, where these make equal
 * parts (Qi et al. 2023). */
static bool has_ends_apart(const measured_row *x, int layers) {
    int parts = x->layout.pp * x->layout.chunks_of_stage;
    return x->names_schedule && layers % parts && (layers + 2) % parts == 0;
}

/* What layer x has beside an ordinary one. */
static sketch_layer end_of(const sketch_layer *x, const sketch_layer *ordinary) {
    sketch_layer end = *x;
    double *d = (double *)&end;
    const double *less = (const double *)ordinary;
    for (size_t i = 0; i < sizeof end / sizeof *d; i++) d[i] = d[i] > less[i] ? d[i] - less[i] : 0;
    end.scratch_bytes = x->scratch_bytes;
    end.tied_elems = x->tied_elems;
    return end;
}

/* n layers of three: the first, others, the last. */
static void repeat_layers(sketch *out, arena *a, const sketch_layer *few, int n, bool apart) {
    out->layers = n + (apart ? 2 : 0);
    out->layer = ARENA_ARRAY(a, sketch_layer, out->layers);
    for (int i = 0; i < out->layers; i++) out->layer[i] = few[1];
    out->layer[0] = apart ? end_of(&few[0], &few[1]) : few[0];
    out->layer[out->layers - 1] = apart ? end_of(&few[2], &few[1]) : few[2];
}

/* Layers are alike: three are recorded, and the middle one stands for all between the first and the last. */
static status make_sketch(const rows_reading *k, const json_t *model, double seq,
                          const measured_row *x, sketch *out, err *e) {
    measured_rows *r = k->rows;
    plan_spec spec = {.compute = x->fp32 ? DT_F32 : DT_BF16,
                      .T = (int)seq,
                      .train_B = 1,
                      .optim = optim_find("adamw")};
    json_t *few = json_copy((json_t *)(uintptr_t)model);
    const char *layers = json_object_get(few, "n_layer") ? "n_layer" : "num_hidden_layers";
    int n = (int)json_integer_value(json_object_get(few, layers));
    sketch s;
    json_object_set_new(few, layers, json_integer(n < FEW_LAYERS ? n : FEW_LAYERS));
    status st = model_config_read(r->a, few, 0, &spec.model, e);
    json_decref(few);
    if (st == ST_OK)
        st = sketch_new(&s, r->a, k->meta, &spec, x->layout.key, &r->device[x->device], e);
    if (st != ST_OK) return st;
    *out = s;
    if (n <= FEW_LAYERS) return ST_OK;
    repeat_layers(out, r->a, s.layer, n, has_ends_apart(x, n));
    return ST_OK;
}

static double measured_rate(const record *r, const measured_row *x, double seq) {
    double samples = number_of(r, "samples_per_gpu_s", 0), tokens = number_of(r, "tok_s_gpu", 0);
    double all = number_of(r, "tok_s", 0);
    return tokens > 0 ? tokens : samples > 0 ? samples * seq : all / x->gpus;
}

/* The preset of the devices that a row names; h100 where it names none. Of a cluster that was given there is one. */
static const char *device_of(const record *r) {
    static const char *const known[] = {"A100", "H100", "H200", "B200"};
    static const char *const presets[] = {"a100", "h100", "h200", "b200"};
    const char *gpu = text_of(r, "gpu");
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (strstr(gpu, known[i])) return presets[i];
    if (*gpu) return NULL;
    return *text_of(r, "schedule")
               ? "a100"
               : "h100"; /* those of Qi et al. 2023 name a schedule, not a device */
}

/* False: there is nothing known of them. */
static bool find_device(rows_reading *k, const record *rec, int *out) {
    measured_rows *r = k->rows;
    const char *name = device_of(rec);
    if (!name && !k->given) return false;
    for (*out = 0; *out < r->n_devices; ++*out)
        if (k->given || strcmp(r->device[*out].name, name) == 0) return true;
    if (r->n_devices == MOST_DEVICES) return false;
    if (!cluster_preset(&r->device[r->n_devices], name)) return false;
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
    } known[] = {{"athanor", 0},  {"torchtitan", 3}, {"Korthikanti", 2},
                 {"Megatron", 2}, {"nanotron", 1},   {"smollm", 1}};
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (strstr(text_of(r, "source"), known[i].word)) return known[i].whose;
    if (*text_of(r, "schedule"))
        return 2; /* the zero-bubble paper's, which is Megatron's, neither */
    return *text_of(r, "status")
               ? 1
               : 0; /* the playbook's table of runs, nanotron's, names no source */
}

/* False: the row cannot be reckoned. */
static bool take(rows_reading *k, const record *rec, int line) {
    measured_rows *r = k->rows;
    measured_row x = {
        .line = line, .whose = whose_of(rec), .names_schedule = *text_of(rec, "schedule")};
    double seq;
    char key[512];
    json_t *model = model_of(rec, &seq);
    if (!model || !layout_of(rec, &x) || !find_device(k, rec, &x.device) ||
        (x.layout.key.cp > 1 && fmod(seq, 2 * x.layout.key.cp) > 0)) {
        json_decref(model);
        return false;
    }
    char *text = json_dumps(model, JSON_SORT_KEYS | JSON_COMPACT);
    int per_node = r->device[x.device].per_node;
    x.nodes = (x.gpus + per_node - 1) / per_node;
    snprintf(key, sizeof key, "%s %s %s %d", text_of(rec, "layers"), text_of(rec, "hidden"),
             text_of(rec, "vocab"), x.nodes);
    x.batch = x.layout.micro_batches * x.layout.dp * x.layout.key.micro_batch;
    x.cell = number_for(r->cell_key, key);
    snprintf(key, sizeof key, "%d %s %g %d %d %d %d %d%s", x.device, text, seq, x.layout.key.tp,
             x.layout.key.cp, x.layout.key.micro_batch, x.layout.key.recompute, (int)x.fp32,
             has_ends_apart(&x, int_of(rec, "layers", 0)) ? " apart" : "");
    free(text);
    x.sketch = find_sketch(k, key, model, seq, &x);
    json_decref(model);
    if (r->sketch[x.sketch].layers < x.layout.pp * x.layout.chunks_of_stage) return false;
    const char *state = text_of(rec, "status");
    x.ok = !*state || strcmp(state, "ok") == 0;
    x.tok_per_s_gpu = x.ok ? measured_rate(rec, &x, seq) : 0;
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

static status read_all(rows_reading *k, const char *path, const char *s, size_t n, err *e) {
    record rec = {.columns = 0};
    const char *why = NULL;
    size_t at = scan(s, n, rec.name[0], sizeof rec.name[0], &rec.columns, &why);
    bool has = false;
    for (int i = 0; i < rec.columns; i++)
        has |=
            strcmp(rec.name[i], "tok_s_gpu") == 0 || strcmp(rec.name[i], "samples_per_gpu_s") == 0;
    if (why || !has) {
        err_at(e, ST_FORMAT, path, "%s has no column tok_s_gpu or samples_per_gpu_s", path);
        return err_hint(e, "rows are those of a table of measurements, with a header");
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

/* ---- predicting ---- */

/* Products of 8 bits: on H100 the best of large ones reach 1403 TFLOP/s, of 16 bits 794 (ml-engineering's mamf-finder). */
static runtime runtime_of(const runtime *t, const measured_row *x) {
    static const double PRODUCTS_OF_8_BITS = 794.5 / 1402.6;
    runtime own = *t;
    if (x->fp8) own.products *= PRODUCTS_OF_8_BITS;
    return own;
}

static void predict(const measured_rows *r, measured_row *x, const runtime *t, cluster *on) {
    sketch_result s;
    runtime own = runtime_of(t, x);
    on->nodes = x->nodes;
    x->predicted = 0;
    if (sketch_time(&r->sketch[x->sketch], &x->layout, on, &own, &s, NULL) != ST_OK) return;
    x->predicted =
        x->only_bubble ? 1 / (1 + clock_bubble(&s.time)) : s.time.tokens / s.time.step_s / x->gpus;
    x->memory_bytes = s.memory_bytes;
}

void measured_predict(measured_rows *r, const measured_model *m) {
    cluster on = m->c;
    int on_device = 0;
    r->fill = m->t.fill;
    for (int i = 0; i < r->n; i++) {
        measured_row *x = &r->row[i];
        if (x->device != on_device) on = x->device ? r->device[x->device] : m->c;
        on_device = x->device;
        predict(r, x, &m->t, &on);
    }
}

void measured_predict_published(measured_rows *r) {
    static const char *const names[] = {"athanor", "nanotron-0.5", "megatron", "torchtitan"};
    r->fill = 1;
    for (int i = 0; i < r->n; i++) {
        measured_row *x = &r->row[i];
        measured_model m;
        const cluster *c = r->n_devices ? &r->device[x->device] : &r->c;
        CHECK(measured_as(&m, names[x->whose], c, NULL) == ST_OK, "no runtime %d", x->whose);
        predict(r, x, &m.t, &m.c);
        x->memory_bytes /= m.t.fill;
    }
}

/* ---- judging ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    if (n == 0) return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return (x[n / 2] + x[(n - 1) / 2]) / 2;
}

static bool counts(const measured_row *x) {
    return x->ok && x->tok_per_s_gpu > 0 && x->predicted > 0;
}

/* How many of the n are smaller, ties half: ranks from 0. */
static double rank_in(const double *x, int n, double v) {
    double rank = 0;
    for (int i = 0; i < n; i++) rank += x[i] < v ? 1 : x[i] == v ? 0.5 : 0;
    return rank;
}

static double spearman(const double *x, const double *y, int n) {
    double sx = 0, sy = 0, xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < n; i++) {
        double a = rank_in(x, n, x[i]), b = rank_in(y, n, y[i]);
        sx += a, sy += b, xx += a * a, yy += b * b, xy += a * b;
    }
    double d = (xx - sx * sx / n) * (yy - sy * sy / n);
    return d > 0 ? (xy - sx * sy / n) / sqrt(d) : 1;
}

/* Whether row i is the best of those of its cell with its tp, pp and ZeRO, by what is measured. */
static bool is_best(const measured_rows *r, int i) {
    const measured_row *x = &r->row[i];
    for (int k = 0; k < r->n; k++) {
        const measured_row *y = &r->row[k];
        bool same = y->cell == x->cell && y->layout.key.tp == x->layout.key.tp &&
                    y->layout.pp == x->layout.pp && y->layout.zero == x->layout.zero;
        if (k != i && same && counts(y) && y->tok_per_s_gpu > x->tok_per_s_gpu) return false;
    }
    return true;
}

/* The global batch of most rows of a cell: layouts of others do another work. */
static int64_t usual_batch(const measured_rows *r, int cell) {
    int64_t batch = 0;
    int most = 0;
    for (int i = 0; i < r->n; i++) {
        int n = 0;
        if (r->row[i].cell != cell || r->row[i].stalls) continue;
        for (int k = 0; k < r->n; k++)
            n += r->row[k].cell == cell && r->row[k].batch == r->row[i].batch && !r->row[k].stalls;
        if (n <= most) continue;
        most = n;
        batch = r->row[i].batch;
    }
    return batch;
}

/* One cell: order, and what the chosen layout loses. Rows that stall are apart: nothing in their layout says so. */
static void judge_cell(const measured_rows *r, int cell, double *x, double *y, measured_score *s,
                       double *rho) {
    int n = 0, chosen = -1;
    int64_t batch = usual_batch(r, cell);
    double best = 0;
    for (int i = 0; i < r->n; i++) {
        const measured_row *k = &r->row[i];
        if (k->cell != cell || k->batch != batch || !counts(k) || k->stalls || k->only_bubble)
            continue;
        if (k->tok_per_s_gpu > best) best = k->tok_per_s_gpu;
        if (chosen < 0 || k->predicted > r->row[chosen].predicted) chosen = i;
        if (!is_best(r, i)) continue;
        x[n] = k->predicted;
        y[n++] = k->tok_per_s_gpu;
    }
    if (n < 3) return;
    double lost = 1 - r->row[chosen].tok_per_s_gpu / best;
    rho[s->cells++] = spearman(x, y, n);
    s->regret_5 += lost <= 0.05;
    s->regret_10 += lost <= 0.1;
}

static void judge_memory(const measured_rows *r, measured_score *s) {
    double most = r->fill * cluster_usable_bytes(&r->c), ok = 0, failed = 0;
    for (int i = 0; i < r->n; i++) {
        bool fits = r->row[i].memory_bytes <= most;
        ok += r->row[i].ok;
        failed += !r->row[i].ok;
        s->kept_success += r->row[i].ok && fits;
        s->rejected_fail += !r->row[i].ok && !fits;
    }
    s->kept_success /= ok > 0 ? ok : 1;
    s->rejected_fail /= failed > 0 ? failed : 1;
}

measured_score measured_judge(const measured_rows *r) {
    arena *a = arena_new("judging");
    double *error = ARENA_ARRAY(a, double, r->n), *stalls = ARENA_ARRAY(a, double, r->n),
           *y = ARENA_ARRAY(a, double, r->n);
    measured_score s = {.rows = r->all};
    int n = 0, n_stalls = 0, cells = (int)json_object_size(r->cell_key);
    double *rho = ARENA_ARRAY(a, double, cells + 1);
    for (int i = 0; i < r->n; i++) {
        const measured_row *x = &r->row[i];
        if (!counts(x)) continue;
        double e = fabs(x->predicted / x->tok_per_s_gpu - 1);
        if (x->stalls)
            stalls[n_stalls++] = e;
        else
            error[n++] = e;
    }
    s.used = n + n_stalls;
    s.median = median(error, n);
    s.median_stalls = median(stalls, n_stalls);
    for (int k = 0; k < cells; k++) judge_cell(r, k, error, y, &s, rho);
    s.spearman = median(rho, s.cells);
    judge_memory(r, &s);
    arena_free(a);
    return s;
}

/* ---- models ---- */

/* A number of a model that can be fitted, and what it came to for other programs (measured_runtimes). */
enum { RUNTIMES = 3 };
typedef struct number {
    const char *name;
    size_t at;
    double low, high, start;
    double fitted[RUNTIMES];
    bool of_memory;
} number;

/* nanotron-0.5: the successful rows of the Ultra-Scale Playbook's benchmarks on 1, 2, 8 and 32 nodes of 8 H100 (844). megatron: 22B and
 * 530B of Korthikanti et al. 2022 on A100, four rows; 175B and 1T were held out. torchtitan: nine rows of its tables of December 2024
 * on H100, every second one; the other nine were held out. */
static const char *const runtimes[RUNTIMES] = {"nanotron-0.5", "megatron", "torchtitan"};

#define OF(member) offsetof(measured_model, member)
static const double network_nodes[] = {2, 8, 32}, send_nodes[] = {1, 2, 8, 32};
static const number numbers[] = {
    {"products", OF(t.products), 0.5, 3, 1, {1.834, 1, 1.61}, false},
    {"attention", OF(t.attention), 0.3, 5, 1, {0.3807, 5, 2.71}, false},
    {"other", OF(t.other), 0.5, 10, 1, {0.6345, 0.5, 0.5}, false},
    {"launch_s", OF(t.launch_s), 1e-6, 1e-3, 1e-4, {0.0001114, 0.0001, 0.0001}, false},
    {"tp_hidden", OF(t.tp_hidden), 1e-3, 0.9, 0.05, {0.001, 0.391, 0.0394}, false},
    {"dp_usable", OF(t.dp_usable), 0.01, 1, 1, {0.8593, 1, 0.841}, false},
    {"dp_calls", OF(t.dp_calls), 0.05, 20, 1, {0.1806, 1, 0.317}, false},
    {"dp_calls_of_gb", OF(t.dp_calls_of_gb), 1e-3, 1000, 1, {3.152, 1e-3, 1e-3}, false},
    {"send_s_1_node", OF(t.send_s.y[0]), 1e-6, 5, 1e-5, {1.269e-06, 1e-05, 1e-05}, false},
    {"send_s_2_nodes", OF(t.send_s.y[1]), 1e-6, 5, 1e-5, {1e-06, 1e-05, 1e-05}, false},
    {"send_s_8_nodes", OF(t.send_s.y[2]), 1e-6, 5, 1e-4, {6.965e-06, 0.0001, 0.0001}, false},
    {"send_s_32_nodes", OF(t.send_s.y[3]), 1e-6, 5, 1e-3, {0.0001393, 0.000128, 0.0132}, false},
    {"pipe_rank_s", OF(t.pipe_rank_s), 1e-7, 1e-2, 1e-5, {0.0002415, 1e-05, 1e-05}, false},
    {"step_s", OF(t.step_s), 1e-4, 1, 5e-3, {0.01795, 0.000639, 0.0315}, false},
    {"node_reached", OF(c.node.reached), 0.05, 1.2, 0.8, {1.2, 0.465, 1.2}, false},
    {"network_latency_s",
     OF(c.network.latency_s),
     1e-6,
     1e-3,
     2e-5,
     {0.0002999, 1e-06, 2.23e-05},
     false},
    {"straggle", OF(c.straggle), 1e-3, 0.5, 0.02, {0.001114, 0.157, 0.0283}, false},
    {"network_2_nodes", OF(c.network_by_nodes.y[0]), 0.01, 1.2, 0.8, {0.8915, 1.2, 0.025}, false},
    {"network_8_nodes", OF(c.network_by_nodes.y[1]), 0.01, 1.2, 0.8, {0.3152, 0.8, 1.2}, false},
    {"network_32_nodes", OF(c.network_by_nodes.y[2]), 0.01, 1.2, 0.8, {0.6403, 0.8, 1.2}, false},
    {"fill", OF(t.fill), 0.3, 1, 1, {0.7906, 0.752, 1}, true},
    {"kept", OF(t.kept), 0.5, 10, 2, {1.756, 2, 2}, true},
    {"extra_bytes", OF(t.extra_bytes), 1e8, 2e10, 2e9, {4.487e+08, 2e+09, 2e+09}, true},
};

static double *number_at(measured_model *m, int i) {
    return (double *)((char *)m + numbers[i].at);
}

measured_model measured_plain(const cluster *c) {
    return (measured_model){*c, runtime_athanor};
}

/* Numbers that depend on the nodes have their points. */
static measured_model with_curves(const cluster *c) {
    measured_model m = measured_plain(c);
    m.t.balanced = true;
    m.c.network_by_nodes.n = ARRAY_LEN(network_nodes);
    m.t.send_s.n = ARRAY_LEN(send_nodes);
    memcpy(m.c.network_by_nodes.x, network_nodes, sizeof network_nodes);
    memcpy(m.t.send_s.x, send_nodes, sizeof send_nodes);
    return m;
}

measured_model measured_start(const cluster *c) {
    measured_model m = with_curves(c);
    for (int i = 0; i < ARRAY_LEN(numbers); i++) *number_at(&m, i) = numbers[i].start;
    return m;
}

status measured_as(measured_model *out, const char *name, const cluster *c, err *e) {
    *out = measured_plain(c);
    if (strcmp(name, "athanor") == 0) return ST_OK;
    for (int k = 0; k < RUNTIMES; k++) {
        if (strcmp(name, runtimes[k]) != 0) continue;
        *out = with_curves(c);
        for (int i = 0; i < ARRAY_LEN(numbers); i++) *number_at(out, i) = numbers[i].fitted[k];
        return ST_OK;
    }
    err_at(e, ST_USAGE, "--as", "'%s' is no runtime", name);
    return err_hint(
        e, "there are athanor, nanotron-0.5, megatron, torchtitan, and published: each row "
           "by the one that its source names; plan fit makes others");
}

json_t *measured_json(const measured_model *m) {
    measured_model copy = *m;
    json_t *fitted = json_object();
    for (int i = 0; i < ARRAY_LEN(numbers); i++)
        json_object_set_new(fitted, numbers[i].name, json_f64(*number_at(&copy, i)));
    return json_pack("{s:o,s:o}", "cluster", cluster_json(&m->c), "runtime", fitted);
}

static status read_model(measured_model *out, const json_t *root, const char *path, err *e) {
    const json_t *fitted = json_object_get(root, "runtime");
    cluster c;
    TRY(cluster_read(&c, json_object_get(root, "cluster"), NULL, path, e));
    *out = with_curves(&c);
    for (int i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *v = json_object_get(fitted, numbers[i].name);
        double x = json_number_value(v);
        if (!json_is_number(v) || !(x >= numbers[i].low * 0.999 && x <= numbers[i].high * 1.001))
            return err_at(e, ST_FORMAT, path, "%s: runtime.%s is no number from %g to %g", path,
                          numbers[i].name, numbers[i].low, numbers[i].high);
        *number_at(out, i) = x;
    }
    return ST_OK;
}

status measured_load(measured_model *out, const char *path, err *e) {
    json_t *root;
    TRY(yaml_load(&root, NULL, path, e));
    status st = read_model(out, root, path, e);
    json_decref(root);
    return st;
}

/* ---- fitting ---- */

/* Mean of |log(predicted / measured)|, where much counts as 1: some rows are of a sick cluster. */
static double loss_of(measured_rows *r, const measured_model *m, int without, bool of_memory) {
    double sum = 0;
    int n = 0;
    measured_predict(r, m);
    for (int i = 0; i < r->n; i++) {
        const measured_row *x = &r->row[i];
        if (!counts(x) || x->stalls || x->cell == without) continue;
        if (of_memory && x->measured_bytes <= 0) continue;
        double d = fabs(of_memory ? log(x->memory_bytes / x->measured_bytes)
                                  : log(x->predicted / x->tok_per_s_gpu));
        sum += d < 1 ? d : 1;
        n++;
    }
    return n ? sum / n : 0;
}

/* Tries number i up and down by a factor; returns the least loss. */
static double turn(measured_rows *r, measured_model *m, int without, int i, double step,
                   double best) {
    double *x = number_at(m, i);
    for (int down = 0; down < 2; down++) {
        double was = *x, next = down ? was / step : was * step;
        *x = next < numbers[i].low    ? numbers[i].low
             : next > numbers[i].high ? numbers[i].high
                                      : next;
        double now = loss_of(r, m, without, numbers[i].of_memory);
        if (now < best)
            best = now;
        else
            *x = was;
    }
    return best;
}

/* Each number by turns, by factors that shrink: of time, then of memory. */
static void fit_part(measured_rows *r, measured_model *m, int without, bool of_memory) {
    enum { ROUNDS = 20 };
    double step = 2, best = loss_of(r, m, without, of_memory);
    for (int round = 0; round < ROUNDS && step > 1.02; round++) {
        double before = best;
        for (int i = 0; i < ARRAY_LEN(numbers); i++)
            if (numbers[i].of_memory == of_memory) best = turn(r, m, without, i, step, best);
        if (before - best < 0.002) step = sqrt(step);
    }
}

/* So that few successful rows would have been refused: what is reserved but unused differs from run to run. */
static void fit_fill(const measured_rows *r, measured_model *m, int without) {
    static const double KEPT = 0.997;
    double *need = xcalloc((size_t)r->n + 1, sizeof *need), usable = cluster_usable_bytes(&m->c);
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (counts(&r->row[i]) && r->row[i].cell != without) need[n++] = r->row[i].memory_bytes;
    qsort(need, (size_t)n, sizeof *need, ascending);
    double fill = n ? need[(int)(KEPT * (n - 1))] / usable : 1;
    m->t.fill = fill > 1 ? 1 : fill < 0.3 ? 0.3 : fill;
    free(need);
}

void measured_fit(measured_rows *r, measured_model *m, int without) {
    fit_part(r, m, without, false);
    fit_part(r, m, without, true);
    fit_fill(r, m, without);
    measured_predict(r, m);
}
