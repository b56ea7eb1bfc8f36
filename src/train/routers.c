#include "train/routers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

/* Probs of a micro-batch are sums below 2^24 in fp32; a step of 2^20 of these still fits. */
enum { ROUTERS_FIXED_BITS = 18 };

/* ---- ports ---- */

static prog_port port_of(const prog *p, const char *what, int layer) {
    char name[32];
    snprintf(name, sizeof name, "%s.%d", what, layer);
    return prog_find_port(p, name);
}

/* Whether tokens of a layer choose experts. */
static bool has_router(const model_config *mc, int l) {
    mlp_layer m = model_layer(mc, l).mlp;
    return m.E > 0 && !m.slots;
}

/* A tally [ROUTERS_SUMS,E], and behind it a number of rounds. */
static int64_t router_tally_bytes(const model_config *mc) {
    return (ROUTERS_SUMS * mc->num_experts + 1) * (int64_t)sizeof(float);
}

/* Tallies that are held until they are read. */
static int64_t most_tallies(const model_config *mc, int64_t micro_batches) {
    enum { MICRO_BATCHES = 32 };
    int64_t routed = 0, held = micro_batches < MICRO_BATCHES ? micro_batches : MICRO_BATCHES;
    for (int l = 0; l < model_blocks(mc); l++) routed += has_router(mc, l);
    return held * routed;
}

int64_t routing_bytes(const model_config *mc, int64_t micro_batches) {
    return most_tallies(mc, micro_batches) * router_tally_bytes(mc);
}

routing_ports routing_ports_of(arena *a, const plan *p, int micro_batches) {
    const model_config *mc = &p->spec.model;
    routing_ports io = {.item = ARENA_ARRAY(a, router_ports, model_blocks(mc)),
                        .row = ARENA_ARRAY(a, float, mc->num_experts)};
    for (int c = 0; c < plan_chunks(p); c++) {
        const prog *program = plan_prog(p, USE_TRAIN, c); /* NULL: another stage has it */
        model_layer_range range = plan_layers(p, c);
        int end = range.end == model_layers(mc) ? model_blocks(mc) : range.end;
        for (int l = range.first; l < end; l++) {
            if (!has_router(mc, l)) continue;
            router_ports one = {.layer = l, .chunk = program ? c : -1, .p = program};
            if (program) one.tally = port_of(program, "tally", l);
            if (program) one.counts = port_of(program, "counts", l);
            if (program) one.rounds = port_of(program, "rounds", l);
            io.item[io.n++] = one;
        }
    }
    io.dev = param_device(p->store);
    io.most = (int)most_tallies(mc, micro_batches);
    io.of = ARENA_ARRAY(a, int, io.most);
    if (io.n) io.tallies = dev_pinned(io.dev, (size_t)routing_bytes(mc, micro_batches));
    return io;
}

void routing_ports_free(routing_ports *io) {
    if (io->tallies) dev_pinned_free(io->dev, io->tallies);
    io->tallies = NULL;
}

/* ---- sums ---- */

/* Numbers that are summed over ranks. */
static int64_t sums(const routers *r) {
    return (int64_t)r->n * (ROUTERS_SUMS * r->E + 2);
}

static int64_t *sums_of(const routers *r, int i, int what) {
    return r->sum + ((int64_t)i * ROUTERS_SUMS + what) * r->E;
}

void routers_init(routers *r, arena *a, const model_config *mc) {
    int blocks = model_blocks(mc), E = (int)mc->num_experts;
    *r = (routers){.E = E,
                   .k = (int)mc->num_experts_per_tok,
                   .layer = ARENA_ARRAY(a, int, blocks),
                   .stored = ARENA_ARRAY(a, int, blocks)};
    for (int l = 0; l < blocks; l++) {
        if (!has_router(mc, l)) continue;
        r->stored[r->n] = model_layer(mc, l).stored;
        r->layer[r->n++] = l;
    }
    r->sum = ARENA_ARRAY(a, int64_t, sums(r));
    r->rounds = r->sum + (int64_t)r->n * ROUTERS_SUMS * E;
    r->passes = r->rounds + r->n;
    r->share = ARENA_ARRAY(a, double, r->n *E);
    r->unused = ARENA_ARRAY(a, int64_t, r->n * E);
    r->told = ARENA_ARRAY(a, bool, r->n);
}

void routers_begin_step(routers *r) {
    memset(r->sum, 0, sizeof *r->sum * (size_t)sums(r));
}

/* Where tally number k comes to, of a model with E experts. */
static float *tally_at(const routing_ports *io, int E, int k) {
    return (float *)io->tallies + (int64_t)k * (ROUTERS_SUMS * E + 1);
}

