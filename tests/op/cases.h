/* The cases of the op matrix: for every op a function that appends cases of odd and boundary sizes.
 * A new row in ops.def does not compile here until it has a cases_ID. */
#ifndef TESTS_OP_CASES_H
#define TESTS_OP_CASES_H

#include "op/harness.h"

typedef struct case_list {
    op_case *items;
    int n, cap;
} case_list;

static inline op_case *case_add(case_list *l, op_kind kind) {
    op_case zero = {.kind = kind};
    VEC_PUSH(l->items, l->n, l->cap, zero);
    return &l->items[l->n - 1];
}

#define LABEL(c, ...) snprintf((c)->label, sizeof((c)->label), __VA_ARGS__)

/* Rows and columns around vector widths and block sizes. The last of each op's sizes is above the
 * size from which kernels use several threads. */
static const int64_t SIZES[][2] = {{1, 1},  {1, 64},  {2, 3},   {3, 16},
                                   {5, 33}, {33, 65}, {7, 257}, {130, 257}};

static void cases_EMBED(case_list *l) {
    static const int64_t sizes[][3] = {{1, 1, 1},   {7, 5, 3},    {33, 65, 17},
                                       {5, 64, 40}, {3, 40, 200}, {50, 65, 510}};
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        op_case *c = case_add(l, OP_EMBED);
        int64_t V = sizes[i][0], C = sizes[i][1], N = sizes[i][2];
        int32_t no_grad = i % 2 ? (int32_t)V / 2 : -1;
        LABEL(c, "embed V=%d C=%d N=%d no_grad_id=%d", (int)V, (int)C, (int)N, no_grad);
        c->attr.embed.no_grad_id = no_grad;
        c->in[0] = (slot){MATRIX, V, C, 0, 0};
        c->in[1] = (slot){INTEGERS, N, 1, V, 0};
        if (V < 7) continue;
        /* The same table as the middle of a larger one. */
        op_case *part = case_add(l, OP_EMBED);
        *part = l->items[l->n - 2];
        part->attr.embed.all_rows = 3 * V, part->attr.embed.first = (int32_t)V;
        part->attr.embed.no_grad_id = no_grad + (int32_t)V;
        part->in[1].limit = 3 * V;
        LABEL(part, "embed V=%d of %d C=%d N=%d no_grad_id=%d", (int)V, (int)(3 * V), (int)C,
              (int)N, (int)part->attr.embed.no_grad_id);
    }
}

/* All rows, some rows often, places that take none. */
static void cases_TAKE_ROWS(case_list *l) {
    static const int64_t sizes[][3] = {{1, 1, 1},    {7, 5, 3},     {33, 65, 17}, {5, 64, 40},
                                       {3, 40, 200}, {50, 65, 510}, {600, 33, 70}};
    for (int i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        op_case *c = case_add(l, OP_TAKE_ROWS);
        int64_t M = sizes[i / 2][0], C = sizes[i / 2][1], N = sizes[i / 2][2];
        LABEL(c, "take_rows M=%d C=%d N=%d zeros=%d", (int)M, (int)C, (int)N, i % 2);
        c->in[0] = (slot){ACTIVATION, M, C, 0, 0};
        c->in[1] = (slot){i % 2 ? TARGETS : INTEGERS, N, 1, M, 0};
    }
}

/* A row that lies a whole sequence further on, and several; with bounds of documents. */
static void cases_AHEAD(case_list *l) {
    static const int32_t sizes[][3] = {{1, 1, 1}, {2, 7, 1}, {3, 5, 2}, {2, 9, 9}, {7, 300, 3}};
    for (int i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i / 2];
        op_case *c = case_add(l, OP_AHEAD);
        c->attr.ahead.T = s[1], c->attr.ahead.by = s[2], c->attr.ahead.otherwise = i % 3 - 1;
        LABEL(c, "ahead B=%d T=%d by=%d start=%d", s[0], s[1], s[2], i % 2);
        c->in[0] = (slot){ACTIVATION, 1, 1, 0, 0};
        c->in[1] = (slot){TARGETS, s[0] * s[1], 1, 40, 0};
        if (i % 2) c->in[2] = (slot){STARTS, s[0] * s[1], 1, s[1], 0};
    }
}

static void cases_CONCAT(case_list *l) {
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {3, 5, 16}, {7, 33, 2}, {33, 64, 65}, {70, 257, 40}};
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        const int64_t *s = sizes[i];
        op_case *c = case_add(l, OP_CONCAT);
        LABEL(c, "concat N=%d A=%d B=%d", (int)s[0], (int)s[1], (int)s[2]);
        c->in[0] = (slot){ACTIVATION, s[0], s[1], 0, 0};
        c->in[1] = (slot){ACTIVATION, s[0], s[2], 0, 0};
    }
}

static void cases_LINEAR(case_list *l) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {1, 64, 64},   {3, 5, 7},    {17, 33, 65},
                                       {64, 64, 64},  {5, 257, 129}, {70, 96, 31}, {2, 16, 300},
                                       {131, 48, 80}, {290, 61, 121}};
    for (int i = 0; i < 3 * ARRAY_LEN(sizes); i++) {
        op_case *c = case_add(l, OP_LINEAR);
        int64_t N = sizes[i / 3][0], I = sizes[i / 3][1], O = sizes[i / 3][2];
        LABEL(c, "linear N=%d I=%d O=%d bias=%d res=%d", (int)N, (int)I, (int)O, i % 3 > 0,
              i % 3 == 2);
        c->heavy = N * I * O > 1000000;
        c->in[0] = (slot){ACTIVATION, N, I, 0, 0};
        c->in[1] = (slot){MATRIX, O, I, 0, 0};
        if (i % 3 > 0) c->in[2] = (slot){VECTOR, 1, O, 0, 0};
        if (i % 3 == 2) c->in[3] = (slot){ACTIVATION, N, O, 0, 0};
    }
    for (int i = 0, n = l->n; i < n; i += 2) {
        op_case *c = case_add(l, OP_LINEAR);
        *c = l->items[i];
        c->attr.linear.by_row = c->forward_only = true;
        snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " by row");
    }
    /* Logits of ranks that share a vocabulary. */
    for (int i = 0, n = l->n; i < n; i += 4) {
        if (l->items[i].in[3].rows) continue;
        op_case *c = case_add(l, OP_LINEAR);
        *c = l->items[i];
        c->attr.linear.exact = c->forward_only = true;
        snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " exact");
    }
}

/* Columns in eights, as cuBLASLt takes them, and not. */
static void cases_LINEAR_DGELU(case_list *l) {
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 8, 64},  {3, 64, 7},    {17, 33, 65},
                                       {64, 64, 64}, {70, 31, 1}, {290, 64, 121}};
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        op_case *c = case_add(l, OP_LINEAR_DGELU);
        int64_t N = sizes[i][0], I = sizes[i][1], O = sizes[i][2];
        LABEL(c, "linear_dgelu N=%d I=%d O=%d", (int)N, (int)I, (int)O);
        c->in[0] = (slot){ACTIVATION, N, O, 0, 0};
        c->in[1] = (slot){MATRIX, O, I, 0, 0};
        c->in[2] = (slot){ACTIVATION, N, I, 0, 3};
    }
}

static void cases_BIAS(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(SIZES); i++) {
        op_case *c = case_add(l, OP_BIAS);
        LABEL(c, "bias N=%d C=%d", (int)SIZES[i][0], (int)SIZES[i][1]);
        c->in[0] = (slot){ACTIVATION, SIZES[i][0], SIZES[i][1], 0, 0};
        c->in[1] = (slot){VECTOR, 1, SIZES[i][1], 0, 0};
    }
}

