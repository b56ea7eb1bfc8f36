/* Attention of layers whose tokens context-parallel ranks share. A rank has some tokens of each sequence, in
 * ascending order, and which these are is nowhere in the program: the host says by inputs
 * where each is (train/context.h). So the share may follow the documents of a sample.
 *
 *   "pos" [N,1]                place of each token in its document, as always; for rotary and learned positions
 *   "context.order" [B*T,1]    allgather, ulysses: see GATHER_KV
 *   "context.end" [M,1]        allgather: one behind the last key that each token sees, its own, M = N.
 *   "context.first.I" [M,1]    the first one, in layers with mask I (model_masks); none where that is 0. With
 *                              ring both are counted in the keys of each hop, M = ranks * N (RING_ATTENTION)
 *   "start" [B*T,1]            ulysses, with documents: of all tokens, since attention has them all
 *
 * Windows and pieces (chunk) are in "context.first.I": kernels count them from their own first row. */
#include <stdio.h>

#include "model/parts.h"

static int find_mask(const model_mask *masks, int n, model_mask m) {
    for (int i = 0; i < n; i++)
        if (masks[i].window == m.window && masks[i].chunk == m.chunk) return i;
    return n;
}

int model_masks(const model_config *mc, model_mask out[MODEL_MOST_MASKS]) {
    int n = 0;
    for (int l = 0; l < model_layers(mc); l++) {
        attention_layer a = model_layer(mc, l).attn;
        model_mask m = {a.window, a.chunk};
        int i = find_mask(out, n, m);
        if (i < MODEL_MOST_MASKS) out[i] = m;
        if (i == n) n++;
        if (n > MODEL_MOST_MASKS) break;
    }
    return n;
}

static int mask_of(const model_rec *r, const attention_layer *a) {
    model_mask masks[MODEL_MOST_MASKS];
    int n = model_masks(r->mc, masks);
    return find_mask(masks, n, (model_mask){a->window, a->chunk});
}

/* The input is there where the layer hides more than what is behind a query. */
static void first_of(model_rec *r, const attention_layer *a, int64_t rows) {
    char name[32];
    int i = mask_of(r, a);
    bool hides = r->document_mask || a->window > 0 || a->chunk > 0;
    if (!hides || r->context.first[i] != VAL_NONE) return;
    snprintf(name, sizeof name, "context.first.%d", i);
    r->context.first[i] = graph_input(r->g, name, DT_I32, rows, 1);
}

void model_context_inputs(model_rec *r) {
    int cp = graph_cp(r->g);
    int64_t N = (int64_t)r->B * r->T;
    context_kind kind = graph_get_options(r->g)->context;
    model_mask masks[MODEL_MOST_MASKS];
    r->context.order = r->context.end = VAL_NONE;
    for (int i = 0; i < MODEL_MOST_MASKS; i++) r->context.first[i] = VAL_NONE;
    if (kind != CONTEXT_RING)
        r->context.order = graph_input(r->g, "context.order", DT_I32, N * cp, 1);
    if (kind == CONTEXT_ULYSSES) return;
    CHECK(model_masks(r->mc, masks) <= MODEL_MOST_MASKS, "too many kinds of windows");
    int64_t rows = kind == CONTEXT_RING ? N * cp : N;
    r->context.end = graph_input(r->g, "context.end", DT_I32, rows, 1);
    for (int l = r->layers.first; l < r->layers.end; l++) {
        layer_spec k = model_layer(r->mc, l);
        first_of(r, &k.attn, rows);
    }
}

/* What start and end say of whole sequences, and the pairs that FLOPs count. */
static op_attention bounded(op_attention spec, int cp) {
    op_attention all = spec;
    all.Tq = all.Tk = spec.Tq * cp;
    spec.pairs = (float)(op_attention_pairs(&all) / cp);
    spec.causal = false;
    spec.window = spec.chunk = 0;
    return spec;
}

static val by_heads(model_rec *r, op_attention spec, val q, val k, val v, val sinks) {
    int cp = graph_cp(r->g);
    val order = r->context.order;
    if (spec.H % cp || spec.K % cp || sinks != VAL_NONE) {
        graph_fail(r->g, ST_USAGE,
                   "%d query heads and %d key/value heads do not divide over %d ranks", (int)spec.H,
                   (int)spec.K, cp);
        return VAL_NONE;
    }
    if (spec.all_heads == 0) spec.all_heads = spec.H;
    spec.Tq = spec.Tk = spec.Tq * cp;
    spec.H /= cp, spec.K /= cp;
    spec.first_head += spec.H * graph_cp_rank(r->g);
    graph_seen seen = GRAPH_SEES_ALL;
    seen.start = r->start;
    q = graph_cp_heads(r->g, q, order);
    k = graph_cp_heads(r->g, k, order);
    v = graph_cp_heads(r->g, v, order);
    return graph_cp_tokens(r->g, graph_attention(r->g, &spec, q, k, v, &seen), order);
}

static val by_gathering(model_rec *r, op_attention spec, val q, val k, val v,
                        const graph_seen *seen) {
    int64_t Wk = graph_cols(r->g, k), Wv = graph_cols(r->g, v);
    spec.Tk = spec.Tq * graph_cp(r->g);
    val kv = graph_cp_kv(r->g, k, v, r->context.order);
    k = graph_view(r->g, kv, 0, Wk);
    v = graph_view(r->g, kv, Wk, Wv);
    return graph_attention(r->g, &spec, q, k, v, seen);
}

val model_attend(model_rec *r, const layer_spec *layer, val q, val k, val v) {
    const attention_layer *a = &layer->attn;
    op_attention spec = model_attention_spec(r, a);
    graph_seen seen = {.start = r->start,
                       .end = VAL_NONE,
                       .qpos = r->qpos,
                       .bias = a->relative ? r->relative[1] : VAL_NONE,
                       .sinks = model_sinks(r, layer)};
    if (graph_failed(r->g)) return VAL_NONE;
    if (graph_cp(r->g) == 1) return graph_attention(r->g, &spec, q, k, v, &seen);
    context_kind kind = graph_get_options(r->g)->context;
    if (kind == CONTEXT_ULYSSES) return by_heads(r, spec, q, k, v, seen.sinks);
    spec = bounded(spec, graph_cp(r->g));
    seen.start = r->context.first[mask_of(r, a)];
    seen.end = r->context.end;
    if (kind == CONTEXT_ALLGATHER) return by_gathering(r, spec, q, k, v, &seen);
    return graph_ring_attention(r->g, &spec, q, k, v, seen.start, seen.end, seen.sinks);
}