void routers_take(routers *r, routing_ports *io, const step_entry *t) {
    for (int i = 0; i < io->n && io->tallies; i++) {
        const router_ports *k = &io->item[i];
        if (k->chunk != t->chunk || !k->tally.bytes) continue;
        if (io->taken == io->most) routers_settle(r, io);
        float *to = tally_at(io, r->E, io->taken);
        io->of[io->taken++] = i;
        dev_read_later(io->dev, to, prog_port_at(k->p, t->frame, k->tally), (size_t)k->tally.bytes);
        if (k->rounds.bytes)
            dev_read_later(io->dev, to + ROUTERS_SUMS * r->E,
                           prog_port_at(k->p, t->frame, k->rounds), (size_t)k->rounds.bytes);
    }
}

static void add_tally(routers *r, int i, const router_ports *k, const float *tally) {
    int32_t rounds;
    for (int what = 0; what < ROUTERS_SUMS; what++) {
        int64_t *sum = sums_of(r, i, what);
        bool counts = what == ROUTERS_PICKS || what == ROUTERS_TAKEN;
        int bits = counts ? 0 : ROUTERS_FIXED_BITS;
        for (int e = 0; e < r->E; e++) {
            double x = (double)tally[what * r->E + e];
            if (isfinite(x)) sum[e] += llrint(ldexp(x, bits)); /* else the step fails anyway */
        }
    }
    if (!k->rounds.bytes) return;
    memcpy(&rounds, tally + ROUTERS_SUMS * r->E, sizeof rounds);
    r->rounds[i] += rounds;
    r->passes[i]++;
}

void routers_settle(routers *r, routing_ports *io) {
    dev_sync(io->dev);
    for (int k = 0; k < io->taken; k++)
        add_tally(r, io->of[k], &io->item[io->of[k]], tally_at(io, r->E, k));
    io->taken = 0;
}

void routers_sum(routers *r, const peers *p) {
    int n = (int)sums(r);
    if (n) peers_sum_tokens(p, r->sum, n, "the load of experts");
    if (n) peers_sum_stages(p, r->sum, n, "the load of experts");
}

void routers_give(const routers *r, const routing_ports *io, int chunk, int frame) {
    for (int i = 0; i < io->n; i++) {
        const router_ports *k = &io->item[i];
        if (k->chunk != chunk || !k->counts.bytes) continue;
        for (int e = 0; e < r->E; e++) io->row[e] = (float)sums_of(r, i, ROUTERS_PICKS)[e];
        prog_put(k->p, frame, k->counts, io->row);
    }
}

static int64_t total_of(const routers *r, int i, int what) {
    int64_t total = 0;
    for (int e = 0; e < r->E; e++) total += sums_of(r, i, what)[e];
    return total;
}

/* ---- the bias ---- */

bool routers_have_bias(const model_config *mc) {
    return mc->num_experts > 0 && mc->router_bias;
}

/* Picks of an expert in all layers that run this block. */
static int64_t picks_of_block(const routers *r, int block, int e) {
    int64_t picks = 0;
    for (int i = 0; i < r->n; i++)
        if (r->stored[i] == block) picks += sums_of(r, i, ROUTERS_PICKS)[e];
    return picks;
}

/* Vectors are whole on every rank, so each moves its own copy, and all by the same. */
static void move_one(const routers *r, const param_store *s, const param *p, double rate) {
    int64_t total = 0;
    for (int e = 0; e < r->E; e++) total += picks_of_block(r, p->layer, e);
    const param_unit *u = param_unit_at(s, p->unit);
    float *at = param_piece_of(s, p->unit).master + (p->offset - u->piece);
    size_t bytes = (size_t)r->E * sizeof *at;
    dev_room room = {0};
    float *bias = dev_borrow(param_device(s), at, bytes, true, &room);
    for (int e = 0; e < r->E; e++) {
        int64_t below = total - r->E * picks_of_block(r, p->layer, e);
        bias[e] += (float)(below > 0 ? rate : below < 0 ? -rate : 0);
    }
    dev_put_back(param_device(s), at, bias, bytes);
    dev_room_free(&room);
}

void routers_move_bias(const routers *r, const param_store *s, double rate) {
    for (int j = 0; j < param_count(s) && rate > 0; j++) {
        const param *p = param_at(s, j);
        if (p->part == PART_ROUTER_BIAS && !p->frozen) move_one(r, s, p, rate);
    }
}

/* ---- what is told of them ---- */

/* Steps over which the mean load forgets. */
enum { MEMORY = 32 };

void routers_watch(routers *r) {
    double by = 1.0 / (r->steps < MEMORY ? (double)r->steps + 1 : MEMORY);
    r->steps++;
    for (int i = 0; i < r->n; i++) {
        const int64_t *picks = sums_of(r, i, ROUTERS_PICKS);
        double total = (double)total_of(r, i, ROUTERS_PICKS);
        for (int e = 0; e < r->E; e++) {
            double *share = &r->share[(int64_t)i * r->E + e];
            int64_t *unused = &r->unused[(int64_t)i * r->E + e];
            *share += by * ((total > 0 ? (double)picks[e] / total : 0) - *share);
            *unused = picks[e] > 0 ? 0 : *unused + 1;
        }
    }
}