static inline bool has_case_of(const case_list *l, op_kind kind) {
    for (int i = 0; i < l->n; i++)
        if (l->items[i].kind == kind) return true;
    return false;
}

/* `inputs` activations of the same shape. The largest one once per op: it takes time. */
static void cases_elementwise(case_list *l, op_kind kind, int inputs, op_attr attr, int tag,
                              double scale) {
    int sizes = ARRAY_LEN(SIZES) - has_case_of(l, kind);
    for (int i = 0; i < sizes; i++) {
        op_case *c = case_add(l, kind);
        c->attr = attr;
        LABEL(c, "%s N=%d C=%d attr=%d", op_classes[kind].name, (int)SIZES[i][0], (int)SIZES[i][1],
              tag);
        for (int k = 0; k < inputs; k++)
            c->in[k] = (slot){ACTIVATION, SIZES[i][0], SIZES[i][1], 0, scale};
    }
}

static void cases_ADD(case_list *l) {
    cases_elementwise(l, OP_ADD, 2, (op_attr){0}, 0, 0);
}
static void cases_COPY(case_list *l) {
    cases_elementwise(l, OP_COPY, 1, (op_attr){0}, 0, 0);
}

/* Every other case from number `first` on has a residual as input `slot`, another half where `odd`. */
static void add_residuals(case_list *l, int first, int at, bool odd) {
    for (int i = first + odd; i < l->n; i += 2) {
        op_case *c = &l->items[i];
        c->in[at] = (slot){ACTIVATION, c->in[0].rows, c->in[0].cols, 0, 0};
        snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " res");
    }
}

static void cases_norm(case_list *l, op_kind kind, bool w, bool b, bool unit_offset) {
    op_attr attr = {.norm = {.eps = 1e-5f, .unit_offset = unit_offset}};
    int first = l->n;
    cases_elementwise(l, kind, 1, attr, w + 2 * b + 4 * unit_offset, 0);
    for (op_case *c = l->items + first; c < l->items + l->n; c++) {
        if (w) c->in[1] = (slot){VECTOR, 1, c->in[0].cols, 0, 0};
        if (b) c->in[2] = (slot){VECTOR, 1, c->in[0].cols, 0, 0};
    }
    add_residuals(l, first, kind == OP_LAYERNORM ? 3 : 2, w);
}

/* One norm per head: rows, heads, width. The largest once per op: it takes time. */
static void cases_norm_of_heads(case_list *l, op_kind kind, bool w, bool b, bool unit_offset) {
    static const int32_t sizes[][3] = {{1, 2, 1},   {3, 6, 5},   {3, 5, 16},
                                       {4, 3, 80},  {7, 4, 64},  {9, 3, 128},
                                       {5, 2, 256}, {2, 2, 300}, {130, 4, 64}};
    bool again = l->n > 0 && l->items[l->n - 1].attr.norm.width > 0;
    int first = l->n;
    for (int i = 0; i < ARRAY_LEN(sizes) - again; i++) {
        const int32_t *s = sizes[i];
        op_case *c = case_add(l, kind);
        c->attr.norm.eps = 1e-5f, c->attr.norm.unit_offset = unit_offset, c->attr.norm.width = s[2];
        LABEL(c, "%s N=%d heads=%d width=%d w=%d b=%d offset=%d", op_classes[kind].name, s[0], s[1],
              s[2], w, b, unit_offset);
        c->in[0] = (slot){ACTIVATION, s[0], s[1] * s[2], 0, 0};
        if (w) c->in[1] = (slot){VECTOR, 1, s[2], 0, 0};
        if (b) c->in[2] = (slot){VECTOR, 1, s[2], 0, 0};
    }
    add_residuals(l, first, kind == OP_LAYERNORM ? 3 : 2, w);
}

static void cases_RMSNORM(case_list *l) {
    cases_norm(l, OP_RMSNORM, true, false, false);
    cases_norm(l, OP_RMSNORM, true, false, true);
    cases_norm(l, OP_RMSNORM, false, false, false);
    cases_norm_of_heads(l, OP_RMSNORM, true, false, false);
    cases_norm_of_heads(l, OP_RMSNORM, true, false, true);
    cases_norm_of_heads(l, OP_RMSNORM, false, false, false);
}

static void cases_LAYERNORM(case_list *l) {
    cases_norm(l, OP_LAYERNORM, true, true, false);
    cases_norm(l, OP_LAYERNORM, true, false, false);
    cases_norm(l, OP_LAYERNORM, false, false, false);
    cases_norm(l, OP_LAYERNORM, false, true, false);
    cases_norm(l, OP_LAYERNORM, true, true, true);
    cases_norm_of_heads(l, OP_LAYERNORM, true, true, false);
    cases_norm_of_heads(l, OP_LAYERNORM, false, false, false);
}

static void cases_ROPE(case_list *l) {
    /* rows, heads, head_dim, rotary_dim, columns that pass through behind the heads */
    static const int32_t sizes[][5] = {{1, 1, 2, 2, 0},     {5, 3, 8, 8, 0},    {9, 2, 16, 6, 16},
                                       {3, 1, 10, 10, 3},   {33, 3, 64, 64, 0}, {4, 2, 34, 34, 1},
                                       {151, 3, 64, 48, 31}};
    for (int i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i / 2];
        op_case *c = case_add(l, OP_ROPE);
        c->attr.rope.heads = s[1], c->attr.rope.head_dim = s[2], c->attr.rope.rotary_dim = s[3];
        c->attr.rope.interleaved = i % 2;
        LABEL(c, "rope N=%d H=%d D=%d rotary=%d rest=%d interleaved=%d", s[0], s[1], s[2], s[3],
              s[4], i % 2);
        c->in[0] = (slot){ACTIVATION, s[0], s[1] * s[2] + s[4], 0, 0};
        c->in[1] = (slot){INTEGERS, s[0], 1, 40, 0};
        c->in[2] = (slot){ANGLES, 40, s[3], 0, 0};
    }
    /* The same where the rotated part is the last of a head, or in its middle. */
    for (int i = 0, n = l->n; i < n; i++) {
        if (l->items[i].kind != OP_ROPE) continue;
        op_case *c = case_add(l, OP_ROPE);
        *c = l->items[i];
        int32_t rest = c->attr.rope.head_dim - c->attr.rope.rotary_dim;
        c->attr.rope.first = i % 4 < 2 ? rest : rest / 2;
        snprintf(c->label + strlen(c->label), sizeof c->label - strlen(c->label), " from %d",
                 c->attr.rope.first);
    }
}

