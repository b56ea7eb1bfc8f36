/* What recording asks of an op: shape and dtype checks, outputs, workspace, FLOPs, bytes.
 *
 * Reading order: op_infer_call at the end, the table of shape rules before it, one rule per op.
 * A rule checks what is special to its op, declares its outputs and counts its FLOPs. Presence,
 * gaps between rows, bytes and workspace are the same for all ops and live in op_infer_call. */
#include "op/op.h"

#include <string.h>

#include "base/quant.h"

#define OP(ID, ...) [OP_##ID] = {__VA_ARGS__},
const op_class op_classes[OP_COUNT] = {
#include "op/ops.def"
};
#undef OP

/* Slot names: "q k v start? qpos?". */
static const char *slot_find(const char *names, int i, int *len) {
    for (;; i--) {
        *len = (int)strcspn(names, " ");
        if (i == 0 || !names[*len]) return names;
        names += *len + 1;
    }
}

static int slot_count(const char *names) {
    int n = 1;
    for (; *names; names++) n += *names == ' ';
    return n;
}

static const char *slot_name(const char *names, int i, char out[16]) {
    int len;
    const char *s = slot_find(names, i, &len);
    if (s[len - 1] == '?') len--;
    CHECK(len < 16, "slot name %.*s is too long", len, s);
    memcpy(out, s, (size_t)len);
    out[len] = 0;
    return out;
}

int op_inputs(op_kind kind) {
    return slot_count(op_classes[kind].ins);
}
int op_outputs(op_kind kind) {
    return slot_count(op_classes[kind].outs);
}
bool op_input_optional(op_kind kind, int i) {
    int len;
    const char *name = slot_find(op_classes[kind].ins, i, &len);
    return name[len - 1] == '?';
}
const char *op_input_name(op_kind kind, int i, char out[16]) {
    return slot_name(op_classes[kind].ins, i, out);
}
const char *op_output_name(op_kind kind, int i, char out[16]) {
    return slot_name(op_classes[kind].outs, i, out);
}

/* ---- checks that rules are made of ---- */

static const char *op_name(const op_infer *io) {
    return op_classes[io->kind].name;
}
static bool given(const op_infer *io, int i) {
    return io->in[i].rows > 0;
}

/* Columns or rows of input i, and what they must be as many as. */
static status compare(const op_infer *io, int i, const char *unit, int64_t have, const char *other,
                      const char *verb, int64_t want, err *e) {
    char name[16];
    if (!given(io, i) || have == want) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s has %lld %s but %s %s %lld", op_name(io),
                   op_input_name(io->kind, i, name), (long long)have, unit, other, verb,
                   (long long)want);
}

static status expect_cols(const op_infer *io, int i, int64_t cols, const char *why, err *e) {
    return compare(io, i, "columns", io->in[i].cols, why, "is", cols, e);
}

static status expect_rows(const op_infer *io, int i, int64_t rows, const char *why, err *e) {
    return compare(io, i, "rows", io->in[i].rows, why, "is", rows, e);
}

static status same_cols(const op_infer *io, int i, int j, err *e) {
    char other[16];
    if (!given(io, j)) return ST_OK;
    return compare(io, i, "columns", io->in[i].cols, op_input_name(io->kind, j, other), "has",
                   io->in[j].cols, e);
}

static status same_rows(const op_infer *io, int i, int j, err *e) {
    char other[16];
    if (!given(io, j)) return ST_OK;
    return compare(io, i, "rows", io->in[i].rows, op_input_name(io->kind, j, other), "has",
                   io->in[j].rows, e);
}

static status expect_dtype(const op_infer *io, int i, dtype want, err *e) {
    char name[16];
    if (!given(io, i) || io->in[i].dt == want) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s is %s but must be %s", op_name(io),
                   op_input_name(io->kind, i, name), dtype_name(io->in[i].dt), dtype_name(want));
}

/* Input i: an int32 for each row; `what` it is. */
static status expect_numbers(const op_infer *io, int i, const char *what, err *e) {
    TRY(expect_dtype(io, i, DT_I32, e));
    return expect_cols(io, i, 1, what, e);
}

static status expect_positive(const op_infer *io, const char *what, int64_t n, err *e) {
    if (n > 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s is %lld but must be positive", op_name(io), what,
                   (long long)n);
}

static status expect_softcap(const op_infer *io, float cap, err *e) {
    if (cap >= 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: softcap is %g but must not be negative", op_name(io),
                   (double)cap);
}

static status expect_dropout(const op_infer *io, float p, err *e) {
    if (p >= 0 && p < 1) return ST_OK;
    return err_set(e, ST_USAGE, "%s: dropout is %g but must be in [0, 1)", op_name(io), (double)p);
}

static dtype act_dt(const op_infer *io) {
    if (io->kind == OP_KV_STORE || io->kind == OP_PAGE_STORE) return io->in[1].dt;
    return io->kind == OP_EMBED ? io->attr->embed.dt : io->in[0].dt;
}
/* Keys and values that were computed before. */
static status expect_cache_dtype(const op_infer *io, int i, err *e) {
    if (io->in[i].dt == DT_F16 && act_dt(io) == DT_F32) return ST_OK;
    return expect_dtype(io, i, act_dt(io), e);
}

/* Norm weights, biases, statistics and gradients of parameters. */
static dtype real_dt(const op_infer *io) {
    return act_dt(io) == DT_F64 ? DT_F64 : DT_F32;
}

