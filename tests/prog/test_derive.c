/* Backward and recompute as derived from recorded graphs, in double precision: gradients against
 * finite differences, for hand-made graphs with every kind of sharing and for random ones; the same
 * bits under every recompute policy, with and without garbage in the frame, and twice the gradient
 * after a second micro-batch. */
#include "test.h"

#include "base/rng.h"
#include "op/fixed.h"
#include "prog/graph_int.h"
#include "prog_memory.h"

enum { B = 2, T = 3, N = B * T, C = 4, V = 7, MAX_PARAM = 1024 };

/* Where gradients come from, and go to, beside the head that makes its own. */
typedef enum ends {
    GIVEN_GRAD = 1, /* the head only says nll; its gradient is given */
    AUX_LOSS = 2,   /* a second loss, of what comes out of the body */
    KEPT_GRAD = 4,  /* inputs whose gradients are wanted are added before and behind the body */
    ALL_ENDS = 8
} ends;

typedef struct lab {
    unsigned ends;
    arena *a;
    dev *dev;
    graph *g;
    prog *p;
    val pos, rope;    /* made on first use */
    int64_t n_params; /* doubles */
    uint64_t pick;    /* counter of random choices */
    uint64_t seed;
    int32_t no_grad_id; /* of the embedding */
    bool fixed;         /* gradients are sums of integers, in the place of the doubles */
    bool overflow;
    bool split;  /* weight gradients come behind all others */
    bool shares; /* what lives within one pass lies in scratch */
    double param[MAX_PARAM], grad[MAX_PARAM];
    void *frame, *scratch, *pinned;
} lab;

typedef val (*body_fn)(lab *l, val x);

/* ---- recording ---- */

static val weight(lab *l, int64_t rows, int64_t cols) {
    char name[16];
    snprintf(name, sizeof name, "w%ld", (long)l->n_params);
    CHECK(l->n_params + rows * cols <= MAX_PARAM, "more parameters than the test has room for");
    graph_param_ref ref = {.name = name,
                           .where = SPACE_MASTER,
                           .dt = DT_F64,
                           .rows = rows,
                           .cols = cols,
                           .offset_bytes = l->n_params * 8,
                           .grad_offset_bytes = l->n_params * 8,
                           .trainable = true};
    l->n_params += rows * cols;
    return graph_param(l->g, &ref);
}

static val linear(lab *l, val x, int64_t out) {
    return graph_linear(l->g, x, weight(l, out, graph_cols(l->g, x)), weight(l, 1, out));
}
static val norm(lab *l, val x) {
    return graph_rmsnorm(l->g, x, weight(l, 1, C), 1e-5f, false, 0);
}
static val layernorm(lab *l, val x) {
    return graph_layernorm(l->g, x, weight(l, 1, C), weight(l, 1, C), 1e-5f, 0);
}

static void fill_rope(void *dst, const void *ctx) {
    (void)ctx;
    double *t = dst; /* [T,2]: cos, sin */
    for (int p = 0; p < T; p++) {
        t[2 * p] = cos(0.7 * p);
        t[2 * p + 1] = sin(0.7 * p);
    }
}

static void open_rope(lab *l) {
    if (l->pos != VAL_NONE) return;
    l->pos = graph_input(l->g, "pos", DT_I32, N, 1);
    l->rope = graph_const(l->g, "rope", DT_F64, T, 2, fill_rope, "", 1);
}

static op_attention one_head_spec(float dropout) {
    return (op_attention){.B = B,
                          .Tq = T,
                          .Tk = T,
                          .H = 2,
                          .K = 1,
                          .D = 2,
                          .Dv = 2,
                          .scale = 0.7f,
                          .dropout = dropout,
                          .causal = true};
}

/* Two query heads on one key head of width 2, rotated. */
static val attention(lab *l, val x, float dropout) {
    graph *g = l->g;
    open_rope(l);
    val qkv = graph_rope(g, linear(l, x, 8), l->pos, l->rope, 3, 2, 0, 2, false);
    op_attention s = one_head_spec(dropout);
    graph_seen seen = GRAPH_SEES_ALL;
    seen.sinks = weight(l, 1, 2);
    val o = graph_attention(g, &s, graph_view(g, qkv, 0, 4), graph_view(g, qkv, 4, 2),
                            graph_view(g, qkv, 6, 2), &seen);
    return linear(l, o, C);
}

