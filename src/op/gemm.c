/* Chooses the implementation of a matrix product: what a run has chosen (gemm_use), else what is
 * remembered of this machine (machine.h), or what ATHANOR_GEMM=own|onednn says.
 *
 * What was never measured is computed by the own kernels: at the shapes of GPT-2, SmolLM2 and a
 * small Llama they are at 93-95 % of the multiply-add loop on Zen 4 (docs/performance.md),
 * oneDNN 2.6 is nowhere 3 % faster, and their bits do not depend on the number of threads. */
#include "op/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "op/cpu/tables.h"
#include "op/cuda/product.h"
#include "op/gemm_onednn.h"
#include "op/machine.h"

typedef struct gemm_cache {
    onednn_cache *onednn;
    gemm_choices choices;
    gemm_rule rule;
    gemm_policy policy;
    bool own_always; /* gemm_use_own */
    bool own_now;    /* gemm_hold_own */
    bool
        decided; /* choices and rule are there; otherwise the first product reads what is remembered */
} gemm_cache;

/* A damaged file must not stop a run that can do without it. */
static void read_remembered(gemm_cache *c, const dev *d) {
    machine_facts f;
    err e = {0};
    if (c->decided) return;
    c->decided = true;
    if (machine_read(&f, d, &e) != ST_OK) {
        log_warn("%s; own matrix products are used", e.message);
        return;
    }
    c->rule = machine_choose(&f, f.layer, f.n_layers, MACHINE_ANY).rule;
    c->choices = f.products;
    f.products = (gemm_choices){0};
    machine_free(&f);
}

static const char *const POLICIES[GEMM_POLICIES] = {"remembered", "own", "onednn"};

const char *gemm_policy_name(gemm_policy policy) {
    return POLICIES[policy];
}

bool gemm_find_policy(const char *name, gemm_policy *out) {
    for (int k = 0; k < GEMM_POLICIES; k++) {
        *out = (gemm_policy)k;
        if (strcmp(name, gemm_policy_name(*out)) == 0) return true;
    }
    *out = GEMM_REMEMBERED;
    return false;
}

status gemm_asked(gemm_policy *out, err *e) {
    int which = GEMM_REMEMBERED;
    status st = env_word("ATHANOR_GEMM", POLICIES, GEMM_POLICIES, &which, e);
    *out = (gemm_policy)which;
    return st;
}

static void *gemm_cache_new(dev *d) {
    gemm_cache *c = xcalloc(1, sizeof *c);
    err e = {0};
    if (gemm_asked(&c->policy, &e) != ST_OK) log_warn("%s", e.message);
    c->decided = c->policy != GEMM_REMEMBERED;
    c->onednn = onednn_cache_new(dev_threads(d));
    return c;
}

static void gemm_cache_free(void *cache) {
    gemm_cache *c = cache;
    onednn_cache_free(c->onednn);
    gemm_choices_free(&c->choices);
    free(c);
}

static gemm_cache *cache_of(dev *d) {
    return dev_kernel_cache(d, gemm_cache_new, gemm_cache_free);
}

gemm_setting gemm_get_setting(dev *d) {
    gemm_cache *c = cache_of(d);
    read_remembered(c, d);
    gemm_setting s = {.policy = c->policy, .rule = c->rule};
    for (int i = 0; i < c->choices.n; i++) s.by_onednn += c->choices.item[i].impl == GEMM_ONEDNN;
    return s;
}

static void forget(gemm_cache *c) {
    gemm_choices_free(&c->choices);
    c->rule = (gemm_rule){0};
    c->decided = true;
}

void gemm_use(dev *d, gemm_policy policy, const gemm_rule *rule, const gemm_choices *products) {
    gemm_cache *c = cache_of(d);
    if (c->own_always) return;
    forget(c);
    c->policy = policy;
    if (policy != GEMM_REMEMBERED) return;
    c->rule = *rule;
    for (int i = 0; i < products->n; i++) gemm_choices_put(&c->choices, &products->item[i]);
}

void gemm_use_own(dev *d) {
    if (dev_get_kind(d) == DEV_CUDA) {
        if (!dev_is_meta(d)) cuda_product_use_first(d);
        return;
    }
    gemm_cache *c = cache_of(d);
    c->policy = GEMM_ALL_OWN;
    c->own_always = true;
    forget(c);
}

void gemm_hold_own(dev *d, bool on) {
    if (dev_get_kind(d) != DEV_CUDA) cache_of(d)->own_now = on;
}

int64_t gemm_ws_bytes(dev *d, const gemm_args *g) {
    return cpu_kernels_of(dev_isa(d), g->ab_dt)->gemm_ws(dev_threads(d), g);
}

const char *gemm_impl_name(gemm_impl impl) {
    return impl == GEMM_ONEDNN ? "onednn" : "own";
}

const char *gemm_layout_name(gemm_layout layout) {
    static const char *const names[] = {"forward", "backward input", "backward weight"};
    return names[layout];
}

bool gemm_run_with(dev *d, gemm_impl impl, const gemm_args *g, void *ws) {
    if (impl == GEMM_ONEDNN) {
        if (g->ab_dt == DT_F16) return false;
        return onednn_run(cache_of(d)->onednn, g, ws, gemm_ws_bytes(d, g));
    }
    cpu_kernels_of(dev_isa(d), g->ab_dt)->gemm(dev_threads(d), g, ws);
    return true;
}

static gemm_impl by_rule(const gemm_rule *r, const gemm_args *g) {
    double work = (double)g->m * (double)g->n * (double)g->k;
    if (work < GEMM_RULE_LEAST || (g->a_trans && g->b_trans)) return GEMM_OWN;
    gemm_layout layout = g->a_trans   ? GEMM_BACKWARD_WEIGHT
                         : g->b_trans ? GEMM_FORWARD
                                      : GEMM_BACKWARD_INPUT;
    return r->of[g->ab_dt == DT_BF16][layout];
}

static gemm_impl choose(const gemm_cache *c, const gemm_args *g) {
    if (c->policy != GEMM_REMEMBERED) return c->policy == GEMM_ALL_ONEDNN ? GEMM_ONEDNN : GEMM_OWN;
    if (c->own_now) return GEMM_OWN;
    const gemm_choice *remembered = gemm_choices_find(&c->choices, g);
    return remembered ? remembered->impl : by_rule(&c->rule, g);
}

void gemm_run(dev *d, const gemm_args *g, void *ws) {
    gemm_cache *c = cache_of(d);
    read_remembered(c, d);
    if (!gemm_run_with(d, choose(c, g), g, ws)) gemm_run_with(d, GEMM_OWN, g, ws);
}
