/* Reading order: search_layouts; try_all, which goes through the combinations; verify; the words. */
#include "plan/clock/search.h"

#include <math.h>
#include <stdlib.h>

#include "plan/plan_int.h"

enum { MOST_PP = 128, MOST_PLANNED = 512, LEAST_TOKENS = 4096, MOST_MICRO_BATCH = 64 };

typedef struct searching {
    search_result *out;
    arena *a;
    dev *meta;
    const search_spec *what;
    plan_spec base; /* of the first phase, with what lies in a file by now */
    const cluster *c;
    int cap;
    double *cost;         /* [layers] of each, by which stages are cut; NULL: not known yet */
    const int **cut;      /* [layers + 1] by how many chunks there are; NULL: not made yet */
    sketch_key *hopeless; /* [n_hopeless] of which no layout fits */
    int n_hopeless, cap_hopeless;
    err last; /* why the last layout could not be cut so */
} searching;

/* ---- candidates ---- */

/* s NULL: it is known not to fit. */
static void note(searching *k, const sketch *s, const sketch_layout *l) {
    search_found f = {.layout = *l};
    k->out->tried++;
    if (!s) {
        k->out->too_large++;
        return;
    }
    if ((k->what->check && k->what->check(k->what->ctx, l, &k->last) != ST_OK) ||
        sketch_time(s, l, k->c, &runtime_athanor, &f.result, &k->last) != ST_OK) {
        k->out->unfit++;
        return;
    }
    if (f.result.memory_bytes > k->out->usable_bytes) {
        k->out->too_large++;
        if (k->out->least_bytes == 0 || f.result.memory_bytes < k->out->least_bytes)
            k->out->least_bytes = f.result.memory_bytes;
        return;
    }
    k->out->found = arena_grow(k->a, k->out->found, k->out->n, &k->cap, sizeof f);
    k->out->found[k->out->n++] = f;
}

static bool free_or(int kept, int x) {
    return kept == 0 || kept == x;
}

/* Without stages there is one schedule, and a stage is the whole model. */
static bool needs_stages(const search_kept *kept) {
    return kept->chunks > 1 || (kept->schedule >= 0 && kept->schedule != SCHEDULE_1F1B);
}

static int64_t divisor_of(const search_phase *p) {
    return p->batch_divisor ? p->batch_divisor : p->batch;
}

static int micro_batch_of(const search_phase *p, const sketch_key *key) {
    return p->micro_batch ? p->micro_batch : key->micro_batch;
}

/* Whether dp ranks share each batch of a phase out, and cp ranks its sequences, of which each has two pieces. */
static bool divides_phase(const search_phase *p, const sketch_key *key, int dp) {
    return divisor_of(p) % ((int64_t)dp * micro_batch_of(p, key)) == 0 &&
           (key->cp == 1 || p->base.T % (2 * key->cp) == 0);
}

/* Whether so many stages with so many ranks each take all devices. */
static bool divides(const searching *k, const sketch_key *key, int pp) {
    const search_kept *kept = &k->what->kept;
    int devices = cluster_devices(k->c), each = key->tp * key->cp * pp;
    if (!free_or(kept->pp, pp) || devices % each) return false;
    if (pp > 1 ? !k->what->pipelines : needs_stages(kept)) return false;
    int dp = devices / each;
    if (key->ep > 1 && dp * key->cp % key->ep) return false;
    for (int i = 0; i < k->what->n_phases; i++)
        if (!divides_phase(&k->what->phase[i], key, dp)) return false;
    return free_or(kept->dp, dp);
}

/* Where a plan of so many chunks is cut. The costs of layers, which no layout changes, are found once. NULL: they cannot be. */
static const int *cut_of(searching *k, int chunks) {
    const plan_spec *s = &k->base;
    int n = (int)s->model.num_hidden_layers;
    if (!k->cut) {
        double *cost = ARENA_ARRAY(k->a, double, n);
        k->cut = ARENA_ARRAY(k->a, const int *, n + 1);
        if (plan_layer_costs(s, k->meta, cost, &k->last) == ST_OK) k->cost = cost;
    }
    if (k->cost && !k->cut[chunks]) k->cut[chunks] = plan_cut_layers(k->a, s, k->cost, chunks);
    return k->cut[chunks];
}