static val with_input(lab *l, val x, const char *name, const char *grad) {
    if (!(l->ends & KEPT_GRAD)) return x;
    val in = graph_input(l->g, name, DT_F64, N, C);
    graph_keep_grad(l->g, in, grad);
    return graph_add(l->g, in, x);
}

static const float AUX = 0.3f;

/* A loss on a branch, which does not end there. */
static val with_aux_loss(lab *l, val x) {
    val a = graph_act(l->g, linear(l, x, C), ACT_SILU);
    graph_output(l->g, a, "aux");
    graph_aux_loss(l->g, a, AUX, true);
    return graph_add(l->g, x, linear(l, a, C));
}

static float z_loss(const lab *l) {
    return l->ends & GIVEN_GRAD ? 0.0f : 0.1f;
}

static void bind_lab(lab *l) {
    const prog_stats *s = prog_get_stats(l->p);
    l->frame = aligned_alloc(64, (size_t)s->frame_bytes + 64);
    l->scratch = aligned_alloc(64, (size_t)s->scratch_bytes + 64);
    l->pinned = aligned_alloc(64, (size_t)(s->pinned_bytes + s->const_bytes) + 64);
    prog_frame where = {{[SPACE_FRAME] = l->frame,
                         [SPACE_SCRATCH] = l->scratch,
                         [SPACE_PINNED] = l->pinned,
                         [SPACE_CONST] = (char *)l->pinned + s->pinned_bytes,
                         [SPACE_MASTER] = l->param,
                         [SPACE_GRAD] = l->grad}};
    prog_bind(l->p, &where, 1);
}

static void fill_inputs(lab *l) {
    for (int i = 0; i < N; i++) {
        ((int32_t *)prog_at(l->p, "ids"))[i] = (i * 5 + 2) % V;
        ((int32_t *)prog_at(l->p, "targets"))[i] = i == 4 ? -1 : (i * 3 + 1) % V;
        double *before = prog_at(l->p, "before"), *behind = prog_at(l->p, "behind");
        for (int k = i * C; before && k < (i + 1) * C; k++) {
            before[k] = 0.1 * (k % 7) - 0.3;
            behind[k] = 0.2 - 0.1 * (k % 5);
        }
        tensor pos = prog_named(l->p, "pos");
        if (pos.data) ((int32_t *)pos.data)[i] = i % T;
        tensor rows = prog_named(l->p, "rows");
        if (rows.data) ((int32_t *)rows.data)[i] = i == 1 ? -1 : i * i % N;
    }
}

static void record(lab *l, body_fn body, recompute_policy policy, bool tied) {
    graph_options opt = {.dev = l->dev, .dt = DT_F64, .train = true, .recompute = policy};
    opt.fixed_grads = l->fixed;
    opt.split_backward = l->split;
    opt.shares_scratch = l->shares;
    l->g = graph_new(l->a, &opt);
    l->pos = l->rope = VAL_NONE;
    l->n_params = 0;
    l->pick = 0;
    val ids = graph_input(l->g, "ids", DT_I32, N, 1);
    val targets = graph_input(l->g, "targets", DT_I32, N, 1);
    val table = weight(l, V, C);
    val x = with_input(l, graph_embed(l->g, table, ids, l->no_grad_id), "before", "grad.before");
    x = with_input(l, body(l, x), "behind", "grad.behind");
    if (l->ends & AUX_LOSS) x = with_aux_loss(l, x);
    graph_head_spec head = {
        .chunk_rows = 4, .z_loss = z_loss(l), .weight = 1, .softcap = tied ? 1.5f : 0};
    val y = norm(l, x), w = tied ? table : weight(l, V, C);
    val bias = tied ? VAL_NONE : weight(l, 1, V);
    val nll =
        (l->ends & GIVEN_GRAD ? graph_head_nll : graph_head_ce)(l->g, &head, y, w, bias, targets);
    graph_output(l->g, nll, "nll");
    if (l->ends & GIVEN_GRAD) graph_root(l->g, nll, "grad.nll");
    graph_output(l->g, l->g->op[l->g->value[nll].producer].out[1], "lse");
    err e = {0};
    if (prog_finish(&l->p, l->g, &e) != ST_OK) fail_msg("%s", e.message);
    bind_lab(l);
    fill_inputs(l);
}

