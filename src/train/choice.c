/* Deciding what `auto` stands for; see choice.h. Reading order: choice_make, decide, go_on. */
#include "train/choice.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "model/parts.h"
#include "op/probe.h"
#include "run/folder.h"

static const double PROBE_S = 0.4; /* for at most half a second in all */

/* ---- what is to be told ---- */

/* A sentence more of what is otherwise on this machine. */
static void tell(choice *k, const char *fmt, ...) {
    size_t n = strlen(k->otherwise), room = sizeof k->otherwise - n;
    va_list args;
    if (n > 0) n += (size_t)snprintf(k->otherwise + n, room, "; ");
    if (n >= sizeof k->otherwise) return;
    va_start(args, fmt);
    vsnprintf(k->otherwise + n, sizeof k->otherwise - n, fmt, args);
    va_end(args);
}

/* ---- what is asked for ---- */

/* Which arithmetic the config leaves open. */
static unsigned allowed_by(int compute, int arithmetic, bool deterministic) {
    unsigned half = 1 << ARITH_DOTS | 1 << ARITH_WIDE, f32 = 1 << ARITH_F32;
    if (arithmetic == CONFIG_ARITHMETIC_BF16) half = 1 << ARITH_DOTS, f32 = 0;
    if (arithmetic == CONFIG_ARITHMETIC_FP32) half = 1 << ARITH_WIDE;
    unsigned bits = compute == CONFIG_PRECISION_AUTO   ? half | f32
                    : compute == CONFIG_PRECISION_BF16 ? half
                                                       : 1 << ARITH_F32;
    return bits | (deterministic ? MACHINE_OWN : 0);
}

static unsigned allowed(const config *c) {
    return allowed_by(c->train.precision.compute, c->train.precision.arithmetic,
                      c->train.deterministic);
}

/* The matrices of the model, as a micro-batch multiplies by them. */
static int list_layers(arena *a, const config *c, const peers *p, const model_config *m,
                       machine_layer **out) {
    param_store *s = param_store_new(a, DT_F32);
    model_declare(m, s);
    int n = 0;
    *out = ARENA_ARRAY(a, machine_layer, param_count(s));
    int64_t rows =
        config_micro_batch(c, p->m.size[MESH_DP]) * c->train.seq_len / p->m.size[MESH_CP];
    for (int i = 0; i < param_count(s); i++) {
        const param *w = param_at(s, i);
        bool tied = w->part == PART_EMBED && m->tie_word_embeddings;
        if (w->rank != 2 || (w->table && !tied)) continue;
        (*out)[n++] = (machine_layer){.rows = rows, .in = w->cols, .width = w->rows};
    }
    return n;
}

/* ---- measuring ---- */

typedef struct known {
    machine_facts f;
    machine_layer layer[PROBE_LAYERS];
    int n;
    bool unequal; /* ranks have different instruction sets */
    err damage;   /* of the file; its code is ST_OK: there is none, or it was told */
} known;

/* What is remembered of this machine. */
static void recall(known *w, const config *c, const peers *p, const model_config *m, const dev *d) {
    arena *a = arena_new("shapes");
    machine_layer *all;
    int n = list_layers(a, c, p, m, &all);
    w->n = probe_pick(all, n, w->layer);
    arena_free(a);
    w->damage = (err){0};
    (void)!machine_read(&w->f, d, &w->damage);
    if (!probe_applies(d)) w->n = 0;
}

/* All ranks use an instruction set that each of them has: others have other bits, also where ranks compute the same.
 * oneDNN, which takes what it finds, is left out then. Returns whether they have different ones. */
static bool level(const peers *p, dev *d) {
    if (dev_is_meta(d) || !probe_applies(d) || peers_ranks(p) == 1) return false;
    cpu_isa least = (cpu_isa)peers_least(p, dev_isa(d));
    cpu_isa most = (cpu_isa)~peers_least(p, ~(int64_t)dev_isa(d));
    if (least == most) return false;
    dev_limit(d, least, 0);
    /* For devices that are opened later: the probe's, those of a layout's check. */
    setenv("ATHANOR_ISA", cpu_isa_name(least), 1);
    if (peers_rank(p) == 0)
        log_warn("ranks have different instruction sets, %s to %s: all of them compute with %s",
                 cpu_isa_name(least), cpu_isa_name(most), cpu_isa_name(least));
    return true;
}