/* Whether every step of the run has whole groups of pp micro-batches. */
static bool comes_in_groups(const searching *k, const sketch_layout *l) {
    for (int i = 0; i < k->what->n_phases; i++)
        if (divisor_of(&k->what->phase[i]) /
            ((int64_t)l->dp * micro_batch_of(&k->what->phase[i], &l->key)) % l->pp)
            return false;
    return true;
}

/* One schedule with so many chunks a stage, where layers and micro-batches suffice. */
static void try_schedule(searching *k, const sketch *s, sketch_layout l, schedule_kind kind,
                         int chunks) {
    if (l.pp * chunks > k->base.model.num_hidden_layers || !free_or(k->what->kept.chunks, chunks))
        return;
    if (kind == SCHEDULE_INTERLEAVED && !comes_in_groups(k, &l)) return;
    l.schedule = kind;
    l.chunks_of_stage = chunks;
    if (l.pp > 1) l.cut = cut_of(k, l.pp * chunks);
    note(k, s, &l);
}

/* Of a pipeline 1F1B, and interleaved with two and four chunks, where nothing else is kept. */
static void try_schedules(searching *k, const sketch *s, sketch_layout l) {
    const search_kept *kept = &k->what->kept;
    for (schedule_kind kind = 0; kind < SCHEDULES; kind++) {
        bool usual = kind == SCHEDULE_1F1B || (l.pp > 1 && kind == SCHEDULE_INTERLEAVED);
        if (kept->schedule >= 0 ? kept->schedule != (int)kind : !usual) continue;
        int chunks = schedule_chunks_of(kind);
        if (chunks || kept->chunks > 1) {
            try_schedule(k, s, l, kind, chunks ? chunks : kept->chunks);
            continue;
        }
        try_schedule(k, s, l, kind, 2);
        try_schedule(k, s, l, kind, 4);
    }
}

static void try_sketch(searching *k, const sketch *s, sketch_key key) {
    const search_kept *kept = &k->what->kept;
    for (int pp = 1; pp <= MOST_PP && pp <= k->base.model.num_hidden_layers; pp++) {
        if (!divides(k, &key, pp)) continue;
        int dp = cluster_devices(k->c) / (key.tp * key.cp * pp);
        int least = kept->zero > 0 ? kept->zero : 0;
        int most = kept->zero >= 0 ? kept->zero : dp * key.cp == 1 ? 0 : 3;
        if (k->base.offload & OFFLOAD_WEIGHTS) { /* which one rank may have, too */
            if (pp > 1) continue;
            least = 3;
            if (kept->zero < 0) most = 3;
        }
        for (int zero = least; zero <= most; zero++)
            try_schedules(k, s,
                          (sketch_layout){.key = key,
                                          .dp = dp,
                                          .pp = pp,
                                          .zero = zero,
                                          .offload = k->base.offload,
                                          .micro_batches = k->what->phase[0].batch /
                                                           ((int64_t)dp * key.micro_batch)});
    }
}

static bool reaches(const searching *k, sketch_key key) {
    for (int pp = 1; pp <= MOST_PP; pp++)
        if (divides(k, &key, pp)) return true;
    return false;
}

/* Whether it can be the only one of a step: gradients come where its activations were then. */
static bool can_be_alone(const searching *k, sketch_key key) {
    int64_t dp = cluster_devices(k->c) / (key.tp * key.cp);
    return dp * key.micro_batch == k->what->phase[0].batch;
}

/* A micro-batch that holds a smaller one several times needs more memory in every layout that it has, and has no others. */
static bool is_hopeless(const searching *k, sketch_key key) {
    if (can_be_alone(k, key)) return false;
    for (int i = 0; i < k->n_hopeless; i++) {
        const sketch_key *h = &k->hopeless[i];
        if (h->tp == key.tp && h->cp == key.cp && h->context == key.context && h->ep == key.ep &&
            h->recompute == key.recompute && key.micro_batch % h->micro_batch == 0)
            return true;
    }
    return false;
}

static void try_new(searching *k, sketch_key key) {
    sketch s;
    search_result *r = k->out;
    arena *a = arena_new("layers");
    if (sketch_new(&s, a, k->meta, &k->base, key, k->c, &k->last) == ST_OK) {
        int others = r->tried - r->too_large;
        try_sketch(k, &s, key);
        if (r->tried - r->too_large == others) {
            k->hopeless =
                arena_grow(k->a, k->hopeless, k->n_hopeless, &k->cap_hopeless, sizeof key);
            k->hopeless[k->n_hopeless++] = key;
        }
    } else {
        r->unfit++;
    }
    arena_free(a);
}

