/* Clusters by name and in files; which rate fits a call (see cluster.h). */
#include "plan/clock/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"
#include "op/machine.h"

enum { MOST_DEVICES = 1 << 20 };
/* Sums in a switch pass a ring's limit a little. */
#define MOST_REACHED 1.25
static const char LOCAL[] = "local";

/* ---- curves and rates ---- */

double cluster_curve_at(const cluster_curve *c, double x, double without) {
    int i = 0;
    if (c->n == 0) return without;
    while (i < c->n && c->x[i] < x) i++;
    if (i == 0) return c->y[0];
    if (i == c->n) return c->y[c->n - 1];
    double t = log(x / c->x[i - 1]) / log(c->x[i] / c->x[i - 1]);
    return c->y[i - 1] + t * (c->y[i] - c->y[i - 1]);
}

static const char *const class_names[OP_PROFILES] = {
    [OPP_MATMUL] = "matmul",          [OPP_HEAD] = "head",
    [OPP_ATTENTION] = "attention",    [OPP_NORM] = "norm",
    [OPP_ACTIVATION] = "activation",  [OPP_ROTARY] = "rotary",
    [OPP_ELEMENTWISE] = "elementwise"};
static const char *const pass_names[CLUSTER_PASSES] = {"forward", "input", "weights"};

const char *cluster_class_name(op_profile p) {
    return class_names[p];
}

const char *cluster_pass_name(int pass) {
    return pass_names[pass];
}

static const char OPTIMIZER[] = "optimizer";

/* How special a rate is that fits; 0: it does not fit. */
static int fit_of(const cluster_rate *r, op_kind kind, int pass, dtype dt) {
    bool is_op = strcmp(r->of, op_classes[kind].name) == 0;
    bool is_class = strcmp(r->of, class_names[op_classes[kind].profile]) == 0;
    if (*r->of && !is_op && !is_class) return 0;
    if (*r->pass && strcmp(r->pass, pass_names[pass]) != 0) return 0;
    if (*r->format && strcmp(r->format, dtype_name(dt)) != 0) return 0;
    return 1 + (*r->format ? 1 : 0) + (*r->pass ? 2 : 0) + (is_op ? 8 : is_class ? 4 : 0);
}

void cluster_index(cluster *c) {
    c->update = -1;
    for (int i = 0; i < c->n_rates; i++) {
        bool all = !c->rate[i].of[0];
        if (strcmp(c->rate[i].of, OPTIMIZER) == 0 || (all && c->update < 0)) c->update = (int16_t)i;
    }
    for (int k = 0; k < OP_COUNT; k++)
        for (int p = 0; p < CLUSTER_PASSES; p++)
            for (int f = 0; f < CLUSTER_FORMATS; f++) {
                int best = 0;
                c->best[k][p][f] = -1;
                for (int i = 0; i < c->n_rates; i++) {
                    int fit = fit_of(&c->rate[i], (op_kind)k, p, (dtype)f);
                    if (fit <= best) continue;
                    best = fit;
                    c->best[k][p][f] = (int16_t)i;
                }
            }
}

bool cluster_add_rate(cluster *c, const cluster_rate *r) {
    if (c->n_rates == CLUSTER_RATES) return false;
    c->rate[c->n_rates++] = *r;
    return true;
}

/* ---- the numbers of a file ---- */

typedef struct field {
    const char *key; /* "device.memory_gib" */
    size_t at;
    double unit, lo, hi; /* lo, hi: in the unit of the file */
    bool optional;
} field;

#define FIELD(key, member, ...)                                                                    \
    { key, offsetof(cluster, member), __VA_ARGS__ }
