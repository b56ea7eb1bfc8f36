/* What ops.def promises beyond numbers: masks, groups, positions, targets, offsets. Checked on
 * every backend of this machine in f32, and against plain formulas. */
#include "op/harness.h"

static dev *open_dev(void) {
    dev *d;
    err e;
    if (dev_open(&d, DEV_CPU, 2, &e) != ST_OK) fail_msg("%s", e.message);
    return d;
}

/* The kernels under test: the device's choice in f32. */
static const op_impl *impl_of(const side *s) {
    return op_find(s->io.dev, s->cs->kind, s->dt);
}

static op_run plain_run(dev *d) {
    return (op_run){.dev = d, .seed = 1, .step = 2, .first_micro = true, .grad_scale = 1};
}

static void forward(side *s) {
    op_run run = plain_run(s->io.dev);
    side_forward(s, impl_of(s), &run, false);
}

static void backward(side *s) {
    op_run run = plain_run(s->io.dev);
    side_backward(s, impl_of(s), &run, false, ~0u);
}

static op_case attention(int B, int Tq, int Tk, int H, int K, int D) {
    op_case c = {.label = "attention", .kind = OP_ATTENTION};
    c.attr.attention.B = B, c.attr.attention.Tq = Tq, c.attr.attention.Tk = Tk;
    c.attr.attention.H = H, c.attr.attention.K = K;
    c.attr.attention.D = c.attr.attention.Dv = D;
    c.attr.attention.scale = 1.0f / sqrtf((float)D), c.attr.attention.causal = true;
    c.in[0] = (slot){ACTIVATION, B * Tq, H * D, 0, 0};
    c.in[1] = (slot){ACTIVATION, B * Tk, K * D, 0, 0};
    c.in[2] = (slot){ACTIVATION, B * Tk, K * D, 0, 0};
    return c;
}

/* Copies `rows` rows of elements. */
static void copy_rows(const tensor *to, int64_t to_row, const tensor *from, int64_t from_row,
                      int64_t rows) {
    for (int64_t i = 0; i < rows * to->cols; i++)
        tensor_set(to, to_row * to->cols + i, tensor_get(from, from_row * to->cols + i));
}

static void assert_rows_equal(const tensor *a, int64_t a_row, const tensor *b, int64_t b_row,
                              int64_t rows, double tolerance) {
    for (int64_t i = 0; i < rows * a->cols; i++) {
        double x = tensor_get(a, a_row * a->cols + i), y = tensor_get(b, b_row * b->cols + i);
        if (!(fabs(x - y) <= tolerance))
            fail_msg("row %lld, element %lld: %.9g is not %.9g", (long long)(i / a->cols),
                     (long long)(i % a->cols), x, y);
    }
}

/* Two documents packed in one sequence of 5 + 8 tokens give what two sequences alone give. */
static void test_document_mask(void **state) {
    (void)state;
    enum { LEFT = 5, RIGHT = 8, T = LEFT + RIGHT };
    dev *d = open_dev();
    op_case packed = attention(1, T, T, 4, 2, 16);
    packed.in[3] = (slot){INTEGERS, T, 1, 1, 0};
    side p;
    side_open(&p, &packed, DT_F32, true, d);
    for (int i = LEFT; i < T; i++) tensor_set(&p.in[3].t, i, LEFT);
    forward(&p);
    backward(&p);
    for (int part = 0; part < 2; part++) {
        int first = part ? LEFT : 0, len = part ? RIGHT : LEFT;
        op_case alone = attention(1, len, len, 4, 2, 16);
        side a;
        side_open(&a, &alone, DT_F32, false, d);
        for (int i = 0; i < 3; i++) copy_rows(&a.in[i].t, 0, &p.in[i].t, first, len);
        copy_rows(&a.dout[0].t, 0, &p.dout[0].t, first, len);
        forward(&a);
        backward(&a);
        assert_rows_equal(&a.out[0].t, 0, &p.out[0].t, first, len, 2e-6);
        for (int i = 0; i < 3; i++)
            assert_rows_equal(&a.din[i].t, 0, &p.din[i].t, first, len, 1e-5);
        side_close(&a);
    }
    side_close(&p);
    dev_close(d);
}

/* K kv heads, or the same heads repeated for each query head: the same bits. */
static void test_groups_equal_repeated_heads(void **state) {
    (void)state;
    enum { T = 11, H = 4, K = 2, D = 16 };
    dev *d = open_dev();
    op_case grouped = attention(1, T, T, H, K, D), full = attention(1, T, T, H, H, D);
    side g, f;
    side_open(&g, &grouped, DT_F32, false, d);
    side_open(&f, &full, DT_F32, false, d);
    for (int i = 1; i < 3; i++)
        for (int64_t n = 0; n < T * H * D; n++) {
            int64_t t = n / (H * D), h = n / D % H, c = n % D;
            int64_t from = t * K * D + h * K / H * D + c;
            tensor_set(&f.in[i].t, n, tensor_get(&g.in[i].t, from));
        }
    forward(&g);
    forward(&f);
    assert_memory_equal(g.out[0].mem, f.out[0].mem, g.out[0].bytes);
    assert_memory_equal(g.out[1].mem, f.out[1].mem, g.out[1].bytes);
    side_close(&g);
    side_close(&f);
    dev_close(d);
}