static void try_key(searching *k, sketch_key key) {
    if (!reaches(k, key)) return;
    if (is_hopeless(k, key))
        try_sketch(k, NULL, key);
    else
        try_new(k, key);
}

/* Experts on one rank, and shared out in powers of two, or as it was given. */
static void try_experts(searching *k, sketch_key key) {
    int kept = k->what->kept.ep, E = k->what->experts ? (int)k->base.model.num_experts : 1;
    if (kept > 1) {
        key.ep = kept;
        try_key(k, key);
        return;
    }
    for (key.ep = 1; key.ep == 1 || (!kept && E % key.ep == 0 && key.ep <= E); key.ep *= 2)
        try_key(k, key);
}

static void try_policies(searching *k, sketch_key key) {
    int kept = k->what->kept.recompute;
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        key.recompute = (recompute_policy)r;
        if (kept < 0 || kept == r) try_experts(k, key);
    }
}

/* Each rank has two pieces of every sequence. */
static void try_context(searching *k, int tp, int micro_batch, int cp) {
    int kept = k->what->kept.context;
    if (k->base.T % (2 * cp)) return;
    for (int i = CONTEXT_ALLGATHER; i <= CONTEXT_ULYSSES; i++)
        if (kept < 0 ? k->what->contexts >> i & 1u : kept == i)
            try_policies(k, (sketch_key){tp, micro_batch, RECOMPUTE_NONE, cp, (context_kind)i, 1});
}

static void try_contexts(searching *k, int tp, int micro_batch) {
    const search_kept *kept = &k->what->kept;
    if (kept->cp <= 1)
        try_policies(k, (sketch_key){tp, micro_batch, RECOMPUTE_NONE, 1, CONTEXT_ALLGATHER, 1});
    if (kept->cp > 1) try_context(k, tp, micro_batch, kept->cp);
    if (kept->cp || (micro_batch > 1 && !kept->micro_batch)) return;
    for (int cp = 2; k->base.T / cp >= LEAST_TOKENS; cp *= 2) try_context(k, tp, micro_batch, cp);
}

static void try_all(searching *k) {
    const search_kept *kept = &k->what->kept;
    int first = kept->tp ? kept->tp : 1, last = kept->tp ? kept->tp : k->c->per_node;
    for (int tp = first; tp <= last; tp++) {
        if (kept->micro_batch) {
            try_contexts(k, tp, kept->micro_batch);
            continue;
        }
        for (int b = 1; b <= MOST_MICRO_BATCH; b++)
            if (k->base.sequences <= 1 || b % k->base.sequences == 0) try_contexts(k, tp, b);
    }
}

/* ---- order ---- */

static int fastest_first(const void *a, const void *b) {
    const search_found *x = a, *y = b;
    double s = x->result.time.step_s, t = y->result.time.step_s;
    if (fabs(s - t) > 1e-9 * (s + t)) return s < t ? -1 : 1;
    return (x->result.memory_bytes > y->result.memory_bytes) -
           (x->result.memory_bytes < y->result.memory_bytes);
}

/* A phase with the layout. */
static plan_spec spec_of(const searching *k, int phase, const sketch_layout *l, const mesh *ranks) {
    const search_phase *of = &k->what->phase[phase];
    plan_spec s = of->base;
    s.reckoned = true;
    s.offload = k->base.offload;
    s.snapshot = k->base.snapshot;
    s.train_B = micro_batch_of(of, &l->key);
    if (s.valid_B) s.valid_B = s.train_B;
    s.micro_batches = of->batch / ((int64_t)l->dp * s.train_B);
    s.recompute = l->key.recompute;
    s.ranks = ranks;
    s.sharing = (param_sharding){
        .shards = ranks->size[MESH_SHARD], .zero = l->zero, .bucket_elems = s.sharing.bucket_elems};
    s.sequence_parallel = l->key.tp > 1;
    s.context = l->key.context;
    if (k->what->host_bytes) s.host_bytes = k->what->host_bytes(k->what->ctx, phase, l);
    if (l->pp > 1) {
        s.chunks = l->pp * l->chunks_of_stage;
        s.cut = l->cut;
        s.pp_schedule = (int)l->schedule;
    }
    return s;
}