static const field fields[] = {
    FIELD("device.peak_tflops.f32", peak_flops[DT_F32], 1e12, 1e-6, 1e9, false),
    FIELD("device.peak_tflops.bf16", peak_flops[DT_BF16], 1e12, 1e-6, 1e9, false),
    FIELD("device.peak_tflops.f16", peak_flops[DT_F16], 1e12, 1e-6, 1e9, false),
    FIELD("device.memory_gib", memory_bytes, (double)(1 << 30), 0.01, 1e6, false),
    FIELD("device.reserved_gib", reserved_bytes, (double)(1 << 30), 0, 1e6, true),
    FIELD("device.memory_gb_per_s", memory_bytes_per_s, 1e9, 1e-3, 1e9, false),
    FIELD("device.near_mib", near_bytes, 1048576.0, 0, 1e9, true),
    FIELD("device.cache_mib", cache_bytes, 1048576.0, 0, 1e9, true),
    FIELD("device.call_us", call_s, 1e-6, 0, 1e6, true),
    FIELD("device.micro_batch_us", micro_s, 1e-6, 0, 1e9, true),
    FIELD("device.token_us", token_s, 1e-6, 0, 1e9, true),
    FIELD("device.step_us", step_s, 1e-6, 0, 1e9, true),
    FIELD("device.disk_gb_per_s", disk_bytes_per_s, 1e9, 0, 1e9, true),
    FIELD("device.contention", contention, 1, 0, 0.95, true),
    FIELD("device.straggle", straggle, 1, 0, 10, true),
    FIELD("device.dollars_per_hour", dollars_per_hour, 1, 0, 1e6, true),
    FIELD("device.watts", watts, 1, 0, 1e6, true),
    FIELD("node_link.gb_per_s", node.bytes_per_s, 1e9, 1e-6, 1e9, false),
    FIELD("node_link.latency_us", node.latency_s, 1e-6, 0, 1e9, false),
    FIELD("node_link.reached", node.reached, 1, 0.001, MOST_REACHED, false),
    FIELD("network.gb_per_s", network.bytes_per_s, 1e9, 1e-6, 1e9, false),
    FIELD("network.latency_us", network.latency_s, 1e-6, 0, 1e9, false),
    FIELD("network.reached", network.reached, 1, 0.001, MOST_REACHED, false),
};
static const char *const other_keys[] = {"name",
                                         "source",
                                         "nodes",
                                         "per_node",
                                         "device.name",
                                         "device.kind",
                                         "node_link.by_mib",
                                         "network.by_nodes",
                                         "rates"};

typedef struct reading {
    const json_t *root, *origins;
    const char *file;
    err *e;
} reading;

static const json_t *look_up(const json_t *root, const char *path) {
    char key[64];
    for (; root && *path; path += *path == '.') {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        root = json_object_get(root, key);
        path += n;
    }
    return root;
}

/* Keys are of strangers: the terminal obeys none. */
static status wrong(const reading *r, const char *key, const char *what) {
    const char *at = r->origins ? yaml_origin(r->origins, key) : NULL;
    err_at(r->e, ST_FORMAT, at ? at : r->file, "%s: %s %s", r->file, key, what);
    if (r->e) text_make_plain(r->e->message);
    return ST_FORMAT;
}

static status read_field(const reading *r, const field *f, cluster *out) {
    const json_t *v = look_up(r->root, f->key);
    double *to = (double *)((char *)out + f->at);
    if (!v && f->optional) return ST_OK;
    if (!v) return wrong(r, f->key, "is missing");
    double x = json_number_value(v);
    char what[96];
    snprintf(what, sizeof what, "is no number from %g to %g", f->lo, f->hi);
    if (!json_is_number(v) || !(x >= f->lo && x <= f->hi)) return wrong(r, f->key, what);
    *to = x * f->unit;
    return ST_OK;
}

/* One line, which is printed wherever the cluster is named. */
static status read_text(const reading *r, const char *key, char *out, size_t size) {
    const json_t *there = look_up(r->root, key);
    const char *v = json_string_value(there);
    char what[64];
    if (!v || !*v) return wrong(r, key, there ? "is no text" : "is missing");
    snprintf(what, sizeof what, "is longer than %zu bytes", size - 1);
    if (json_string_length(there) >= size) return wrong(r, key, what);
    snprintf(out, size, "%s", v);
    text_make_plain(out);
    if (json_string_length(there) != strlen(v) || strcmp(out, v) != 0)
        return wrong(r, key, "has control characters");
    return ST_OK;
}