static void set_out(op_infer *io, int i, dtype dt, int64_t rows, int64_t cols) {
    io->out[i] = (tensor){NULL, dt, rows, cols, cols};
}
static void out_like(op_infer *io, int i, int in) {
    set_out(io, i, act_dt(io), io->in[in].rows, io->in[in].cols);
}

static double elements(const tensor *t) {
    return (double)t->rows * (double)t->cols;
}

/* Input i, which is added to what becomes of input 0. */
static status expect_summand(const op_infer *io, int i, err *e) {
    TRY(expect_dtype(io, i, act_dt(io), e));
    TRY(same_rows(io, i, 0, e));
    return same_cols(io, i, 0, e);
}

/* FLOPs of an op that does `fwd` and `bwd` operations per element of input 0. */
static void count_elementwise(op_infer *io, double fwd, double bwd) {
    io->fwd.flops = fwd * elements(&io->in[0]);
    io->bwd_input.flops = bwd * elements(&io->in[0]);
}

/* ---- one rule per op ---- */

static bool is_stored_weight(dtype dt) {
    return dt == DT_F16 || dt == DT_BF16 || dtype_is_blocks(dt);
}

/* Input i, a matrix of rows of weights: in the format of the activations, or as a file stores it
 * where nothing asks for its gradient. */
static status expect_matrix(const op_infer *io, int i, err *e) {
    const tensor *w = &io->in[i];
    char name[16];
    if (w->dt == act_dt(io)) return ST_OK;
    if (act_dt(io) != DT_F32 || !is_stored_weight(w->dt)) return expect_dtype(io, i, act_dt(io), e);
    if (io->want_grad >> i & 1u)
        return err_set(e, ST_USAGE, "%s: there is no gradient of %s in %s", op_name(io),
                       op_input_name(io->kind, i, name), dtype_name(w->dt));
    int32_t block = quant_by_dtype(w->dt)->block;
    if (w->cols % block == 0 && w->ld % block == 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s has %lld columns but blocks of %s are of %d", op_name(io),
                   op_input_name(io->kind, i, name), (long long)w->cols, dtype_name(w->dt), block);
}

static status infer_EMBED(op_infer *io, err *e) {
    TRY(expect_matrix(io, 0, e));
    TRY(expect_numbers(io, 1, "the size of an id", e));
    if (io->attr->embed.no_grad_id < -1)
        return err_set(e, ST_USAGE, "embed: no_grad_id is %d but must be an id, or -1",
                       (int)io->attr->embed.no_grad_id);
    int64_t all = io->attr->embed.all_rows, end = io->attr->embed.first + io->in[0].rows;
    if (all && (io->attr->embed.first < 0 || end > all))
        return err_set(e, ST_USAGE, "embed: rows %d to %lld are no part of a table of %lld",
                       (int)io->attr->embed.first, (long long)end, (long long)all);
    set_out(io, 0, act_dt(io), io->in[1].rows, io->in[0].cols);
    io->bwd_weight.flops = elements(&io->out[0]);
    return ST_OK;
}

static status infer_TAKE_ROWS(op_infer *io, err *e) {
    TRY(expect_numbers(io, 1, "the size of a row's number", e));
    set_out(io, 0, act_dt(io), io->in[1].rows, io->in[0].cols);
    io->bwd_input.flops = elements(&io->out[0]);
    return ST_OK;
}