static void lab_open(lab *l, uint64_t seed) {
    memset(l, 0, sizeof *l);
    l->a = arena_new("derive");
    l->seed = seed;
    l->no_grad_id = -1;
    assert_int_equal(dev_open(&l->dev, DEV_CPU, 1, NULL), ST_OK);
    for (int i = 0; i < MAX_PARAM; i++)
        l->param[i] = 0.6 * rng_normal_q24(rng_key_numbered(seed, 1), (uint64_t)i) / 16777216.0;
}

static void release(lab *l) {
    free(l->frame);
    free(l->scratch);
    free(l->pinned);
    l->frame = l->scratch = l->pinned = NULL;
}

static void lab_close(lab *l) {
    release(l);
    dev_close(l->dev);
    arena_free(l->a);
}

/* ---- running ---- */

static const double GRAD_SCALE = 0.25;

static int contributions(const lab *l) {
    const prog *p = l->p;
    return prog_count_contributions(&p, 1);
}

static op_run run_of(lab *l, bool first) {
    return (op_run){.dev = l->dev,
                    .seed = 3,
                    .step = 5,
                    .first_micro = first,
                    .grad_scale = (float)GRAD_SCALE,
                    .fixed_unscale = 1,
                    .fixed_limit = fixed_grad_limit(2 * contributions(l)),
                    .fixed_overflow = &l->overflow};
}

static double objective(lab *l) {
    op_run run = run_of(l, true);
    prog_replay(l->p, PROG_F, &run);
    const double *nll = prog_at(l->p, "nll"), *lse = prog_at(l->p, "lse");
    const double *aux = prog_at(l->p, "aux");
    double sum = 0;
    for (int i = 0; i < N; i++)
        if (i != 4) sum += nll[i] + (double)z_loss(l) * lse[i] * lse[i];
    for (int i = 0; aux && i < N * C; i++) sum += (double)AUX * aux[i];
    return GRAD_SCALE * sum;
}

/* The backward may change what it was given. */
static void give_grad(lab *l) {
    double *given = prog_at(l->p, "grad.nll");
    for (int i = 0; given && i < N; i++) given[i] = GRAD_SCALE;
}

/* What a pass of another micro-batch would leave in scratch. */
static void spoil_scratch(lab *l, int garbage) {
    memset(l->scratch, garbage, (size_t)prog_get_stats(l->p)->scratch_bytes);
}

static void gradients(lab *l, int garbage) {
    const prog_stats *s = prog_get_stats(l->p);
    int end[] = {s->ops_forward, s->ops_back, s->ops};
    memset(l->frame, garbage, (size_t)s->frame_bytes);
    memset(l->grad, garbage, sizeof l->grad);
    op_run run = run_of(l, true);
    for (int pass = 0; pass < 3; pass++) {
        spoil_scratch(l, garbage);
        prog_replay_range(l->p, pass ? end[pass - 1] : 0, end[pass], &run, NULL);
        if (pass == 0) give_grad(l);
    }
}

/* The gradient of the input, along an axis each. */
static void check_kept_grad(lab *l, const char *what, const char *input, const char *grad) {
    const double h = 1e-5;
    double *x = prog_at(l->p, input), *kept = prog_at(l->p, grad);
    for (int i = 0; x && i < N * C; i += 5) {
        double at = x[i], want;
        gradients(l, 0xff);
        want = kept[i];
        x[i] = at + h;
        double up = objective(l);
        x[i] = at - h;
        double got = (up - objective(l)) / (2 * h);
        x[i] = at;
        if (!(fabs(got - want) < 1e-7 + 1e-5 * fabs(want)))
            fail_msg("%s: element %d of the input has gradient %.10g, difference %.10g", what, i,
                     want, got);
    }
}

/* The objective at kept + by * direction. */
static double objective_at(lab *l, const double *kept, const double *direction, double by) {
    for (int64_t i = 0; i < l->n_params; i++) l->param[i] = kept[i] + by * direction[i];
    return objective(l);
}

/* Fourth-order central difference along a direction. */
static double difference(lab *l, const double *direction) {
    const double h = 2e-5;
    double kept[MAX_PARAM];
    memcpy(kept, l->param, sizeof kept);
    double near = objective_at(l, kept, direction, h) - objective_at(l, kept, direction, -h);
    double far = objective_at(l, kept, direction, 2 * h) - objective_at(l, kept, direction, -2 * h);
    memcpy(l->param, kept, sizeof kept);
    return (8 * near - far) / (12 * h);
}