static status read_count(const reading *r, const char *key, int most, int *out) {
    const json_t *v = look_up(r->root, key);
    json_int_t n = json_integer_value(v);
    char what[64];
    if (!v) return wrong(r, key, "is missing");
    snprintf(what, sizeof what, "is no whole number from 1 to %d", most);
    if (!json_is_integer(v) || n < 1 || n > most) return wrong(r, key, what);
    *out = (int)n;
    return ST_OK;
}

/* [[x, y], ...] */
static status read_curve(const reading *r, const char *key, const json_t *list, double most,
                         cluster_curve *out) {
    size_t n = json_array_size(list);
    if (n < 1 || n > CLUSTER_POINTS) return wrong(r, key, "is no list of 1 to 16 pairs");
    out->n = (int)n;
    for (int i = 0; i < out->n; i++) {
        const json_t *pair = json_array_get(list, (size_t)i);
        out->x[i] = json_number_value(json_array_get(pair, 0));
        out->y[i] = json_number_value(json_array_get(pair, 1));
        bool rises = out->x[i] > (i ? out->x[i - 1] : 0) && out->x[i] < 1e15;
        if (json_array_size(pair) != 2 || !rises || !(out->y[i] > 0))
            return wrong(r, key, "is no list of pairs [x, share] with rising x and shares above 0");
        if (out->y[i] > most) return wrong(r, key, "has a share above 1");
    }
    return ST_OK;
}

/* In files terms are microseconds: of a call, of 10^9 FLOPs, of a million elements, results or bytes. */
static const double term_units[CLUSTER_TERMS] = {
    [TERM_CALL] = 1e-6,    [TERM_FLOP] = 1e-15, [TERM_FIRST] = 1e-12,  [TERM_SECOND] = 1e-12,
    [TERM_RESULT] = 1e-12, [TERM_FAR] = 1e-12,  [TERM_FARTHER] = 1e-12};

static status read_terms(const reading *r, const char *key, const json_t *list, double *out) {
    double sum = 0;
    if (!list) return ST_OK;
    if (json_array_size(list) != CLUSTER_TERMS)
        return wrong(r, key,
                     "has terms that are no list of 7 numbers: for a call, FLOPs, both operands, "
                     "results, and bytes that lie far away and farther");
    for (int i = 0; i < CLUSTER_TERMS; i++) {
        const json_t *x = json_array_get(list, (size_t)i);
        double v = json_number_value(x);
        if (!json_is_number(x) || !(v >= 0 && v < 1e12))
            return wrong(r, key, "has a term that is no number from 0 to 1e12");
        sum += out[i] = v * term_units[i];
    }
    return sum > 0 ? ST_OK : wrong(r, key, "has only terms of 0");
}