static json_t *layer_json(const routers *r, int i) {
    json_t *share = json_array(), *unused = json_array();
    for (int64_t k = (int64_t)i * r->E; k < (int64_t)(i + 1) * r->E; k++) {
        json_array_append_new(share, json_f64(r->share[k]));
        json_array_append_new(unused, json_integer((json_int_t)r->unused[k]));
    }
    return json_pack("{s:o,s:o,s:b}", "share", share, "unused", unused, "told", (int)r->told[i]);
}

json_t *routers_to_json(const routers *r) {
    if (r->n == 0) return NULL;
    json_t *layers = json_array();
    for (int i = 0; i < r->n; i++) json_array_append_new(layers, layer_json(r, i));
    return json_pack("{s:I,s:o}", "steps", (json_int_t)r->steps, "layers", layers);
}

static bool take_layer(routers *r, int i, const json_t *o) {
    const json_t *share = json_object_get(o, "share"), *unused = json_object_get(o, "unused");
    bool whole = json_array_size(share) == (size_t)r->E && json_array_size(unused) == (size_t)r->E;
    for (int e = 0; e < r->E && whole; e++) {
        const json_t *x = json_array_get(share, (size_t)e), *n = json_array_get(unused, (size_t)e);
        whole = json_is_number(x) && json_is_integer(n) && json_integer_value(n) >= 0;
        r->share[(int64_t)i * r->E + e] = json_number_value(x);
        r->unused[(int64_t)i * r->E + e] = json_integer_value(n);
    }
    r->told[i] = json_is_true(json_object_get(o, "told"));
    return whole;
}

status routers_from_json(routers *r, const json_t *o, err *e) {
    const json_t *layers = json_object_get(o, "layers");
    r->steps = json_integer_value(json_object_get(o, "steps"));
    memset(r->share, 0, sizeof *r->share * (size_t)(r->n * r->E));
    memset(r->unused, 0, sizeof *r->unused * (size_t)(r->n * r->E));
    memset(r->told, 0, sizeof *r->told * (size_t)r->n);
    if (!o || r->n == 0) return ST_OK;
    bool whole = r->steps >= 0 && json_array_size(layers) == (size_t)r->n;
    for (int i = 0; i < r->n && whole; i++)
        whole = take_layer(r, i, json_array_get(layers, (size_t)i));
    return whole ? ST_OK : err_set(e, ST_FORMAT, "it is not what was watched of these experts");
}

/* The sum of the k largest of the shares. */
static double busiest(const double *share, int E, int k) {
    double sum = 0, below = INFINITY;
    for (int left = k; left > 0;) {
        double most = -1;
        int same = 0;
        for (int e = 0; e < E; e++) {
            if (share[e] >= below) continue;
            if (share[e] > most) most = share[e], same = 0;
            same += share[e] == most;
        }
        if (same == 0) break;
        sum += most * (same < left ? same : left);
        left -= same, below = most;
    }
    return sum;
}

router_view routers_view(const routers *r, int i) {
    const int64_t *picks = sums_of(r, i, ROUTERS_PICKS), *probs = sums_of(r, i, ROUTERS_PROBS);
    double total = (double)total_of(r, i, ROUTERS_PICKS), P = (double)total_of(r, i, ROUTERS_PROBS);
    double tokens = total / r->k, even = (double)r->k / r->E;
    router_view v = {0};
    if (total <= 0) return v;
    if (r->passes[i]) v.rounds = (double)r->rounds[i] / (double)r->passes[i];
    int64_t most = 0;
    for (int e = 0; e < r->E; e++) {
        if (picks[e] > most) most = picks[e];
        if (P > 0) v.balance += r->E * ((double)picks[e] / total) * ((double)probs[e] / P);
        v.dead += r->unused[(int64_t)i * r->E + e] >= ROUTERS_WINDOW;
    }
    v.load = (double)most * r->E / total;
    v.dropped = 1 - (double)total_of(r, i, ROUTERS_TAKEN) / total;
    double nats = ldexp((double)total_of(r, i, ROUTERS_ENTROPY), -ROUTERS_FIXED_BITS) / tokens;
    v.entropy = r->E > 1 ? nats / log(r->E) : 1;
    if (r->E > r->k)
        v.collapse = (busiest(r->share + (int64_t)i * r->E, r->E, r->k) - even) / (1 - even);
    return v;
}

double routers_load(const routers *r, int i, int expert) {
    return r->share[(int64_t)i * r->E + expert] * r->E;
}