static void test_query_without_keys(void **state) {
    (void)state;
    dev *d = open_dev();
    op_case c = attention(1, 6, 6, 2, 1, 8);
    c.in[3] = (slot){INTEGERS, 6, 1, 1, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    tensor_set(&s.in[3].t, 3, 99);
    forward(&s);
    for (int h = 0; h < 2; h++) {
        assert_true(tensor_get(&s.out[1].t, h * 6 + 3) == -INFINITY);
        assert_true(isfinite(tensor_get(&s.out[1].t, h * 6 + 2)));
    }
    for (int i = 0; i < 16; i++) assert_true(tensor_get(&s.out[0].t, 3 * 16 + i) == 0);
    backward(&s);
    for (int i = 0; i < 16; i++) assert_true(tensor_get(&s.din[0].t, 3 * 16 + i) == 0);
    for (int64_t i = 0; i < 6 * 8; i++) {
        assert_true(isfinite(tensor_get(&s.din[1].t, i)));
        assert_true(isfinite(tensor_get(&s.din[2].t, i)));
    }
    side_close(&s);
    dev_close(d);
}

/* One query with qpos = t and a cache gives row t of the full forward, with a window and with
 * softcap, too. */
static void test_decode_equals_full(void **state) {
    (void)state;
    enum { T = 19, AT = 12 };
    dev *d = open_dev();
    for (int way = 0; way < 4; way++) {
        op_case full = attention(1, T, T, 4, 2, 16), one = attention(1, 1, T, 4, 2, 16);
        full.attr.attention.window = one.attr.attention.window = way & 1 ? 5 : 0;
        full.attr.attention.softcap = one.attr.attention.softcap = way & 2 ? 0.4f : 0;
        one.in[4] = (slot){LATEST, 1, 1, AT, 0};
        side f, o;
        side_open(&f, &full, DT_F32, false, d);
        side_open(&o, &one, DT_F32, false, d);
        copy_rows(&o.in[0].t, 0, &f.in[0].t, AT, 1);
        for (int i = 1; i < 3; i++) copy_rows(&o.in[i].t, 0, &f.in[i].t, 0, T);
        forward(&f);
        forward(&o);
        assert_rows_equal(&o.out[0].t, 0, &f.out[0].t, AT, 1, 1e-6);
        side_close(&f);
        side_close(&o);
    }
    dev_close(d);
}

/* Row i of one head over the keys [from, i], scores capped before the softmax. */
static double capped_output(const side *s, int i, int from, int D, int column, double cap) {
    double top = 0, sum = 0;
    for (int j = from; j <= i; j++) {
        double score = 0;
        for (int k = 0; k < D; k++)
            score += tensor_get(&s->in[0].t, i * D + k) * tensor_get(&s->in[1].t, j * D + k);
        double p = exp(cap * tanh(score / sqrt((double)D) / cap));
        sum += p;
        top += p * tensor_get(&s->in[2].t, j * D + column);
    }
    return top / sum;
}

static void test_capped_scores(void **state) {
    (void)state;
    enum { T = 40, D = 16, WINDOW = 7 };
    dev *d = open_dev();
    op_case c = attention(1, T, T, 1, 1, D);
    c.attr.attention.softcap = 0.6f, c.attr.attention.window = WINDOW;
    side s;
    side_open(&s, &c, DT_F32, true, d);
    forward(&s);
    for (int i = 0; i < T; i++)
        for (int k = 0; k < D; k++) {
            int from = i < WINDOW ? 0 : i - WINDOW + 1;
            double want = capped_output(&s, i, from, D, k, (double)0.6f);
            assert_true(fabs(tensor_get(&s.out[0].t, i * D + k) - want) < 2e-6);
        }
    side_close(&s);
    dev_close(d);
}

/* A query sees token j if nothing hides it: changing key and value j changes its output, and nothing else does. Windows,
 * pieces of positions, and documents that begin at every 13th token. */
static void test_what_a_query_sees(void **state) {
    (void)state;
    enum { T = 40, D = 8, WINDOW = 5, CHUNK = 8, DOC = 13 };
    dev *d = open_dev();
    for (int way = 0; way < 8; way++) {
        int window = way & 1 ? WINDOW : 0, chunk = way & 2 ? CHUNK : 0, doc = way & 4 ? DOC : T;
        op_case c = attention(1, T, T, 2, 1, D);
        c.attr.attention.window = window, c.attr.attention.chunk = chunk;
        if (way & 4) c.in[3] = (slot){INTEGERS, T, 1, 1, 0};
        side s;
        side_open(&s, &c, DT_F32, false, d);
        for (int t = 0; t < T && way & 4; t++) tensor_set(&s.in[3].t, t, t / doc * doc);
        forward(&s);
        double before[T];
        for (int t = 0; t < T; t++) before[t] = tensor_get(&s.out[0].t, t * 2 * D);
        for (int j = 0; j < T; j++) {
            double old = tensor_get(&s.in[2].t, j * D);
            tensor_set(&s.in[2].t, j * D, old + 5);
            forward(&s);
            for (int t = 0; t < T; t++) {
                bool sees = j <= t && j / doc == t / doc && (!window || t - j < window) &&
                            (!chunk || j % doc / chunk == t % doc / chunk);
                if (sees != (tensor_get(&s.out[0].t, t * 2 * D) != before[t]))
                    fail_msg("query %d and token %d, way %d", t, j, way);
            }
            tensor_set(&s.in[2].t, j * D, old);
        }
        side_close(&s);
    }
    dev_close(d);
}

/* A sink joins the sum of exponentials, and has no value. */
static void test_sinks(void **state) {
    (void)state;
    enum { T = 21, D = 8, H = 3 };
    dev *d = open_dev();
    op_case c = attention(1, T, T, H, 1, D), plain = c;
    c.in[ATTENTION_SINKS] = (slot){VECTOR, 1, H, 0, 0};
    side s, p;
    side_open(&s, &c, DT_F32, false, d);
    side_open(&p, &plain, DT_F32, false, d);
    forward(&s);
    forward(&p);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            double sink = tensor_get(&s.in[ATTENTION_SINKS].t, h);
            double lse = tensor_get(&p.out[1].t, h * T + t), share = 1 / (1 + exp(sink - lse));
            assert_true(fabs(tensor_get(&s.out[1].t, h * T + t) - log(exp(lse) + exp(sink))) <
                        2e-6);
            for (int i = 0; i < D; i++) {
                int64_t at = (t * H + h) * D + i;
                double want = share * tensor_get(&p.out[0].t, at);
                assert_true(fabs(tensor_get(&s.out[0].t, at) - want) < 2e-6);
            }
        }
    side_close(&s);
    side_close(&p);
    dev_close(d);
}

/* Row by row with a state, or all rows in chunks: the same outputs. Rows that pad change no state. */
static void test_delta_forms_agree(void **state) {
    (void)state;
    enum { T = 75, Hk = 2, Hv = 4, Dk = 24, Dv = 20 };
    dev *d = open_dev();
    op_delta spec = {.B = 1, .T = T, .Hk = Hk, .Hv = Hv, .Dk = Dk, .Dv = Dv, .q_scale = 1};
    spec.k_scale = 1 / sqrtf(Dk);
    op_case all = {.label = "delta", .kind = OP_DELTA, .attr = {.delta = spec}};
    all.in[0] = (slot){ACTIVATION, T, 2 * Hk * Dk, 0, 1.5};
    all.in[1] = (slot){ACTIVATION, T, Hv * Dv, 0, 0};
    all.in[2] = (slot){GATES, T, 2 * Hv, 0, 0};
    side a;
    side_open(&a, &all, DT_F32, false, d);
    forward(&a);
    for (int rows = 1; rows <= 9; rows += 4) { /* 1: alone; 5, 9: of 7 and 11 with padding */
        int pad = rows > 1 ? 2 : 0;
        op_case one = {.label = "delta_state", .kind = OP_DELTA_STATE, .attr = {.delta = spec}};
        one.attr.delta.T = rows + pad;
        one.forward_only = true;
        one.in[0] = (slot){VECTOR, Hv * Dk, Dv, 0, 0};
        for (int i = 0; i < 3; i++)
            one.in[i + 1] = (slot){all.in[i].fill, rows + pad, all.in[i].cols, 0, 0};
        one.in[4] = (slot){INTEGERS, 1, 2, 1, 0};
        side s;
        side_open(&s, &one, DT_F32, false, d);
        for (int t = 0; t + rows <= T; t += rows) {
            for (int i = 0; i < 3; i++) copy_rows(&s.in[i + 1].t, 0, &a.in[i].t, t, rows);
            tensor_set(&s.in[4].t, 0, t);
            tensor_set(&s.in[4].t, 1, rows);
            forward(&s);
            assert_rows_equal(&s.out[1].t, 0, &a.out[0].t, t, rows, 2e-6);
            copy_rows(&s.in[0].t, 0, &s.out[0].t, 0, Hv * Dk);
        }
        side_close(&s);
    }
    side_close(&a);
    dev_close(d);
}