static status measure(choice *k, known *w, err *e) {
    err why = {0};
    if (!k->measures || machine_is_off() || w->n == 0) return ST_OK;
    if (!probe_is_needed(&w->f, w->layer, w->n)) return ST_OK;
    int64_t began = clock_now_ns();
    TRY(probe_run(&w->f, w->layer, w->n, PROBE_S, e));
    k->probe_s = clock_since_s(began);
    if (machine_write(&w->f, &why) != ST_OK)
        log_warn("what was measured of this machine is not remembered: %s; %s", why.message,
                 why.hint);
    else if (w->damage.code != ST_OK)
        log_warn("%s; what it held is measured again", w->damage.message);
    w->damage.code = ST_OK;
    return ST_OK;
}

/* A damaged file must not stop a run. */
static void tell_damage(const known *w) {
    if (w->damage.code != ST_OK)
        log_warn("%s; it is not used; %s", w->damage.message, w->damage.hint);
}

/* ---- RUN/machine.json ---- */

static json_t *words_of(const gemm_impl by[GEMM_LAYOUTS]) {
    json_t *list = json_array();
    for (int p = 0; p < GEMM_LAYOUTS; p++)
        json_array_append_new(list, json_string(gemm_impl_name(by[p])));
    return list;
}

static bool read_words(const json_t *list, gemm_impl by[GEMM_LAYOUTS]) {
    for (int p = 0; p < GEMM_LAYOUTS; p++) {
        const char *word = json_string_value(json_array_get(list, (size_t)p));
        for (by[p] = 0; word && by[p] < GEMM_IMPLS; by[p]++)
            if (strcmp(word, gemm_impl_name(by[p])) == 0) break;
        if (!word || by[p] == GEMM_IMPLS) return false;
    }
    return json_array_size(list) == GEMM_LAYOUTS;
}

static json_t *record_of(const choice *k, const known *w, const config *c, int threads) {
    return json_pack(
        "{s:o,s:s,s:i,s:i,s:{s:s,s:s,s:s},s:{s:o,s:o},s:o}", "machine", json_cstr(w->f.name), "isa",
        cpu_isa_name(w->f.isa), "threads", threads, "of_threads", w->f.threads, "asked", "compute",
        config_precision_name(c->train.precision.compute), "arithmetic",
        config_arithmetic_name(c->train.precision.arithmetic), "gemm", gemm_policy_name(k->policy),
        "rule", "f32", words_of(k->made.rule.of[0]), "bf16", words_of(k->made.rule.of[1]),
        "products", gemm_choices_json(&w->f.products));
}

typedef struct kept {
    const char *machine, *isa, *compute, *arithmetic;
    int threads, of_threads;
    gemm_policy policy;
    gemm_rule rule;
    gemm_choices products;
} kept;

static status read_record(const json_t *record, kept *r, err *e) {
    json_t *f32, *bf16, *products;
    const char *policy = gemm_policy_name(GEMM_REMEMBERED); /* older runs do not say it */
    *r = (kept){0};
    bool whole = json_unpack((json_t *)record, "{s:s,s:s,s:i,s?i,s:{s:s,s:s,s?s},s:{s:o,s:o},s:o}",
                             "machine", &r->machine, "isa", &r->isa, "threads", &r->threads,
                             "of_threads", &r->of_threads, "asked", "compute", &r->compute,
                             "arithmetic", &r->arithmetic, "gemm", &policy, "rule", "f32", &f32,
                             "bf16", &bf16, "products", &products) == 0 &&
                 read_words(f32, r->rule.of[0]) && read_words(bf16, r->rule.of[1]) &&
                 r->threads >= 1 && gemm_find_policy(policy, &r->policy);
    status st = whole ? gemm_choices_from_json(&r->products, products, "machine.json of the run", e)
                      : err_set(e, ST_FORMAT,
                                "machine.json of the run does not say what the run has chosen");
    if (st != ST_OK)
        err_hint(
            e,
            "bring it back from a copy, or remove it: then the run goes on with our own products");
    return st;
}

status choice_read(choice *k, const char *run, err *e) {
    k->goes_on = true;
    return run_read_json(&k->record, run, "machine.json", e);
}

void choice_free(choice *k) {
    json_decref(k->record);
}

/* ---- a new run ---- */

/* A choice as one number, which rank 0 tells the others. */
static int64_t pack(const choice *k, int threads) {
    const machine_choice *made = &k->made;
    int64_t x = threads;
    for (int t = 0; t < 2; t++)
        for (int p = 0; p < GEMM_LAYOUTS; p++) x = x * GEMM_IMPLS + made->rule.of[t][p];
    return ((x * ARITHS + made->how) * GEMM_POLICIES + k->policy) * 2 + made->measured;
}

