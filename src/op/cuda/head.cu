/* HEAD_CE, HEAD_NLL and HEAD_DISTILL: the head of a language model, a chunk of rows at a time.
 *
 *   logits = x w^T + bias (float), with softcap c: c tanh(logits / c)
 *   lse = log sum_v exp(logits_v);  nll = lse - logits[target]
 *   dlogits_v = s ((1 + 2 z lse) softmax_v - [v = target]), with softcap times 1 - (logits_v / c)^2
 *   dx = dlogits w;  dw += dlogits^T x;  dbias += column sums of dlogits
 *
 * s is run->grad_scale * weight in HEAD_CE, dnll of the row in HEAD_NLL, and 0 where the target is negative.
 *
 * HEAD_DISTILL, with p and q the softmax of the teacher's and of these logits over T:
 *   nll = (1-w) (lse - logits[target]) + w T^2 sum_v p_v log(p_v / q_v)
 *   dlogits_v = s ((1-w + 2 z lse) softmax_v - (1-w) [v = target] + w T (q_v - p_v)), with softcap as above
 *
 * The products are cuBLASLt's, 2 N V C FLOPs each. Between them one kernel, a block for each row: it
 * reads the logits once for maximum and sum together (Milakov & Gimelshein 2018), and a second time,
 * mostly from the cache, to put dlogits in their place, in 16 bits in programs of 16 bits: 8 bytes
 * read and 2 to 4 written for each logit. With a teacher both read its logits, too, and the divergence a third time:
 * 24 bytes read. Rows of the chunk are a multiple of 8 numbers apart, so
 * that they are read 16 bytes at a time, and cuBLASLt has its fast kernels, whatever V is. */
#include "op/cuda/column_sums.h"
#include "op/cuda/numbers.h"

typedef struct head_args {
    float *logits; /* [rows, ld], the chunk's */
    mat targets, nll, lse, dnll;
    mat teacher; /* f32 logits; absent: none */
    mat known,
        tokens; /* the teacher's logits of some tokens, from which a row of teacher is made */
    int32_t n_known;
    int64_t V, ld;
    const run_numbers *run;
    float cap, z_loss, weight;
    float distill, temperature; /* 0 and 1 without a teacher */
    int32_t grad;
} head_args;

enum { HEAD_THREADS = 512, HEAD_STEP = 8 }; /* a thread takes so many logits at once */

/* Logits [v, v + 8) of a row, capped; -infinity behind the last one. */
GPU_FN void head_read(const head_args *a, const float *row, int64_t v, float out[HEAD_STEP]) {
    if (v + HEAD_STEP <= a->V) {
        load4(out, row + v);
        load4(out + 4, row + v + 4);
    } else {
        for (int i = 0; i < HEAD_STEP; i++) out[i] = v + i < a->V ? row[v + i] : -INFINITY;
    }
    if (a->cap > 0.0f)
        for (int i = 0; i < HEAD_STEP; i++)
            if (v + i < a->V) out[i] = a->cap * tanhf(out[i] / a->cap);
}

/* Adds 8 logits to a thread's maximum and its sum of exp(logit - maximum). NaN comes through. */
GPU_FN void head_count(const float in[HEAD_STEP], float *most, float *sum) {
    float old = *most;
    for (int i = 0; i < HEAD_STEP; i++) *most = gpu_max(*most, in[i]);
    float base = *most == -INFINITY ? 0.0f : *most;
    *sum *= expf(old - base);
    for (int i = 0; i < HEAD_STEP; i++) *sum += expf(in[i] - base);
}

/* What a row has of its teacher. */
typedef struct lesson {
    float lse, lse_q; /* of the teacher's logits and of these, over T */
    float kl;
} lesson;

/* The teacher's logits [v, v + 8) of row n; -infinity behind the last one. */
GPU_FN void teacher_read(const head_args *a, int64_t n, int64_t v, float out[HEAD_STEP]) {
    const float *row = f32_row_of(a->teacher, n);
    for (int i = 0; i < HEAD_STEP; i++) out[i] = v + i < a->V ? row[v + i] : -INFINITY;
}

/* log of the sum of exp(x / T) over what all threads have counted of x / T. */
GPU_FN float log_of_all(float most, float sum, float *room) {
    float all = block_max(most, room);
    sync_block();
    sum = block_sum(most == -INFINITY ? sum : sum * expf(most - all), room);
    sync_block(); /* the room is free again */
    return all + logf(sum);
}

