/* Shape inference: the sentence for each kind of mistake, FLOPs, bytes, chunking, and the choice of
 * kernels. */
#include "op/harness.h"

static dev *open_dev(bool meta) {
    dev *d;
    err e;
    status st = meta ? dev_open_meta(&d, DEV_CPU, 2, &e) : dev_open(&d, DEV_CPU, 2, &e);
    if (st != ST_OK) fail_msg("%s", e.message);
    return d;
}

static tensor shape(dtype dt, int64_t rows, int64_t cols) {
    return (tensor){NULL, dt, rows, cols, cols};
}

static void expect_error(op_infer *io, const char *sentence) {
    err e;
    assert_int_equal(op_infer_call(io, &e), ST_USAGE);
    assert_string_equal(e.message, sentence);
}

static void test_errors_name_both_sizes(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {0};
    op_infer io = {.kind = OP_LINEAR, .attr = &at, .dev = d};
    io.in[0] = shape(DT_F32, 4, 64);
    expect_error(&io, "linear: input w is missing");
    io.in[1] = shape(DT_F32, 10, 128);
    expect_error(&io, "linear: x has 64 columns but w has 128");
    io.in[1] = shape(DT_F64, 10, 64);
    expect_error(&io, "linear: w is f64 but must be f32");
    io.in[1] = shape(DT_BF16, 10, 64);
    io.want_grad = 2;
    expect_error(&io, "linear: there is no gradient of w in bf16");
    io.want_grad = 0;
    io.in[1] = shape(DT_F32, 10, 64);
    io.in[2] = shape(DT_F32, 1, 9);
    expect_error(&io, "linear: bias has 9 columns but the number of rows of w is 10");
    io.in[2] = shape(DT_F32, 1, 10);
    io.in[0].ld = 63;
    expect_error(&io, "linear: x has 64 columns but rows are 63 apart");
    io.in[0] = shape(DT_BF16, 4, 64), io.in[1] = shape(DT_BF16, 10, 64);
    io.in[3] = shape(DT_BF16, 4, 10);
    at.linear.exact = true;
    expect_error(&io, "linear: an exact result has no res in bf16");
    io.in[0] = shape(DT_I32, 4, 64);
    expect_error(&io, "linear: x is i32 but must be a floating-point format");
    dev_close(d);
}

static op_infer attention_of(op_attr *at, dev *d) {
    *at = (op_attr){.attention = {.B = 2, .Tq = 6, .Tk = 6, .H = 4, .K = 2, .D = 8, .Dv = 8}};
    op_infer io = {.kind = OP_ATTENTION, .attr = at, .dev = d, .want_grad = 7};
    io.in[0] = shape(DT_BF16, 12, 32);
    io.in[1] = io.in[2] = shape(DT_BF16, 12, 16);
    return io;
}

/* Keys from a cache: their shape, their format, no gradient. */
static void test_attention_from_cache(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at;
    err e;
    op_infer io = attention_of(&at, d);
    at.attention.by_head = true;
    expect_error(&io, "attention: there is no gradient with keys from a cache");
    io.want_grad = 0;
    expect_error(&io, "attention: k has 12 rows but B*K*Tk is 24");
    io.in[1] = io.in[2] = shape(DT_BF16, 24, 8);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    io.in[1] = shape(DT_F16, 24, 8);
    expect_error(&io, "attention: k is f16 but must be bf16");
    io.in[0] = shape(DT_F32, 12, 32);
    expect_error(&io, "attention: v is bf16 but must be f16");
    io.in[2] = shape(DT_F16, 24, 8);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[0].dt, DT_F32);
    op_attr store = {.kv = {.B = 2, .T = 3, .Tmax = 6, .K = 2}};
    op_infer kv = {.kind = OP_KV_STORE, .attr = &store, .dev = d};
    kv.in[0] = shape(DT_F16, 24, 8), kv.in[1] = shape(DT_F32, 6, 16),
    kv.in[2] = shape(DT_I32, 2, 1);
    assert_int_equal(op_infer_call(&kv, &e), ST_OK);
    assert_int_equal(kv.out[0].dt, DT_F16);
    kv.in[1] = shape(DT_BF16, 6, 16);
    expect_error(&kv, "kv_store: cache is f16 but must be bf16");
    kv.in[0] = shape(DT_BF16, 12, 16);
    expect_error(&kv, "kv_store: src has 16 columns but K times those of the cache is 32");
    dev_close(d);
}