static void cases_NORM_ROPE(case_list *l) {
    /* rows, heads, head_dim, rotary_dim, first */
    static const int32_t sizes[][5] = {
        {1, 1, 2, 2, 0},     {5, 3, 8, 8, 0},    {9, 2, 16, 6, 3},     {3, 1, 10, 10, 0},
        {7, 3, 64, 64, 0},   {4, 2, 34, 20, 14}, {130, 3, 64, 32, 16}, {6, 2, 128, 64, 0},
        {2, 2, 300, 300, 0}, {3, 1, 256, 256, 0}};
    for (int i = 0; i < 4 * ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i / 4];
        op_case *c = case_add(l, OP_NORM_ROPE);
        c->attr.norm_rope.eps = 1e-5f, c->attr.norm_rope.unit_offset = i % 3 == 1;
        c->attr.norm_rope.head_dim = s[2], c->attr.norm_rope.rotary_dim = s[3];
        c->attr.norm_rope.first = s[4], c->attr.norm_rope.interleaved = i % 2;
        LABEL(c, "norm_rope N=%d H=%d D=%d rotary=%d from %d interleaved=%d #%d", s[0], s[1], s[2],
              s[3], s[4], i % 2, i);
        c->in[0] = (slot){ACTIVATION, s[0], s[1] * s[2], 0, 0};
        if (i % 4 < 3) c->in[1] = (slot){VECTOR, 1, s[2], 0, 0};
        c->in[2] = (slot){INTEGERS, s[0], 1, 40, 0};
        c->in[3] = (slot){ANGLES, 40, s[3], 0, 0};
    }
}

/* Tokens, heads, columns of a key without position and of a value, columns that heads share. */
static void cases_LATENT_KV(case_list *l) {
    static const int32_t sizes[][5] = {{1, 1, 1, 1, 1},    {5, 3, 8, 8, 4},     {9, 2, 17, 5, 3},
                                       {33, 4, 16, 32, 8}, {130, 5, 24, 20, 7}, {7, 1, 65, 0, 16}};
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i];
        op_case *c = case_add(l, OP_LATENT_KV);
        c->attr.heads = (op_heads){.heads = s[1], .D = s[2], .Dv = s[3]};
        LABEL(c, "latent_kv N=%d H=%d D=%d Dv=%d rope=%d", s[0], s[1], s[2], s[3], s[4]);
        c->in[0] = (slot){ACTIVATION, s[0], s[1] * (s[2] + s[3]), 0, 0};
        c->in[1] = (slot){ACTIVATION, s[0], s[4], 0, 0};
    }
}

/* Tokens, heads, columns in and out, tail; rows of w from head to head beyond those used, before them. */
static void cases_HEADWISE(case_list *l) {
    static const int32_t sizes[][7] = {{1, 1, 1, 1, 0, 0, 0},     {3, 2, 5, 7, 2, 3, 1},
                                       {2, 3, 16, 64, 8, 16, 0},  {40, 4, 33, 65, 0, 5, 5},
                                       {67, 3, 48, 20, 17, 0, 0}, {1, 4, 128, 300, 32, 64, 0}};
    for (int i = 0; i < 4 * ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i / 4];
        op_case *c = case_add(l, OP_HEADWISE);
        op_heads a = {.heads = s[1], .in = s[2], .out = s[3], .tail = s[4], .first = s[6]};
        a.turned = i % 2, a.zero = i & 2;
        int32_t used = a.turned ? a.in : a.out;
        a.step = i % 3 == 2 ? 0 : used + s[5];
        c->attr.heads = a;
        LABEL(c, "headwise N=%d H=%d %d to %d tail=%d zero=%d step=%d turned=%d", s[0], a.heads,
              a.in, a.out, a.tail, a.zero, a.step, a.turned);
        c->in[0] = (slot){ACTIVATION, s[0], a.heads * (a.in + a.tail), 0, 0};
        c->in[1] = (slot){MATRIX, (a.heads - 1) * a.step + a.first + used + 2,
                          a.turned ? a.out : a.in, 0, 0};
    }
}

typedef struct attention_case {
    int32_t B, Tq, Tk, H, K, D, Dv, window;
    bool causal;
    fill start;
    bool qpos; /* queries are the last Tq positions */
    float dropout;
} attention_case;

static const attention_case ATTENTION_CASES[] = {
    {1, 1, 1, 1, 1, 1, 1, 0, true, ABSENT, false, 0},
    {2, 7, 7, 2, 2, 8, 8, 0, true, ABSENT, false, 0},
    {2, 7, 7, 4, 2, 16, 16, 0, true, STARTS, false, 0},
    {1, 33, 33, 3, 1, 5, 5, 0, true, STARTS, false, 0},
    {1, 65, 65, 2, 1, 64, 64, 0, true, STARTS, false, 0},
    {1, 130, 130, 1, 1, 32, 32, 0, true, ABSENT, false, 0},
    {2, 16, 16, 2, 1, 16, 16, 4, true, STARTS, false, 0},
    {1, 21, 21, 2, 2, 12, 12, 5, false, ABSENT, false, 0},
    {1, 9, 14, 2, 2, 8, 8, 0, false, ABSENT, false, 0},
    {2, 1, 37, 4, 2, 16, 16, 0, true, ABSENT, true, 0},
    {2, 5, 20, 4, 4, 8, 12, 0, true, ABSENT, true, 0},
    {1, 5, 20, 2, 1, 24, 16, 7, true, ABSENT, true, 0},
    {2, 12, 12, 2, 2, 16, 16, 0, true, BLIND, false, 0},
    {2, 12, 12, 4, 2, 16, 16, 0, true, STARTS, false, 0.25f},
    {1, 35, 35, 2, 2, 48, 48, 0, false, ABSENT, false, 0.5f},
    {1, 4, 4, 1, 1, 128, 128, 0, true, ABSENT, false, 0},
    {6, 40, 40, 2, 1, 16, 16, 0, true, ABSENT, false, 0},
    {1, 260, 260, 4, 1, 64, 64, 0, true, ABSENT, false, 0},
    {2, 100, 100, 6, 2, 64, 64, 0, true, STARTS, false, 0},
    {1, 129, 129, 3, 1, 80, 40, 0, true, ABSENT, false, 0},
    {1, 70, 70, 4, 1, 24, 24, 0, true, STARTS, false, 0.2f},
    /* one query */
    {2, 1, 40, 4, 2, 20, 12, 9, true, ABSENT, true, 0},
    {3, 1, 33, 2, 1, 64, 64, 0, false, BLIND, false, 0},
    {1, 1, 20, 2, 1, 8, 8, 0, false, ABSENT, false, 0.25f},
    {1, 1, 1101, 32, 1, 32, 32, 0, true, ABSENT, true, 0},
    /* several spans of queries and blocks of keys */
    {1, 600, 600, 2, 1, 8, 16, 0, true, STARTS, false, 0},
    {1, 300, 300, 1, 1, 16, 8, 150, true, STARTS, false, 0.1f},
    {1, 290, 550, 2, 1, 20, 8, 200, true, ABSENT, true, 0},
    /* heads of two sizes of a GPU's tiles, and too large for its shared memory */
    {1, 40, 40, 4, 2, 128, 128, 0, true, STARTS, false, 0},
    {1, 50, 70, 2, 1, 96, 112, 20, true, ABSENT, true, 0.1f},
    {2, 1, 300, 4, 2, 128, 128, 0, true, ABSENT, true, 0},
    {1, 17, 17, 1, 1, 600, 520, 0, true, ABSENT, false, 0},
    /* between these: values smaller than keys, and keys and values that do not both fit into registers */
    {1, 40, 40, 4, 2, 192, 128, 0, true, STARTS, false, 0},
    {1, 70, 90, 1, 1, 136, 72, 30, true, ABSENT, true, 0.1f},
    {1, 72, 72, 2, 1, 256, 256, 0, true, STARTS, false, 0},
    {1, 36, 50, 2, 1, 144, 232, 20, true, ABSENT, true, 0.1f},
    {1, 1, 300, 4, 2, 192, 128, 0, true, ABSENT, true, 0},
    {1, 1, 300, 4, 2, 256, 256, 0, true, ABSENT, true, 0},
    /* the query of the last sequence sees no key */
    {3, 1, 2, 2, 1, 64, 64, 0, false, BLIND, false, 0},
};