/* Dropout drops its share, scales the rest, and changes with step and micro-batch. */
static void test_dropout_share(void **state) {
    (void)state;
    dev *d = open_dev();
    op_case c = {.label = "dropout", .kind = OP_DROPOUT, .attr = {.dropout = {.p = 0.25f}}};
    c.in[0] = (slot){ACTIVATION, 100, 1000, 0, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    for (int64_t i = 0; i < 100000; i++) tensor_set(&s.in[0].t, i, 3);
    op_run runs[3] = {plain_run(d), plain_run(d), plain_run(d)};
    runs[1].step++, runs[2].micro_batch++;
    uint8_t *first = malloc(s.out[0].bytes);
    for (int r = 0; r < 3; r++) {
        int64_t dropped = 0;
        side_forward(&s, impl_of(&s), &runs[r], false);
        for (int64_t i = 0; i < 100000; i++) {
            double y = tensor_get(&s.out[0].t, i);
            assert_true(y == 0 || fabs(y - 4) < 1e-5);
            dropped += y == 0;
        }
        assert_true(dropped > 24400 && dropped < 25600); /* 4 sigma */
        if (r == 0) memcpy(first, s.out[0].mem, s.out[0].bytes);
        if (r > 0) assert_memory_not_equal(first, s.out[0].mem, s.out[0].bytes);
    }
    free(first);
    side_close(&s);
    dev_close(d);
}

/* Position 3 turns pair 0 by 3 rad; halves and neighbours are paired as the attribute says. */
static void test_rope_angle(void **state) {
    (void)state;
    enum { D = 8 };
    dev *d = open_dev();
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        op_case c = {.label = "rope", .kind = OP_ROPE};
        c.attr.rope.heads = 1, c.attr.rope.head_dim = c.attr.rope.rotary_dim = D;
        c.attr.rope.interleaved = interleaved;
        c.in[0] = (slot){ACTIVATION, 1, D, 0, 0};
        c.in[1] = (slot){LATEST, 1, 1, 3, 0};
        c.in[2] = (slot){ANGLES, 10, D, 0, 0};
        side s;
        side_open(&s, &c, DT_F32, false, d);
        forward(&s);
        int partner = interleaved ? 1 : D / 2;
        double x1 = tensor_get(&s.in[0].t, 0), x2 = tensor_get(&s.in[0].t, partner);
        double y1 = tensor_get(&s.out[0].t, 0), y2 = tensor_get(&s.out[0].t, partner);
        assert_true(fabs(y1 - (x1 * cos(3.0) - x2 * sin(3.0))) < 1e-6);
        assert_true(fabs(y2 - (x2 * cos(3.0) + x1 * sin(3.0))) < 1e-6);
        side_close(&s);
    }
    dev_close(d);
}

static op_case head(int N, int C, int V, int chunk, float z_loss) {
    op_case c = {.label = "head_ce", .kind = OP_HEAD_CE};
    c.attr.head.chunk_rows = chunk, c.attr.head.z_loss = z_loss, c.attr.head.with_grad = true;
    c.attr.head.weight = 1;
    c.in[0] = (slot){ACTIVATION, N, C, 0, 0};
    c.in[1] = (slot){MATRIX, V, C, 0, 0};
    c.in[2] = (slot){TARGETS, N, 1, V, 0};
    return c;
}

/* Row n of the dense logits, and their log-sum-exp. */
static double dense_logits(const side *s, int64_t n, double *logits) {
    const tensor *x = &s->in[0].t, *w = &s->in[1].t, *bias = &s->in[3].t;
    double sum = 0, cap = (double)s->attr.head.softcap;
    for (int64_t v = 0; v < w->rows; v++) {
        logits[v] = bias->data ? tensor_get(bias, v) : 0;
        for (int64_t i = 0; i < x->cols; i++)
            logits[v] += tensor_get(x, n * x->cols + i) * tensor_get(w, v * w->cols + i);
        if (cap > 0) logits[v] = cap * tanh(logits[v] / cap);
        sum += exp(logits[v]);
    }
    return log(sum);
}

/* Loss, dx and dbias of the chunked head equal softmax over all logits, with and without z-loss,
 * bias and softcap. Rows with a negative target have no loss and no gradient. */
static void test_head_equals_dense_softmax(void **state) {
    (void)state;
    enum { N = 13, C = 8, V = 21 };
    dev *d = open_dev();
    for (int way = 0; way < 8; way++) {
        bool z = way & 1;
        double db[V] = {0}, cap = way & 4 ? 3 : INFINITY;
        op_case c = head(N, C, V, 4, z ? 0.1f : 0);
        if (way & 2) c.in[3] = (slot){VECTOR, 1, V, 0, 0};
        if (way & 4) c.attr.head.softcap = 3;
        side s;
        side_open(&s, &c, DT_F32, false, d);
        forward(&s);
        for (int64_t n = 0; n < N; n++) {
            double logits[V], lse = dense_logits(&s, n, logits);
            int target = (int)tensor_get(&s.in[2].t, n);
            double nll = target < 0 ? 0 : lse - logits[target];
            assert_true(fabs(tensor_get(&s.out[0].t, n) - nll) < 1e-5);
            assert_true(fabs(tensor_get(&s.out[1].t, n) - lse) < 1e-5);
            for (int i = 0; i < C; i++) {
                double dx = 0;
                for (int v = 0; v < V; v++) {
                    double dl = (1 + (z ? 0.2 : 0) * lse) * exp(logits[v] - lse) - (v == target);
                    dl *= 1 - pow(logits[v] / cap, 2);
                    dx += dl * tensor_get(&s.in[1].t, v * C + i);
                    if (i == 0 && target >= 0) db[v] += dl;
                }
                double got = tensor_get(&s.out[2].t, n * C + i);
                assert_true(fabs(got - (target < 0 ? 0 : dx)) < 2e-5);
            }
        }
        for (int v = 0; way & 2 && v < V; v++)
            assert_true(fabs(tensor_get(&s.din[3].t, v) - db[v]) < 2e-5);
        side_close(&s);
    }
    dev_close(d);
}

