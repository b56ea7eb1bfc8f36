/* What recording asks of an op: shape and dtype checks, outputs, workspace, FLOPs, bytes.
 *
 * What is special to an op is its rule (rules/); what is the same for all ops, presence, gaps between rows, bytes and
 * workspace, is here. */
#include <string.h>

#include "op/rules/rules.h"

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

static status (*const rules[OP_COUNT])(op_infer *io, err *e) = {
#define OP(ID, ...) [OP_##ID] = infer_##ID,
#include "op/ops.def"
#undef OP
};

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
    return (double)rows * (double)dtype_row_bytes(t->dt, t->cols);
}
static double tensor_bytes(const tensor *t) {
    return rows_bytes(t, t->rows);
}

/* Rows of input i that forward reads. */
static int64_t rows_read(const op_infer *io, int i) {
    const op_class *k = &op_classes[io->kind];
    if ((k->shape_only >> i) & 1u) return 0;
    if ((k->flags & OPF_STORES) && i == 0) return 0;
    int64_t all = io->in[i].rows, some = io->out[0].rows;
    return (k->looked_up >> i) & 1u && some < all ? some : all;
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
        io->fwd.bytes += tensor_bytes(k->flags & OPF_STORES ? &io->in[1] : &io->out[i]);
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