static status plan_found(searching *k, const sketch_layout *l, mesh *ranks, plan **out) {
    int n = k->what->n_phases;
    plan_spec *specs = xcalloc((size_t)n, sizeof *specs);
    mesh_place(ranks,
               &(mesh_shape){.dp = l->dp,
                             .dp_replicate = 1,
                             .tp = l->key.tp,
                             .cp = l->key.cp,
                             .pp = l->pp,
                             .ep = l->key.ep},
               0);
    for (int i = 0; i < n; i++) specs[i] = spec_of(k, i, l, ranks);
    status st = plan_new_phases(out, k->meta, specs, n, &k->last);
    free(specs);
    return st;
}

/* The same layout as it would run. False: it does not fit, or (memory_bytes 0) cannot be cut so. */
static bool verify(searching *k, search_found *f) {
    mesh ranks;
    plan *p;
    f->result.memory_bytes = 0;
    if (plan_found(k, &f->layout, &ranks, &p) != ST_OK) return false;
    f->result.time = clock_step(p, k->c);
    f->result.memory_bytes = f->result.time.peak_bytes;
    plan_free(p);
    return f->result.memory_bytes <= k->out->usable_bytes;
}

/* Plans the best of the list, and keeps those that fit: twice as many as are wanted, which may come in another order then, of four times
 * as many, or of as many as it takes until one fits. */
static void verify_best(searching *k) {
    search_result *r = k->out;
    int fit = 0, most = k->what->most;
    double least = 0;
    if (r->n > MOST_PLANNED) r->n = MOST_PLANNED;
    for (int i = 0; i < r->n && fit < 2 * most && (fit == 0 || i < 4 * most); i++) {
        search_found f = r->found[i];
        if (verify(k, &f)) {
            r->found[fit++] = f;
            continue;
        }
        double bytes = f.result.memory_bytes;
        r->too_large++;
        if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
    }
    r->n = fit;
    if (fit == 0 && least > 0)
        r->least_bytes = least; /* those beyond memory need more by sketches */
}

static status say_nothing(const searching *k, err *e) {
    const search_result *r = k->out;
    if (r->too_large) {
        err_at(e, ST_MEMORY, "cluster",
               "no layout fits: the smallest of %d needs %.1f GiB of each device, and %.1f GiB are "
               "there",
               r->tried, ceil(r->least_bytes / (1 << 30) * 10) / 10,
               floor(r->usable_bytes / (1 << 30) * 10) / 10);
        return err_hint(e, "take more devices, or devices with more memory");
    }
    if (r->unfit && k->last.message[0])
        return err_at(e, ST_USAGE, "model", "no layout can be made of it: %s", k->last.message);
    err_at(e, ST_USAGE, "train.global_batch_size", "%lld sequences cannot be shared by %d devices",
           (long long)k->what->phase[0].batch, cluster_devices(k->c));
    return err_hint(e, "take a multiple of %d", cluster_devices(k->c));
}

/* All with what lies in a file now; what is found fits. */
static void try_and_verify(searching *k) {
    try_all(k);
    if (k->out->n == 0) return;
    qsort(k->out->found, (size_t)k->out->n, sizeof *k->out->found, fastest_first);
    verify_best(k);
}

/* Where nothing fits: with the optimizer's state in a file; then with weights in it, too. They are the last to be
 * tried, as a disk is slower than anything else. */
static void try_files(searching *k) {
    plan_spec *s = &k->base;
    static const unsigned words[] = {OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER | OFFLOAD_WEIGHTS};
    bool can = s->optim && !s->optim->declare_states && k->c->disk_bytes_per_s > 0;
    if (s->offload || k->what->kept.offload || !can) return;
    for (int i = 0; i < ARRAY_LEN(words) && k->out->n == 0 && k->out->too_large; i++) {
        if ((words[i] & OFFLOAD_WEIGHTS) && s->adapters.rank) return;
        s->offload = words[i];
        s->snapshot = false;
        k->n_hopeless = 0; /* that was with everything in memory */
        try_and_verify(k);
    }
}