/* The derivative along random directions, or along every axis. */
static void check_differences(lab *l, const char *what, bool every_axis) {
    double grad[MAX_PARAM];
    gradients(l, 0xff);
    memcpy(grad, l->grad, sizeof grad); /* the head's is written by every forward */
    int64_t n_directions = every_axis ? l->n_params : 6;
    for (int64_t k = 0; k < n_directions; k++) {
        double direction[MAX_PARAM] = {0}, want = 0, size = 0;
        rng_key key = rng_key_numbered(8, (uint64_t)k);
        for (int64_t i = 0; i < l->n_params; i++) {
            direction[i] =
                every_axis ? (double)(i == k) : rng_normal_q24(key, (uint64_t)i) / 16777216.0;
            want += grad[i] * direction[i];
            size += fabs(grad[i] * direction[i]);
        }
        double got = difference(l, direction);
        if (!(fabs(got - want) < 1e-8 + 1e-6 * size))
            fail_msg("%s, direction %ld: gradient %.10g, finite difference %.10g", what, (long)k,
                     want, got);
    }
}

/* Sums of integers, under every policy: the gradient to within the rounding of each contribution,
 * the same bits, and exactly twice as much after a second micro-batch. */
static void check_fixed(lab *l, const char *what, body_fn body, bool tied, const double *want) {
    enum { MOST_USES = 40 };
    int64_t first[MAX_PARAM], sum[MAX_PARAM];
    l->fixed = true;
    for (int way = 0; way < 2 * (RECOMPUTE_FULL + 1); way++) {
        recompute_policy r = (recompute_policy)(way / 2);
        l->split = way % 2;
        record(l, body, r, tied);
        gradients(l, 0x3c + (int)r);
        memcpy(sum, l->grad, sizeof sum);
        if (way == 0) memcpy(first, sum, sizeof first);
        assert_in_range(contributions(l), tied ? 2 : 1, MOST_USES);
        for (int64_t i = 0; i < l->n_params; i++) {
            double g = (double)sum[i] * 0x1p-50;
            if (fabs(g - want[i]) > MOST_USES * 0x1p-51 + 1e-12 * fabs(want[i]))
                fail_msg("%s: parameter %ld is %.17g, in integers %.17g", what, (long)i, want[i],
                         g);
        }
        op_run second = run_of(l, false);
        give_grad(l);
        prog_replay(l->p, PROG_ALL, &second);
        for (int64_t i = 0; i < l->n_params; i++) {
            int64_t twice;
            memcpy(&twice, &l->grad[i], sizeof twice);
            if (sum[i] != first[i] || twice != 2 * first[i])
                fail_msg("%s: parameter %ld has other integers, policy %d", what, (long)i, r);
        }
        assert_false(l->overflow);
        release(l);
    }
}

/* What runs later are gradients of weights, and all that have ops of their own. */
static void check_split(const lab *l) {
    const prog_stats *s = prog_get_stats(l->p);
    for (int i = s->ops_forward; i < s->ops; i++)
        assert_int_equal(l->split && prog_get_op(l->p, i).phase == PHASE_W, i >= s->ops_back);
}

/* Everything that must hold of a graph; returns the largest number of ops that were recomputed. */
static int check_graph_with(unsigned which, const char *what, body_fn body, bool tied,
                            uint64_t seed, bool every_axis) {
    lab l;
    lab_open(&l, seed);
    l.ends = which;
    double want[MAX_PARAM];
    int recomputed = 0;
    for (int way = 0; way < 4 * (RECOMPUTE_FULL + 1); way++) {
        recompute_policy r = (recompute_policy)(way / 4);
        l.split = way / 2 % 2;
        l.shares = way % 2;
        record(&l, body, r, tied);
        check_split(&l);
        size_t bytes = (size_t)l.n_params * 8;
        if (way == 0) {
            check_differences(&l, what, every_axis);
            check_kept_grad(&l, what, "before", "grad.before");
            check_kept_grad(&l, what, "behind", "grad.behind");
            gradients(&l, 0);
            memcpy(want, l.grad, bytes);
        }
        const prog_stats *s = prog_get_stats(l.p);
        if (s->ops_recomputed > recomputed) recomputed = s->ops_recomputed;
        assert_true(l.shares || s->scratch_bytes == 0);
        for (int k = 0; k < 2; k++) { /* garbage in the frame is never read */
            gradients(&l, k ? 0xff : 0x3c);
            if (memcmp(l.grad, want, bytes) != 0)
                fail_msg("%s: other bits, policy %d, split %d, shares %d", what, r, l.split,
                         l.shares);
        }
        op_run second = run_of(&l, false);
        give_grad(&l);
        prog_replay(l.p, PROG_ALL, &second);
        for (int64_t i = 0; i < l.n_params; i++)
            if (fabs(l.grad[i] - 2 * want[i]) > 1e-12 * (1 + fabs(want[i])))
                fail_msg("%s: parameter %ld is not added up, policy %d", what, (long)i, r);
        release(&l);
    }
    check_fixed(&l, what, body, tied, want);
    lab_close(&l);
    return recomputed;
}