/* Which of these also run with softcap, and which. */
static const struct {
    int index;
    float cap;
} CAPPED_CASES[] = {{0, 1},     {2, 0.5f},  {3, 2},     {6, 0.7f},  {7, 1},     {9, 1},
                    {11, 0.6f}, {12, 50},   {13, 1},    {15, 0.3f}, {19, 1},    {21, 0.5f},
                    {22, 1},    {23, 0.7f}, {26, 0.6f}, {29, 0.6f}, {33, 0.6f}, {35, 1}};

static void add_attention(case_list *l, int i, float cap) {
    const attention_case *a = &ATTENTION_CASES[i];
    op_case *c = case_add(l, OP_ATTENTION);
    LABEL(c, "attention #%d B=%d Tq=%d Tk=%d H=%d K=%d D=%d Dv=%d cap=%g", i, a->B, a->Tq, a->Tk,
          a->H, a->K, a->D, a->Dv, (double)cap);
    double work = (double)a->B * a->H * a->Tq * a->Tk * (a->D + a->Dv);
    c->heavy = work > 2e5 || a->D > 256;
    c->attr.attention.softcap = cap;
    c->attr.attention.B = a->B, c->attr.attention.Tq = a->Tq, c->attr.attention.Tk = a->Tk;
    c->attr.attention.H = a->H, c->attr.attention.K = a->K;
    c->attr.attention.D = a->D, c->attr.attention.Dv = a->Dv;
    c->attr.attention.scale = 1.0f / sqrtf((float)a->D);
    c->attr.attention.window = a->window, c->attr.attention.causal = a->causal;
    c->attr.attention.dropout = a->dropout, c->attr.attention.stream = 3;
    c->in[0] = (slot){ACTIVATION, a->B * a->Tq, a->H * a->D, 0, 0};
    c->in[1] = (slot){ACTIVATION, a->B * a->Tk, a->K * a->D, 0, 0};
    c->in[2] = (slot){ACTIVATION, a->B * a->Tk, a->K * a->Dv, 0, 0};
    if (a->start != ABSENT) c->in[3] = (slot){a->start, a->B * a->Tq, 1, a->Tq, 0};
    if (a->qpos) c->in[4] = (slot){LATEST, a->B, 1, a->Tk - a->Tq, 0};
}

/* The same keys and values a head after the other, as f16 where the program is f32. */
static void add_cached_attention(case_list *l, int i, fill cache) {
    const attention_case *a = &ATTENTION_CASES[i];
    add_attention(l, i, 0);
    op_case *c = &l->items[l->n - 1];
    LABEL(c, "attention #%d with a cache%s", i, cache == CACHE ? " of f16" : "");
    c->attr.attention.by_head = c->forward_only = true;
    c->in[1] = (slot){cache, a->B * a->K * a->Tk, a->D, 0, 0};
    c->in[2] = (slot){cache, a->B * a->K * a->Tk, a->Dv, 0, 0};
}

/* With a bias of W rows by distance, of which `zero` is that of distance 0, and with ends of keys. */
static void add_biased_attention(case_list *l, int i, int64_t W, int32_t zero, float cap,
                                 bool ends) {
    const attention_case *a = &ATTENTION_CASES[i];
    add_attention(l, i, cap);
    op_case *c = &l->items[l->n - 1];
    LABEL(c, "attention #%d with a bias of %d rows, zero=%d cap=%g ends=%d", i, (int)W, zero,
          (double)cap, ends);
    c->attr.attention.bias_zero = zero;
    if (W) c->in[6] = (slot){ACTIVATION, W, a->H, 0, 0};
    if (ends) c->in[5] = (slot){INTEGERS, a->B * a->Tq, 1, a->Tk + 2, 0};
}

/* With pieces of positions, sinks, or both. */
static void add_limited_attention(case_list *l, int i, int32_t chunk, bool sinks) {
    char more[32];
    op_case *c = &l->items[l->n - 1];
    c->attr.attention.chunk = chunk;
    if (sinks) c->in[ATTENTION_SINKS] = (slot){VECTOR, 1, ATTENTION_CASES[i].H, 0, 0};
    snprintf(more, sizeof more, " chunk=%d%s", chunk, sinks ? " sinks" : "");
    strcat(c->label, more);
}

static void cases_ATTENTION(case_list *l) {
    static const int limited[] = {0, 2, 3, 6, 7, 9, 11, 12, 13, 17, 21, 22, 24, 26, 27, 29, 32, 35};
    static const struct {
        int index, W, zero;
        float cap;
        bool ends;
    } biased[] = {{0, 1, 0, 0, false},     {1, 3, 1, 0, true},       {2, 9, 0, 0, false},
                  {3, 40, 3, 0, true},     {7, 21, 10, 0.7f, true},  {8, 5, 4, 0, true},
                  {9, 30, 0, 0, false},    {10, 7, 2, 0, false},     {11, 40, 20, 0.6f, false},
                  {12, 8, 3, 0, true},     {13, 13, 6, 0, true},     {14, 35, 17, 0, false},
                  {18, 65, 32, 0, true},   {19, 257, 128, 0, false}, {22, 33, 16, 0, true},
                  {24, 129, 0, 0, false},  {26, 200, 100, 1, true},  {8, 0, 0, 0, true},
                  {21, 12, 3, 0.5f, true}, {16, 41, 40, 0, true}};
    for (int i = 0; i < ARRAY_LEN(biased); i++) {
        add_biased_attention(l, biased[i].index, biased[i].W, biased[i].zero, biased[i].cap,
                             biased[i].ends);
        if (i % 4 == 1) add_limited_attention(l, biased[i].index, 3 + i, i % 8 == 1);
    }
    static const int cached[] = {2, 3, 9, 10, 11, 12, 19, 21, 22, 23, 24, 30, 36, 37};
    for (int i = 0; i < ARRAY_LEN(ATTENTION_CASES); i++) add_attention(l, i, 0);
    for (int i = 0; i < ARRAY_LEN(CAPPED_CASES); i++)
        add_attention(l, CAPPED_CASES[i].index, CAPPED_CASES[i].cap);
    for (int i = 0; i < 2 * ARRAY_LEN(cached); i++)
        add_cached_attention(l, cached[i / 2], i % 2 ? CACHE : ACTIVATION);
    for (int i = 0; i < ARRAY_LEN(limited); i++) {
        add_attention(l, limited[i], i % 5 == 4 ? 0.7f : 0);
        add_limited_attention(l, limited[i], i % 3 == 1 ? 0 : 3 + 8 * (i % 4), i % 3 > 0);
    }
    for (int i = 0; i < ARRAY_LEN(cached); i++) {
        add_cached_attention(l, cached[i], i % 2 ? CACHE : ACTIVATION);
        add_limited_attention(l, cached[i], 5 + 20 * (i % 3), i % 2);
    }
}

/* B, T, key heads, value heads, and their widths. */
static const int32_t DELTAS[][6] = {{1, 1, 1, 1, 1, 1},    {2, 7, 1, 2, 4, 6},
                                    {1, 33, 2, 2, 8, 8},   {2, 21, 1, 3, 16, 24},
                                    {1, 70, 2, 4, 32, 16}, {1, 130, 1, 1, 40, 33}};