static void test_attention(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at;
    err e;
    op_infer io = attention_of(&at, d);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[0].rows, 12);
    assert_int_equal(io.out[0].cols, 32);
    assert_int_equal(io.out[0].dt, DT_BF16);
    assert_int_equal(io.out[1].rows, 8);
    assert_int_equal(io.out[1].cols, 6);
    assert_int_equal(io.out[1].dt, DT_F32);
    double full = io.fwd.flops;
    assert_true(full == 2.0 * 2 * 4 * 36 * 16);
    at.attention.causal = true;
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_true(io.fwd.flops == full / 2);
    at.attention.K = 3;
    expect_error(&io, "attention: 4 query heads are not a multiple of 3 kv heads");
    io = attention_of(&at, d);
    io.in[1] = shape(DT_BF16, 10, 16);
    expect_error(&io, "attention: k has 10 rows but B*Tk is 12");
    io = attention_of(&at, d);
    at.attention.dropout = 1;
    expect_error(&io, "attention: dropout is 1 but must be in [0, 1)");
    dev_close(d);
}

static void test_norm_groups(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {.norm = {.eps = 1e-6f, .width = 16}};
    err e;
    op_infer io = {.kind = OP_RMSNORM, .attr = &at, .dev = d, .want_grad = 1};
    io.in[0] = (tensor){NULL, DT_BF16, 5, 48, 80}; /* three heads of a wider row */
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[0].cols, 48);
    assert_int_equal(io.out[1].rows, 5);
    assert_int_equal(io.out[1].cols, 3);
    assert_int_equal(io.out[1].dt, DT_F32);
    io.in[1] = shape(DT_F32, 1, 48);
    expect_error(&io, "rmsnorm: w has 48 columns but the width of a group is 16");
    at.norm.width = 20;
    expect_error(&io, "rmsnorm: x has 48 columns, no multiple of groups of 20");
    at.norm.width = 0;
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[1].cols, 1);
    io.kind = OP_LAYERNORM;
    at.norm.width = 24;
    io.in[1] = io.in[2] = shape(DT_F32, 1, 24);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[1].cols, 2);
    assert_int_equal(io.out[2].cols, 2);
    at.norm.width = -1;
    expect_error(&io, "layernorm: x has 48 columns, no multiple of groups of -1");
    dev_close(d);
}

static void test_limits(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {.act = {.kind = ACT_CLAMP}};
    err e;
    op_infer io = {.kind = OP_ACT, .attr = &at, .dev = d};
    io.in[0] = io.in[1] = shape(DT_F32, 4, 8);
    expect_error(&io, "act: the limit is 0 but must be positive");
    at.act.kind = ACT_SOFTCAP, at.act.c = -1;
    expect_error(&io, "act: the limit is -1 but must be positive");
    at.act.c = 30;
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    io.kind = OP_GATED;
    expect_error(&io, "gated: a limit is no activation of a gate");
    op_attr attention;
    io = attention_of(&attention, d);
    attention.attention.softcap = -2;
    expect_error(&io, "attention: softcap is -2 but must not be negative");
    dev_close(d);
}

static void test_head_bias(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {.head = {.with_grad = true}};
    err e;
    op_infer io = {.kind = OP_HEAD_CE, .attr = &at, .dev = d, .want_grad = 3};
    io.in[0] = shape(DT_BF16, 20, 16), io.in[1] = shape(DT_BF16, 50, 16);
    io.in[2] = shape(DT_I32, 20, 1);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    double plain = io.fwd.flops;
    io.in[3] = shape(DT_F32, 1, 50);
    io.want_grad = 11;
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_true(io.fwd.flops == plain + 2 * 20 * 50);
    io.in[3] = shape(DT_F32, 1, 16);
    expect_error(&io, "head_ce: bias has 16 columns but the number of rows of w is 50");
    io.in[3] = shape(DT_BF16, 1, 50);
    expect_error(&io, "head_ce: bias is bf16 but must be f32");
    io.in[3].rows = 0;
    at.head.softcap = -1;
    expect_error(&io, "head_ce: softcap is -1 but must not be negative");
    dev_close(d);
}

/* The second mode counts the logits that backward makes again, and only the gradients it is asked
 * for. */