static bool is_word(const char *word, const char *const *words, int n) {
    if (!*word) return true;
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

static bool is_op(const char *word) {
    for (int k = 0; k < OP_COUNT; k++)
        if (strcmp(word, op_classes[k].name) == 0) return true;
    return false;
}

static void take_word(const json_t *o, const char *key, char *out, size_t size) {
    const char *v = json_string_value(json_object_get(o, key));
    snprintf(out, size, "%s", v ? v : "");
}

/* A word that is misspelt, or no word, would make a rate of something else. */
static status check_rate(const reading *r, const char *at, const json_t *rate) {
    static const char *const keys[] = {"of", "pass", "format", "share", "terms"};
    const char *key;
    json_t *v;
    if (!json_is_object(rate))
        return wrong(r, at, "is no rate with of, pass, format, share and terms");
    json_object_foreach((json_t *)(uintptr_t)rate, key, v) {
        char path[128];
        snprintf(path, sizeof path, "%s.%s", at, key);
        if (!*key || !is_word(key, keys, ARRAY_LEN(keys)))
            return wrong(r, path, "is no key of a rate");
        bool list = strcmp(key, "share") == 0 || strcmp(key, "terms") == 0;
        if (!list && !json_is_string(v)) return wrong(r, path, "is no text");
    }
    return ST_OK;
}

static status read_rates(const reading *r, cluster *out) {
    static const char *const words[] = {"f32", "bf16", "f16"};
    const json_t *list = look_up(r->root, "rates"), *o;
    size_t i;
    if (list && !json_is_array(list)) return wrong(r, "rates", "are no list");
    if (json_array_size(list) > CLUSTER_RATES) return wrong(r, "rates", "are more than 128");
    json_array_foreach(list, i, o) {
        cluster_rate x = {0};
        char key[32];
        snprintf(key, sizeof key, "rates.%zu", i);
        TRY(check_rate(r, key, o));
        take_word(o, "of", x.of, sizeof x.of);
        take_word(o, "pass", x.pass, sizeof x.pass);
        take_word(o, "format", x.format, sizeof x.format);
        if (!is_word(x.of, class_names, OP_PROFILES) && !is_op(x.of) &&
            strcmp(x.of, OPTIMIZER) != 0)
            return wrong(r, key, "is of no op and of no class of ops");
        if (!is_word(x.pass, pass_names, CLUSTER_PASSES) ||
            !is_word(x.format, words, ARRAY_LEN(words)))
            return wrong(r, key, "has a pass or a format that there is not");
        TRY(read_curve(r, key, json_object_get(o, "share"),
                       out->kind == DEV_CPU ? CLUSTER_MOST_IN_CACHE : 1, &x.share));
        TRY(read_terms(r, key, json_object_get(o, "terms"), x.term));
        cluster_add_rate(out, &x);
    }
    return ST_OK;
}

static status refuse_key(const reading *r, const char *path, const char *key) {
    const char *dot = strchr(key, '.');
    wrong(r, *path ? path : "''", "is no key of a cluster");
    if (!dot || dot == key || !dot[1]) return ST_FORMAT;
    return err_hint(r->e, "keys are nested here: %.*s: {%s: ...}", (int)(dot - key), key, dot + 1);
}

/* What nobody reads is a mistake: a key that is misspelt would change nothing. */
static status check_keys(const reading *r, const json_t *object, const char *prefix) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", prefix, key);
        bool known = is_word(path, other_keys, ARRAY_LEN(other_keys));
        size_t n = strlen(path);
        bool inner = false;
        for (int i = 0; i < ARRAY_LEN(fields); i++) {
            known |= strcmp(path, fields[i].key) == 0;
            inner |= strncmp(path, fields[i].key, n) == 0 && fields[i].key[n] == '.';
        }
        if (!*key || strchr(key, '.') || !(known || inner)) return refuse_key(r, path, key);
        if (known) continue;
        if (!json_is_object(v)) return wrong(r, path, "is no group of keys");
        strcat(path, ".");
        TRY(check_keys(r, v, path));
    }
    return ST_OK;
}

status cluster_read(cluster *out, const json_t *root, const json_t *origins, const char *file,
                    err *e) {
    reading r = {root, origins, file, e};
    char kind[16];
    *out = (cluster){.reserved_bytes = 0};
    if (!json_is_object(root)) return err_at(e, ST_FORMAT, file, "%s describes no cluster", file);
    TRY(check_keys(&r, root, ""));
    TRY(read_text(&r, "name", out->name, sizeof out->name));
    if (look_up(root, "source")) TRY(read_text(&r, "source", out->source, sizeof out->source));
    TRY(read_text(&r, "device.name", out->device_name, sizeof out->device_name));
    TRY(read_text(&r, "device.kind", kind, sizeof kind));
    if (strcmp(kind, "cpu") != 0 && strcmp(kind, "cuda") != 0)
        return wrong(&r, "device.kind", "is neither cpu nor cuda");
    out->kind = strcmp(kind, "cpu") == 0 ? DEV_CPU : DEV_CUDA;
    for (int i = 0; i < ARRAY_LEN(fields); i++) TRY(read_field(&r, &fields[i], out));
    TRY(read_count(&r, "per_node", 4096, &out->per_node));
    TRY(read_count(&r, "nodes", MOST_DEVICES, &out->nodes));
    if ((int64_t)out->per_node * out->nodes > MOST_DEVICES)
        return wrong(&r, "nodes", "makes more than a million devices");
    const json_t *by_mib = look_up(root, "node_link.by_mib");
    if (by_mib) TRY(read_curve(&r, "node_link.by_mib", by_mib, MOST_REACHED, &out->node_by_mib));
    const json_t *by_nodes = look_up(root, "network.by_nodes");
    if (by_nodes)
        TRY(read_curve(&r, "network.by_nodes", by_nodes, MOST_REACHED, &out->network_by_nodes));
    if (out->reserved_bytes >= out->memory_bytes)
        return wrong(&r, "device.reserved_gib", "leaves no memory");
    TRY(read_rates(&r, out));
    cluster_index(out);
    return ST_OK;
}