static op_case *delta_case(case_list *l, op_kind kind, int i, int first) {
    const int32_t *s = DELTAS[i];
    op_case *c = case_add(l, kind);
    op_delta d = {.B = s[0], .T = s[1], .Hk = s[2], .Hv = s[3], .Dk = s[4], .Dv = s[5]};
    d.q_scale = 0.8f, d.k_scale = 1.0f / sqrtf((float)d.Dk); /* keys of length 1 at most */
    LABEL(c, "%s B=%d T=%d Hk=%d Hv=%d Dk=%d Dv=%d", op_classes[kind].name, s[0], s[1], s[2], s[3],
          s[4], s[5]);
    c->attr.delta = d;
    c->heavy = (int64_t)d.B * d.T * d.Hv * d.Dk * d.Dv > 10000;
    c->in[first] = (slot){ACTIVATION, d.B * d.T, 2 * d.Hk * d.Dk, 0, 1.2};
    c->in[first + 1] = (slot){ACTIVATION, d.B * d.T, d.Hv * d.Dv, 0, 0};
    c->in[first + 2] = (slot){GATES, d.B * d.T, 2 * d.Hv, 0, 0};
    return c;
}

static void cases_DELTA(case_list *l) {
    for (int i = 0; i < 2 * ARRAY_LEN(DELTAS); i++) {
        op_case *c = delta_case(l, OP_DELTA, i / 2, 0);
        int64_t T = DELTAS[i / 2][1];
        if (i % 2) c->in[3] = (slot){STARTS, DELTAS[i / 2][0] * T, 1, T, 0};
    }
}

static void cases_DELTA_STATE(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(DELTAS); i++) {
        op_case *c = delta_case(l, OP_DELTA_STATE, i, 1);
        op_delta d = c->attr.delta;
        c->in[0] = (slot){VECTOR, d.B * d.Hv * d.Dk, d.Dv, 0, 0};
        c->in[4] = (slot){SPANS, d.B, 2, d.T, 0};
    }
    for (int i = 0; i < 2; i++) { /* one row */
        op_case *c = case_add(l, OP_DELTA_STATE);
        *c = l->items[l->n - 3 - i];
        c->attr.delta.T = 1, c->attr.delta.B = 2;
        for (int k = 1; k < 4; k++) c->in[k].rows = 2;
        c->in[0].rows = 2 * (int64_t)c->attr.delta.Hv * c->attr.delta.Dk;
        c->in[4] = (slot){SPANS, 2, 2, 1, 0};
        strcat(c->label, " one row");
    }
    for (int i = 1; i < ARRAY_LEN(DELTAS); i++) { /* three sequences share the rows */
        op_case *c = delta_case(l, OP_DELTA_STATE, i, 1);
        op_delta *d = &c->attr.delta;
        d->B = 3, d->by_row = true;
        for (int k = 1; k < 4; k++) c->in[k].rows = d->T;
        c->in[0] = (slot){VECTOR, 3 * (int64_t)d->Hv * d->Dk, d->Dv, 0, 0};
        c->in[4] = (slot){PIECES, 3, 3, d->T, 0};
        strcat(c->label, " by row");
    }
}

static void cases_DELTA_GATES(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(SIZES); i++) {
        op_case *c = case_add(l, OP_DELTA_GATES);
        int64_t N = SIZES[i][0], H = SIZES[i][1];
        LABEL(c, "delta_gates N=%d H=%d", (int)N, (int)H);
        c->in[0] = (slot){ACTIVATION, N, 2 * H, 0, 0};
        c->in[1] = c->in[2] = (slot){VECTOR, 1, H, 0, 0};
    }
}

/* B, T, columns, taps */
static const int32_t CONVS[][4] = {{1, 1, 1, 2},  {2, 7, 5, 4},    {1, 33, 16, 3},
                                   {3, 2, 40, 4}, {1, 65, 133, 4}, {2, 130, 257, 4}};

static op_case *conv_case(case_list *l, op_kind kind, int i, int first) {
    const int32_t *s = CONVS[i];
    op_case *c = case_add(l, kind);
    LABEL(c, "%s B=%d T=%d C=%d W=%d", op_classes[kind].name, s[0], s[1], s[2], s[3]);
    c->attr.conv.B = s[0], c->attr.conv.T = s[1], c->attr.conv.W = s[3];
    c->heavy = s[0] * s[1] * s[2] > 10000;
    c->in[first] = (slot){ACTIVATION, s[0] * s[1], s[2], 0, 0};
    c->in[first + 1] = (slot){VECTOR, 1, s[2] * s[3], 0, 0};
    return c;
}

static void cases_CONV(case_list *l) {
    for (int i = 0; i < 2 * ARRAY_LEN(CONVS); i++) {
        op_case *c = conv_case(l, OP_CONV, i / 2, 0);
        if (i % 2) c->in[2] = (slot){STARTS, c->in[0].rows, 1, c->attr.conv.T, 0};
    }
}

static void cases_CONV_STATE(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(CONVS); i++) {
        op_case *c = conv_case(l, OP_CONV_STATE, i, 1);
        int64_t B = c->attr.conv.B;
        c->in[0] = (slot){ACTIVATION, B * (c->attr.conv.W - 1), c->in[1].cols, 0, 0};
        c->in[3] = (slot){SPANS, B, 2, c->attr.conv.T, 0};
    }
    for (int i = 1; i < ARRAY_LEN(CONVS); i++) { /* four sequences share the rows */
        op_case *c = conv_case(l, OP_CONV_STATE, i, 1);
        c->attr.conv.B = 4, c->attr.conv.by_row = true;
        c->in[1].rows = c->attr.conv.T;
        c->in[0] = (slot){ACTIVATION, 4 * (c->attr.conv.W - 1), c->in[1].cols, 0, 0};
        c->in[3] = (slot){PIECES, 4, 3, c->attr.conv.T, 0};
        strcat(c->label, " by row");
    }
}

static void cases_ACT(case_list *l) {
    for (int kind = ACT_GELU_TANH; kind <= ACT_SIGMOID; kind++)
        cases_elementwise(l, OP_ACT, 1, (op_attr){.act = {.kind = (act_kind)kind}}, kind, 6);
    for (int kind = ACT_SOFTCAP; kind <= ACT_CLAMP; kind++)
        cases_elementwise(l, OP_ACT, 1, (op_attr){.act = {(act_kind)kind, 2.3f}}, kind, 6);
}

static void cases_SCALE(case_list *l) {
    int first = l->n;
    cases_elementwise(l, OP_SCALE, 1, (op_attr){.scale = {.c = -0.37f}}, 37, 0);
    cases_elementwise(l, OP_SCALE, 1, (op_attr){.scale = {.c = 0.7f}}, 70, 0);
    add_residuals(l, first, 1, false);
}

static void cases_FILL(case_list *l) {
    for (int i = 0; i < 2 * ARRAY_LEN(SIZES); i++) {
        op_case *c = case_add(l, OP_FILL);
        const int64_t *s = SIZES[i / 2];
        c->attr.fill.c = -1.7f, c->attr.fill.scaled = i % 2;
        LABEL(c, "fill N=%d C=%d scaled=%d", (int)s[0], (int)s[1], i % 2);
        c->in[0] = (slot){i % 2 ? VECTOR : ACTIVATION, s[0], s[1], 0, 0};
    }
}

static void cases_GATED(case_list *l) {
    for (int kind = ACT_GELU_TANH; kind <= ACT_SIGMOID; kind++)
        cases_elementwise(l, OP_GATED, 2, (op_attr){.act = {.kind = (act_kind)kind}}, kind, 4);
}

