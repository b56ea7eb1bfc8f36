/* The transformer that every family's options describe: one forward pass.
 *
 * Reading order: model_record (inputs, embedding, blocks, head), block (the order of norms and
 * residuals); attention.c and feed_forward.c, the two branches of a block. Parameters: declare.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/parts.h"

/* ---- blocks ---- */

/* What a branch adds to the residual stream. */
static val branch(model_rec *r, const layer_spec *k, model_part out_norm, val y) {
    y = graph_dropout(r->g, y, (float)r->mc->resid_pdrop);
    if (k->norm_out) y = model_norm(r, out_norm, k->stored, y, 0);
    return graph_scale(r->g, y, (float)k->branch_scale);
}

/* Heads and widths of this tensor-parallel rank. */
static layer_spec local_layer(const model_rec *r, int l) {
    layer_spec k = model_layer(r->mc, l);
    int tp = graph_tp(r->g);
    int64_t K = model_local_kv_heads(&k.attn, tp);
    k.attn.kv_copies = (int)(K * tp / k.attn.K);
    k.attn.K = K;
    k.attn.H /= tp;
    k.mlp.F /= tp;
    k.mlp.shared /= tp;
    return k;
}

static val mlp_input(model_rec *r, const layer_spec *k, val x) {
    return k->norm_in ? model_norm(r, PART_MLP_NORM, k->stored, x, 0) : x;
}

static val block(model_rec *r, int l, val x) {
    layer_spec k = local_layer(r, l);
    val h = k.norm_in ? model_norm(r, PART_ATTN_NORM, k.stored, x, 0) : x;
    val in = graph_tp_in(r->g, h), h_attn = h;
    if (k.parallel && !k.norm_shared) h = mlp_input(r, &k, x);
    val a = branch(r, &k, PART_ATTN_OUT_NORM, model_attention(r, l, &k, in));
    x = graph_add(r->g, x, a);
    if (!k.parallel && !k.norm_shared) h = mlp_input(r, &k, x);
    if (h != h_attn) in = graph_tp_in(r->g, h);
    return graph_add(r->g, x, branch(r, &k, PART_MLP_OUT_NORM, model_feed_forward(r, l, &k, in)));
}

static void make_rope(model_rec *r) {
    bool used[2] = {false, false};
    for (int l = r->layers.first; l < r->layers.end; l++) {
        attention_layer a = model_layer(r->mc, l).attn;
        if (a.rotary) used[a.local] = true;
    }
    static const char *const names[] = {"rope_table", "rope_table_local"};
    static const char *const of_queries[] = {"rope_table_queries", "rope_table_local_queries"};
    for (int i = 0; i < 2; i++) {
        rope_spec s = model_rope(r->mc, i);
        int64_t positions = r->Tmax > r->T ? r->Tmax : r->T;
        if (r->positions) positions = r->positions;
        r->rope[i] = r->rope_q[i] = VAL_NONE;
        if (!used[i]) continue;
        r->rope[i] = r->rope_q[i] = rope_table(r->g, names[i], &s, positions, false);
        if (s.logn_length > 0 && s.logn_length < positions)
            r->rope_q[i] = rope_table(r->g, of_queries[i], &s, positions, true);
    }
}

static void make_inputs(model_rec *r) {
    int64_t N = (int64_t)r->B * r->T;
    r->ids = r->layers.first == 0 ? graph_input(r->g, "ids", DT_I32, N, 1) : VAL_NONE;
    r->pos = graph_input(r->g, "pos", DT_I32, N, 1);
    r->start = r->document_mask ? graph_input(r->g, "start", DT_I32, N, 1) : VAL_NONE;
    r->qpos = r->Tmax > 0 ? graph_input(r->g, "qpos", DT_I32, r->B, 1) : VAL_NONE;
    if (r->paged.page) {
        r->at = graph_input(r->g, "at", DT_I32, N, 1);
        r->place = graph_input(r->g, "place", DT_I32, N, 2);
        r->pages = graph_input(r->g, "pages", DT_I32, r->paged.seqs, r->paged.of_seq);
    }
    r->cache_bytes = 0;
    make_rope(r);
}

static val embed(model_rec *r) {
    const model_config *mc = r->mc;
    int32_t fixed = mc->family->pad_row_fixed ? (int32_t)mc->pad_token_id : -1;
    val x = graph_embed_part(r->g, model_weight(r, PART_EMBED, -1), mc->vocab_size, r->ids, fixed);
    x = graph_scale(r->g, x, (float)mc->scale_emb);
    if (mc->positions == POSITIONS_LEARNED) {
        val table = model_weight(r, PART_POSITIONS, -1);
        val p = graph_embed_part(r->g, table, mc->max_position_embeddings, r->pos, -1);
        x = graph_add(r->g, x, p);
    }
    x = graph_tp_out(r->g, x);
    graph_name(r->g, x, "embedding");
    return graph_dropout(r->g, x, (float)mc->embd_pdrop);
}

/* Dropout of the embedding; of a layer attention, and its two branches. */
enum { RANDOM_OPS_OF_EMBEDDING = 1, RANDOM_OPS_OF_LAYER = 3 };

uint32_t model_random_ops_before(int layer) {
    return layer == 0 ? 0 : (uint32_t)(RANDOM_OPS_OF_EMBEDDING + RANDOM_OPS_OF_LAYER * layer);
}