static int check_graph(const char *what, body_fn body, bool tied, uint64_t seed, bool every_axis) {
    return check_graph_with(0, what, body, tied, seed, every_axis);
}

/* The gradient of what a chunk hands over lies in its place, but where the backward still reads that. */
static void check_handed_over(bool read) {
    lab l;
    lab_open(&l, 5);
    graph_options opt = {.dev = l.dev, .dt = DT_F64, .train = true};
    l.g = graph_new(l.a, &opt);
    val x = graph_input(l.g, "x", DT_F64, N, C), y = linear(&l, x, C);
    graph_keep_grad(l.g, x, "grad.x");
    graph_hand_over(l.g, y, "y", "grad.y");
    val z = read ? graph_act(l.g, y, ACT_SILU) : graph_add(l.g, y, x);
    graph_hand_over(l.g, z, "z", "grad.z");
    err e = {0};
    if (prog_finish(&l.p, l.g, &e) != ST_OK) fail_msg("%s", e.message);
    bind_lab(&l);
    assert_ptr_equal(prog_at(l.p, "z"), prog_at(l.p, "grad.z"));
    assert_true((prog_at(l.p, "y") == prog_at(l.p, "grad.y")) == !read);
    assert_int_equal(prog_get_stats(l.p)->pinned_bytes, (read ? 5 : 4) * 64 * 3);
    release(&l);
    lab_close(&l);
}

static void test_handed_over(void **state) {
    (void)state;
    check_handed_over(false);
    check_handed_over(true);
}

/* ---- hand-made graphs ---- */

