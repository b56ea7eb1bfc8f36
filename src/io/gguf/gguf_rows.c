#include "io/gguf/gguf_config.h"

/* Parameters of a layer by part; [1] are biases. */
struct gguf_rows_layer {
    const param *part[PART_COUNT][2];
    const param **expert[PART_COUNT]; /* of parts of which each expert has one */
    int experts[PART_COUNT];
};

static void take_expert(arena *a, struct gguf_rows_layer *in, const param *p, int64_t experts) {
    const param ***list = &in->expert[p->part];
    if (!*list) *list = ARENA_ARRAY(a, const param *, experts);
    (*list)[in->experts[p->part]++] = p;
}

/* The bias that chooses experts is a part of its own, and so is that of decays, whatever files call it. */
static int is_bias(const param *p) {
    return param_is_bias(p) && p->part != PART_ROUTER_BIAS && p->part != PART_LINEAR_DT_BIAS;
}

gguf_rows gguf_rows_new(arena *a, const model_config *file, const model_config *hf,
                        const param_store *store) {
    gguf_rows r = {.file = file, .hf = hf, .store = store};
    r.layer = ARENA_ARRAY(a, struct gguf_rows_layer, hf->num_hidden_layers + 1);
    for (int i = 0; i < param_count(store); i++) {
        const param *p = param_at(store, i);
        if (model_param_is_ahead(hf, p)) continue; /* files hold the model without its modules */
        struct gguf_rows_layer *in = &r.layer[p->layer + 1];
        in->part[p->part][is_bias(p)] = p;
        if (model_part_of_expert(p->part)) take_expert(a, in, p, hf->num_experts);
    }
    return r;
}

/* ---- which row ---- */

/* Place of a row among all rows of its group of parts: q|k|v, gate|up, or one part alone. */
typedef struct place {
    model_part whole, first; /* of the group */
    int n;
    int64_t row;
} place;

static layer_spec spec_of(const gguf_rows *r, const param *p) {
    return model_layer(r->hf, p->layer < 0 ? 0 : p->layer * (int)r->hf->block_repeat);
}

static int64_t part_rows(const layer_spec *k, model_part part) {
    switch (part) {
        case PART_Q: return k->attn.H * k->attn.D * (k->attn.gate ? 2 : 1);
        case PART_K:
        case PART_V: return k->attn.K * k->attn.D;
        default: return k->mlp.F;
    }
}

static place place_of(const layer_spec *k, const param *p, int64_t i) {
    model_part part = (model_part)p->part;
    place at = {.whole = part, .first = part, .n = 1, .row = i};
    if (part >= PART_QKV && part <= PART_V) {
        at = (place){PART_QKV, PART_Q, 3, i};
        if (part != PART_QKV)
            for (model_part q = PART_Q; q < part; q++) at.row += part_rows(k, q);
    } else if (k->mlp.kind == MLP_GATED && part >= PART_GATE_UP && part <= PART_UP) {
        at = (place){PART_GATE_UP, PART_GATE, 2, i};
        if (part == PART_UP) at.row += k->mlp.F;
    }
    return at;
}

/* The inverse of param_file_row. */
static int64_t row_of_file(const param *p, int64_t i) {
    int64_t all = 0, before = 0;
    if (p->order != ROWS_BY_HEAD) return i;
    for (int k = 0; k < PARAM_MAX_PARTS; k++) all += p->part_rows[k];
    int64_t head = i / all, in = i % all;
    int k = 0;
    for (; in >= p->part_rows[k]; k++) {
        in -= p->part_rows[k];
        before += p->part_rows[k] * p->heads;
    }
    return before + head * p->part_rows[k] + in;
}

/* Rotary pairs are neighbours on one side and halves on the other. */
static int64_t reorder(const gguf_rows *r, const attention_layer *a, int64_t row) {
    int64_t rotary = model_rope(r->hf, a->local).rotary_dim, in_head = row % a->D;
    if (r->file->rope_interleaved == r->hf->rope_interleaved || !a->rotary || in_head >= rotary)
        return row;
    int64_t half = rotary / 2, base = row - in_head;
    if (r->file->rope_interleaved) return base + in_head / 2 + in_head % 2 * half;
    return base + in_head % half * 2 + in_head / half;
}

static bool is_rotated(const layer_spec *k, const place *at) {
    if (at->whole == PART_Q_NORM || at->whole == PART_K_NORM) return true;
    return at->whole == PART_QKV && at->row < (k->attn.H + k->attn.K) * k->attn.D;
}

static float *element(const gguf_rows *r, const param *p, int64_t i) {
    return param_host_master(r->store) + p->offset + (p->rank == 1 ? i : i * p->cols);
}

float *gguf_rows_at(const gguf_rows *r, const param *p, int64_t i) {
    layer_spec k = spec_of(r, p);
    place at = place_of(&k, p, row_of_file(p, i));
    const struct gguf_rows_layer *in = &r->layer[p->layer + 1];
    if (p->experts > 0) {
        int64_t each = p->rows / p->experts;
        return element(r, in->expert[p->part][i / each], i % each);
    }
    int bias = is_bias(p);
    if (p->layer >= 0 && is_rotated(&k, &at)) at.row = reorder(r, &k.attn, at.row);
    if (in->part[at.whole][bias]) return element(r, in->part[at.whole][bias], at.row);
    for (int j = 0; j < at.n && at.n > 1; j++) {
        model_part part = at.first + (model_part)j;
        int64_t rows = part_rows(&k, part);
        if (at.row < rows) {
            const param *to = in->part[part][bias];
            return to ? element(r, to, at.row) : NULL;
        }
        at.row -= rows;
    }
    return NULL;
}

float gguf_rows_offset(const gguf_rows *r, const param *p) {
    bool norm = p->part == PART_FINAL_NORM || p->part == PART_ATTN_NORM ||
                p->part == PART_ATTN_OUT_NORM || p->part == PART_MLP_NORM ||
                p->part == PART_MLP_OUT_NORM || p->part == PART_Q_NORM || p->part == PART_K_NORM;
    return norm && r->hf->norm_weights == NORM_WEIGHTS_OFFSET ? 1.0f : 0.0f;
}