/* ---- names ---- */

bool cluster_local_path(const char *name, char *out, size_t bytes) {
    char facts[4096];
    if (!machine_path(facts, sizeof facts)) return false;
    int n = snprintf(out, bytes, "%.*s%s.yaml", (int)(path_base(facts) - facts), facts, name);
    return n >= 0 && (size_t)n < bytes;
}

static status load(cluster *out, const char *path, err *e) {
    json_t *root, *origins;
    TRY(yaml_load_data(&root, &origins, path, e));
    status st = cluster_read(out, root, origins, path, e);
    json_decref(root);
    json_decref(origins);
    return st;
}

/* "local" or "local-RANKS" */
static bool is_local(const char *name) {
    size_t n = strlen(LOCAL);
    if (strncmp(name, LOCAL, n) != 0) return false;
    return !name[n] ||
           (name[n] == '-' && name[n + 1] && !name[n + 1 + strspn(name + n + 1, "0123456789")]);
}

static status hint_measure(err *e, const char *name, const char *when) {
    const char *ranks = name + strlen(LOCAL);
    return err_hint(e, "run athanor doctor calibrate%s%s %s", *ranks ? " --ranks " : "",
                    *ranks ? ranks + 1 : "", when);
}

/* One rank is "local", which doctor calibrate writes without --ranks. */
static status check_ranks(const char *name, err *e) {
    const char *ranks = name + strlen(LOCAL);
    if (!*ranks++) return ST_OK;
    long n = strtol(ranks, NULL, 10);
    if (*ranks != '0' && n >= 2 && n <= COMM_MOST_RANKS) return ST_OK;
    err_at(e, ST_USAGE, "cluster", "%s: 2 to %d ranks share this machine", name, COMM_MOST_RANKS);
    return err_hint(e, "local is this machine with one rank, local-2 with two");
}

static status load_local(cluster *out, const char *name, err *e) {
    char path[4400];
    TRY(check_ranks(name, e));
    if (!cluster_local_path(name, path, sizeof path)) return machine_no_place(e);
    if (file_exists(path)) {
        status st = load(out, path, e);
        return st == ST_FORMAT ? hint_measure(e, name, "again") : st;
    }
    err_at(e, ST_FORMAT, path, "nothing is known yet of the speed of this machine as %s", name);
    return hint_measure(e, name, "first");
}

static status refuse_name(const char *name, err *e) {
    strbuf all = {0};
    const char *const *names = cluster_preset_names();
    for (int i = 0; names[i]; i++) strbuf_printf(&all, "%s%s", i ? ", " : "", names[i]);
    err_at(e, ST_USAGE, "cluster", "'%s' is no cluster and no file", name);
    err_hint(e, "NAME-DEVICES with a NAME of %s (h100-64); local; or the path of a YAML file",
             strbuf_cstr(&all));
    strbuf_free(&all);
    return ST_USAGE;
}

/* Whole nodes, or a part of one. */
static status take_devices(cluster *c, const char *name, long n, err *e) {
    if (n < 1 || n > MOST_DEVICES)
        return err_at(e, ST_USAGE, "cluster", "%s: there are 1 to %d devices", name, MOST_DEVICES);
    if (n > c->per_node && n % c->per_node) {
        err_at(e, ST_USAGE, "cluster", "%s: %ld devices are no whole nodes of %d", name, n,
               c->per_node);
        return err_hint(e, "%s-%ld", c->name, (n + c->per_node - 1) / c->per_node * c->per_node);
    }
    c->nodes = n > c->per_node ? (int)n / c->per_node : 1;
    if (n < c->per_node) c->per_node = (int)n;
    return ST_OK;
}

