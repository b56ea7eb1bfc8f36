/* See losses.h. Reading order: losses_take, fetch, losses_settle. */
#include "train/losses.h"

#include <math.h>
#include <string.h>

#include "train/guard/suspects.h"

/* Tokens of row b before the padding at its end, which is id 0 without targets. */
static int64_t without_padding(const stage *g, int b) {
    const int32_t *ids = g->rows.ids + (int64_t)b * g->T;
    const int32_t *targets = g->rows.targets + (int64_t)b * g->T;
    int64_t n = g->T;
    while (n > 0 && ids[n - 1] == 0 && targets[n - 1] < 0) n--;
    return n;
}

/* Tokens of this micro-batch that repeat themselves. A stretch shorter than LEAST_REPEATED is a
 * ruler or a table, not a document. */
static int64_t count_repeated(const stage *g) {
    enum { LEAST_REPEATED = 64 };
    int64_t sum = 0, least = g->T < LEAST_REPEATED ? g->T : LEAST_REPEATED;
    for (int b = 0; b < g->B; b++) {
        const int32_t *ids = g->rows.ids + (int64_t)b * g->T;
        int64_t n = suspects_count_repeated(ids, without_padding(g, b), g->marks);
        if (n >= least) sum += n;
    }
    return sum;
}

/* For a later round, by one of the ranks that have the losses. */
static void note_losses(session *s, int micro_batch) {
    stage *g = &s->stage;
    const batch_rows *r = &g->rows;
    if (g->noted.fd < 0 || s->setup.peers.m.rank[MESH_TP] > 0) return;
    uint64_t first = stage_own_sample(&s->setup, &s->watch, s->at.step + 1);
    first += (uint64_t)micro_batch * (uint64_t)g->B;
    for (int b = 0; b < g->B; b++) {
        int targets = 0;
        for (int64_t i = (int64_t)b * r->T; i < (int64_t)(b + 1) * r->T; i++)
            targets += r->targets[i] >= 0;
        double loss = -batch_row_logp(r, r->nll, b) / (targets ? targets : 1);
        if (targets) resample_note(&g->noted, g->train, first + (uint64_t)b, loss);
    }
}

/* In the order of the data; a sequence that is not learned has no loss. */
static void keep_nll(const session *s, int micro_batch, const float *nll) {
    const stage *g = &s->stage;
    const objective *o = s->setup.objective;
    int64_t first = s->setup.peers.m.rank[MESH_DP] * g->share + (int64_t)micro_batch * g->B;
    if (!g->nll) return;
    if (o->learned == o->sequences) {
        memcpy(g->nll + first * g->T, nll, sizeof *g->nll * (size_t)(g->B * g->T));
        return;
    }
    memset(g->nll + first * g->T, 0, sizeof *g->nll * (size_t)(g->B * g->T));
    int samples = g->B / o->sequences;
    for (int i = 0; i < samples * o->learned; i++)
        memcpy(g->nll + (first + i % samples * o->sequences + i / samples) * g->T,
               nll + (int64_t)i * g->T, sizeof *g->nll * (size_t)g->T);
}

/* Adds the loss of a micro-batch as an integer, so that the order of micro-batches does not
 * matter. */
static void add_fixed_loss(session *s, double sum, step_result *r) {
    int64_t parts = s->stage.batch / s->stage.B * s->setup.peers.m.size[MESH_CP];
    double x = ldexp(sum, FIXED_NLL_BITS), limit = 0x1p62 / (double)parts;
    if (fabs(x) <= limit)
        r->loss_fixed += llrint(x);
    else
        *dev_flag(s->setup.dev) = true;
    r->loss_sum = ldexp((double)r->loss_fixed, -FIXED_NLL_BITS);
}

static void add_loss(session *s, double sum, step_result *r) {
    if (s->setup.c->train.deterministic)
        add_fixed_loss(s, sum, r);
    else
        r->loss_sum += sum;
}

static bool may_be_late(const session *s) {
    const objective *o = s->setup.objective;
    return !o->loss && !o->head && s->stage.context.cp == 1 && s->stage.noted.fd < 0;
}

static void take_now(session *s, const step_entry *t, step_result *r) {
    const stage *g = &s->stage;
    add_loss(s, execute_loss(s->setup.objective, g, t, r->grad_scale, r->sums), r);
    for (int k = 0; k < execute_modules(s); k++)
        r->ahead_sum[k] += batch_take_ahead(execute_ports_of(g, t), t->frame, k, &g->rows);
    keep_nll(s, t->micro_batch, g->rows.nll);
    note_losses(s, t->micro_batch);
}

/* Of the model, module 0, or of a module of multi-token prediction, 1, 2, ... */
static float *late_at(const stage *g, int micro_batch, int module) {
    int64_t rows = (int64_t)g->B * g->T;
    return g->late.nll + ((int64_t)micro_batch * (1 + g->late.modules) + module) * rows;
}

static void fetch(session *s, const step_entry *t) {
    stage *g = &s->stage;
    dev *d = s->setup.dev;
    const batch_ports *io = execute_ports_of(g, t);
    g->late.n++;
    if (!g->late.nll) return;
    for (int k = 0; k <= g->late.modules; k++) {
        prog_port port = k ? io->ahead[k - 1] : io->nll;
        dev_read_later(d, late_at(g, t->micro_batch, k), prog_port_at(io->p, t->frame, port),
                       (size_t)port.bytes);
    }
    /* in the deterministic mode the flag is for sums that overflow, and the update waits */
    if (!s->setup.c->train.deterministic)
        vec_check_finite(d, prog_port_at(io->p, t->frame, io->nll), io->nll.rows);
}

void losses_take(session *s, const step_entry *t, step_result *r) {
    if (s->watches && s->setup.c->guard.repeated > 0)
        r->repeated_tokens += count_repeated(&s->stage);
    if (may_be_late(s))
        fetch(s, t);
    else
        take_now(s, t, r);
}

void losses_settle(session *s, step_result *r) {
    stage *g = &s->stage;
    const batch_ports *io = &g->chunks[g->parts.chunks - 1];
    if (g->late.n && !g->late.nll) r->loss_sum = NAN; /* the device tells why */
    for (int m = 0; m < g->late.n && g->late.nll; m++) {
        const float *nll = late_at(g, m, 0);
        add_loss(s, batch_sum(nll, io->nll.rows), r);
        for (int k = 0; k < g->late.modules; k++)
            r->ahead_sum[k] += batch_sum(late_at(g, m, k + 1), io->ahead[k].rows);
        keep_nll(s, m, nll);
    }
    g->late.n = 0;
}