/* The gradient of w does not depend on what ignored rows hold. */
static void test_ignored_rows_leave_no_trace(void **state) {
    (void)state;
    dev *d = open_dev();
    op_case c = head(12, 8, 16, 4, 0.05f);
    side a, b;
    side_open(&a, &c, DT_F32, false, d);
    side_open(&b, &c, DT_F32, false, d);
    for (int64_t n = 0; n < 12; n++)
        for (int64_t i = 0; i < 8 && tensor_get(&b.in[2].t, n) < 0; i++)
            tensor_set(&b.in[0].t, n * 8 + i, 2.5);
    forward(&a);
    forward(&b);
    assert_memory_equal(a.din[1].mem, b.din[1].mem, a.din[1].bytes);
    side_close(&a);
    side_close(&b);
    dev_close(d);
}

/* ---- the head in its second mode ---- */

static op_case head_nll(op_case ce) {
    ce.label[0] = 0;
    ce.kind = OP_HEAD_NLL;
    ce.attr.head.with_grad = false;
    return ce;
}

static void assert_same_bits(const tensor *a, const tensor *b, const char *what) {
    for (int64_t n = 0; n < a->rows * a->cols; n++)
        if (tensor_get(a, n) != tensor_get(b, n))
            fail_msg("%s %s[%lld]: %.9g is not %.9g", dtype_name(a->dt), what, (long long)n,
                     tensor_get(a, n), tensor_get(b, n));
}

/* With dnll = grad_scale it makes what HEAD_CE makes in its forward pass. */
static void check_second_mode(const op_case *ce, dtype dt, dev *d) {
    op_case nll = head_nll(*ce);
    side a, b;
    side_open(&a, ce, dt, true, d);
    side_open(&b, &nll, dt, true, d);
    op_run run = plain_run(d);
    run.grad_scale = 0.3f;
    for (int64_t n = 0; n < ce->in[0].rows; n++)
        tensor_set(&b.dout[0].t, n, (double)run.grad_scale);
    side_forward(&a, impl_of(&a), &run, false);
    side_forward(&b, impl_of(&b), &run, false);
    assert_same_bits(&a.out[0].t, &b.out[0].t, "nll");
    assert_same_bits(&a.out[1].t, &b.out[1].t, "lse");
    side_backward(&b, impl_of(&b), &run, false, ~0u);
    assert_same_bits(&a.out[2].t, &b.din[0].t, "dx");
    assert_same_bits(&a.din[1].t, &b.din[1].t, "dw");
    if (ce->in[3].rows) assert_same_bits(&a.din[3].t, &b.din[3].t, "dbias");
    side_close(&a);
    side_close(&b);
}

