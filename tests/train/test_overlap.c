/* How much of what ranks send is hidden behind the kernels of the op that sends it, on a link that is slow.
 *
 * No wall clock is read, since the machine may be busy. Each rank has a clock that is a number: the kernels that such an op calls move it on by
 * their FLOPs, a transfer takes time for its bytes, transfers of the side stream come one after the other, and a wait moves the clock to the end
 * of what it waits for. All ranks have the same work, so that a rank alone says how long it waits. The functions in between are the linker's
 * (--wrap): the step itself is computed as always. */
#include "test.h"

#include "op/op.h"
#include "train/layouts/layouts.h"
#include "train/session.h"

enum { MOST_CALLS = 4096 };

/* What a rank did since its step began. */
typedef struct timeline {
    bool on;
    double now, link_free; /* when the side stream is done with all that it has */
    double end[MOST_CALLS];
    comm_ticket ticket[MOST_CALLS];
    int n;
    double work, bytes, sent_s, waited_s;
} timeline;
static _Thread_local timeline own;
static timeline first_rank;

static const char *counts; /* how `what` of the transfers begins that are looked at */
static double s_per_byte;  /* a FLOP takes 1 */

comm_ticket __real_comm_start(comm *c, const comm_call *call);
void __real_comm_run(comm *c, const comm_call *call);
void __real_comm_wait(comm_world *w, comm_ticket t);
const op_impl *__real_op_find_of_kind(const dev *d, op_kind kind, dtype dt);
comm_ticket __wrap_comm_start(comm *c, const comm_call *call);
void __wrap_comm_run(comm *c, const comm_call *call);
void __wrap_comm_wait(comm_world *w, comm_ticket t);
const op_impl *__wrap_op_find_of_kind(const dev *d, op_kind kind, dtype dt);

/* ---- transfers ---- */

static double duration(const comm *c, const comm_call *call) {
    if (!own.on || !call->what || strncmp(call->what, counts, strlen(counts)) != 0) return 0;
    double bytes = (double)comm_call_sends(call, comm_rank(c), comm_size(c));
    own.bytes += bytes;
    own.sent_s += bytes * s_per_byte;
    return bytes * s_per_byte;
}

static void wait_until(double end) {
    if (end <= own.now) return;
    own.waited_s += end - own.now;
    own.now = end;
}

comm_ticket __wrap_comm_start(comm *c, const comm_call *call) {
    double takes = duration(c, call), begins = fmax(own.now, own.link_free);
    own.link_free = begins + takes;
    comm_ticket t = __real_comm_start(c, call);
    if (takes > 0) {
        CHECK(own.n < MOST_CALLS, "a step of more than %d calls", (int)MOST_CALLS);
        own.ticket[own.n] = t;
        own.end[own.n++] = own.link_free;
    }
    return t;
}

void __wrap_comm_run(comm *c, const comm_call *call) {
    wait_until(own.now + duration(c, call));
    __real_comm_run(c, call);
}

/* Waiting for a call is waiting for all before it. */
void __wrap_comm_wait(comm_world *w, comm_ticket t) {
    for (int i = 0; i < own.n; i++)
        if (own.ticket[i] <= t) wait_until(own.end[i]);
    __real_comm_wait(w, t);
}

/* ---- kernels ---- */

static const op_impl *real_of(const op_call *c) {
    return __real_op_find_of_kind(c->run->dev, c->kind, c->in[1].dt);
}

static double attention_flops(const op_call *c) {
    const op_attention *a = &c->attr->attention;
    double pairs = 0;
    for (int64_t i = 0; i < c->in[5].rows; i++) {
        int32_t end = ((int32_t *)c->in[5].data)[i * c->in[5].ld];
        int32_t start = c->in[3].data ? ((int32_t *)c->in[3].data)[i * c->in[3].ld] : 0;
        if (end > start) pairs += end - start;
    }
    return pairs * a->H * 2.0 * (a->D + a->Dv);
}

/* Of one phase of a product, or of a forward of ATTENTION. Each row goes through the matrix of one expert. */
static double flops_of(const op_call *c, int64_t rows) {
    if (c->kind == OP_ATTENTION) return attention_flops(c);
    int64_t experts = c->kind == OP_EXPERT_LINEAR ? c->attr->experts.n : 1;
    if (c->kind == OP_EXPERT_LINEAR) rows = ((int32_t *)c->in[2].data)[experts];
    return 2.0 * (double)rows * (double)c->in[1].rows * (double)c->in[1].cols / (double)experts;
}

static void spend(double flops) {
    own.now += flops;
    own.work += flops;
}