static void cases_DROPOUT(case_list *l) {
    int first = l->n;
    cases_elementwise(l, OP_DROPOUT, 1, (op_attr){.dropout = {.p = 0.3f, .stream = 9}}, 30, 0);
    cases_elementwise(l, OP_DROPOUT, 1, (op_attr){.dropout = {.p = 0, .stream = 9}}, 0, 0);
    op_attr rows_of_more = {
        .dropout = {.p = 0.3f, .stream = 9, .all_rows = 1000, .first_row = 130}};
    cases_elementwise(l, OP_DROPOUT, 1, rows_of_more, 31, 0);
    op_attr columns_of_more = {
        .dropout = {.p = 0.3f, .stream = 9, .all_cols = 1001, .first_col = 130}};
    cases_elementwise(l, OP_DROPOUT, 1, columns_of_more, 32, 0);
    add_residuals(l, first, 1, false);
}

static void cases_HEAD_CE(case_list *l) {
    /* N, C, V, chunk_rows */
    static const int64_t sizes[][4] = {{1, 1, 2, 0},     {3, 5, 7, 1},    {17, 33, 65, 4},
                                       {40, 64, 64, 16}, {9, 20, 300, 0}, {33, 48, 257, 32},
                                       {111, 66, 301, 0}};
    for (int i = 0; i < 4 * ARRAY_LEN(sizes); i++) {
        const int64_t *s = sizes[i / 4];
        op_case *c = case_add(l, OP_HEAD_CE);
        c->attr.head.chunk_rows = s[3], c->attr.head.with_grad = i % 2;
        c->attr.head.z_loss = i & 2 ? 0.01f : 0, c->attr.head.weight = i & 2 ? 0.3f : 1;
        LABEL(c, "head_ce N=%d C=%d V=%d chunk=%d grad=%d z=%d", (int)s[0], (int)s[1], (int)s[2],
              (int)s[3], i % 2, (i & 2) / 2);
        c->in[0] = (slot){ACTIVATION, s[0], s[1], 0, 0};
        c->in[1] = (slot){MATRIX, s[2], s[1], 0, 2.0 / sqrt((double)s[1])};
        c->in[2] = (slot){s[0] > 1 ? TARGETS : INTEGERS, s[0], 1, s[2], 0};
    }
    /* The last ones again: with bias, with softcap, with both (and without gradients). */
    for (int k = 0, n = l->n; k < 4; k++) {
        for (int i = n - 4 * ARRAY_LEN(sizes) + 1; i < n; i += 4) {
            op_case *c = case_add(l, OP_HEAD_CE);
            *c = l->items[i + 2 * (k % 2)];
            if (k != 1) c->in[3] = (slot){VECTOR, 1, c->in[1].rows, 0, 0};
            if (k >= 1) c->attr.head.softcap = 1.3f;
            if (k == 3) c->attr.head.with_grad = false;
            LABEL(c, "head_ce N=%d C=%d V=%d bias=%d softcap=%g", (int)c->in[0].rows,
                  (int)c->in[0].cols, (int)c->in[1].rows, k != 1, (double)c->attr.head.softcap);
        }
    }
}

/* With and without bias, softcap, gradients and z_loss. */
static void cases_HEAD_DISTILL(case_list *l) {
    static const int64_t sizes[][4] = {{1, 1, 2, 0},    {3, 5, 7, 1},      {17, 33, 65, 4},
                                       {9, 20, 300, 0}, {33, 48, 257, 32}, {2, 6, 9001, 0}};
    for (int i = 0; i < 4 * ARRAY_LEN(sizes); i++) {
        const int64_t *s = sizes[i / 4];
        op_case *c = case_add(l, OP_HEAD_DISTILL);
        c->attr.head.chunk_rows = s[3], c->attr.head.with_grad = i % 4 != 3;
        c->attr.head.z_loss = i % 2 ? 0.01f : 0, c->attr.head.softcap = i & 2 ? 1.3f : 0;
        c->attr.head.weight = i & 2 ? 0.3f : 1;
        c->attr.head.distill = i % 3 ? 0.6f : 1.0f, c->attr.head.temperature = i % 5 ? 2.5f : 0.8f;
        LABEL(c, "head_distill N=%d C=%d V=%d chunk=%d %d", (int)s[0], (int)s[1], (int)s[2],
              (int)s[3], i);
        c->heavy = s[2] > 1000;
        c->in[0] = (slot){ACTIVATION, s[0], s[1], 0, 0};
        c->in[1] = (slot){MATRIX, s[2], s[1], 0, 2.0 / sqrt((double)s[1])};
        c->in[2] = (slot){s[0] > 1 ? TARGETS : INTEGERS, s[0], 1, s[2], 0};
        if (i % 3) c->in[3] = (slot){VECTOR, 1, s[2], 0, 0};
        c->in[4] = (slot){VECTOR, s[0], s[2], 0, 3};
        if (i % 4 == 1) continue;
        /* The same of a teacher that names some of its tokens, maybe one twice. */
        op_case *some = case_add(l, OP_HEAD_DISTILL);
        *some = l->items[l->n - 2];
        int64_t k = 1 + s[2] / (1 + i % 3);
        some->in[4].cols = k;
        some->in[5] = (slot){INTEGERS, s[0], k, s[2], 0};
        snprintf(some->label + strlen(some->label), sizeof some->label - strlen(some->label),
                 " tokens=%d", (int)k);
    }
}

/* With and without bias and softcap. */
static void cases_HEAD_NLL(case_list *l) {
    static const int64_t sizes[][4] = {{1, 1, 2, 0},     {3, 5, 7, 1},    {17, 33, 65, 4},
                                       {40, 64, 64, 16}, {9, 20, 300, 0}, {33, 48, 257, 32},
                                       {111, 66, 301, 0}};
    for (int i = 0; i < 4 * ARRAY_LEN(sizes); i++) {
        const int64_t *s = sizes[i / 4];
        op_case *c = case_add(l, OP_HEAD_NLL);
        c->attr.head.chunk_rows = s[3], c->attr.head.softcap = i & 2 ? 1.3f : 0;
        LABEL(c, "head_nll N=%d C=%d V=%d chunk=%d bias=%d softcap=%g", (int)s[0], (int)s[1],
              (int)s[2], (int)s[3], i % 2, (double)c->attr.head.softcap);
        c->heavy = s[0] * s[1] * s[2] > 1000000;
        c->in[0] = (slot){ACTIVATION, s[0], s[1], 0, 0};
        c->in[1] = (slot){MATRIX, s[2], s[1], 0, 2.0 / sqrt((double)s[1])};
        c->in[2] = (slot){s[0] > 1 ? TARGETS : INTEGERS, s[0], 1, s[2], 0};
        if (i % 2) c->in[3] = (slot){VECTOR, 1, s[2], 0, 0};
    }
}