static status infer_LINEAR(op_infer *io, err *e) {
    const tensor *x = &io->in[0], *w = &io->in[1];
    TRY(expect_matrix(io, 1, e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(same_cols(io, 0, 1, e));
    TRY(expect_rows(io, 2, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 2, w->rows, "the number of rows of w", e));
    TRY(expect_dtype(io, 3, act_dt(io), e));
    TRY(expect_rows(io, 3, x->rows, "the number of rows of x", e));
    TRY(expect_cols(io, 3, w->rows, "the number of rows of w", e));
    if (io->attr->linear.exact && given(io, 3) && act_dt(io) != real_dt(io))
        return err_set(e, ST_USAGE, "linear: an exact result has no res in %s",
                       dtype_name(act_dt(io)));
    set_out(io, 0, io->attr->linear.exact ? real_dt(io) : act_dt(io), x->rows, w->rows);
    double product = 2.0 * elements(x) * (double)w->rows;
    io->fwd.flops = product + (given(io, 2) + given(io, 3)) * elements(&io->out[0]);
    if (io->want_grad & 1u) io->bwd_input.flops = product;
    if (io->want_grad & 2u) io->bwd_weight.flops += product;
    if (io->want_grad & 4u) io->bwd_weight.flops += elements(&io->out[0]);
    return ST_OK;
}

static status infer_ADD(op_infer *io, err *e) {
    TRY(expect_summand(io, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 1, 0);
    return ST_OK;
}

static status infer_BIAS(op_infer *io, err *e) {
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_rows(io, 1, 1, "the shape of a bias", e));
    TRY(same_cols(io, 0, 1, e));
    out_like(io, 0, 0);
    io->fwd.flops = io->bwd_weight.flops = elements(&io->in[0]);
    return ST_OK;
}

static status infer_COPY(op_infer *io, err *e) {
    (void)e;
    out_like(io, 0, 0);
    return ST_OK;
}

/* Weights of a norm: inputs 1 to `last`, [1,width] each. */
static status infer_norm(op_infer *io, int last, err *e) {
    int64_t cols = io->in[0].cols, width = op_norm_width(io->attr, cols);
    if (width < 1 || cols % width)
        return err_set(e, ST_USAGE, "%s: x has %lld columns, no multiple of groups of %lld",
                       op_name(io), (long long)cols, (long long)width);
    for (int i = 1; i <= last; i++) {
        TRY(expect_dtype(io, i, real_dt(io), e));
        TRY(expect_cols(io, i, width, "the width of a group", e));
        TRY(expect_rows(io, i, 1, "the shape of a norm weight", e));
    }
    if (!(io->attr->norm.eps >= 0))
        return err_set(e, ST_USAGE, "%s: eps is %g but must not be negative", op_name(io),
                       (double)io->attr->norm.eps);
    TRY(expect_summand(io, last + 1, e));
    out_like(io, 0, 0);
    for (int i = 1; i <= last; i++) set_out(io, i, real_dt(io), io->in[0].rows, cols / width);
    bool center = last == 2; /* LAYERNORM */
    count_elementwise(io, center ? 7 : 4, center ? 13 : 9);
    return ST_OK;
}

static status infer_norm_ranks(op_infer *io, int last, err *e) {
    TRY(infer_norm(io, last, e));
    if (io->attr->norm.width || io->attr->norm.copies < 1 ||
        io->attr->norm.all_cols < io->in[0].cols)
        return err_set(e, ST_USAGE, "%s: %lld columns in groups of %d are no whole part of %lld",
                       op_name(io), (long long)io->in[0].cols, (int)io->attr->norm.width,
                       (long long)io->attr->norm.all_cols);
    return ST_OK;
}

static status infer_RMSNORM(op_infer *io, err *e) {
    return infer_norm(io, 1, e);
}
static status infer_LAYERNORM(op_infer *io, err *e) {
    return infer_norm(io, 2, e);
}
static status infer_RMSNORM_RANKS(op_infer *io, err *e) {
    return infer_norm_ranks(io, 1, e);
}
static status infer_LAYERNORM_RANKS(op_infer *io, err *e) {
    return infer_norm_ranks(io, 2, e);
}

static status infer_ROPE(op_infer *io, err *e) {
    int64_t heads = io->attr->rope.heads, dim = io->attr->rope.head_dim;
    int64_t rotary = io->attr->rope.rotary_dim;
    TRY(expect_numbers(io, 1, "the size of a position", e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    TRY(expect_cols(io, 2, rotary, "rotary_dim", e));
    TRY(expect_positive(io, "heads", heads, e));
    TRY(expect_positive(io, "head_dim", dim, e));
    if (rotary < 2 || rotary % 2 || rotary > dim)
        return err_set(e, ST_USAGE,
                       "rope: rotary_dim is %lld but must be even and at most head_dim %lld",
                       (long long)rotary, (long long)dim);
    if (heads * dim > io->in[0].cols)
        return err_set(e, ST_USAGE, "rope: %lld heads of %lld need %lld columns but x has %lld",
                       (long long)heads, (long long)dim, (long long)(heads * dim),
                       (long long)io->in[0].cols);
    out_like(io, 0, 0);
    io->fwd.flops = 3.0 * (double)io->in[0].rows * (double)(heads * rotary);
    io->bwd_input.flops = io->fwd.flops;
    return ST_OK;
}

/* Visible (query, key) pairs of one head of one sequence, as far as known when recording: queries
 * are the last Tq of Tk positions, no document masks. Causal without window: half of Tq*Tq, plus
 * the keys before the first query. */
static double attention_pairs(const op_attr *at) {
    double Tq = at->attention.Tq, Tk = at->attention.Tk, window = at->attention.window;
    double before = Tk > Tq ? Tk - Tq : 0;
    if (window <= 0) return at->attention.causal ? Tq * before + Tq * Tq / 2 : Tq * Tk;
    double pairs = 0;
    for (double i = 0; i < Tq; i++) {
        double past = before + i + 1 < window ? before + i + 1 : window;
        pairs += at->attention.causal ? past : past + Tk - (before + i + 1);
    }
    return pairs;
}

static status expect_heads(const op_infer *io, int H, int K, int D, int Dv, err *e) {
    TRY(expect_positive(io, "H", H, e));
    TRY(expect_positive(io, "K", K, e));
    TRY(expect_positive(io, "D", D, e));
    TRY(expect_positive(io, "Dv", Dv, e));
    if (H % K)
        return err_set(e, ST_USAGE, "%s: %d query heads are not a multiple of %d kv heads",
                       op_name(io), H, K);
    if (D <= OP_MAX_HEAD_DIM && Dv <= OP_MAX_HEAD_DIM) return ST_OK;
    return err_set(e, ST_USAGE, "%s: head size %d is over the limit of %d", op_name(io),
                   D > Dv ? D : Dv, OP_MAX_HEAD_DIM);
}

static status expect_window(const op_infer *io, int window, err *e) {
    if (window >= 0) return ST_OK;
    return err_set(e, ST_USAGE, "%s: window is %d but must not be negative", op_name(io), window);
}

static status attention_check_attr(const op_infer *io, err *e) {
    const op_attr *at = io->attr;
    TRY(expect_positive(io, "B", at->attention.B, e));
    TRY(expect_positive(io, "Tq", at->attention.Tq, e));
    TRY(expect_positive(io, "Tk", at->attention.Tk, e));
    TRY(expect_dropout(io, at->attention.dropout, e));
    TRY(expect_heads(io, at->attention.H, at->attention.K, at->attention.D, at->attention.Dv, e));
    TRY(expect_window(io, at->attention.window, e));
    return expect_softcap(io, at->attention.softcap, e);
}

/* Keys and values beside the queries of a program, or as a cache has them. */
static status attention_check_keys(const op_infer *io, err *e) {
    const op_attr *at = io->attr;
    int64_t rows = (int64_t)at->attention.B * at->attention.Tk, K = at->attention.K;
    if (!at->attention.by_head) {
        TRY(expect_rows(io, 1, rows, "B*Tk", e));
        TRY(expect_rows(io, 2, rows, "B*Tk", e));
        TRY(expect_cols(io, 1, K * at->attention.D, "K*D", e));
        TRY(expect_cols(io, 2, K * at->attention.Dv, "K*Dv", e));
        TRY(expect_dtype(io, 1, act_dt(io), e));
        return expect_dtype(io, 2, act_dt(io), e);
    }
    if (io->want_grad)
        return err_set(e, ST_USAGE, "attention: there is no gradient with keys from a cache");
    TRY(expect_rows(io, 1, rows * K, "B*K*Tk", e));
    TRY(expect_rows(io, 2, rows * K, "B*K*Tk", e));
    TRY(expect_cols(io, 1, at->attention.D, "D", e));
    TRY(expect_cols(io, 2, at->attention.Dv, "Dv", e));
    TRY(expect_cache_dtype(io, 1, e));
    return expect_dtype(io, 2, io->in[1].dt, e);
}

static status infer_ATTENTION(op_infer *io, err *e) {
    TRY(attention_check_attr(io, e));
    int64_t B = io->attr->attention.B, Tq = io->attr->attention.Tq;
    int64_t H = io->attr->attention.H;
    int64_t D = io->attr->attention.D, Dv = io->attr->attention.Dv;
    TRY(attention_check_keys(io, e));
    TRY(expect_numbers(io, 3, "the size of a bound", e));
    TRY(expect_dtype(io, 4, DT_I32, e));
    TRY(expect_rows(io, 0, B * Tq, "B*Tq", e));
    TRY(expect_rows(io, 3, B * Tq, "B*Tq", e));
    TRY(expect_rows(io, 4, B, "B", e));
    TRY(expect_cols(io, 0, H * D, "H*D", e));
    TRY(expect_cols(io, 4, 1, "the size of a position", e));
    set_out(io, 0, act_dt(io), B * Tq, H * Dv);
    set_out(io, 1, real_dt(io), B * H, Tq);
    double pairs = (double)(B * H) * attention_pairs(io->attr);
    io->fwd.flops = pairs * 2.0 * (double)(D + Dv);
    /* dp, dv of Dv; s again, dq, dk of D */
    io->bwd_input.flops = pairs * 2.0 * (double)(3 * D + 2 * Dv);
    io->flops_bwd_again = pairs * 2.0 * (double)D;
    return ST_OK;
}

static status infer_ACT(op_infer *io, err *e) {
    act_kind kind = io->attr->act.kind;
    if ((kind == ACT_SOFTCAP || kind == ACT_CLAMP) && !(io->attr->act.c > 0))
        return err_set(e, ST_USAGE, "act: the limit is %g but must be positive",
                       (double)io->attr->act.c);
    out_like(io, 0, 0);
    count_elementwise(io, 8, 12);
    return ST_OK;
}

static status infer_FILL(op_infer *io, err *e) {
    (void)e;
    out_like(io, 0, 0);
    return ST_OK;
}

static status infer_SCALE(op_infer *io, err *e) {
    TRY(expect_summand(io, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 1, 1);
    return ST_OK;
}

static status infer_GATED(op_infer *io, err *e) {
    act_kind kind = io->attr->act.kind;
    if (kind == ACT_SOFTCAP || kind == ACT_CLAMP)
        return err_set(e, ST_USAGE, "gated: a limit is no activation of a gate");
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    TRY(same_cols(io, 0, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 9, 15);
    return ST_OK;
}

static status infer_DROPOUT(op_infer *io, err *e) {
    TRY(expect_dropout(io, io->attr->dropout.p, e));
    TRY(expect_summand(io, 1, e));
    out_like(io, 0, 0);
    count_elementwise(io, 1, 1);
    return ST_OK;
}

/* w and its gradient, both far larger than the caches, are read once per chunk: at 80 rows the
 * three products of SmolLM2's head reach half the machine's speed, at 512 nearly all of it. */
enum { HEAD_CHUNK_BYTES = 96 << 20, HEAD_CHUNK_MIN_ROWS = 16, HEAD_CHUNK_MAX_ROWS = 1024 };

int64_t op_norm_width(const op_attr *attr, int64_t cols) {
    return attr->norm.width ? attr->norm.width : cols;
}

int64_t op_head_chunk_rows(const op_attr *attr, int64_t rows, int64_t vocab) {
    int64_t chunk = attr->head.chunk_rows;
    if (chunk == 0) {
        chunk = HEAD_CHUNK_BYTES / (4 * vocab);
        chunk -= chunk % HEAD_CHUNK_MIN_ROWS;
        if (chunk < HEAD_CHUNK_MIN_ROWS) chunk = HEAD_CHUNK_MIN_ROWS;
        if (chunk > HEAD_CHUNK_MAX_ROWS) chunk = HEAD_CHUNK_MAX_ROWS;
    }
    return chunk < rows ? chunk : rows;
}

/* What HEAD_CE and HEAD_NLL share: their inputs, nll and lse. */
static status infer_head(op_infer *io, err *e) {
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(expect_numbers(io, 2, "the size of a target", e));
    TRY(same_cols(io, 0, 1, e));
    TRY(same_rows(io, 0, 2, e));
    TRY(expect_dtype(io, 3, real_dt(io), e));
    TRY(expect_rows(io, 3, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 3, io->in[1].rows, "the number of rows of w", e));
    TRY(expect_softcap(io, io->attr->head.softcap, e));
    if (io->attr->head.chunk_rows < 0)
        return err_set(e, ST_USAGE, "%s: chunk_rows is %lld but must not be negative", op_name(io),
                       (long long)io->attr->head.chunk_rows);
    set_out(io, 0, real_dt(io), io->in[0].rows, 1);
    set_out(io, 1, real_dt(io), io->in[0].rows, 1);
    return ST_OK;
}

/* FLOPs of so many products with the vocabulary, and of what is done to each logit. */
static double head_flops(const op_infer *io, int products, bool grad) {
    double product = 2.0 * elements(&io->in[0]) * (double)io->in[1].rows;
    double logits = (double)io->in[0].rows * (double)io->in[1].rows;
    double each = 4.0; /* softmax */
    if (given(io, 3)) each += grad && (io->want_grad & 8u) ? 2.0 : 1.0;
    if (io->attr->head.softcap > 0) each += grad ? 12.0 : 8.0;
    return products * product + each * logits;
}

/* The gradients are made in the forward pass, so that is where their FLOPs count. */
static status infer_HEAD_CE(op_infer *io, err *e) {
    TRY(infer_head(io, e));
    bool grad = io->attr->head.with_grad, want_dw = grad && (io->want_grad & 2u);
    if (grad) set_out(io, 2, act_dt(io), io->in[0].rows, io->in[0].cols);
    io->fwd.flops = head_flops(io, 1 + grad + want_dw, grad);
    return ST_OK;
}

static status infer_HEAD_NLL(op_infer *io, err *e) {
    TRY(infer_head(io, e));
    if (io->attr->head.z_loss != 0)
        return err_set(e, ST_USAGE, "head_nll: z_loss is %g but this loss has none",
                       (double)io->attr->head.z_loss);
    bool want_dx = io->want_grad & 1u, want_dw = io->want_grad & 2u;
    io->fwd.flops = io->flops_bwd_again = head_flops(io, 1, false);
    io->bwd_input.flops = head_flops(io, 1 + want_dx + want_dw, true);
    return ST_OK;
}

static status expect_part(const op_infer *io, err *e) {
    int64_t first = io->attr->head.first, end = first + io->in[0].cols;
    if (first >= 0 && end <= io->attr->head.all_rows) return ST_OK;
    return err_set(e, ST_USAGE, "%s: logits %lld to %lld are no part of a vocabulary of %d",
                   op_name(io), (long long)first, (long long)end, (int)io->attr->head.all_rows);
}

static status infer_HEAD_STATS(op_infer *io, err *e) {
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_numbers(io, 1, "the size of a target", e));
    TRY(same_rows(io, 0, 1, e));
    TRY(expect_softcap(io, io->attr->head.softcap, e));
    TRY(expect_part(io, e));
    set_out(io, 0, real_dt(io), io->in[0].rows, io->in[0].cols);
    set_out(io, 1, real_dt(io), io->in[0].rows, OP_HEAD_STATS_COLS);
    io->fwd.flops = (io->attr->head.softcap > 0 ? 7.0 : 3.0) * elements(&io->in[0]);
    return ST_OK;
}

static status infer_HEAD_GRAD(op_infer *io, err *e) {
    const tensor *logits = &io->in[0], *stats = &io->in[2];
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_numbers(io, 1, "the size of a target", e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(same_rows(io, 0, 1, e));
    TRY(expect_cols(io, 2, OP_HEAD_STATS_COLS, "the size of the stats of a row", e));
    TRY(expect_dtype(io, 3, real_dt(io), e));
    TRY(expect_rows(io, 3, logits->rows, "the number of rows of logits", e));
    TRY(expect_cols(io, 3, 1, "one number a row", e));
    TRY(expect_part(io, e));
    if (stats->rows % logits->rows)
        return err_set(e, ST_USAGE, "head_grad: %lld rows of stats are no multiple of %lld rows",
                       (long long)stats->rows, (long long)logits->rows);
    set_out(io, 1, real_dt(io), logits->rows, 1);
    set_out(io, 2, real_dt(io), logits->rows, 1);
    if (!io->attr->head.with_grad) return ST_OK;
    dtype dt = io->attr->head.dt;
    set_out(io, 0, dt, logits->rows, logits->cols);
    /* Rows that stay where they are, in narrower elements. */
    io->out[0].ld = logits->ld * (int64_t)(dtype_bytes(logits->dt) / dtype_bytes(dt));
    io->fwd.flops = (io->attr->head.softcap > 0 ? 9.0 : 4.0) * elements(logits);
    return ST_OK;
}

/* ---- collectives ---- */

static status expect_ranks(const op_infer *io, err *e) {
    const tensor *x = &io->in[0];
    int32_t ranks = io->attr->comm.ranks, rank = io->attr->comm.rank;
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return err_set(e, ST_USAGE, "%s: rank %d of %d", op_name(io), (int)rank, (int)ranks);
    if (x->ld == x->cols) return ST_OK;
    return err_set(e, ST_USAGE, "%s: x has %lld columns but its rows are %lld apart", op_name(io),
                   (long long)x->cols, (long long)x->ld);
}

static status infer_FAN_OUT(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    out_like(io, 0, 0);
    count_elementwise(io, 0, io->attr->comm.ranks - 1);
    return ST_OK;
}

static status infer_ALL_REDUCE(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    out_like(io, 0, 0);
    count_elementwise(io, io->attr->comm.ranks - 1, 0);
    return ST_OK;
}

static status infer_GATHER_ROWS(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    set_out(io, 0, act_dt(io), io->in[0].rows * io->attr->comm.ranks, io->in[0].cols);
    count_elementwise(io, 0, io->attr->comm.ranks - 1);
    return ST_OK;
}

static status infer_SCATTER_SUM(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    int32_t ranks = io->attr->comm.ranks;
    if (io->in[0].rows % ranks)
        return err_set(e, ST_USAGE, "scatter_sum: %lld rows do not divide over %d ranks",
                       (long long)io->in[0].rows, (int)ranks);
    set_out(io, 0, act_dt(io), io->in[0].rows / ranks, io->in[0].cols);
    count_elementwise(io, (ranks - 1.0) / ranks, 0);
    return ST_OK;
}

static status infer_GATHER_COLS(op_infer *io, err *e) {
    TRY(expect_ranks(io, e));
    op_part mine = op_part_of(io->attr->comm.cols, io->attr->comm.ranks, io->attr->comm.rank);
    TRY(expect_cols(io, 0, mine.n, "the share of this rank", e));
    set_out(io, 0, act_dt(io), io->in[0].rows, io->attr->comm.cols);
    return ST_OK;
}

static status infer_KV_STORE(op_infer *io, err *e) {
    int64_t B = io->attr->kv.B, T = io->attr->kv.T, Tmax = io->attr->kv.Tmax, K = io->attr->kv.K;
    TRY(expect_positive(io, "B", B, e));
    TRY(expect_positive(io, "T", T, e));
    TRY(expect_positive(io, "K", K, e));
    TRY(expect_cache_dtype(io, 0, e));
    TRY(expect_numbers(io, 2, "the size of a position", e));
    TRY(expect_cols(io, 1, K * io->in[0].cols, "K times those of the cache", e));
    TRY(expect_rows(io, 0, B * K * Tmax, "B*K*Tmax", e));
    TRY(expect_rows(io, 1, B * T, "B*T", e));
    TRY(expect_rows(io, 2, B, "B", e));
    if (T > Tmax)
        return err_set(e, ST_USAGE, "kv_store: %lld new rows do not fit a cache of %lld",
                       (long long)T, (long long)Tmax);
    set_out(io, 0, io->in[0].dt, io->in[0].rows, io->in[0].cols);
    return ST_OK;
}

static status infer_PAGE_STORE(op_infer *io, err *e) {
    int64_t K = io->attr->paged.K, page = io->attr->paged.page, rows = page;
    TRY(expect_positive(io, "page", page, e));
    TRY(expect_positive(io, "K", K, e));
    TRY(expect_cache_dtype(io, 0, e));
    if (io->attr->paged.turned) {
        TRY(expect_cols(io, 0, page, "page", e));
        rows = io->in[1].cols / K;
        TRY(expect_cols(io, 1, K * rows, "a multiple of K", e));
    } else {
        TRY(expect_cols(io, 1, K * io->in[0].cols, "K times those of the cache", e));
    }
    TRY(expect_numbers(io, 2, "the size of a place", e));
    TRY(same_rows(io, 2, 1, e));
    if (io->in[0].rows % (K * rows))
        return err_set(e, ST_USAGE, "page_store: %lld rows are no whole pages of %lld",
                       (long long)io->in[0].rows, (long long)(K * rows));
    set_out(io, 0, io->in[0].dt, io->in[0].rows, io->in[0].cols);
    return ST_OK;
}

static status infer_PAGE_ATTENTION(op_infer *io, err *e) {
    const op_attr *at = io->attr;
    TRY(expect_positive(io, "page", at->paged.page, e));
    TRY(expect_heads(io, at->paged.H, at->paged.K, at->paged.D, at->paged.Dv, e));
    TRY(expect_window(io, at->paged.window, e));
    TRY(expect_softcap(io, at->paged.softcap, e));
    TRY(expect_cols(io, 0, (int64_t)at->paged.H * at->paged.D, "H*D", e));
    TRY(expect_cols(io, 1, at->paged.page, "page", e));
    TRY(expect_cols(io, 2, at->paged.Dv, "Dv", e));
    int64_t pages = io->in[2].rows / at->paged.page / at->paged.K;
    TRY(expect_rows(io, 2, pages * at->paged.K * at->paged.page, "whole pages", e));
    TRY(expect_rows(io, 1, pages * at->paged.K * at->paged.D, "those of as many pages as v", e));
    TRY(expect_cache_dtype(io, 1, e));
    TRY(expect_dtype(io, 2, io->in[1].dt, e));
    TRY(expect_dtype(io, 3, DT_I32, e));
    TRY(expect_dtype(io, 4, DT_I32, e));
    TRY(same_rows(io, 4, 0, e));
    TRY(expect_cols(io, 4, 2, "the size of a place", e));
    set_out(io, 0, act_dt(io), io->in[0].rows, (int64_t)at->paged.H * at->paged.Dv);
    /* As if every row saw half of what its sequence has room for. */
    double keys = (double)io->in[3].cols * at->paged.page / 2;
    io->fwd.flops = 2.0 * elements(&io->in[0]) / at->paged.D * keys * (at->paged.D + at->paged.Dv);
    return ST_OK;
}

static status infer_ROUTER_PROBS(op_infer *io, err *e) {
    (void)e;
    set_out(io, 0, real_dt(io), io->in[0].rows, io->in[0].cols);
    count_elementwise(io, 6, 5);
    return ST_OK;
}

static status router_check_groups(const op_infer *io, int64_t E, err *e) {
    const op_router *r = &io->attr->router;
    if (r->groups <= 1) return ST_OK;
    if (E % r->groups)
        return err_set(e, ST_USAGE, "router_pick: %lld experts do not divide into %d groups",
                       (long long)E, r->groups);
    if (r->best < 1 || r->best > E / r->groups)
        return err_set(e, ST_USAGE, "router_pick: a group of %lld has no %d best experts",
                       (long long)(E / r->groups), r->best);
    if (r->kept < 1 || r->kept > r->groups || r->k > r->kept * (E / r->groups))
        return err_set(e, ST_USAGE, "router_pick: %d of %d groups have no %d experts", r->kept,
                       r->groups, r->k);
    return ST_OK;
}

static status infer_ROUTER_PICK(op_infer *io, err *e) {
    int64_t E = io->in[0].cols, k = io->attr->router.k;
    TRY(expect_positive(io, "k", k, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_rows(io, 1, 1, "the shape of a bias", e));
    TRY(expect_cols(io, 1, E, "the number of experts", e));
    if (k > E)
        return err_set(e, ST_USAGE, "router_pick: k is %lld, and there are %lld experts",
                       (long long)k, (long long)E);
    TRY(router_check_groups(io, E, e));
    set_out(io, 0, real_dt(io), io->in[0].rows, k);
    set_out(io, 1, DT_I32, io->in[0].rows, k);
    count_elementwise(io, 2, 2);
    return ST_OK;
}

static status infer_ROUTER_SORT(op_infer *io, err *e) {
    int64_t E = io->attr->router.experts, N = io->in[0].rows, k = io->in[0].cols;
    TRY(expect_positive(io, "experts", E, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_dtype(io, 1, DT_I32, e));
    TRY(same_rows(io, 1, 0, e));
    TRY(same_cols(io, 1, 0, e));
    set_out(io, 0, DT_I32, N * k, 1);
    set_out(io, 1, DT_I32, N, k);
    set_out(io, 2, DT_I32, 1, E + 1);
    return ST_OK;
}

static status infer_EXPERT_LINEAR(op_infer *io, err *e) {
    const tensor *x = &io->in[0], *w = &io->in[1];
    int64_t E = io->attr->router.experts;
    TRY(expect_positive(io, "experts", E, e));
    TRY(expect_dtype(io, 1, act_dt(io), e));
    TRY(same_cols(io, 0, 1, e));
    if (w->rows % E)
        return err_set(e, ST_USAGE, "expert_linear: w has %lld rows, no multiple of %lld experts",
                       (long long)w->rows, (long long)E);
    TRY(expect_dtype(io, 2, DT_I32, e));
    TRY(expect_rows(io, 2, 1, "one", e));
    TRY(expect_cols(io, 2, E + 1, "one more than the experts", e));
    set_out(io, 0, act_dt(io), x->rows, w->rows / E);
    double product = 2.0 * elements(x) * (double)(w->rows / E);
    io->fwd.flops = product;
    if (io->want_grad & 1u) io->bwd_input.flops = product;
    if (io->want_grad & 2u) io->bwd_weight.flops = product;
    return ST_OK;
}

static status infer_EXPERT_SUM(op_infer *io, err *e) {
    const tensor *z = &io->in[0], *weights = &io->in[1];
    TRY(expect_dtype(io, 1, real_dt(io), e));
    TRY(expect_dtype(io, 2, DT_I32, e));
    TRY(same_rows(io, 2, 1, e));
    TRY(same_cols(io, 2, 1, e));
    TRY(expect_rows(io, 0, weights->rows * weights->cols, "the number of weights", e));
    TRY(expect_dtype(io, 3, act_dt(io), e));
    TRY(expect_rows(io, 3, weights->rows, "the number of rows of weights", e));
    TRY(same_cols(io, 3, 0, e));
    set_out(io, 0, act_dt(io), weights->rows, z->cols);
    count_elementwise(io, 2, 3);
    return ST_OK;
}

static status infer_ROUTER_LOAD(op_infer *io, err *e) {
    int64_t E = io->in[0].cols;
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_dtype(io, 1, DT_I32, e));
    TRY(same_rows(io, 1, 0, e));
    TRY(expect_dtype(io, 2, real_dt(io), e));
    TRY(expect_rows(io, 2, 2, "two", e));
    TRY(expect_cols(io, 2, E, "the number of experts", e));
    set_out(io, 0, real_dt(io), 2, E);
    count_elementwise(io, 1, 1);
    return ST_OK;
}

static status infer_ROUTER_BALANCE(op_infer *io, err *e) {
    TRY(expect_positive(io, "k", io->attr->router.k, e));
    TRY(expect_positive(io, "layers", io->attr->router.layers, e));
    TRY(expect_dtype(io, 0, real_dt(io), e));
    TRY(expect_rows(io, 0, 2, "two", e));
    set_out(io, 0, real_dt(io), 1, 1);
    count_elementwise(io, 2, 1);
    return ST_OK;
}

static status infer_FIXED_ADD(op_infer *io, err *e) {
    const tensor *x = &io->in[0];
    TRY(expect_dtype(io, 0, real_dt(io), e));
    if (x->ld != x->cols)
        return err_set(e, ST_USAGE, "fixed_add: rows of x are %lld apart but have %lld columns",
                       (long long)x->ld, (long long)x->cols);
    set_out(io, 0, DT_I64, x->rows, x->cols);
    count_elementwise(io, 2, 0);
    return ST_OK;
}

static status (*const rules[OP_COUNT])(op_infer *io, err *e) = {
#define OP(ID, ...) [OP_##ID] = infer_##ID,
#include "op/ops.def"
#undef OP
};

/* ---- what is the same for all ops ---- */

static status check_inputs(const op_infer *io, err *e) {
    char name[16];
    for (int i = 0; i < op_inputs(io->kind); i++) {
        const tensor *t = &io->in[i];
        op_input_name(io->kind, i, name);
        if (!given(io, i)) {
            if (op_input_optional(io->kind, i)) continue;
            return err_set(e, ST_USAGE, "%s: input %s is missing", op_name(io), name);
        }
        if (t->cols < 1 || t->ld < t->cols)
            return err_set(e, ST_USAGE, "%s: %s has %lld columns but rows are %lld apart",
                           op_name(io), name, (long long)t->cols, (long long)t->ld);
    }
    dtype dt = act_dt(io);
    if (dt == DT_F32 || dt == DT_BF16 || dt == DT_F16 || dt == DT_F64) return ST_OK;
    return err_set(e, ST_USAGE, "%s: %s is %s but must be a floating-point format", op_name(io),
                   op_input_name(io->kind, 0, name), dtype_name(dt));
}

static double rows_bytes(const tensor *t, int64_t rows) {
    return (double)rows * (double)dtype_span_bytes(t->dt, t->cols);
}
static double tensor_bytes(const tensor *t) {
    return rows_bytes(t, t->rows);
}

/* Rows of input i that forward reads. */
static int64_t rows_read(const op_infer *io, int i) {
    const op_class *k = &op_classes[io->kind];
    if ((k->shape_only >> i) & 1u) return 0;
    return (k->looked_up >> i) & 1u ? io->out[0].rows : io->in[i].rows;
}

/* Memory traffic when everything named by the masks is read or written once. */
static void count_bytes(op_infer *io) {
    const op_class *k = &op_classes[io->kind];
    double saved = 0, dout = 0, din[2] = {0, 0};
    for (int i = 0; i < op_inputs(io->kind); i++) {
        const tensor *t = &io->in[i];
        io->fwd.bytes += rows_bytes(t, rows_read(io, i));
        if ((k->bwd_in >> i) & 1u) saved += tensor_bytes(t);
        if (!((io->want_grad >> i) & 1u)) continue;
        if ((k->diff >> i) & 1u) din[0] += tensor_bytes(t);
        if ((k->weights >> i) & 1u) din[1] += elements(t) * (double)dtype_bytes(real_dt(io));
    }
    for (int i = 0; i < op_outputs(io->kind); i++) {
        io->fwd.bytes += tensor_bytes(&io->out[i]);
        if ((k->bwd_out >> i) & 1u) saved += tensor_bytes(&io->out[i]);
    }
    if (k->flags & OPF_GRAD_IN_FWD) {
        io->fwd.bytes += din[1];
        return;
    }
    dout = tensor_bytes(&io->out[0]);
    bool fused = k->flags & OPF_FUSED_BWD;
    if (din[0] > 0 || (fused && din[1] > 0))
        io->bwd_input.bytes = saved + dout + din[0] + (fused ? din[1] : 0);
    if (!fused && din[1] > 0) io->bwd_weight.bytes = saved + dout + din[1];
}

status op_infer_call(op_infer *io, err *e) {
    CHECK(io->kind < OP_COUNT, "op kind %d", (int)io->kind);
    op_infer asked = *io;
    *io = (op_infer){.kind = asked.kind, .attr = asked.attr, .dev = asked.dev};
    io->want_grad = asked.want_grad;
    memcpy(io->in, asked.in, sizeof(io->in));
    TRY(check_inputs(io, e));
    TRY(rules[io->kind](io, e));
    const op_class *k = &op_classes[io->kind];
    bool fused = k->flags & OPF_FUSED_BWD;
    if (!(io->want_grad & (fused ? k->diff | k->weights : k->diff)))
        io->bwd_input.flops = io->flops_bwd_again = 0;
    if (!(io->want_grad & k->weights)) io->bwd_weight.flops = 0;
    count_bytes(io);
    const op_impl *impl = op_find_of_kind(io->dev, io->kind, act_dt(io));
    int64_t ws[3] = {0, 0, 0};
    if (impl && impl->workspace) impl->workspace(io, ws);
    io->fwd.ws_bytes = ws[0];
    io->bwd_input.ws_bytes = ws[1];
    io->bwd_weight.ws_bytes = ws[2];
    return ST_OK;
}