static void test_second_mode_equals_first(void **state) {
    (void)state;
    static const char *const isas[] = {"base", "avx2", "avx512", "avx512_bf16"};
    static const dtype dts[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
    for (int i = 0; i < ARRAY_LEN(isas); i++) {
        setenv("ATHANOR_ISA", isas[i], 1);
        dev *d = open_dev();
        for (int way = 0; way < 4; way++) {
            op_case c = head(37, 40, 51, 8, 0);
            if (way & 1) c.in[3] = (slot){VECTOR, 1, 51, 0, 0};
            if (way & 2) c.attr.head.softcap = 3;
            for (int k = 0; k < ARRAY_LEN(dts); k++) check_second_mode(&c, dts[k], d);
        }
        dev_close(d);
    }
    unsetenv("ATHANOR_ISA");
}

/* Each row's gradient is scaled by its own dnll: one that is 0 leaves no trace, as an ignored row
 * does. */
static void test_second_mode_by_row(void **state) {
    (void)state;
    enum { N = 12, C = 8, V = 16 };
    dev *d = open_dev();
    op_case c = head(N, C, V, 5, 0), nll = head_nll(c);
    side one, all;
    side_open(&all, &nll, DT_F32, false, d);
    side_open(&one, &nll, DT_F32, false, d);
    double dw[V * C] = {0};
    backward(&all);
    for (int64_t n = 0; n < N; n++) {
        double dnll = tensor_get(&all.dout[0].t, n);
        for (int64_t i = 0; i < N; i++) tensor_set(&one.dout[0].t, i, i == n ? 1 : 0);
        backward(&one);
        for (int i = 0; i < V * C; i++) dw[i] += dnll * tensor_get(&one.din[1].t, i);
        bool ignored = tensor_get(&one.in[2].t, n) < 0;
        for (int64_t i = 0; i < N * C; i++) {
            double dx = tensor_get(&one.din[0].t, i);
            assert_true(dx == 0 || (i / C == n && !ignored));
            if (i / C == n) assert_true(fabs(tensor_get(&all.din[0].t, i) - dnll * dx) < 1e-5);
        }
    }
    for (int i = 0; i < V * C; i++) assert_true(fabs(tensor_get(&all.din[1].t, i) - dw[i]) < 1e-4);
    side_close(&one);
    side_close(&all);
    dev_close(d);
}

/* ---- rows, constants ---- */

/* Rows that are taken several times, rows that nobody takes, places that take none. */
static void test_take_rows(void **state) {
    (void)state;
    enum { M = 5, C = 37, N = 6 };
    static const int rows[N] = {3, -1, 0, 3, 3, -7};
    dev *d = open_dev();
    op_case c = {.label = "take_rows", .kind = OP_TAKE_ROWS};
    c.in[0] = (slot){ACTIVATION, M, C, 0, 0};
    c.in[1] = (slot){INTEGERS, N, 1, M, 0};
    side s;
    side_open(&s, &c, DT_F32, true, d);
    for (int n = 0; n < N; n++) tensor_set(&s.in[1].t, n, rows[n]);
    forward(&s);
    backward(&s);
    for (int i = 0; i < C; i++) {
        double want[M] = {0};
        for (int n = 0; n < N; n++) {
            double x = rows[n] < 0 ? 0 : tensor_get(&s.in[0].t, rows[n] * C + i);
            assert_true(tensor_get(&s.out[0].t, n * C + i) == x);
            if (rows[n] >= 0) want[rows[n]] += tensor_get(&s.dout[0].t, n * C + i);
        }
        for (int m = 0; m < M; m++)
            assert_true(fabs(tensor_get(&s.din[0].t, m * C + i) - want[m]) < 1e-6);
    }
    side_close(&s);
    dev_close(d);
}

/* In a program of bf16 a loss is f32, and so is its gradient; nothing of `like` is read. */
static void test_fill(void **state) {
    (void)state;
    dev *d = open_dev();
    for (int way = 0; way < 4; way++) {
        op_case c = {.label = "fill", .kind = OP_FILL};
        c.attr.fill.c = 0.75f, c.attr.fill.scaled = way & 1;
        c.in[0] = (slot){way & 2 ? VECTOR : ACTIVATION, 9, 5, 0, 0};
        side s;
        side_open(&s, &c, DT_BF16, true, d);
        assert_int_equal(s.out[0].t.dt, way & 2 ? DT_F32 : DT_BF16);
        op_run run = plain_run(d);
        run.grad_scale = 0.125f;
        side_forward(&s, impl_of(&s), &run, false);
        for (int i = 0; i < 45; i++)
            assert_true(tensor_get(&s.out[0].t, i) == (way & 1 ? 0.75 * 0.125 : 0.75));
        side_close(&s);
    }
    dev_close(d);
}

static void test_norm_unit_offset(void **state) {
    (void)state;
    enum { C = 40 };
    dev *d = open_dev();
    op_case c = {.label = "rmsnorm", .kind = OP_RMSNORM, .attr = {.norm = {.eps = 1e-6f}}};
    c.in[0] = (slot){ACTIVATION, 1, C, 0, 0};
    c.in[1] = (slot){VECTOR, 1, C, 0, 0};
    op_case shifted = c;
    shifted.attr.norm.unit_offset = true;
    side plain, offset;
    side_open(&plain, &c, DT_F32, false, d);
    side_open(&offset, &shifted, DT_F32, false, d);
    for (int i = 0; i < C; i++) tensor_set(&plain.in[1].t, i, 1 + tensor_get(&offset.in[1].t, i));
    forward(&plain);
    forward(&offset);
    assert_rows_equal(&plain.out[0].t, 0, &offset.out[0].t, 0, 1, 1e-6);
    double sum = 0;
    for (int i = 0; i < C; i++) sum += pow(tensor_get(&plain.in[0].t, i), 2);
    assert_true(fabs(tensor_get(&plain.out[1].t, 0) - 1 / sqrt(sum / C + 1e-6)) < 1e-6);
    side_close(&plain);
    side_close(&offset);
    dev_close(d);
}

/* Groups are rows of their own: forward, dx, and their weight gradients added up. */
static void check_norm_of_heads(dev *d, op_kind kind, int width) {
    enum { N = 5, HEADS = 3, LARGEST = 128 };
    op_case c = {.label = "norm of heads", .kind = kind};
    c.attr.norm.eps = 1e-3f, c.attr.norm.width = width;
    c.in[0] = (slot){ACTIVATION, N, HEADS * width, 0, 0};
    c.in[1] = (slot){VECTOR, 1, width, 0, 0};
    op_case rows = c;
    rows.attr.norm.width = 0;
    rows.in[0].rows = N * HEADS, rows.in[0].cols = width;
    side a, b;
    side_open(&a, &c, DT_F32, true, d);
    side_open(&b, &rows, DT_F32, false, d); /* the same numbers: filled in the same order */
    forward(&a);
    forward(&b);
    backward(&a);
    backward(&b);
    for (int64_t i = 0; i < N * HEADS * width; i++) {
        assert_true(fabs(tensor_get(&a.out[0].t, i) - tensor_get(&b.out[0].t, i)) < 2e-6);
        assert_true(fabs(tensor_get(&a.din[0].t, i) - tensor_get(&b.din[0].t, i)) < 1e-5);
    }
    for (int64_t i = 0; i < N * HEADS; i++)
        assert_true(fabs(tensor_get(&a.out[1].t, i) - tensor_get(&b.out[1].t, i)) < 1e-6);
    for (int i = 0; i < width; i++)
        assert_true(fabs(tensor_get(&a.din[1].t, i) - tensor_get(&b.din[1].t, i)) < 1e-5);
    side_close(&a);
    side_close(&b);
}

static void test_norm_of_heads(void **state) {
    (void)state;
    static const int widths[] = {1, 20, 64, 128};
    dev *d = open_dev();
    for (int i = 0; i < ARRAY_LEN(widths); i++) {
        check_norm_of_heads(d, OP_RMSNORM, widths[i]);
        check_norm_of_heads(d, OP_LAYERNORM, widths[i]);
    }
    dev_close(d);
}

/* A micro-batch after the first adds to parameter gradients, the first one writes. */
static void test_first_micro_batch_writes(void **state) {
    (void)state;
    dev *d = open_dev();
    op_case c = {.label = "linear", .kind = OP_LINEAR};
    c.in[0] = (slot){ACTIVATION, 3, 4, 0, 0};
    c.in[1] = (slot){MATRIX, 5, 4, 0, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    float dw[20];
    for (int i = 0; i < 20; i++) dw[i] = 100;
    op_run run = plain_run(d);
    s.ws = buf_new(DT_U8, 1, s.io.bwd_weight.ws_bytes, 0, 0);
    op_call call = side_call(&s, &run, false);
    call.in[0] = s.in[0].t, call.in[1] = s.in[1].t, call.dout[0] = s.dout[0].t;
    call.din[1] = (tensor){dw, DT_F32, 5, 4, 4};
    impl_of(&s)->bwd_weight(&call);
    float once[20];
    memcpy(once, dw, sizeof once);
    run.first_micro = false;
    impl_of(&s)->bwd_weight(&call);
    for (int i = 0; i < 20; i++) {
        assert_true(fabsf(once[i]) < 50);
        assert_true(fabsf(dw[i] - 2 * once[i]) < 1e-5f);
    }
    side_close(&s);
    dev_close(d);
}

/* New rows land at qpos[b] of each head's part of the cache of sequence b; every other row stays.
 */
static void test_kv_store_rows(void **state) {
    (void)state;
    enum { B = 2, T = 3, MAX = 8, K = 2, D = 5 };
    static const int qpos[B] = {4, 1};
    dev *d = open_dev();
    op_case c = {.label = "kv_store", .kind = OP_KV_STORE, .attr = {.kv = {B, T, MAX, K}}};
    c.in[0] = (slot){ACTIVATION, B * K * MAX, D, 0, 0};
    c.in[1] = (slot){ACTIVATION, B * T, K * D, 0, 0};
    c.in[2] = (slot){INTEGERS, B, 1, 1, 0};
    side s;
    side_open(&s, &c, DT_F32, true, d);
    for (int b = 0; b < B; b++) tensor_set(&s.in[2].t, b, qpos[b]);
    forward(&s);
    for (int row = 0; row < B * K * MAX; row++) {
        int b = row / MAX / K, head = row / MAX % K, t = row % MAX - qpos[b];
        bool is_new = t >= 0 && t < T;
        for (int i = 0; i < D; i++) {
            int64_t new_at = (int64_t)(b * T + t) * K * D + head * D + i;
            double want = is_new ? tensor_get(&s.in[1].t, new_at)
                                 : tensor_get(&s.in[0].t, (int64_t)row * D + i);
            assert_true(tensor_get(&s.out[0].t, (int64_t)row * D + i) == want);
        }
    }
    side_close(&s);
    dev_close(d);
}

/* A cache of f16: to the nearest, and what is beyond the range stays finite, unless it was not. */
static void test_kv_store_range(void **state) {
    (void)state;
    static const float in[] = {1.0f,      65504.0f, 65519.0f, 65520.0f, -1e9f, 3.4e38f,
                               -INFINITY, INFINITY, 1e-9f,    0x1p-24f, NAN,   1.0f + 0x1p-11f};
    static const float out[] = {1.0f,      65504.0f, 65504.0f, 65504.0f, -65504.0f, 65504.0f,
                                -INFINITY, INFINITY, 0.0f,     0x1p-24f, NAN,       1.0f};
    enum { D = ARRAY_LEN(in) };
    dev *d = open_dev();
    op_case c = {.label = "kv_store", .kind = OP_KV_STORE, .attr = {.kv = {1, 1, 1, 1}}};
    c.in[0] = (slot){CACHE, 1, D, 0, 0};
    c.in[1] = (slot){ACTIVATION, 1, D, 0, 0};
    c.in[2] = (slot){INTEGERS, 1, 1, 1, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    for (int i = 0; i < D; i++) tensor_set(&s.in[1].t, i, (double)in[i]);
    forward(&s);
    assert_int_equal(s.out[0].t.dt, DT_F16);
    for (int i = 0; i < D; i++) {
        double got = tensor_get(&s.out[0].t, i);
        assert_true(isnan(out[i]) ? isnan(got) : got == (double)out[i]);
    }
    side_close(&s);
    dev_close(d);
}

/* ---- fixed point ---- */

/* The nearest multiple of 2^-50 by its definition: from both sides, ties to even. */
static int64_t fixed_by_definition(float x) {
    long double v = (long double)x * 0x1p50L;
    long double below = floorl(v), rest = v - below;
    int64_t f = (int64_t)below;
    return f + (rest > 0.5L || (rest == 0.5L && (f & 1)));
}

/* Values of every magnitude up to the limit, ties included, in sums of several contributions: the
 * same bits on every instruction set and in the reference. */
static void test_fixed_add(void **state) {
    (void)state;
    static const char *const isas[] = {"base", "avx2", "avx512", "avx512_bf16", "base"};
    enum { N = 4099, ADDED = 3 };
    static float x[ADDED][N];
    static int64_t want[N], sum[N];
    memset(want, 0, sizeof want);
    for (int k = 0; k < ADDED; k++)
        for (int i = 0; i < N; i++) {
            double u = uniform((uint64_t)k, i, 1.0);
            x[k][i] = (float)ldexp(u, i % 63 - 52);
            if (i % 5 == 0) x[k][i] = (float)ldexp(floor(u * 64) + 0.5, -50);
            if (i < 4) x[k][i] = i & 1 ? -2048.0f : 2048.0f;
            want[i] += fixed_by_definition(x[k][i]);
        }
    for (int b = 0; b < ARRAY_LEN(isas); b++) {
        setenv("ATHANOR_ISA", isas[b], 1);
        dev *d = open_dev();
        bool overflow = false;
        op_run run = {.dev = d, .fixed_limit = 2048, .fixed_overflow = &overflow};
        const op_impl *impl =
            b < 4 ? op_find(d, OP_FIXED_ADD, DT_F32) : op_find_reference(OP_FIXED_ADD, DT_F32);
        memset(sum, 0x5a, sizeof sum);
        for (int k = 0; k < ADDED; k++) {
            float scaled[N], scale = k % 2 ? 1024 : 1; /* it is divided out, before the limit */
            for (int i = 0; i < N; i++) scaled[i] = x[k][i] * scale;
            run.fixed_unscale = 1 / scale;
            run.first_micro = k == 0;
            op_call c = {.run = &run, .acc_param = 1};
            c.in[0] = (tensor){scaled, DT_F32, 1, N, N};
            c.out[0] = (tensor){sum, DT_I64, 1, N, N};
            impl->fwd(&c);
        }
        assert_memory_equal(sum, want, sizeof sum);
        assert_false(overflow);
        dev_close(d);
    }
    unsetenv("ATHANOR_ISA");
}

/* Beyond the limit, infinite or no number: the flag rises, wherever it is; the flag stays up. */
static void test_fixed_overflow(void **state) {
    (void)state;
    static const float bad[] = {1.5f, -2.0f, INFINITY, -INFINITY, NAN};
    enum { N = 33 };
    dev *d = open_dev();
    const op_impl *impls[] = {op_find(d, OP_FIXED_ADD, DT_F32),
                              op_find_reference(OP_FIXED_ADD, DT_F32)};
    int64_t sums[2][N];
    for (int i = 0; i < N; i++)
        for (int k = 0; k < ARRAY_LEN(bad); k++) {
            for (int b = 0; b < 2; b++) {
                float x[N] = {[0] = 1.0f, [5] = -1.0f};
                bool overflow = false;
                op_run run = {
                    .dev = d, .first_micro = true, .fixed_unscale = 1, .fixed_limit = 1.0f};
                run.fixed_overflow = &overflow;
                op_call c = {.run = &run, .acc_param = 1};
                c.in[0] = (tensor){x, DT_F32, 1, N, N};
                c.out[0] = (tensor){sums[b], DT_I64, 1, N, N};
                impls[b]->fwd(&c);
                assert_false(overflow);
                x[i] = bad[k];
                impls[b]->fwd(&c);
                assert_true(overflow);
                x[i] = 0;
                impls[b]->fwd(&c);
                assert_true(overflow);
                x[i] = bad[k];
                impls[b]->fwd(&c);
            }
            assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
        }
    dev_close(d);
}

static void test_embed_rows(void **state) {
    (void)state;
    dev *d = open_dev();
    op_case c = {.label = "embed", .kind = OP_EMBED, .attr = {.embed = {.no_grad_id = -1}}};
    c.in[0] = (slot){MATRIX, 9, 6, 0, 0};
    c.in[1] = (slot){INTEGERS, 20, 1, 9, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    forward(&s);
    for (int n = 0; n < 20; n++)
        assert_rows_equal(&s.out[0].t, n, &s.in[0].t, (int64_t)tensor_get(&s.in[1].t, n), 1, 0);
    side_close(&s);
    dev_close(d);
}

/* Values and slopes of the limits at both sides of them; NaN is passed on. */
static void test_limits(void **state) {
    (void)state;
    static const double x[] = {1, -2, 1.5, 0, NAN};
    static const double expect[2][2][4] = {
        {{0.87417442, -1.30509249, 1.14239123, 0}, {0.66036404, 0.24299270, 0.41997434, 1}},
        {{1, -1.5, 1.5, 0}, {1, 0, 1, 1}}};
    dev *d = open_dev();
    for (int k = 0; k < 2; k++) {
        op_case c = {.label = "limit", .kind = OP_ACT};
        c.attr.act.kind = k ? ACT_CLAMP : ACT_SOFTCAP, c.attr.act.c = 1.5f;
        c.in[0] = (slot){ACTIVATION, 1, 5, 0, 0};
        side s;
        side_open(&s, &c, DT_F32, false, d);
        for (int i = 0; i < 5; i++) {
            tensor_set(&s.in[0].t, i, x[i]);
            tensor_set(&s.dout[0].t, i, 1);
        }
        forward(&s);
        backward(&s);
        for (int i = 0; i < 4; i++) {
            assert_true(fabs(tensor_get(&s.out[0].t, i) - expect[k][0][i]) < 2e-7);
            assert_true(fabs(tensor_get(&s.din[0].t, i) - expect[k][1][i]) < 2e-7);
        }
        assert_true(isnan(tensor_get(&s.out[0].t, 4)));
        side_close(&s);
    }
    dev_close(d);
}

/* What is no number stays none, so that a run sees it. */
static void test_activations_keep_nan(void **state) {
    (void)state;
    dev *d = open_dev();
    for (int k = ACT_GELU_TANH; k <= ACT_CLAMP; k++) {
        op_case c = {.label = "nan", .kind = OP_ACT};
        c.attr.act.kind = (act_kind)k, c.attr.act.c = 1.5f;
        c.in[0] = (slot){ACTIVATION, 1, 19, 0, 0};
        side s;
        side_open(&s, &c, DT_F32, false, d);
        tensor_set(&s.in[0].t, 3, NAN), tensor_set(&s.in[0].t, 18, NAN);
        forward(&s);
        for (int i = 0; i < 19; i++)
            assert_int_equal(isnan(tensor_get(&s.out[0].t, i)), i == 3 || i == 18);
        side_close(&s);
    }
    dev_close(d);
}

/* act(1) and act(-2), to 7 digits, from the published formulas; gated multiplies by up. */
static void test_activation_values(void **state) {
    (void)state;
    static const double expect[][2] = {
        [ACT_GELU_TANH] = {0.84119199, -0.04540231},
        [ACT_GELU_EXACT] = {0.84134475, -0.04550026},
        [ACT_SILU] = {0.73105858, -0.23840584},
        [ACT_RELU] = {1, 0},
        [ACT_RELU2] = {1, 0},
        [ACT_SIGMOID] = {0.73105858, 0.11920292},
    };
    dev *d = open_dev();
    for (int k = ACT_GELU_TANH; k <= ACT_SIGMOID; k++) {
        op_case act = {.label = "act", .kind = OP_ACT, .attr = {.act = {.kind = (act_kind)k}}};
        act.in[0] = (slot){ACTIVATION, 1, 2, 0, 0};
        op_case gated = act;
        gated.kind = OP_GATED;
        gated.in[1] = act.in[0];
        side a, g;
        side_open(&a, &act, DT_F32, false, d);
        side_open(&g, &gated, DT_F32, false, d);
        for (int i = 0; i < 2; i++) {
            tensor_set(&a.in[0].t, i, i ? -2 : 1);
            tensor_set(&g.in[0].t, i, i ? -2 : 1);
            tensor_set(&g.in[1].t, i, 3);
        }
        forward(&a);
        forward(&g);
        for (int i = 0; i < 2; i++) {
            assert_true(fabs(tensor_get(&a.out[0].t, i) - expect[k][i]) < 2e-7);
            assert_true(fabs(tensor_get(&g.out[0].t, i) - 3 * expect[k][i]) < 6e-7);
        }
        side_close(&a);
        side_close(&g);
    }
    dev_close(d);
}

/* Mean 0 and variance var/(var + eps) before weight and bias. */
static void test_layernorm_moments(void **state) {
    (void)state;
    enum { C = 50 };
    dev *d = open_dev();
    op_case c = {.label = "layernorm", .kind = OP_LAYERNORM, .attr = {.norm = {.eps = 0.5f}}};
    c.in[0] = (slot){ACTIVATION, 1, C, 0, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    double x_mean = 0, x_var = 0, y_mean = 0, y_var = 0;
    forward(&s);
    for (int i = 0; i < C; i++) x_mean += tensor_get(&s.in[0].t, i) / C;
    for (int i = 0; i < C; i++) x_var += pow(tensor_get(&s.in[0].t, i) - x_mean, 2) / C;
    for (int i = 0; i < C; i++) y_mean += tensor_get(&s.out[0].t, i) / C;
    for (int i = 0; i < C; i++) y_var += pow(tensor_get(&s.out[0].t, i), 2) / C;
    assert_true(fabs(y_mean) < 1e-6);
    assert_true(fabs(y_var - x_var / (x_var + 0.5)) < 1e-6);
    assert_true(fabs(tensor_get(&s.out[1].t, 0) - x_mean) < 1e-6);
    side_close(&s);
    dev_close(d);
}

/* ---- the load of experts ---- */

enum { LOAD_ROWS = 12, LOAD_E = 4, LOAD_K = 2 };

/* Balance of the picks: row n picks first(n) and the one behind it. probs: the same in every row; NULL: 0.4 for what
 * it picks. */
static double balance_of(dev *d, int (*first)(int n), const double *probs, int sequences,
                         const double *counts) {
    op_case load = {.label = "load", .kind = OP_ROUTER_LOAD};
    load.attr.router = (op_router){.experts = LOAD_E, .k = LOAD_K, .sequences = sequences};
    load.in[0] = (slot){SHARES, LOAD_ROWS, LOAD_E, 0, 0};
    load.in[1] = (slot){INTEGERS, LOAD_ROWS, LOAD_K, LOAD_E, 0};
    side l, b;
    side_open(&l, &load, DT_F32, true, d);
    for (int n = 0; n < LOAD_ROWS; n++) {
        for (int e = 0; e < LOAD_E; e++) {
            bool picked = (e - first(n) % LOAD_E + LOAD_E) % LOAD_E < LOAD_K;
            tensor_set(&l.in[0].t, n * LOAD_E + e, probs ? probs[e] : picked ? 0.4 : 0.1);
        }
        for (int j = 0; j < LOAD_K; j++)
            tensor_set(&l.in[1].t, n * LOAD_K + j, (first(n) + j) % LOAD_E);
    }
    forward(&l);
    op_case balance = {.label = "balance", .kind = OP_ROUTER_BALANCE};
    balance.attr.router = (op_router){.experts = LOAD_E, .k = LOAD_K, .layers = 1};
    balance.in[0] = (slot){SHARES, 2 * sequences, LOAD_E, 0, 0};
    if (counts) balance.in[1] = (slot){SHARES, 1, LOAD_E, 0, 0};
    side_open(&b, &balance, DT_F32, true, d);
    for (int i = 0; i < 2 * sequences * LOAD_E; i++)
        tensor_set(&b.in[0].t, i, tensor_get(&l.out[0].t, i));
    for (int e = 0; counts && e < LOAD_E; e++) tensor_set(&b.in[1].t, e, counts[e]);
    forward(&b);
    double loss = tensor_get(&b.out[0].t, 0) / LOAD_ROWS;
    side_close(&l);
    side_close(&b);
    return loss;
}

static int in_turn(int n) {
    return n * LOAD_K;
}
static int always_0(int n) {
    (void)n;
    return 0;
}
/* Each half of the rows has experts of its own. */
static int by_half(int n) {
    return n < LOAD_ROWS / 2 ? 0 : LOAD_K;
}

/* Where experts are used alike, sum f P is 1/E with f and P as shares, so the loss of a token is k. What is even over
 * all rows need not be so in each sequence, and the counts of more rows are other counts. */
static void test_balance_of_experts(void **state) {
    (void)state;
    dev *d = open_dev();
    static const double even[] = {0.25, 0.25, 0.25, 0.25}, first[] = {0.4, 0.4, 0.1, 0.1};
    static const double others[] = {0, 0, 6, 6};
    assert_true(fabs(balance_of(d, in_turn, even, 1, NULL) - LOAD_K) < 1e-6);
    assert_true(fabs(balance_of(d, in_turn, first, 1, NULL) - LOAD_K) < 1e-6);
    assert_true(fabs(balance_of(d, always_0, first, 1, NULL) - LOAD_K * 1.6) < 1e-6);
    assert_true(fabs(balance_of(d, by_half, first, 1, NULL) - LOAD_K) < 1e-6);
    assert_true(fabs(balance_of(d, by_half, NULL, 1, NULL) - LOAD_K) < 1e-6);
    assert_true(fabs(balance_of(d, by_half, NULL, 2, NULL) - LOAD_K * 1.6) < 1e-6);
    assert_true(fabs(balance_of(d, always_0, first, 1, others) - LOAD_K * 0.4) < 1e-6);
    dev_close(d);
}

/* Two sequences of four tokens; an expert takes two picks of each. Expert 0 is the first pick of all, the second picks
 * are 1, 2, 1, 1, so tokens 2 and 3 lose the first, and token 3 loses both. */
static void test_capacity_of_experts(void **state) {
    (void)state;
    enum { N = 8, E = 3, K = 2 };
    static const int second[] = {1, 2, 1, 1};
    static const int slots[N * K] = {0, 4, 1, 8, -1, 5, -1, -1, 2, 6, 3, 9, -1, 7, -1, -1};
    static const int rows[] = {0, 1, 4, 5, 0, 2, 4, 6, 1, 5, -1, -1}, starts[] = {0, 4, 8, 10};
    dev *d = open_dev();
    op_case c = {.label = "capacity", .kind = OP_ROUTER_SORT};
    c.attr.router = (op_router){.experts = E, .k = K, .sequences = 2, .capacity = 2};
    c.in[0] = (slot){SHARES, N, K, 0, 0};
    c.in[1] = (slot){INTEGERS, N, K, E, 0};
    side s;
    side_open(&s, &c, DT_F32, false, d);
    for (int n = 0; n < N; n++) {
        tensor_set(&s.in[1].t, n * K, 0);
        tensor_set(&s.in[1].t, n * K + 1, second[n % 4]);
    }
    forward(&s);
    assert_int_equal(s.out[0].t.rows, ARRAY_LEN(rows));
    for (int i = 0; i < ARRAY_LEN(rows); i++) assert_true(tensor_get(&s.out[0].t, i) == rows[i]);
    for (int i = 0; i < N * K; i++) assert_true(tensor_get(&s.out[1].t, i) == slots[i]);
    for (int e = 0; e <= E; e++) assert_true(tensor_get(&s.out[2].t, e) == starts[e]);
    side_close(&s);
    dev_close(d);
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balance_of_experts),
        cmocka_unit_test(test_capacity_of_experts),
        cmocka_unit_test(test_document_mask),
        cmocka_unit_test(test_groups_equal_repeated_heads),
        cmocka_unit_test(test_query_without_keys),
        cmocka_unit_test(test_decode_equals_full),
        cmocka_unit_test(test_capped_scores),
        cmocka_unit_test(test_dropout_share),
        cmocka_unit_test(test_rope_angle),
        cmocka_unit_test(test_head_equals_dense_softmax),
        cmocka_unit_test(test_ignored_rows_leave_no_trace),
        cmocka_unit_test(test_second_mode_equals_first),
        cmocka_unit_test(test_second_mode_by_row),
        cmocka_unit_test(test_take_rows),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_norm_unit_offset),
        cmocka_unit_test(test_norm_of_heads),
        cmocka_unit_test(test_first_micro_batch_writes),
        cmocka_unit_test(test_kv_store_rows),
        cmocka_unit_test(test_kv_store_range),
        cmocka_unit_test(test_fixed_add),
        cmocka_unit_test(test_fixed_overflow),
        cmocka_unit_test(test_embed_rows),
        cmocka_unit_test(test_what_a_query_sees),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_delta_forms_agree),
        cmocka_unit_test(test_activation_values),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_activations_keep_nan),
        cmocka_unit_test(test_layernorm_moments),
    };
    int failed = cmocka_run_group_tests_name("the device's kernels", tests, NULL, NULL);
    setenv("ATHANOR_KERNELS", "reference", 1);
    return failed + cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