static val plain(lab *l, val x) {
    return linear(l, x, C);
}
static val used_three_times(lab *l, val x) {
    val a = linear(l, x, C);
    val y = graph_add(l->g, a, graph_act(l->g, a, ACT_SILU));
    return graph_add(l->g, y, linear(l, a, C));
}
static val added_to_itself(lab *l, val x) {
    val n = norm(l, x);
    return graph_add(l->g, x, graph_add(l->g, n, n));
}
static val residual_chain(lab *l, val x) {
    for (int i = 0; i < 3; i++) {
        graph_block_begin(l->g, i);
        x = graph_add(l->g, x, linear(l, norm(l, x), C));
        x = graph_add(l->g, x,
                      linear(l, graph_act(l->g, linear(l, norm(l, x), 6), ACT_GELU_TANH), C));
        graph_block_end(l->g);
    }
    return x;
}
static val parallel_residual(lab *l, val x) {
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        val n = layernorm(l, x);
        val f = linear(l, n, C), h = graph_act(l->g, linear(l, n, C), ACT_GELU_EXACT);
        x = graph_add(l->g, graph_add(l->g, x, f), h);
        graph_block_end(l->g);
    }
    return x;
}
static val views(lab *l, val x) {
    graph_block_begin(l->g, 0);
    val gu = linear(l, norm(l, x), 2 * C);
    val y = graph_gated(l->g, graph_view(l->g, gu, 0, C), graph_view(l->g, gu, C, C), ACT_SILU);
    x = graph_add(l->g, x, linear(l, y, C));
    graph_block_end(l->g);
    return x;
}
static val overlapping_uses_of_views(lab *l, val x) {
    graph_block_begin(l->g, 0);
    val gu = linear(l, norm(l, x), 2 * C);
    val a = graph_view(l->g, gu, 0, C), b = graph_view(l->g, gu, C, C);
    val y = graph_gated(l->g, a, b, ACT_SILU), z = graph_gated(l->g, b, a, ACT_SILU);
    x = graph_add(l->g, graph_add(l->g, x, graph_add(l->g, a, y)), graph_add(l->g, b, z));
    graph_block_end(l->g);
    return x;
}
static val transformer(lab *l, val x) {
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        x = graph_add(l->g, x, attention(l, norm(l, x), 0));
        val gu = linear(l, norm(l, x), 2 * C);
        val y = graph_gated(l->g, graph_view(l->g, gu, 0, C), graph_view(l->g, gu, C, C), ACT_SILU);
        x = graph_add(l->g, x, linear(l, y, C));
        graph_block_end(l->g);
    }
    return x;
}
/* Rows of heads [N, heads * 2], each head normed alone and then rotated. */
static val normed_heads(lab *l, val x, int heads, bool center) {
    val w = weight(l, 1, 2);
    val y = center ? graph_layernorm(l->g, x, w, VAL_NONE, 1e-3f, 2)
                   : graph_rmsnorm(l->g, x, w, 1e-3f, true, 2);
    return graph_rope(l->g, y, l->pos, l->rope, heads, 2, 0, 2, false);
}
/* Norms of heads of views, capped scores in a window, limits and factors. */
static val capped_transformer(lab *l, val x) {
    x = graph_scale(l->g, x, 1.7f);
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        open_rope(l);
        val qkv = linear(l, norm(l, x), 8);
        if (i) qkv = graph_clamp(l->g, qkv, 0.9f);
        val q = normed_heads(l, graph_view(l->g, qkv, 0, 4), 2, i == 1);
        val k = normed_heads(l, graph_view(l->g, qkv, 4, 2), 1, i == 1);
        op_attention s = one_head_spec(0);
        s.softcap = 0.8f, s.window = 2;
        val o = graph_attention(l->g, &s, q, k, graph_view(l->g, qkv, 6, 2), &GRAPH_SEES_ALL);
        x = graph_add(l->g, x, graph_scale(l->g, linear(l, o, C), 0.3f));
        val free_norm = graph_rmsnorm(l->g, x, VAL_NONE, 1e-5f, false, 0);
        val y = graph_softcap(l->g, linear(l, free_norm, C), 1.1f);
        x = graph_add(l->g, x, graph_scale(l->g, y, -2.0f));
        graph_block_end(l->g);
    }
    return x;
}
static val with_dropout(lab *l, val x) {
    x = graph_dropout(l->g, x, 0.2f);
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        val n = layernorm(l, x);
        x = graph_add(l->g, x, graph_dropout(l->g, attention(l, n, 0.25f), 0.3f));
        x = graph_add(l->g, x, graph_dropout(l->g, linear(l, layernorm(l, x), C), 0.3f));
        graph_block_end(l->g);
    }
    return x;
}
static val shared_weight(lab *l, val x) {
    val w = weight(l, C, C);
    for (int i = 0; i < 3; i++) {
        graph_block_begin(l->g, i);
        x = graph_add(l->g, x, graph_act(l->g, graph_linear(l->g, x, w, VAL_NONE), ACT_SILU));
        graph_block_end(l->g);
    }
    return x;
}
static val skip_over_blocks(lab *l, val x) {
    graph_block_begin(l->g, 0);
    val early = graph_act(l->g, linear(l, norm(l, x), C), ACT_SILU);
    val y = graph_add(l->g, x, linear(l, early, C));
    graph_block_end(l->g);
    graph_block_begin(l->g, 1);
    y = graph_add(l->g, y, linear(l, norm(l, y), C));
    y = graph_add(l->g, y, early);
    graph_block_end(l->g);
    return graph_add(l->g, graph_add(l->g, x, y), early);
}
static val adds_only(lab *l, val x) {
    val a = linear(l, x, C), b = linear(l, x, C);
    val c = graph_add(l->g, a, graph_act(l->g, b, ACT_RELU2));
    val d = graph_add(l->g, a, c);
    return graph_add(l->g, x, graph_add(l->g, d, graph_add(l->g, a, b)));
}

/* A sum joins the product that was recorded last, unless that is both its summands. */
static val products_added(lab *l, val x) {
    val y = linear(l, x, C), z = linear(l, x, C);
    val sum = graph_add(l->g, y, z);
    assert_true(sum == z && l->g->op[l->g->n_ops - 1].in[3] == y);
    val w = linear(l, sum, C), twice = graph_add(l->g, w, w);
    assert_true(twice != w);
    return graph_add(l->g, twice, sum);
}