/* What the layers before this chunk made. */
static val take_over(model_rec *r) {
    const graph_options *opt = graph_get_options(r->g);
    int64_t rows = (int64_t)r->B * r->T / (opt->sequence_parallel ? graph_tp(r->g) : 1);
    val x = graph_input(r->g, "x", opt->dt, rows, r->mc->hidden_size);
    graph_keep_grad(r->g, x, "grad.x");
    return x;
}

static void hand_over(model_rec *r, val y) {
    graph_output(r->g, y, "y");
    graph_root(r->g, y, "grad.y");
    /* the head, in the last chunk, has written its gradient before the embedding adds to it */
    if (r->layers.first == 0 && model_head_is_table(r->mc))
        graph_grad_has_begun(r->g, model_weight(r, PART_EMBED, -1));
}

static void record_loss(model_rec *r, val x, val w, val bias) {
    graph_head_spec spec = {.chunk_rows = r->chunk_rows,
                            .z_loss = r->z_loss,
                            .softcap = (float)r->mc->final_softcap,
                            .vocab = r->mc->vocab_size};
    int64_t rows = r->task == TASK_SCORE ? r->n_logits : (int64_t)r->B * r->T;
    val targets = graph_input(r->g, "targets", DT_I32, rows, 1);
    bool deferred = r->task == TASK_NLL;
    val nll = deferred ? graph_head_nll(r->g, &spec, x, w, bias, targets)
                       : graph_head_ce(r->g, &spec, x, w, bias, targets);
    graph_name(r->g, nll, "nll");
    graph_output(r->g, nll, "nll");
    model_balance(r);
    if (deferred) graph_root(r->g, nll, "grad.nll");
}

/* What a head of labels says of chosen rows. In training its gradient comes from outside. */
static void record_labels(model_rec *r, val x) {
    if (r->task == TASK_LOGITS)
        x = graph_take_rows(r->g, x, graph_input(r->g, "rows", DT_I32, r->n_logits, 1));
    else
        graph_fail(r->g, ST_USAGE, "a head of labels says nothing of the next token");
    x = model_norm(r, PART_FINAL_NORM, -1, x, 0);
    bool train = graph_get_options(r->g)->train; /* a gradient has the format of what it is of */
    val w = model_weight(r, PART_SCORE, -1);
    val logits =
        train ? graph_linear(r->g, x, w, VAL_NONE) : graph_linear_exact(r->g, x, w, VAL_NONE);
    graph_output(r->g, logits, "logits");
    graph_root(r->g, logits, "grad.logits");
}

static void record_head(model_rec *r, val x) {
    const model_config *mc = r->mc;
    if (mc->num_labels) {
        record_labels(r, x);
        return;
    }
    if (r->task == TASK_SCORE || r->task == TASK_FILL)
        x = graph_take_rows(r->g, x, graph_input(r->g, "rows", DT_I32, r->n_logits, 1));
    if (r->task == TASK_FILL) {
        graph_output(r->g, x, "y");
        return;
    }
    x = model_norm(r, PART_FINAL_NORM, -1, x, 0);
    if (mc->dim_model_base > 0)
        x = graph_scale(r->g, x, (float)((double)mc->dim_model_base / (double)mc->hidden_size));
    val w = model_weight(r, mc->tie_word_embeddings ? PART_EMBED : PART_HEAD, -1);
    char head[MODEL_NAME_BYTES];
    model_part_name(mc, PART_HEAD, -1, head);
    val bias = mc->head_bias ? model_named(r, head, ".bias") : VAL_NONE;
    if (r->task != TASK_LOGITS && r->task != TASK_HEAD) {
        record_loss(r, x, w, bias);
        return;
    }
    if (r->task == TASK_LOGITS)
        x = graph_take_rows(r->g, x, graph_input(r->g, "rows", DT_I32, r->n_logits, 1));
    val logits = graph_linear_exact(r->g, x, w, bias);
    logits = graph_tp_cols(r->g, logits, mc->vocab_size);
    graph_output(r->g, graph_softcap(r->g, logits, (float)mc->final_softcap), "logits");
}

void model_record(model_rec *r) {
    bool chosen = r->task != TASK_LM && r->task != TASK_NLL;
    CHECK(!chosen || !graph_get_options(r->g)->sequence_parallel, "rows are of whole sequences");
    if (r->task == TASK_HEAD) {
        record_head(r,
                    graph_input(r->g, "x", graph_get_options(r->g)->dt, r->T, r->mc->hidden_size));
        return;
    }
    if (r->layers.end == 0) r->layers = model_all_layers(r->mc);
    r->load = VAL_NONE;
    for (int l = r->layers.first; l < r->layers.end; l++)
        r->n_routers += model_layer(r->mc, l).mlp.E > 0;
    make_inputs(r);
    val x = r->layers.first == 0 ? embed(r) : take_over(r);
    for (int l = r->layers.first; l < r->layers.end; l++) {
        graph_block_begin(r->g, l);
        x = block(r, l, x);
        graph_block_end(r->g);
    }
    if (r->layers.end < model_layers(r->mc) || r->task == TASK_BODY)
        hand_over(r, x);
    else
        record_head(r, x);
}

int64_t model_cache_bytes(const model_config *mc, int tp, int B, int Tmax, dtype dt) {
    int64_t cols = 0;
    for (int l = 0; l < model_layers(mc); l++) {
        attention_layer a = model_layer(mc, l).attn;
        cols += 2 * model_local_kv_heads(&a, tp) * a.D;
    }
    return (int64_t)B * Tmax * cols * (int64_t)dtype_bytes(dt);
}