static void test_head_nll(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {0};
    err e;
    op_infer io = {.kind = OP_HEAD_NLL, .attr = &at, .dev = d};
    io.in[0] = shape(DT_BF16, 20, 16), io.in[1] = shape(DT_BF16, 50, 16);
    io.in[2] = shape(DT_I32, 20, 1);
    double product = 2.0 * 20 * 16 * 50, softmax = 4.0 * 20 * 50;
    for (unsigned want = 0; want < 4; want++) {
        io.want_grad = (uint8_t)want;
        assert_int_equal(op_infer_call(&io, &e), ST_OK);
        assert_true(io.out[0].dt == DT_F32 && io.out[0].rows == 20 && io.out[0].cols == 1);
        assert_int_equal(io.out[2].rows, 0);
        assert_true(io.fwd.flops == product + softmax);
        assert_true(io.flops_bwd_again == (want ? io.fwd.flops : 0));
        double products = want == 0 ? 0 : want == 3 ? 3 : 2;
        assert_true(io.bwd_input.flops == products * product + (want ? softmax : 0));
        assert_true((io.bwd_input.bytes > 0) == (want != 0));
        assert_true(io.fwd.ws_bytes > 0 && io.bwd_input.ws_bytes >= 20 * 50 * 4);
    }
    at.head.z_loss = 0.5f;
    expect_error(&io, "head_nll: z_loss is 0.5 but this loss has none");
    at.head.z_loss = 0, at.head.chunk_rows = -1;
    expect_error(&io, "head_nll: chunk_rows is -1 but must not be negative");
    dev_close(d);
}

static void test_take_rows(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {0};
    err e;
    op_infer io = {.kind = OP_TAKE_ROWS, .attr = &at, .dev = d, .want_grad = 1};
    io.in[0] = shape(DT_F32, 50, 16), io.in[1] = shape(DT_I32, 7, 1);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_true(io.out[0].rows == 7 && io.out[0].cols == 16);
    assert_true(io.fwd.bytes == 4.0 * (7 * 16 + 7 + 7 * 16)); /* of x only what is taken */
    io.in[1] = shape(DT_I32, 7, 2);
    expect_error(&io, "take_rows: rows has 2 columns but the size of a row's number is 1");
    io.in[1] = shape(DT_F32, 7, 1);
    expect_error(&io, "take_rows: rows is f32 but must be i32");
    io.kind = OP_FILL;
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_true(io.fwd.bytes == 4.0 * 50 * 16);
    dev_close(d);
}

static void test_embed(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {.embed = {.dt = DT_BF16, .no_grad_id = -1}};
    err e;
    op_infer io = {.kind = OP_EMBED, .attr = &at, .dev = d, .want_grad = 1};
    io.in[0] = shape(DT_BF16, 50, 16), io.in[1] = shape(DT_I32, 20, 1);
    assert_int_equal(op_infer_call(&io, &e), ST_OK);
    assert_int_equal(io.out[0].dt, DT_BF16);
    at.embed.dt = DT_F64;
    expect_error(&io, "embed: table is bf16 but must be f64");
    at.embed.dt = DT_BF16, at.embed.no_grad_id = -2;
    expect_error(&io, "embed: no_grad_id is -2 but must be an id, or -1");
    dev_close(d);
}

static void test_flops_follow_wanted_gradients(void **state) {
    (void)state;
    dev *d = open_dev(true);
    op_attr at = {0};
    err e;
    op_infer io = {.kind = OP_LINEAR, .attr = &at, .dev = d};
    io.in[0] = shape(DT_F32, 4, 8), io.in[1] = shape(DT_F32, 16, 8);
    for (unsigned want = 0; want < 4; want++) {
        io.want_grad = (uint8_t)want;
        assert_int_equal(op_infer_call(&io, &e), ST_OK);
        assert_true(io.fwd.flops == 1024);
        assert_true(io.bwd_input.flops == (want & 1 ? 1024 : 0));
        assert_true(io.bwd_weight.flops == (want & 2 ? 1024 : 0));
        assert_true(io.fwd.bytes == 4.0 * (32 + 128 + 64));
        assert_true((io.bwd_input.bytes > 0) == ((want & 1) != 0));
        assert_true((io.bwd_weight.bytes > 0) == ((want & 2) != 0));
    }
    dev_close(d);
}