/* Some rows of an activation more often than once, and some not at all. */
static val rows_taken(lab *l, val x) {
    val rows = graph_input(l->g, "rows", DT_I32, N, 1);
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        val taken = graph_take_rows(l->g, norm(l, x), rows);
        x = graph_add(l->g, x, linear(l, graph_act(l->g, taken, ACT_SILU), C));
        graph_block_end(l->g);
    }
    return graph_add(l->g, x, graph_take_rows(l->g, x, rows));
}

/* Columns of two values side by side; of a value and itself. */
static val columns_joined(lab *l, val x) {
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        val both = graph_concat(l->g, norm(l, x), i ? x : linear(l, x, 2));
        val twice = graph_concat(l->g, both, both);
        x = graph_add(l->g, x, linear(l, twice, C));
        graph_block_end(l->g);
    }
    return x;
}

/* Three experts, of which a token goes through two. In each sequence one takes `capacity` picks. */
static val through_experts(lab *l, val x, int32_t capacity) {
    enum { E = 3 };
    op_router r = {.experts = E, .k = 2, .scale = 1.5f, .renormalise = true};
    r.sequences = B, r.capacity = capacity;
    for (int i = 0; i < 2; i++) {
        graph_block_begin(l->g, i);
        val n = norm(l, x);
        graph_routes to = graph_route(l->g, &r, linear(l, n, E), VAL_NONE);
        val h = graph_take_rows(l->g, n, to.rows);
        h = graph_expert_linear(l->g, &r, h, weight(l, E * 3, C), to.starts);
        h = graph_act(l->g, h, ACT_SILU);
        h = graph_expert_linear(l->g, &r, h, weight(l, E * C, 3), to.starts);
        x = graph_expert_sum(l->g, h, &to, x);
        graph_block_end(l->g);
    }
    return x;
}
static val experts(lab *l, val x) {
    return through_experts(l, x, 0);
}
static val limited_experts(lab *l, val x) {
    return through_experts(l, x, 1);
}

static void test_hand_made(void **state) {
    (void)state;
    static const struct {
        const char *name;
        body_fn body;
        bool recomputes;
    } graphs[] = {{"plain", plain, false},
                  {"used three times", used_three_times, false},
                  {"added to itself", added_to_itself, false},
                  {"residual chain", residual_chain, true},
                  {"parallel residual", parallel_residual, true},
                  {"views", views, true},
                  {"overlapping uses of views", overlapping_uses_of_views, true},
                  {"transformer", transformer, true},
                  {"capped transformer", capped_transformer, true},
                  {"dropout", with_dropout, true},
                  {"shared weight", shared_weight, true},
                  {"skip over blocks", skip_over_blocks, true},
                  {"adds only", adds_only, false},
                  {"products added", products_added, false},
                  {"rows taken", rows_taken, true},
                  {"columns joined", columns_joined, true},
                  {"experts", experts, true},
                  {"limited experts", limited_experts, true}};
    for (int i = 0; i < ARRAY_LEN(graphs); i++)
        for (int tied = 0; tied < 2; tied++) {
            for (unsigned k = 1; k < ALL_ENDS; k++)
                check_graph_with(k, graphs[i].name, graphs[i].body, tied, 1, false);
            int n = check_graph(graphs[i].name, graphs[i].body, tied, 1, true);
            assert_true((n > 0) || !graphs[i].recomputes);
        }
}

/* The row of the table that gets no gradient: none from the look-up, but all of the head's. */
static void test_no_grad_id(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        double all[MAX_PARAM];
        lab l;
        lab_open(&l, 1);
        record(&l, transformer, RECOMPUTE_NONE, tied);
        gradients(&l, 0xff);
        memcpy(all, l.grad, sizeof all);
        int64_t n = l.n_params;
        int32_t id = ((const int32_t *)prog_at(l.p, "ids"))[1];
        release(&l);
        l.no_grad_id = id;
        record(&l, transformer, RECOMPUTE_NONE, tied);
        gradients(&l, 0xff);
        assert_int_equal(l.n_params, n);
        for (int64_t i = 0; i < n; i++) {
            bool of_row = i >= id * C && i < (id + 1) * C; /* the table comes first */
            if (!of_row)
                assert_true(l.grad[i] == all[i]);
            else
                assert_true(tied ? l.grad[i] != all[i] && l.grad[i] != 0 : l.grad[i] == 0);
        }
        release(&l);
        lab_close(&l);
    }
}

/* ---- random graphs ---- */