/* Both softmax sums in one pass over the row, the divergence in another. */
GPU_FN lesson take_lesson(const head_args *a, int64_t n, const float *row, float *room) {
    int64_t step = (int64_t)threads_x() * HEAD_STEP;
    float l[HEAD_STEP], t[HEAD_STEP], T = a->temperature;
    float most = -INFINITY, sum = 0, most_q = -INFINITY, sum_q = 0, kl = 0;
    lesson x;
    for (int64_t v = (int64_t)thread_x() * HEAD_STEP; v < a->V; v += step) {
        head_read(a, row, v, l);
        teacher_read(a, n, v, t);
        for (int i = 0; i < HEAD_STEP; i++) l[i] /= T, t[i] /= T;
        head_count(l, &most_q, &sum_q);
        head_count(t, &most, &sum);
    }
    x.lse = log_of_all(most, sum, room);
    x.lse_q = log_of_all(most_q, sum_q, room);
    for (int64_t v = (int64_t)thread_x() * HEAD_STEP; v < a->V; v += step) {
        head_read(a, row, v, l);
        teacher_read(a, n, v, t);
        for (int i = 0; i < HEAD_STEP; i++) {
            float p = expf(t[i] / T - x.lse);
            if (p > 0) kl += p * ((t[i] - l[i]) / T - x.lse + x.lse_q);
        }
    }
    x.kl = block_sum(kl, room);
    sync_block();
    return x;
}

/* w T (q_v - p_v) for 8 logits. */
GPU_FN void teach(const head_args *a, const lesson *x, int64_t n, int64_t v, const float *l,
                  float out[HEAD_STEP]) {
    float t[HEAD_STEP], T = a->temperature;
    teacher_read(a, n, v, t);
    for (int i = 0; i < HEAD_STEP; i++)
        out[i] = a->distill * T * (expf(l[i] / T - x->lse_q) - expf(t[i] / T - x->lse));
}

/* dlogits of 8 logits, over themselves: those of a step lie behind everything that earlier steps
 * still have to read, because they are no wider than logits. */
GPU_FN void head_write(const head_args *a, float *row, int64_t v, const float d[HEAD_STEP]) {
    STORE *to = (STORE *)row + v;
    if (v >= a->ld) return;
    for (int i = 0; i < HEAD_STEP; i += VEC) store_vec(to + i, d + i);
}

/* Rows of teacher: known logits of tokens, and -infinity. Of a token that is named twice the last counts. */
KERNEL(head_known, head_args, HEAD_THREADS) {
    int64_t n = block_x();
    const int32_t *token = i32_row_of(a->tokens, n);
    float *to = f32_row_of(a->teacher, n);
    for (int64_t v = thread_x(); v < a->V; v += threads_x()) to[v] = -INFINITY;
    sync_block();
    for (int32_t i = (int32_t)thread_x(); i < a->n_known; i += (int32_t)threads_x()) {
        bool last = true;
        kernel_check(token[i] >= 0 && token[i] < a->V, "finds a token outside the vocabulary");
        for (int32_t j = i + 1; j < a->n_known; j++) last = last && token[j] != token[i];
        if (last) to[token[i]] = f32_row_of(a->known, n)[i];
    }
}

/* Where a target is beyond the vocabulary nll is NaN, which stops the run. */
KERNEL(head_rows, head_args, HEAD_THREADS) {
    SHARED(float, room, 32);
    int64_t n = block_x(), step = (int64_t)threads_x() * HEAD_STEP;
    float *row = a->logits + n * a->ld, l[HEAD_STEP];
    int32_t target = *i32_row_of(a->targets, n);
    float at_target = 0, most = -INFINITY, sum = 0;
    if (target >= 0) {
        at_target = target < a->V ? row[target] : NAN;
        if (a->cap > 0.0f) at_target = a->cap * tanhf(at_target / a->cap);
    }
    for (int64_t v = (int64_t)thread_x() * HEAD_STEP; v < a->V; v += step) {
        head_read(a, row, v, l);
        head_count(l, &most, &sum);
    }
    float all = block_max(most, room);
    sync_block();
    sum = block_sum(most == -INFINITY ? sum : sum * expf(most - all), room);
    float log_sum = logf(sum), lse = all + log_sum;
    float own = 1.0f - a->distill;
    lesson x = {0, 0, 0};
    if (a->teacher.p) {
        sync_block(); /* the room is free again */
        x = take_lesson(a, n, row, room);
    }
    if (thread_x() == 0) {
        float nll = own * ((all - at_target) + log_sum) +
                    a->distill * a->temperature * a->temperature * x.kl;
        if (a->nll.p) *f32_row_of(a->nll, n) = target < 0 ? 0.0f : nll;
        if (a->lse.p) *f32_row_of(a->lse, n) = lse;
    }
    if (!a->grad) return;
    float each = a->run->grad_scale * a->weight;
    float s = target < 0 ? 0.0f : a->dnll.p ? *f32_row_of(a->dnll, n) : each;
    float scale = s * (own + 2.0f * a->z_loss * lse) / sum;
    for (int64_t first = 0; first < a->ld; first += step) {
        int64_t v = first + (int64_t)thread_x() * HEAD_STEP;
        float more[HEAD_STEP] = {0};
        head_read(a, row, v, l);
        if (a->teacher.p) teach(a, &x, n, v, l, more);
        for (int i = 0; i < HEAD_STEP; i++) {
            float t = a->cap > 0.0f && v + i < a->V ? l[i] / a->cap : 0.0f;
            float d = scale * expf(l[i] - all) - (v + i == target ? s * own : 0.0f);
            l[i] = (d + s * more[i]) * (1.0f - t * t);
        }
        sync_block(); /* what is overwritten now has been read */
        head_write(a, row, v, l);
    }
}