status search_layouts(search_result *out, arena *a, dev *meta, const search_spec *what,
                      const cluster *c, err *e) {
    searching k = {
        .out = out, .a = a, .meta = meta, .what = what, .base = what->phase[0].base, .c = c};
    *out = (search_result){.usable_bytes = what->usable_bytes > 0 ? what->usable_bytes
                                                                  : cluster_usable_bytes(c)};
    try_and_verify(&k);
    try_files(&k);
    if (out->n == 0) return say_nothing(&k, e);
    qsort(out->found, (size_t)out->n, sizeof *out->found, fastest_first);
    if (out->n > what->most) out->n = what->most;
    return ST_OK;
}

/* ---- words ---- */

void search_name(const sketch_layout *l, strbuf *out) {
    static const char *const policies[] = {RECOMPUTE_POLICIES(LIST_WORD)};
    static const char *const context_names[] = {CONTEXT_KINDS(LIST_WORD)};
    strbuf_printf(out, "dp %d", l->dp);
    if (l->key.tp > 1) strbuf_printf(out, ", tp %d with sp", l->key.tp);
    if (l->key.cp > 1) strbuf_printf(out, ", cp %d (%s)", l->key.cp, context_names[l->key.context]);
    if (l->key.ep > 1) strbuf_printf(out, ", ep %d", l->key.ep);
    if (l->pp > 1) strbuf_printf(out, ", pp %d (%s", l->pp, schedule_name(l->schedule));
    if (l->pp > 1 && l->chunks_of_stage > 1) strbuf_printf(out, ", %d chunks", l->chunks_of_stage);
    if (l->pp > 1) strbuf_puts(out, ")");
    if (l->zero) strbuf_printf(out, ", ZeRO-%d", l->zero);
    strbuf_printf(out, ", micro-batch %d x %lld", l->key.micro_batch, (long long)l->micro_batches);
    if (l->key.recompute != RECOMPUTE_NONE)
        strbuf_printf(out, ", recompute %s", policies[l->key.recompute]);
    if (l->offload) strbuf_printf(out, ", offload %s", plan_offload_word(l->offload));
}

/* How much there is to a layout. */
static int intricacy(const sketch_layout *l) {
    int ways = (l->key.tp > 1) + (l->key.cp > 1) + (l->key.ep > 1) + (l->pp > 1) + (l->offload > 0);
    return 100 * ways + 10 * l->zero + (int)l->key.recompute;
}

int search_plainest(const search_result *r) {
    static const double AS_FAST = 1.01;
    int best = 0;
    for (int i = 1; i < r->n; i++) {
        const search_found *x = &r->found[i];
        if (x->result.time.step_s <= AS_FAST * r->found[0].result.time.step_s &&
            intricacy(&x->layout) < intricacy(&r->found[best].layout))
            best = i;
    }
    return best;
}

void search_explain(const search_found *x, const search_found *y, strbuf *out) {
    const clock_time *s = &x->result.time, *t = &y->result.time;
    const struct {
        const char *name;
        double less;
    } parts[] = {{"kernels", t->kernels_s - s->kernels_s},
                 {"collectives among the ops", t->among_s - s->among_s},
                 {"waits for collectives beside them", t->exposed_s - s->exposed_s},
                 {"the bubble of the pipeline", t->bubble_s - s->bubble_s},
                 {"the optimizer and its gathers", t->optimizer_s - s->optimizer_s},
                 {"the host", t->host_s - s->host_s}};
    int more = 0, less = 0;
    if (1 - s->step_s / t->step_s < 0.0005) { /* 0.0 % */
        double gib = (y->result.memory_bytes - x->result.memory_bytes) / (1 << 30);
        strbuf_puts(out, "as fast");
        if (gib >= 0.05) strbuf_printf(out, ", with %.1f GiB less memory", gib);
        return;
    }
    for (int i = 1; i < ARRAY_LEN(parts); i++) {
        if (parts[i].less > parts[less].less) less = i;
        if (parts[i].less < parts[more].less) more = i;
    }
    strbuf_printf(out, "%.1f %% less time a step: %.1f ms less for %s",
                  100 * (1 - s->step_s / t->step_s), parts[less].less * 1e3, parts[less].name);
    if (parts[more].less < -0.01 * s->step_s)
        strbuf_printf(out, ", though %.1f ms more for %s", -parts[more].less * 1e3,
                      parts[more].name);
}
