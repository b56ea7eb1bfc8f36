#include "plan/clock/inference.h"

#include "model/family.h"

/* Tokens of a prompt that go through the model in one pass. */
enum { PASS = 512 };

/* Bytes of an op's matrix that are read, in the format of the program. The rows of an expert's product lie one expert behind the
 * other, and each row of x reads one at most. */
static double matrix_bytes(const prog_op *o) {
    op_profile p = op_classes[o->kind].profile;
    const tensor *x = &o->in[0], *w = &o->in[1];
    if ((p != OPP_MATMUL && p != OPP_HEAD) || w->rows == 0) return 0;
    return (double)w->rows * (double)w->cols * (double)dtype_bytes(w->dt) *
           (w->rows > o->out[0].cols && x->rows * o->out[0].cols < w->rows
                ? (double)x->rows * (double)o->out[0].cols / (double)w->rows
                : 1);
}

static double all_matrix_bytes(const prog_op *o) {
    const tensor *w = &o->in[1];
    return matrix_bytes(o) > 0 ? (double)w->rows * (double)w->cols * (double)dtype_bytes(w->dt) : 0;
}

/* Keys that a query sees: of a prompt on average, else (0) at the end of the context. */
static double keys_seen(const op_attention *a, double prompt) {
    double reach = a->window > 0 && a->window < a->Tk ? a->window : a->Tk;
    if (prompt == 0) return op_attention_pairs(a) / a->Tq;
    if (a->chunk > 0 && a->chunk < prompt) return a->chunk / 2.0;
    return reach < prompt ? reach * (1 - reach / (2 * prompt)) : prompt / 2;
}

static double tensor_bytes(const tensor *t) {
    return (double)t->rows * (double)dtype_row_bytes(t->dt, t->cols);
}

/* The program is that of a full cache, of which an op names all; only keys and values that are seen are read. */
static void see_keys(prog_op *o, double prompt) {
    const op_attention *a = &o->attr->attention;
    double cache = tensor_bytes(&o->in[1]) + tensor_bytes(&o->in[2]), seen = keys_seen(a, prompt);
    o->flops *= seen * a->Tq / op_attention_pairs(a);
    o->bytes -= cache * (1 - seen / a->Tk);
}

/* Seconds of a program for `texts` at a time, whose matrices are `share` as large as in the program's format. prompt: tokens of
 * which it is a pass; 0: it is of one token, at the end of the context. */
static double seconds_of(const prog *p, const cluster *c, int texts, double share, double prompt) {
    double sum = 0;
    for (int i = 0; i < prog_get_stats(p)->ops; i++) {
        prog_op o = prog_get_op(p, i);
        if (o.kind == OP_ATTENTION) see_keys(&o, prompt);
        double read = matrix_bytes(&o), own = o.bytes - all_matrix_bytes(&o);
        double most = all_matrix_bytes(&o), all = read * texts < most ? read * texts : most;
        o.bytes = (own > 0 ? own : 0) * texts + all * share;
        o.flops *= texts;
        sum += roofline_seconds(c, &o, 0);
    }
    return sum;
}

static double format_bytes(const quant_format *f) {
    return (double)f->bytes / f->block;
}

static void sum_weights(const plan *p, const inference_wish *w, inference_sum *out) {
    for (int i = 0; i < param_count(p->store); i++) {
        const param *q = param_at(p->store, i);
        double n = (double)param_elems(q);
        bool whole = q->cols % w->store->block == 0; /* else it is in f16, as an export has it */
        out->params += n;
        out->weight_bytes += n * (q->rows == 1 ? 4 : whole ? format_bytes(w->store) : 2);
    }
}

/* Bytes of keys and values that no query of a long text sees any more: those before the windows of its layers. */
static double bytes_out_of_sight(const inference_wish *w, dtype format) {
    int64_t elems = 0;
    for (int l = 0; l < model_layers(w->model); l++) {
        layer_spec k = model_layer(w->model, l);
        if (k.linear.Hv || k.attn.window == 0 || k.attn.window >= w->context) continue;
        elems += (w->context - k.attn.window) * model_cache_cols(&k.attn, 1);
    }
    return (double)w->texts * (double)elems * (double)dtype_bytes(format);
}

status inference_reckon(const inference_wish *w, dev *meta, const cluster *c, inference_sum *out,
                        err *e) {
    dtype format = DT_BF16;
    plan *p;
    plan_spec s = {.model = *w->model,
                   .compute = format,
                   .T = 1,
                   .cache_tok = w->context,
                   .prefill_T = PASS < w->prompt ? PASS : w->prompt};
    *out = (inference_sum){0};
    TRY(plan_new(&p, meta, &s, e));
    sum_weights(p, w, out);
    const prog *prompt = plan_prog(p, USE_PREFILL, 0), *token = plan_prog(p, USE_DECODE, 0);
    double share = format_bytes(w->store) / (double)dtype_bytes(format);
    out->cache_bytes = (double)model_cache_bytes(w->model, 1, w->texts, w->context, format, format);
    out->windows_bytes = out->cache_bytes - bytes_out_of_sight(w, format);
    out->cache_of_token = out->cache_bytes / w->texts / w->context;
    out->work_bytes = (double)prog_get_stats(prompt)->frame_bytes * w->texts;
    out->all_bytes = out->weight_bytes + out->cache_bytes + out->work_bytes;
    out->prompt_s = seconds_of(prompt, c, 1, share, w->prompt) * w->prompt / s.prefill_T;
    out->token_s = seconds_of(token, c, w->texts, share, 0);
    plan_free(p);
    return ST_OK;
}