#ifndef __CUDACC__
#include "op/cuda/product.h"
#include "op/head.h"

/* A chunk has at most so many logits, if the user does not say how many rows. w and its gradient are
 * read once a chunk: with some thousand rows that takes less time than the products. */
enum { HEAD_CHUNK_BYTES = 512 << 20, HEAD_CHUNK_MIN_ROWS = 128 };

static int64_t head_ld(int64_t V) {
    return (V + HEAD_STEP - 1) / HEAD_STEP * HEAD_STEP;
}

static int64_t head_chunk(const op_attr *attr, int64_t rows, int64_t V) {
    int64_t chunk = attr->head.chunk_rows;
    if (chunk == 0) {
        chunk = HEAD_CHUNK_BYTES / ((int64_t)sizeof(float) * head_ld(V));
        chunk -= chunk % HEAD_CHUNK_MIN_ROWS;
        if (chunk < HEAD_CHUNK_MIN_ROWS) chunk = HEAD_CHUNK_MIN_ROWS;
    }
    return chunk < rows ? chunk : rows;
}

static int64_t align256(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

static char *row_at(const tensor *t, int64_t n) {
    return (char *)t->data + n * t->ld * (int64_t)dtype_bytes(t->dt);
}

static mat rows_from(const tensor *t, int64_t n) {
    return (mat){t->data ? row_at(t, n) : NULL, t->ld};
}

/* dlogits as a matrix: in programs of 16 bits they fill the first half of each row. */
static mat dlogits_of(const head *h) {
    return (mat){h->logits, h->ld * (int64_t)(sizeof(float) / sizeof(STORE))};
}

static void make_logits(const head *h, int64_t n0, int64_t rows) {
    const tensor *x = &h->c->in[0], *w = &h->c->in[1], *bias = &h->c->in[3];
    cuda_product p = {.m = rows, .n = w->rows, .k = x->cols, .a = row_at(x, n0), .lda = x->ld};
    p.b = w->data, p.ldb = w->ld, p.b_trans = true, p.ab_dt = x->dt;
    p.c = h->logits, p.ldc = h->ld, p.c_dt = DT_F32, p.bias = bias->data;
    cuda_product_run(h->c->run, &p, h->product);
}

static void head_dx(const head *h, int64_t n0, int64_t rows) {
    const tensor *w = &h->c->in[1], *dx = &h->dx;
    mat d = dlogits_of(h);
    cuda_product p = {.m = rows, .n = w->cols, .k = w->rows, .a = d.p, .lda = d.ld, .ab_dt = w->dt};
    p.b = w->data, p.ldb = w->ld;
    p.c = row_at(dx, n0), p.ldc = dx->ld, p.c_dt = dx->dt;
    if (h->add_dx) p.add = p.c, p.ld_add = p.ldc;
    cuda_product_run(h->c->run, &p, h->product);
}

static void head_dbias(const head *h, int64_t rows, bool add) {
    mat d = dlogits_of(h);
    tensor t = {d.p, h->c->in[1].dt, rows, h->c->in[1].rows, d.ld};
    column_sums(h->c, &t, &h->dbias, add, h->parts);
}

static void head_dw(const head *h, int64_t n0, int64_t rows) {
    const tensor *x = &h->c->in[0], *dw = &h->dw;
    mat d = dlogits_of(h);
    cuda_product p = {
        .m = dw->rows, .n = x->cols, .k = rows, .a = d.p, .lda = d.ld, .ab_dt = x->dt};
    p.a_trans = true, p.b = row_at(x, n0), p.ldb = x->ld;
    p.c = dw->data, p.ldc = dw->ld, p.c_dt = DT_F32;
    if (n0 > 0 || op_accumulates(h->c, 1)) p.add = p.c, p.ld_add = p.ldc;
    cuda_product_run(h->c->run, &p, h->product);
}

static void head_softmax(const head *h, int64_t n0, int64_t rows) {
    const op_call *c = h->c;
    int64_t V = c->in[1].rows;
    head_args a = {.logits = h->logits, .V = V, .ld = h->ld, .cap = c->attr->head.softcap};
    a.targets = rows_from(&c->in[2], n0);
    a.nll = rows_from(&c->out[0], n0), a.lse = rows_from(&c->out[1], n0);
    if (h->dnll) a.dnll = rows_from(h->dnll, n0);
    a.temperature = 1.0f;
    if (h->teacher) {
        a.teacher = head_names_tokens(h) ? (mat){h->whole, h->ld} : rows_from(h->teacher, n0);
        a.known = rows_from(h->teacher, n0), a.tokens = rows_from(&c->in[5], n0);
        a.n_known = (int32_t)c->in[5].cols;
        a.distill = c->attr->head.distill, a.temperature = c->attr->head.temperature;
    }
    a.z_loss = c->attr->head.z_loss, a.weight = c->attr->head.weight,
    a.run = cuda_numbers(c->run->dev), a.grad = head_makes_gradients(h);
    uint32_t threads = GPU_WARP;
    while (threads < HEAD_THREADS && (int64_t)threads * HEAD_STEP < V) threads *= 2;
    if (a.tokens.p) launch(c, &head_known, (gpu_grid){(uint32_t)rows, 1, 1, threads, 0}, &a);
    launch(c, &head_rows, (gpu_grid){(uint32_t)rows, 1, 1, threads, 0}, &a);
}

/* The workspace: logits, those of a teacher that names its tokens, parts of dbias, and the products' own. */
static int64_t lay_out(head *h, void *ws, const op_attr *attr, bool names, int64_t N, int64_t V,
                       int64_t C) {
    int64_t chunk = head_chunk(attr, N, V);
    int64_t logits = align256(chunk * head_ld(V) * (int64_t)sizeof(float));
    int64_t parts = align256(column_sums_bytes(chunk, V)), named = names ? logits : 0;
    int64_t f = cuda_product_ws_bytes(chunk, V), dx = cuda_product_ws_bytes(chunk, C);
    int64_t dw = cuda_product_ws_bytes(V, C);
    if (h) {
        h->ld = head_ld(V);
        h->logits = ws;
        h->whole = (float *)((char *)ws + logits);
        h->parts = (float *)((char *)h->whole + named);
        h->product = (char *)h->parts + parts;
    }
    return logits + named + parts + (f > dx ? (f > dw ? f : dw) : (dx > dw ? dx : dw));
}

static void run_chunks(head h) {
    const op_call *c = h.c;
    int64_t N = c->in[0].rows, V = c->in[1].rows, chunk = head_chunk(c->attr, N, V);
    lay_out(&h, c->ws, c->attr, head_names_tokens(&h), N, V, c->in[0].cols);
    for (int64_t n0 = 0; n0 < N; n0 += chunk) {
        int64_t rows = N - n0 < chunk ? N - n0 : chunk;
        make_logits(&h, n0, rows);
        head_softmax(&h, n0, rows);
        if (h.dx.data) head_dx(&h, n0, rows);
        if (h.dw.data) head_dw(&h, n0, rows);
        if (h.dbias.data) head_dbias(&h, rows, n0 > 0 || op_accumulates(c, 3));
    }
}

static void head_fwd(const op_call *c) {
    run_chunks(head_forward(c));
}

static void head_bwd(const op_call *c) {
    run_chunks(head_backward(c));
}

static void head_workspace(const op_infer *io, int64_t ws[3]) {
    bool names = io->kind == OP_HEAD_DISTILL && io->in[5].rows > 0;
    ws[0] = lay_out(NULL, NULL, io->attr, names, io->in[0].rows, io->in[1].rows, io->in[0].cols);
    if (io->kind == OP_HEAD_NLL) ws[1] = ws[0];
}

const op_impl CUDA_IMPL(HEAD_CE) = {head_fwd, NULL, NULL, head_workspace};
const op_impl CUDA_IMPL(HEAD_DISTILL) = {head_fwd, NULL, NULL, head_workspace};
const op_impl CUDA_IMPL(HEAD_NLL) = {head_fwd, head_bwd, NULL, head_workspace};
#endif