static uint32_t choose(lab *l, uint32_t n) {
    return rng_u32(rng_key_numbered(l->seed, 2), l->pick++) % n;
}

/* A value of width C that no op in place has taken. */
static val any(lab *l, const val *pool, int n) {
    for (;;) {
        val v = pool[choose(l, (uint32_t)n)];
        if (!l->g->value[v].overwritten) return v;
    }
}

static val random_op(lab *l, const val *pool, int n) {
    graph *g = l->g;
    val a = any(l, pool, n);
    switch (choose(l, 12)) {
        case 0: return linear(l, a, C);
        case 1: return graph_act(g, a, ACT_SILU);
        case 2: return norm(l, a);
        case 3: return layernorm(l, a);
        case 4: return graph_gated(g, a, any(l, pool, n), ACT_GELU_TANH);
        case 5: return graph_dropout(g, linear(l, a, C), 0.2f);
        case 6: {
            val gu = linear(l, a, 2 * C);
            val x = graph_view(g, gu, 0, C), y = graph_view(g, gu, C, C);
            return choose(l, 2) ? graph_gated(g, x, y, ACT_SILU) : graph_add(g, x, y);
        }
        case 7: return graph_scale(g, linear(l, a, C), 1.5f);
        case 8: return graph_softcap(g, a, 0.9f);
        case 9: return graph_layernorm(g, a, VAL_NONE, weight(l, 1, 2), 1e-3f, 2);
        default: return graph_add(g, a, any(l, pool, n));
    }
}

static val random_body(lab *l, val x) {
    enum { MOST = 16 };
    val pool[MOST + 1] = {x};
    int n = 1, n_ops = 3 + (int)choose(l, 9), block = 0;
    bool open = false;
    for (int i = 0; i < n_ops; i++) {
        if (choose(l, 3) == 0) {
            if (open) graph_block_end(l->g);
            open = !open;
            if (open) graph_block_begin(l->g, block++);
        }
        pool[n] = random_op(l, pool, n);
        n++;
    }
    if (open) graph_block_end(l->g);
    val sum = VAL_NONE; /* of all that is left, so that every value matters */
    for (int i = 0; i < n; i++) {
        if (l->g->value[pool[i]].overwritten) continue;
        sum = sum == VAL_NONE ? pool[i] : graph_add(l->g, sum, pool[i]);
    }
    return sum;
}

static void test_random(void **state) {
    (void)state;
    int with_recompute = 0;
    for (uint64_t seed = 100; seed < 500; seed++) {
        char what[32];
        snprintf(what, sizeof what, "random graph %d", (int)seed);
        with_recompute += check_graph_with((unsigned)(seed / 2 % ALL_ENDS), what, random_body,
                                           seed % 2, seed, false) > 0;
    }
    print_message("400 random graphs, %d with recomputed ops\n", with_recompute);
    assert_true(with_recompute > 100);
}

/* A chunk that adds only: the gradient that comes in is the one that goes out, and stays where it
 * was put as well. */
static void test_passed_through(void **state) {
    (void)state;
    lab l;
    lab_open(&l, 1);
    l.g = graph_new(l.a, &(graph_options){.dev = l.dev, .dt = DT_F64, .train = true});
    val ids = graph_input(l.g, "ids", DT_I32, N, 1), table = weight(&l, V, C);
    val x = graph_input(l.g, "x", DT_F64, N, C);
    graph_keep_grad(l.g, x, "grad.x");
    val y = graph_add(l.g, x, graph_embed(l.g, table, ids, -1));
    graph_output(l.g, y, "y");
    graph_root(l.g, y, "grad.y");
    assert_int_equal(prog_finish(&l.p, l.g, NULL), ST_OK);
    bind_lab(&l);
    double *in = prog_at(l.p, "grad.y"), *out = prog_at(l.p, "grad.x");
    memset(prog_at(l.p, "ids"), 0, N * sizeof(int32_t));
    memset(prog_at(l.p, "x"), 0, N * C * sizeof(double));
    for (int i = 0; i < N * C; i++) in[i] = i + 1;
    op_run run = run_of(&l, true);
    prog_replay(l.p, PROG_ALL, &run);
    for (int i = 0; i < N * C; i++) assert_true(out[i] == i + 1);
    lab_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hand_made), cmocka_unit_test(test_no_grad_id),
        cmocka_unit_test(test_handed_over), cmocka_unit_test(test_passed_through),
        cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