status cluster_find(cluster *out, const char *name, err *e) {
    if (is_local(name) && strlen(name) < 32) return load_local(out, name, e);
    if (cluster_preset(out, name)) return ST_OK;
    const char *dash = strrchr(name, '-');
    char *end, stem[64];
    long n = dash ? strtol(dash + 1, &end, 10) : 0;
    if (dash && dash[1] >= '0' && dash[1] <= '9' && !*end && dash - name < (long)sizeof stem) {
        snprintf(stem, sizeof stem, "%.*s", (int)(dash - name), name);
        if (cluster_preset(out, stem)) return take_devices(out, name, n, e);
    }
    return file_exists(name) ? load(out, name, e) : refuse_name(name, e);
}

/* ---- writing ---- */

static json_t *curve_json(const cluster_curve *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(list, json_pack("[o,o]", json_f32(c->x[i]), json_f32(c->y[i])));
    return list;
}

static void put_number(json_t *root, const char *path, double x) {
    const char *dot = strchr(path, '.');
    char head[32];
    if (!dot) {
        json_object_set_new(root, path, json_f64(x));
        return;
    }
    snprintf(head, sizeof head, "%.*s", (int)(dot - path), path);
    if (!json_object_get(root, head)) json_object_set_new(root, head, json_object());
    put_number(json_object_get(root, head), dot + 1, x);
}

static bool has_terms(const cluster_rate *r) {
    for (int i = 0; i < CLUSTER_TERMS; i++)
        if (r->term[i] > 0) return true;
    return false;
}

/* The shortest number that is read as the same: 100e-6 / 1e-6 is not 100. */
static double in_unit(double x, double unit) {
    double short_one = x / unit;
    char text[32];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x / unit);
        short_one = strtod(text, NULL);
        if (short_one * unit == x) break;
    }
    return short_one;
}

static json_t *terms_json(const cluster_rate *r) {
    json_t *list = json_array();
    for (int i = 0; i < CLUSTER_TERMS; i++)
        json_array_append_new(list, json_f64(in_unit(r->term[i], term_units[i])));
    return list;
}

static json_t *rate_json(const cluster_rate *r) {
    json_t *o = json_object();
    if (*r->of) json_object_set_new(o, "of", json_string(r->of));
    if (*r->pass) json_object_set_new(o, "pass", json_string(r->pass));
    if (*r->format) json_object_set_new(o, "format", json_string(r->format));
    json_object_set_new(o, "share", curve_json(&r->share));
    if (has_terms(r)) json_object_set_new(o, "terms", terms_json(r));
    return o;
}

json_t *cluster_json(const cluster *c) {
    json_t *root = json_pack("{s:o,s:o,s:{s:o,s:s}}", "name", json_cstr(c->name), "source",
                             json_cstr(c->source), "device", "name", json_cstr(c->device_name),
                             "kind", dev_kind_name(c->kind));
    if (!*c->source) json_object_del(root, "source"); /* a text that is there is not empty */
    for (int i = 0; i < ARRAY_LEN(fields); i++)
        put_number(root, fields[i].key,
                   in_unit(*(const double *)((const char *)c + fields[i].at), fields[i].unit));
    if (c->node_by_mib.n)
        json_object_set_new(json_object_get(root, "node_link"), "by_mib",
                            curve_json(&c->node_by_mib));
    if (c->network_by_nodes.n)
        json_object_set_new(json_object_get(root, "network"), "by_nodes",
                            curve_json(&c->network_by_nodes));
    json_object_set_new(root, "per_node", json_integer(c->per_node));
    json_object_set_new(root, "nodes", json_integer(c->nodes));
    json_t *rates = json_array();
    for (int i = 0; i < c->n_rates; i++) json_array_append_new(rates, rate_json(&c->rate[i]));
    json_object_set_new(root, "rates", rates);
    return root;
}

/* JSON is YAML, and lists of numbers stay on one line. */
void cluster_put_yaml(strbuf *out, const cluster *c) {
    json_t *root = cluster_json(c);
    json_format(out, root, 2);
    strbuf_putc(out, '\n');
    json_decref(root);
}