static int unpack(choice *k, int64_t x) {
    machine_choice *made = &k->made;
    made->measured = x % 2, x /= 2;
    k->policy = (gemm_policy)(x % GEMM_POLICIES), x /= GEMM_POLICIES;
    made->how = (machine_arith)(x % ARITHS), x /= ARITHS;
    for (int t = 1; t >= 0; t--)
        for (int p = GEMM_LAYOUTS - 1; p >= 0; p--, x /= GEMM_IMPLS)
            made->rule.of[t][p] = (gemm_impl)(x % GEMM_IMPLS);
    return (int)x;
}

/* What rank 0 remembers of single products holds for all, too. */
static void share_products(known *w, const peers *p) {
    gemm_choices *c = &w->f.products;
    int n = (int)peers_first(p, c->n);
    gemm_choice *item = xcalloc((size_t)n + 1, sizeof *item);
    if (peers_rank(p) == 0 && n > 0) memcpy(item, c->item, (size_t)n * sizeof *item);
    peers_tell(p, item, n * (int64_t)sizeof *item);
    gemm_choices_free(c);
    *c = (gemm_choices){.item = item, .n = n, .cap = n + 1};
}

static status decide(choice *k, known *w, const config *c, const peers *p, const dev *d,
                     int *threads, err *e) {
    bool leads = dev_is_meta(d) || peers_rank(p) == 0;
    status st = leads ? measure(k, w, e) : ST_OK;
    if (!dev_is_meta(d)) st = peers_agree(p, st, e);
    TRY(st);
    k->made = machine_choose(&w->f, w->layer, w->n, allowed(c));
    k->policy = GEMM_ALL_OWN;
    if (!w->unequal) TRY(gemm_asked(&k->policy, e));
    if (c->train.threads == 0 && w->f.best_threads < w->f.threads) *threads = w->f.best_threads;
    if (!dev_is_meta(d)) *threads = unpack(k, peers_first(p, pack(k, *threads)));
    if (!dev_is_meta(d)) share_products(w, p);
    if (*threads > dev_threads(d)) *threads = 0; /* this rank has fewer than the first */
    k->record = record_of(k, w, c, *threads > 0 ? *threads : dev_threads(d));
    return ST_OK;
}

/* ---- a run that goes on ---- */

static int word_in(const char *word, const char *(*name)(int), int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(word, name(i)) == 0) return i;
    return 0;
}

static void put_way(const machine_choice *m, char out[200]) {
    char rule[128];
    machine_describe_rule(&m->rule, m->how != ARITH_F32, rule);
    snprintf(out, 200, "%s (products: %s)", machine_arith_name(m->how), rule);
}

/* Whether this machine would choose otherwise what the run was asked for. */
static void compare(choice *k, const known *w, const kept *r, const config *c) {
    int compute = word_in(r->compute, config_precision_name, CONFIG_PRECISION_FP8 + 1);
    int arithmetic = word_in(r->arithmetic, config_arithmetic_name, CONFIG_ARITHMETIC_BF16 + 1);
    machine_choice now = machine_choose(&w->f, w->layer, w->n,
                                        allowed_by(compute, arithmetic, c->train.deterministic));
    bool half = now.how != ARITH_F32;
    if (now.how == k->made.how &&
        memcmp(now.rule.of[half], k->made.rule.of[half], sizeof now.rule.of[half]) == 0)
        return;
    char wish[200], have[200];
    put_way(&now, wish);
    put_way(&k->made, have);
    tell(k, "this machine would choose %s; the run keeps what it began with: %s", wish, have);
}

/* Whether oneDNN computes some of what the run has chosen. */
static bool has_onednn(const kept *r) {
    bool has = r->policy == GEMM_ALL_ONEDNN;
    if (r->policy != GEMM_REMEMBERED) return has;
    for (int t = 0; t < 2; t++)
        for (int p = 0; p < GEMM_LAYOUTS; p++) has = has || r->rule.of[t][p] == GEMM_ONEDNN;
    for (int i = 0; i < r->products.n; i++) has = has || r->products.item[i].impl == GEMM_ONEDNN;
    return has;
}