/* Logits `first` and on of a vocabulary of 2 V + 3; the stats of HEAD_GRAD are of 3 ranks. */
static void cases_of_part(case_list *l, op_kind kind, bool grad, float softcap, bool dnll) {
    static const int64_t sizes[][2] = {{1, 2}, {3, 7}, {17, 65}, {9, 300}, {111, 301}};
    for (int i = 0; i < ARRAY_LEN(sizes); i++) {
        int64_t N = sizes[i][0], V = sizes[i][1];
        op_case *c = case_add(l, kind);
        c->attr.head.with_grad = grad, c->attr.head.softcap = softcap;
        c->attr.head.z_loss = i % 2 ? 0.01f : 0, c->attr.head.weight = i % 2 ? 0.3f : 1;
        c->attr.head.all_rows = (int32_t)(2 * V + 3), c->attr.head.first = (int32_t)(i % 3 * V / 2);
        LABEL(c, "%s N=%d V=%d first=%d grad=%d softcap=%g dnll=%d", op_classes[kind].name, (int)N,
              (int)V, (int)c->attr.head.first, grad, (double)softcap, dnll);
        c->in[0] = (slot){VECTOR, N, V, 0, kind == OP_HEAD_GRAD && softcap > 0 ? softcap : 0};
        c->in[1] = (slot){N > 1 ? TARGETS : INTEGERS, N, 1, 2 * V + 3, 0};
        if (kind == OP_HEAD_GRAD) c->in[2] = (slot){LIKE_STATS, 3 * N, OP_HEAD_STATS_COLS, 0, 0};
        if (dnll) c->in[3] = (slot){VECTOR, N, 1, 0, 0};
    }
}

static void cases_HEAD_STATS(case_list *l) {
    cases_of_part(l, OP_HEAD_STATS, false, 0, false);
    cases_of_part(l, OP_HEAD_STATS, false, 1.3f, false);
}

static void cases_HEAD_GRAD(case_list *l) {
    for (int dnll = 0; dnll < 2; dnll++) {
        cases_of_part(l, OP_HEAD_GRAD, true, 0, dnll);
        cases_of_part(l, OP_HEAD_GRAD, true, 1.3f, dnll);
    }
    cases_of_part(l, OP_HEAD_GRAD, false, 0, false);
}

/* Collectives need ranks: test_comm.c. */
static void no_cases(case_list *l) {
    (void)l;
}
#define cases_FAN_OUT no_cases
#define cases_ALL_REDUCE no_cases
#define cases_GATHER_ROWS no_cases
#define cases_SCATTER_SUM no_cases
#define cases_GATHER_COLS no_cases
#define cases_GATHER_KV no_cases
#define cases_SPLIT_HEADS no_cases
#define cases_JOIN_HEADS no_cases
#define cases_RING_ATTENTION no_cases
#define cases_EXPERT_RANKS no_cases
#define cases_GATHER_LINEAR no_cases
#define cases_LINEAR_SUM no_cases
#define cases_RMSNORM_RANKS no_cases
#define cases_LAYERNORM_RANKS no_cases

static void cases_KV_STORE(case_list *l) {
    static const int32_t sizes[][5] = {
        {1, 1, 1, 1, 1}, {2, 1, 9, 1, 5}, {3, 4, 11, 2, 32}, {2, 7, 7, 3, 11}};
    for (int i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i / 2];
        op_case *c = case_add(l, OP_KV_STORE);
        c->attr.kv.B = s[0], c->attr.kv.T = s[1], c->attr.kv.Tmax = s[2], c->attr.kv.K = s[3];
        LABEL(c, "kv_store B=%d T=%d Tmax=%d K=%d D=%d%s", s[0], s[1], s[2], s[3], s[4],
              i % 2 ? " f16" : "");
        c->in[0] = (slot){i % 2 ? CACHE : ACTIVATION, s[0] * s[3] * s[2], s[4], 0, 0};
        c->in[1] = (slot){ACTIVATION, s[0] * s[1], s[3] * s[4], 0, 0};
        c->in[2] = (slot){INTEGERS, s[0], 1, s[2] - s[1] + 1, 0};
    }
}

/* pages, page, K, D, rows */
static void cases_PAGE_STORE(case_list *l) {
    static const int32_t sizes[][5] = {
        {1, 1, 1, 1, 1}, {3, 4, 1, 5, 9}, {5, 8, 2, 32, 7}, {4, 6, 3, 11, 23}};
    for (int i = 0; i < 4 * ARRAY_LEN(sizes); i++) {
        const int32_t *s = sizes[i / 4];
        bool turned = i & 2;
        op_case *c = case_add(l, OP_PAGE_STORE);
        c->attr.paged = (op_paged){.page = s[1], .K = s[2], .turned = turned};
        LABEL(c, "page_store pages=%d page=%d K=%d D=%d rows=%d%s%s", s[0], s[1], s[2], s[3], s[4],
              i % 2 ? " f16" : "", turned ? " turned" : "");
        c->in[0] = (slot){i % 2 ? CACHE : ACTIVATION, s[0] * s[2] * (turned ? s[3] : s[1]),
                          turned ? s[1] : s[3], 0, 0};
        c->in[1] = (slot){ACTIVATION, s[4], s[2] * s[3], 0, 0};
        c->in[2] = (slot){SOME, s[4], 1, s[0] * s[1], 0};
    }
}

/* Three sequences whose pages lie anywhere in a cache of more pages. */
static void cases_PAGE_ATTENTION(case_list *l) {
    static const struct {
        int32_t page, of_seq, H, K, D, Dv, rows, window;
        float softcap;
    } sizes[] = {{1, 1, 1, 1, 1, 1, 2, 0, 0},       {4, 3, 2, 1, 5, 3, 9, 0, 0},
                 {8, 5, 6, 2, 32, 32, 17, 0, 1.5f}, {16, 9, 9, 3, 64, 64, 40, 0, 0},
                 {32, 6, 4, 4, 80, 48, 21, 50, 0},  {32, 12, 16, 2, 128, 128, 70, 0, 0},
                 {32, 4, 5, 1, 24, 24, 33, 7, 0.7f}};
    static const int32_t chunks[] = {0, 5, 0, 40};
    for (int i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        int64_t tokens = (int64_t)sizes[i / 2].page * sizes[i / 2].of_seq, rows = sizes[i / 2].rows;
        op_case *c = case_add(l, OP_PAGE_ATTENTION);
        op_paged a = {.page = sizes[i / 2].page,
                      .H = sizes[i / 2].H,
                      .K = sizes[i / 2].K,
                      .D = sizes[i / 2].D,
                      .Dv = sizes[i / 2].Dv,
                      .window = sizes[i / 2].window,
                      .chunk = chunks[i % 4],
                      .scale = 0.3f,
                      .softcap = sizes[i / 2].softcap};
        int64_t pages = 3 * sizes[i / 2].of_seq + 1;
        if (pages % 7 == 0) pages++;
        c->attr.paged = a;
        c->heavy = i >= 6;
        LABEL(c, "page_attention page=%d of %d H=%d K=%d D=%d Dv=%d rows=%d window=%d chunk=%d%s",
              a.page, sizes[i / 2].of_seq, a.H, a.K, a.D, a.Dv, (int)rows, a.window, a.chunk,
              i % 2 ? " f16" : "");
        c->in[0] = (slot){ACTIVATION, rows, a.H * a.D, 0, 0};
        c->in[1] = (slot){i % 2 ? CACHE : ACTIVATION, pages * a.K * a.D, a.page, 0, 0};
        c->in[2] = (slot){i % 2 ? CACHE : ACTIVATION, pages * a.K * a.page, a.Dv, 0, 0};
        c->in[3] = (slot){DISTINCT, 3, sizes[i / 2].of_seq, pages, 0};
        c->in[4] = (slot){SEQ_PLACES, rows, 2, tokens, 0};
        if (i % 3 == 0) c->in[PAGE_ATTENTION_SINKS] = (slot){VECTOR, 1, a.H, 0, 0};
        if (a.Dv > a.D) continue;
        op_case *one = case_add(l, OP_PAGE_ATTENTION);
        *one = l->items[l->n - 2];
        one->in[2] = (slot){ABSENT, 0, 0, 0, 0};
        snprintf(one->label + strlen(one->label), sizeof one->label - strlen(one->label),
                 " in keys");
    }
}