static void test_head_chunks(void **state) {
    (void)state;
    op_attr at = {0};
    for (int64_t V = 2; V < 300000; V = V * 3 + 1) {
        int64_t rows = op_head_chunk_rows(&at, 1 << 20, V);
        assert_true(rows % 16 == 0 && rows >= 16 && rows <= 1024);
        assert_true(rows == 16 || rows * V * 4 <= 96 << 20);
        assert_true(rows == 1024 || rows * V * 4 >= 48 << 20);
    }
    assert_int_equal(op_head_chunk_rows(&at, 5, 50257), 5);
    at.head.chunk_rows = 24;
    assert_int_equal(op_head_chunk_rows(&at, 100, 50257), 24);
}

/* A plan made without data asks for what the real run asks for. */
static void test_meta_workspace_equals_cpu(void **state) {
    (void)state;
    dev *devs[2] = {open_dev(true), open_dev(false)};
    op_attr at[2];
    op_infer io[2];
    err e;
    for (int k = 0; k < 2; k++) {
        at[k] = (op_attr){.head = {.chunk_rows = 8, .with_grad = true}};
        io[k] = (op_infer){.kind = OP_HEAD_CE, .attr = &at[k], .dev = devs[k], .want_grad = 3};
        io[k].in[0] = shape(DT_F32, 20, 16), io[k].in[1] = shape(DT_F32, 50, 16);
        io[k].in[2] = shape(DT_I32, 20, 1);
        assert_int_equal(op_infer_call(&io[k], &e), ST_OK);
    }
    assert_true(io[0].fwd.ws_bytes >= 8 * 50 * 4);
    assert_int_equal(io[0].fwd.ws_bytes, io[1].fwd.ws_bytes);
    dev_close(devs[0]);
    dev_close(devs[1]);
}

static void test_kernel_choice(void **state) {
    (void)state;
    dev *meta = open_dev(true), *cpu = open_dev(false);
    for (int kind = 0; kind < OP_COUNT; kind++) {
        assert_null(op_find(cpu, (op_kind)kind, DT_I32));
        assert_null(op_find(meta, (op_kind)kind, DT_I32));
        op_find(meta, (op_kind)kind, DT_F32)->fwd(NULL); /* does nothing */
        assert_ptr_equal(op_find_of_kind(meta, (op_kind)kind, DT_F32),
                         op_find(cpu, (op_kind)kind, DT_F32));
        assert_ptr_equal(op_find(cpu, (op_kind)kind, DT_F64),
                         op_find_reference((op_kind)kind, DT_F64));
        setenv("ATHANOR_KERNELS", "reference", 1);
        assert_ptr_equal(op_find(cpu, (op_kind)kind, DT_F32),
                         op_find_reference((op_kind)kind, DT_F32));
        unsetenv("ATHANOR_KERNELS");
    }
    dev_close(meta);
    dev_close(cpu);
}

static void test_names(void **state) {
    (void)state;
    char name[16];
    assert_int_equal(op_inputs(OP_ATTENTION), 7);
    assert_int_equal(op_outputs(OP_HEAD_CE), 3);
    assert_string_equal(op_input_name(OP_ATTENTION, 4, name), "qpos");
    assert_string_equal(op_output_name(OP_HEAD_CE, 2, name), "dx");
    assert_true(op_input_optional(OP_LINEAR, 2));
    assert_false(op_input_optional(OP_LINEAR, 1));
    for (int kind = 0; kind < OP_COUNT; kind++) {
        const op_class *k = &op_classes[kind];
        assert_true(op_inputs((op_kind)kind) <= OP_MAX_IN);
        assert_true(op_outputs((op_kind)kind) <= OP_MAX_OUT);
        assert_false((k->diff & k->weights) | (k->passes & (k->diff | k->weights)));
        unsigned inputs =
            k->diff | k->weights | k->passes | k->bwd_in | k->looked_up | k->shape_only;
        assert_true(inputs < 1u << op_inputs((op_kind)kind));
        assert_true(k->bwd_out < 1u << op_outputs((op_kind)kind));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_both_sizes),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_from_cache),
        cmocka_unit_test(test_norm_groups),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_head_bias),
        cmocka_unit_test(test_head_nll),
        cmocka_unit_test(test_take_rows),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_flops_follow_wanted_gradients),
        cmocka_unit_test(test_head_chunks),
        cmocka_unit_test(test_meta_workspace_equals_cpu),
        cmocka_unit_test(test_kernel_choice),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