/* What this start asks for overrules what the first one did. */
static void keep_policy(choice *k, const known *w, const kept *r, const config *c) {
    if (k->policy == GEMM_REMEMBERED || k->policy == r->policy) {
        k->policy = r->policy;
        return;
    }
    bool same = k->policy == GEMM_ALL_OWN && !has_onednn(r);
    if (same || c->train.deterministic) return;
    if (w->unequal)
        tell(k, "ranks of different instruction sets take our own products, and the run began with "
                "oneDNN's: the last bits may differ from here");
    else
        tell(k,
             "ATHANOR_GEMM=%s overrules what the run began with: the last bits may differ from "
             "here",
             gemm_policy_name(k->policy));
}

/* One thread for each core stays one. Else all that there are compute the same bits, but with oneDNN's products. */
static int keep_threads(choice *k, const known *w, const kept *r, const config *c, const dev *d) {
    int all = dev_threads(d);
    if (c->train.threads > 0 || r->threads >= all) return 0;
    if (r->threads < r->of_threads) return r->threads;
    if (!has_onednn(r)) return w->f.best_threads < all ? w->f.best_threads : 0;
    tell(k,
         "this machine has %d threads, and the run keeps the %d that it began with, as the bits of "
         "oneDNN's products depend on them: train.threads=%d takes all",
         all, r->threads, all);
    return r->threads;
}

static status go_on(choice *k, known *w, const config *c, const peers *p, dev *d, kept *r,
                    int *threads, err *e) {
    k->made = machine_choose(&w->f, NULL, 0, allowed(c)); /* the config has kept what was chosen */
    k->policy = GEMM_ALL_OWN;
    if (!w->unequal) TRY(gemm_asked(&k->policy, e));
    if (!dev_is_meta(d)) k->policy = (gemm_policy)peers_first(p, k->policy);
    if (!k->record) {
        if (probe_applies(d))
            tell(k,
                 "machine.json of the run is gone, so its products are our own: the last bits may "
                 "differ from here");
        return ST_OK;
    }
    TRY(read_record(k->record, r, e));
    k->made.rule = r->rule;
    snprintf(k->began_on, sizeof k->began_on, "%s, %s", r->machine, r->isa);
    bool same = strcmp(r->machine, w->f.name) == 0 && strcmp(r->isa, cpu_isa_name(w->f.isa)) == 0;
    if (same) k->began_on[0] = '\0';
    if (same) *threads = keep_threads(k, w, r, c, d);
    keep_policy(k, w, r, c);
    if (dev_is_meta(d) || peers_rank(p) != 0) return ST_OK;
    if (!same) TRY(measure(k, w, e));
    compare(k, w, r, c);
    return ST_OK;
}

/* ---- the whole ---- */

static void resolve(config *c, machine_arith how) {
    int compute = how == ARITH_F32 ? CONFIG_PRECISION_FP32 : CONFIG_PRECISION_BF16;
    if (c->train.precision.compute == CONFIG_PRECISION_AUTO) c->train.precision.compute = compute;
    if (c->train.precision.arithmetic == CONFIG_ARITHMETIC_AUTO)
        c->train.precision.arithmetic =
            how == ARITH_DOTS ? CONFIG_ARITHMETIC_BF16 : CONFIG_ARITHMETIC_FP32;
}

static void tell_lack(choice *k, const dev *d) {
    if (k->made.how == ARITH_DOTS && probe_applies(d) && dev_isa(d) < ISA_AVX512_BF16)
        tell(k,
             "train.precision.arithmetic is bf16, and %s has no dot products of it: bf16 is "
             "widened to fp32",
             cpu_isa_name(dev_isa(d)));
}

status choice_make(choice *k, config *c, const peers *p, const model_config *m, dev *d, err *e) {
    known w = {.unequal = level(p, d)};
    kept r = {0};
    int threads = 0;
    /* Every GPU that our kernels run on multiplies bf16 several times as fast as fp32, whatever the CPU beside it is. */
    if (!probe_applies(d)) resolve(c, ARITH_DOTS);
    recall(&w, c, p, m, d);
    status st =
        k->goes_on ? go_on(k, &w, c, p, d, &r, &threads, e) : decide(k, &w, c, p, d, &threads, e);
    if (st == ST_OK) {
        resolve(c, k->made.how);
        tell_lack(k, d);
        dev_limit(d, machine_isa(dev_isa(d), k->made.how), threads);
        const gemm_choices *products = k->goes_on ? &r.products : &w.f.products;
        if (probe_applies(d)) gemm_use(d, k->policy, &k->made.rule, products);
    }
    bool speaks = dev_is_meta(d) || peers_rank(p) == 0;
    if (speaks) tell_damage(&w);
    if (!speaks) k->otherwise[0] = '\0';
    gemm_choices_free(&r.products);
    machine_free(&w.f);
    return st;
}