/* Tokens, experts, picks, width of what goes in and of what comes out. In the last the rows of one expert are
 * cut into longer blocks than all rows would be. */
static const int32_t ROUTERS[][5] = {{1, 1, 1, 1, 1},    {5, 4, 2, 8, 3},     {9, 3, 1, 16, 33},
                                     {33, 8, 3, 24, 40}, {20, 16, 4, 65, 17}, {768, 3, 1, 64, 192}};

static op_router router_of(int i) {
    return (op_router){.experts = ROUTERS[i][1],
                       .k = ROUTERS[i][2],
                       .layers = 1 + i % 3,
                       .scale = i % 2 ? 1.0f : 2.5f,
                       .sigmoid = i % 2,
                       .renormalise = i > 1};
}

static op_case *router_case(case_list *l, op_kind kind, int i) {
    op_case *c = case_add(l, kind);
    c->attr.router = router_of(i);
    c->heavy = ROUTERS[i][0] > 100;
    LABEL(c, "%s N=%d E=%d k=%d", op_classes[kind].name, ROUTERS[i][0], ROUTERS[i][1],
          ROUTERS[i][2]);
    return c;
}

static void cases_ROUTER_PROBS(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++)
        router_case(l, OP_ROUTER_PROBS, i)->in[0] =
            (slot){ACTIVATION, ROUTERS[i][0], ROUTERS[i][1], 0, 0};
}

static void cases_ROUTER_PICK(case_list *l) {
    for (int i = 0; i < 2 * ARRAY_LEN(ROUTERS); i++) {
        op_case *c = router_case(l, OP_ROUTER_PICK, i / 2);
        op_router *r = &c->attr.router;
        bool grouped = i % 2 && r->experts >= 8;
        if (grouped) r->groups = 4, r->kept = 2, r->best = r->experts / 8;
        c->in[0] = (slot){SHARES, ROUTERS[i / 2][0], r->experts, 0, 0};
        if (i % 2) c->in[1] = (slot){VECTOR, 1, r->experts, 0, 0};
    }
}

static void cases_ROUTER_SORT(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++) {
        op_case *c = router_case(l, OP_ROUTER_SORT, i);
        c->in[0] = (slot){SHARES, ROUTERS[i][0], ROUTERS[i][2], 0, 0};
        c->in[1] = (slot){INTEGERS, ROUTERS[i][0], ROUTERS[i][2], ROUTERS[i][1], 0};
        if (i == 0) continue;
        op_case *limited = case_add(l, OP_ROUTER_SORT);
        *limited = l->items[l->n - 2];
        limited->attr.router.sequences = ROUTERS[i][0] % 3 ? 0 : 3;
        limited->attr.router.capacity = 2;
        LABEL(limited, "router_sort N=%d E=%d k=%d, limited", ROUTERS[i][0], ROUTERS[i][1],
              ROUTERS[i][2]);
    }
}

static void cases_EXPERT_LINEAR(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++) {
        const int32_t *s = ROUTERS[i];
        op_case *c = router_case(l, OP_EXPERT_LINEAR, i);
        c->in[0] = (slot){ACTIVATION, s[0] * s[2], s[3], 0, 0};
        c->in[1] = (slot){MATRIX, s[1] * s[4], s[3], 0, 0};
        int32_t behind = i % 3 ? s[0] * s[2] / 4 : 0; /* rows of no expert */
        c->in[2] = (slot){BORDERS, 1, s[1] + 1, s[0] * s[2] - behind, 0};
        c->attr = (op_attr){.experts = {.n = s[1], .by_row = i % 2}};
    }
    /* Many by row, but few for all threads where the gradients are packed. */
    op_case *c = case_add(l, OP_EXPERT_LINEAR);
    LABEL(c, "expert_linear, 157 rows of one of two experts");
    c->in[0] = (slot){ACTIVATION, 160, 102, 0, 0};
    c->in[1] = (slot){MATRIX, 2 * 17, 102, 0, 0};
    c->in[2] = (slot){BORDERS, 1, 3, 157, 0};
    c->attr = (op_attr){.experts = {.n = 2, .by_row = true}};
}

static void cases_EXPERT_SUM(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++) {
        const int32_t *s = ROUTERS[i];
        if (s[0] * s[2] % 7 == 0) continue; /* DISTINCT */
        op_case *c = router_case(l, OP_EXPERT_SUM, i);
        c->in[0] = (slot){ACTIVATION, s[0] * s[2], s[3], 0, 0};
        c->in[1] = (slot){SHARES, s[0], s[2], 0, 0};
        c->in[2] = (slot){i % 3 ? DISTINCT : FIRST, s[0], s[2], s[0] * s[2], 0};
        if (i % 2) c->in[3] = (slot){ACTIVATION, s[0], s[3], 0, 0};
    }
}

static void cases_ROUTER_LOAD(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++) {
        const int32_t *s = ROUTERS[i];
        op_case *c = router_case(l, OP_ROUTER_LOAD, i);
        if (s[0] % 3 == 0) c->attr.router.sequences = 3;
        c->in[0] = (slot){SHARES, s[0], s[1], 0, 0};
        c->in[1] = (slot){INTEGERS, s[0], s[2], s[1], 0};
        if (i % 2) c->in[2] = (slot){SHARES, s[0] % 3 ? 2 : 6, s[1], 0, 0};
    }
}

static void cases_ROUTER_BALANCE(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++) {
        op_case *c = router_case(l, OP_ROUTER_BALANCE, i);
        c->in[0] = (slot){SHARES, i % 3 ? 2 : 8, ROUTERS[i][1], 0, 0};
        if (i % 2) c->in[1] = (slot){SHARES, 1, ROUTERS[i][1], 0, 0};
    }
}

static void cases_ROUTER_Z(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++)
        router_case(l, OP_ROUTER_Z, i)->in[0] =
            (slot){ACTIVATION, ROUTERS[i][0], ROUTERS[i][1], 0, 0};
}

static void cases_ROUTER_TALLY(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(ROUTERS); i++) {
        const int32_t *s = ROUTERS[i];
        op_case *c = router_case(l, OP_ROUTER_TALLY, i);
        c->in[0] = (slot){SHARES, s[0], s[1], 0, 0};
        c->in[1] = (slot){INTEGERS, s[0], s[2], s[1], 0};
        c->in[2] = (slot){BORDERS, 1, s[1] + 1, s[0] * s[2], 0};
    }
}

/* One value in three is far below the others: it loses bits. */
static void cases_FIXED_ADD(case_list *l) {
    for (int i = 0; i < ARRAY_LEN(SIZES); i++) {
        op_case *c = case_add(l, OP_FIXED_ADD);
        LABEL(c, "fixed_add %dx%d", (int)SIZES[i][0], (int)SIZES[i][1]);
        c->in[0] = (slot){VECTOR, SIZES[i][0], SIZES[i][1], 0, i % 3 ? 900 : 1e-9};
    }
}

static void (*const CASES[OP_COUNT])(case_list *l) = {
#define OP(ID, ...) [OP_##ID] = cases_##ID,
#include "op/ops.def"
#undef OP
};

#endif