static void forward(const op_call *c) {
    spend(flops_of(c, c->in[0].rows));
    real_of(c)->fwd(c);
}
/* Attention makes its scores again, and has three products more. */
static void backward(const op_call *c) {
    spend((c->kind == OP_ATTENTION ? 2.5 : 1) * flops_of(c, c->dout[0].rows));
    real_of(c)->bwd_input(c);
}
static void of_weights(const op_call *c) {
    spend(flops_of(c, c->in[0].rows));
    real_of(c)->bwd_weight(c);
}

static void workspace(const op_infer *io, int64_t ws[3]) {
    const op_impl *i = __real_op_find_of_kind(io->dev, io->kind, io->in[1].dt);
    if (i->workspace) i->workspace(io, ws);
}

/* The kernels that ops ask for which compute while they send. */
const op_impl *__wrap_op_find_of_kind(const dev *d, op_kind kind, dtype dt) {
    static const op_impl timed = {forward, backward, of_weights, workspace};
    bool takes_time = kind == OP_LINEAR || kind == OP_ATTENTION || kind == OP_EXPERT_LINEAR;
    return takes_time ? &timed : __real_op_find_of_kind(d, kind, dt);
}

/* ---- runs ---- */

/* The second step begins when the first is done. */
static void look(session *s, int step) {
    if (step == 2 && s->setup.peers.m.rank[MESH_WORLD] == 0) first_rank = own;
    own = (timeline){.on = step == 1};
}

static layout_trial *trial_of(int T, int dp, bool experts) {
    char path[] = "/tmp/athanor-overlap-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fprintf(
        f,
        "model: {model_type: llama, hidden_size: 64, num_hidden_layers: 6, num_attention_heads: 8,"
        " num_key_value_heads: 8, intermediate_size: 192, vocab_size: 67,"
        " max_position_embeddings: %d, tie_word_embeddings: true%s}\n"
        "train: {steps: 1, seq_len: %d, global_batch_size: 2, micro_batch_size: 2, precision: "
        "fp32}\n",
        T, experts ? ", num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 192" : "",
        T);
    fclose(f);
    config *c;
    layout_trial *t;
    err e = {0};
    if (config_load(&c, path, NULL, 0, &e) != ST_OK) fail_msg("%s", e.message);
    remove(path);
    if (layout_trial_new(&t, c, 0, dp, &e) != ST_OK) fail_msg("%s", e.message);
    config_free(c);
    return t;
}

/* The share of the time of transfers in which no rank waits. */
static double hidden(const layout_trial *t, const layout *l) {
    layout_way way = {.precision = CONFIG_PRECISION_FP32, .steps = 2, .between = look};
    layout_result *r = layout_result_new(t, &way);
    err e = {0};
    if (layout_run(t, l, &way, r, &e) != ST_OK) fail_msg("%s", e.message);
    assert_true(first_rank.sent_s > 0);
    return 1 - first_rank.waited_s / first_rank.sent_s;
}

/* On a link on which the transfers take `share` of the time of the products, or of attention. */
static double hidden_at(layout l, const char *what, double share) {
    char name[LAYOUT_NAME_MAX];
    layout_trial *t = trial_of(64, l.dp, l.ep > 1);
    counts = what, s_per_byte = 1;
    hidden(t, &l);
    if (first_rank.work > 0) s_per_byte = share * first_rank.work / first_rank.bytes;
    double h = hidden(t, &l);
    layout_name(&l, name);
    print_message("%s: %.0f %% hidden where sending takes %.2f of the work\n", name, 100 * h,
                  share);
    layout_trial_free(t);
    return h;
}

static void test_async_products(void **state) {
    (void)state;
    for (int tp = 2; tp <= 4; tp *= 2)
        for (int sp = 0; sp < 2; sp++) {
            layout l = {.dp = 1, .dp_replicate = 1, .tp = tp, .sp = sp, .async = true};
            assert_true(hidden_at(l, "tp_", 0.5) >= 0.5);
            l.async = false;
            assert_true(hidden_at(l, "tp_", 0.5) == 0);
        }
}

static void test_ring(void **state) {
    (void)state;
    for (int cp = 2; cp <= 4; cp *= 2) {
        layout l = {.dp = 1, .dp_replicate = 1, .tp = 1, .cp = cp, .cp_kind = CONTEXT_RING};
        assert_true(hidden_at(l, "keys and values", 0.5) >= 0.5);
    }
}

/* Ranks have nearly the same rows to multiply: routers of initial weights favour no expert. */
static void test_experts(void **state) {
    (void)state;
    layout l = {.dp = 2, .dp_replicate = 1, .tp = 1, .ep = 2};
    assert_true(hidden_at(l, "rows of experts", 0.5) >= 0.5);
    l.at_once = true;
    assert_true(hidden_at(l, "rows of experts", 0.5) < 0.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async_products),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
