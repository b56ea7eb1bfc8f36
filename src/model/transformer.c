/* The transformer that every family's options describe: one forward pass.
 *
 * Reading order: model_record (inputs, embedding, blocks, head), block (the order of norms and
 * residuals); attention.c or linear_attention.c, and feed_forward.c, the two branches of a block; ahead.c,
 * the modules that predict further tokens. Parameters: declare.c. */
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
    k.linear = model_local_linear(&k.linear, tp);
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
    val mixed = k.linear.Hv ? model_linear_attention(r, l, &k, in) : model_attention(r, l, &k, in);
    val a = branch(r, &k, PART_ATTN_OUT_NORM, mixed);
    x = graph_add(r->g, x, a);
    if (k.cross) {
        h = k.norm_in ? model_norm(r, PART_CROSS_NORM, k.stored, x, 0) : x;
        val c = model_cross_attention(r, l, &k, graph_tp_in(r->g, h));
        x = graph_add(r->g, x, branch(r, &k, PART_CROSS_OUT_NORM, c));
    }
    if (!k.parallel && !k.norm_shared) h = mlp_input(r, &k, x);
    if (h != h_attn) in = graph_tp_in(r->g, h);
    return graph_add(r->g, x, branch(r, &k, PART_MLP_OUT_NORM, model_feed_forward(r, l, &k, in)));
}

/* The last block that is recorded, and one. */
static int blocks_end(const model_rec *r) {
    return model_trains_ahead(r) ? model_blocks(r->mc) : r->layers.end;
}

static void make_rope(model_rec *r) {
    bool used[2] = {false, false};
    for (int l = r->layers.first; l < blocks_end(r); l++) {
        attention_layer a = model_layer(r->mc, l).attn;
        if (a.rotary && model_layer(r->mc, l).linear.Hv == 0) used[a.local] = true;
    }
    static const char *const names[] = {"rope_table", "rope_table_local"};
    static const char *const of_queries[] = {"rope_table_queries", "rope_table_local_queries"};
    for (int i = 0; i < 2; i++) {
        rope_spec s = model_rope(r->mc, i);
        int64_t positions = r->Tmax > r->T ? r->Tmax : (int64_t)r->T * graph_cp(r->g);
        if (r->S > positions) positions = r->S;
        if (r->positions) positions = r->positions;
        r->rope[i] = r->rope_q[i] = VAL_NONE;
        if (!used[i]) continue;
        r->rope[i] = r->rope_q[i] = rope_table(r->g, names[i], &s, positions, false);
        if (s.logn_length > 0 && s.logn_length < positions)
            r->rope_q[i] = rope_table(r->g, of_queries[i], &s, positions, true);
    }
}

/* Of the first `blocks` blocks, for so many tokens and states of so many sequences; blocks of an encoder have none. */
static int64_t cache_bytes(const model_config *mc, int tp, int blocks, int64_t tokens, int64_t seqs,
                           dtype dt, dtype activations) {
    int64_t cols = 0, states = 0;
    for (int l = model_encoder_layers(mc); l < blocks; l++) {
        layer_spec k = model_layer(mc, l);
        int64_t bytes[2] = {0, 0};
        linear_layer linear = model_local_linear(&k.linear, tp);
        if (linear.Hv)
            model_linear_state_parts(&linear, activations, bytes);
        else
            cols += model_cache_cols(&k.attn, tp);
        states += bytes[0] + bytes[1];
    }
    return tokens * cols * (int64_t)dtype_bytes(dt) + seqs * states;
}

static void make_source_inputs(model_rec *r, bool encodes, bool decodes) {
    int64_t M = (int64_t)r->B * r->S, N = (int64_t)r->B * r->T;
    if (encodes) {
        r->source.ids = graph_input(r->g, "source", DT_I32, M, 1);
        r->source.pos = graph_input(r->g, "source_pos", DT_I32, M, 1);
        r->source.start = graph_input(r->g, "source_start", DT_I32, M, 1);
        r->source.end = graph_input(r->g, "source_end", DT_I32, M, 1);
        int64_t P = model_slots(r->mc);
        if (P) r->source.slots_end = graph_input(r->g, "slots_end", DT_I32, r->B * P, 1);
    }
    if (decodes) {
        r->source.seen_start = graph_input(r->g, "seen_start", DT_I32, N, 1);
        r->source.seen_end = graph_input(r->g, "seen_end", DT_I32, N, 1);
    }
}

static void make_inputs(model_rec *r) {
    int64_t N = (int64_t)r->B * r->T;
    int E = model_encoder_layers(r->mc);
    bool decodes = r->task != TASK_ENCODE;
    if (E) make_source_inputs(r, r->layers.first < E, decodes);
    bool begins = E ? decodes : r->layers.first == 0;
    bool embeds = begins || blocks_end(r) > model_layers(r->mc);
    r->ids = embeds ? graph_input(r->g, "ids", DT_I32, N, 1) : VAL_NONE;
    r->pos = decodes ? graph_input(r->g, "pos", DT_I32, N, 1) : VAL_NONE;
    int cp = graph_cp(r->g);
    bool starts = cp == 1 || graph_get_options(r->g)->context == CONTEXT_ULYSSES;
    r->start =
        r->document_mask && starts ? graph_input(r->g, "start", DT_I32, N * cp, 1) : VAL_NONE;
    if (cp > 1) model_context_inputs(r);
    r->qpos = r->Tmax > 0 ? graph_input(r->g, "qpos", DT_I32, r->B, 1) : VAL_NONE;
    bool states = false;
    for (int l = r->layers.first; l < r->layers.end; l++)
        states |= model_layer(r->mc, l).linear.Hv > 0;
    r->span = VAL_NONE;
    if (states && r->Tmax > 0) r->span = graph_input(r->g, "span", DT_I32, r->B, 2);
    if (states && r->paged.page) r->span = graph_input(r->g, "span", DT_I32, r->paged.seqs, 3);
    CHECK(r->span == VAL_NONE || !r->document_mask, "states of sequences with documents");
    if (r->paged.page) {
        r->at = graph_input(r->g, "at", DT_I32, N, 1);
        r->place = graph_input(r->g, "place", DT_I32, N, 2);
        r->pages = graph_input(r->g, "pages", DT_I32, r->paged.seqs, r->paged.of_seq);
    }
    int64_t slots = r->slots ? r->slots : r->B;
    dtype dt = r->cache_f16 ? DT_F16 : graph_get_options(r->g)->dt;
    r->cache_bytes =
        cache_bytes(r->mc, graph_tp(r->g), r->layers.first, (int64_t)r->paged.pages * r->paged.page,
                    r->paged.seqs, dt, graph_get_options(r->g)->dt);
    r->cross_bytes = model_cache_bytes(r->mc, graph_tp(r->g), (int)slots, r->Tmax, dt, dt);
    make_rope(r);
}

val model_embed(model_rec *r, val ids, val pos) {
    const model_config *mc = r->mc;
    int32_t fixed = mc->family->pad_row_fixed ? (int32_t)mc->pad_token_id : -1;
    val x = graph_embed_part(r->g, model_weight(r, PART_EMBED, -1), mc->vocab_size, ids, fixed);
    x = graph_scale(r->g, x, (float)mc->scale_emb);
    if (pos != VAL_NONE && mc->positions == POSITIONS_LEARNED) {
        val table = model_weight(r, PART_POSITIONS, -1);
        val p = graph_embed_part(r->g, table, mc->max_position_embeddings, pos, -1);
        x = graph_add(r->g, x, p);
    }
    x = graph_tp_out(r->g, x);
    graph_name(r->g, x, "embedding");
    return graph_dropout(r->g, x, (float)mc->embd_pdrop);
}

/* Dropout of the embedding; of a layer attention, unless it is linear, and its two branches. */
enum { RANDOM_OPS_OF_EMBEDDING = 1, RANDOM_OPS_OF_LAYER = 3 };

uint32_t model_random_ops_before(const model_config *mc, int layer) {
    uint32_t n = layer == 0 ? 0 : RANDOM_OPS_OF_EMBEDDING;
    for (int l = 0; l < layer; l++) n += RANDOM_OPS_OF_LAYER - (model_layer(mc, l).linear.Hv > 0);
    return n;
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
    graph_hand_over(r->g, y, "y", "grad.y");
    /* the head or a module, in the last chunk, has written its gradient before the embedding adds to it */
    bool shared = model_head_is_table(r->mc) || model_trains_modules(r);
    if (r->layers.first == 0 && shared && !r->head_elsewhere)
        graph_grad_has_begun(r->g, model_weight(r, PART_EMBED, -1));
}

/* What all heads share: that of the model, and those of its modules. */
typedef struct head {
    val w, bias, targets;
    val teacher, tokens; /* of the model's; VAL_NONE: it has none */
} head;

static head open_head(model_rec *r) {
    char name[MODEL_NAME_BYTES];
    model_part_name(r->mc, PART_HEAD, -1, name);
    model_part part = r->mc->tie_word_embeddings ? PART_EMBED : PART_HEAD;
    return (head){.w = model_weight(r, part, -1),
                  .bias = r->mc->head_bias ? model_named(r, name, ".bias") : VAL_NONE,
                  .teacher = VAL_NONE,
                  .tokens = VAL_NONE};
}

/* What the head multiplies: the output of the norm before it, h. */
static val head_input(model_rec *r, val h) {
    const model_config *mc = r->mc;
    if (mc->num_encoder_layers) h = graph_dropout(r->g, h, (float)mc->embd_pdrop);
    if (mc->scale_decoder_outputs)
        h = graph_scale(r->g, h, (float)(1 / sqrt((double)mc->hidden_size)));
    if (mc->dim_model_base == 0) return h;
    return graph_scale(r->g, h, (float)((double)mc->dim_model_base / (double)mc->hidden_size));
}

static val record_nll(model_rec *r, const head *k, val h, float weight, float z_loss) {
    graph_head_spec spec = {.chunk_rows = r->chunk_rows,
                            .z_loss = z_loss,
                            .weight = weight,
                            .softcap = (float)r->mc->final_softcap,
                            .vocab = r->mc->vocab_size};
    val x = head_input(r, h);
    if (k->teacher != VAL_NONE) {
        spec.distill = r->lesson.weight, spec.temperature = r->lesson.temperature;
        return graph_head_distill(r->g, &spec, x, k->w, k->bias, k->targets, k->teacher, k->tokens);
    }
    return r->task == TASK_NLL ? graph_head_nll(r->g, &spec, x, k->w, k->bias, k->targets)
                               : graph_head_ce(r->g, &spec, x, k->w, k->bias, k->targets);
}

/* Losses of the modules, of whose norms h[D] are the outputs. */
static void record_losses_ahead(model_rec *r, head k, const val *h) {
    int D = (int)r->mc->num_nextn_predict_layers;
    val targets = k.targets;
    for (int i = 0; i < D; i++) {
        char name[32];
        snprintf(name, sizeof name, "nll.%d", i + 1);
        k.targets = graph_ahead(r->g, h[i], targets, r->start, r->T, i + 1, -1);
        val nll = record_nll(r, &k, h[i], (float)(r->mc->mtp_loss_weight / D), 0);
        graph_name(r->g, nll, "%s", name);
        graph_output(r->g, nll, name);
    }
}

/* Heads come last, since each must be the last use of what it reads. */
static void record_loss(model_rec *r, val h) {
    val ahead[MODEL_MOST_AHEAD];
    if (model_trains_ahead(r)) model_record_ahead(r, h, ahead);
    int64_t rows = r->task == TASK_SCORE ? r->n_logits : (int64_t)r->B * r->T;
    head k = open_head(r);
    k.targets = graph_input(r->g, "targets", DT_I32, rows, 1);
    int64_t stored = r->lesson.stored;
    if (r->lesson.weight > 0)
        k.teacher = graph_input(r->g, "teacher", DT_F32, rows, stored ? stored : r->mc->vocab_size);
    if (r->lesson.weight > 0 && stored)
        k.tokens = graph_input(r->g, "teacher.tokens", DT_I32, rows, stored);
    val nll = record_nll(r, &k, h, 1, r->z_loss);
    k.teacher = VAL_NONE;
    graph_name(r->g, nll, "nll");
    graph_output(r->g, nll, "nll");
    if (model_trains_ahead(r)) record_losses_ahead(r, k, ahead);
    model_balance(r);
    if (r->task == TASK_NLL) graph_root(r->g, nll, "grad.nll");
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
    val h = model_head_norm(r, r->layers.end - 1, x);
    if (r->task != TASK_LOGITS && r->task != TASK_TEACH && r->task != TASK_HEAD) {
        record_loss(r, h);
        return;
    }
    x = head_input(r, h);
    if (r->task == TASK_LOGITS)
        x = graph_take_rows(r->g, x, graph_input(r->g, "rows", DT_I32, r->n_logits, 1));
    head k = open_head(r);
    val logits = graph_linear_exact(r->g, x, k.w, k.bias);
    logits = graph_tp_cols(r->g, logits, mc->vocab_size);
    graph_output(r->g, graph_softcap(r->g, logits, (float)mc->final_softcap), "logits");
}

/* What goes into the first block, or the first of a decoder. */
static val record_input(model_rec *r) {
    if (r->layers.first <= model_encoder_layers(r->mc)) return model_embed(r, r->ids, r->pos);
    val x = take_over(r);
    if (r->layers.first < model_layers(r->mc)) return x;
    return model_join(r, r->layers.first, model_head_norm(r, r->layers.first - 1, x), r->ids);
}

val model_record_block(model_rec *r, int l, val x) {
    graph_block_begin(r->g, l);
    x = block(r, l, x);
    graph_block_end(r->g);
    return x;
}

/* What the encoder makes of the source, handed to all tensor-parallel ranks. Both stacks of layers have dropout at
 * their ends, too (Raffel et al. 2020, section 2.1). */
static void encode(model_rec *r) {
    if (r->mc->positions == POSITIONS_RELATIVE) r->relative[0] = model_relative(r, true);
    val x = model_embed(r, r->source.ids, r->source.pos);
    for (int l = 0; l < model_encoder_layers(r->mc); l++) x = model_record_block(r, l, x);
    x = model_norm(r, PART_ENCODER_NORM, -1, x, 0);
    r->source.made = graph_tp_in(r->g, graph_dropout(r->g, x, (float)r->mc->embd_pdrop));
}

/* What generation needs of a source: keys and values of all layers that look at it. */
static void cache_source(model_rec *r) {
    graph_output(r->g, r->source.made, "y");
    for (int l = model_encoder_layers(r->mc); l < model_layers(r->mc); l++) {
        layer_spec k = local_layer(r, l);
        model_cache_source(r, l, &k);
    }
}

/* The range of layers that a program of an encoder-decoder has: with a cache the decoder's alone, since TASK_ENCODE has
 * left there what it needs of the encoder. */
static void choose_layers(model_rec *r) {
    int E = model_encoder_layers(r->mc);
    if (r->layers.end == 0) r->layers = model_all_layers(r->mc);
    CHECK(!E || (r->layers.first == 0 && r->layers.end == model_layers(r->mc) && !r->paged.page),
          "an encoder-decoder is not cut into chunks");
    if (E && r->Tmax > 0 && r->task != TASK_ENCODE) r->layers.first = E;
}

void model_record(model_rec *r) {
    bool chosen = r->task != TASK_LM && r->task != TASK_NLL;
    CHECK(!chosen || !graph_get_options(r->g)->sequence_parallel, "rows are of whole sequences");
    choose_layers(r);
    if (r->task == TASK_HEAD) {
        record_head(r,
                    graph_input(r->g, "x", graph_get_options(r->g)->dt, r->T, r->mc->hidden_size));
        return;
    }
    r->load = VAL_NONE;
    for (int l = r->layers.first; l < blocks_end(r); l++)
        r->n_routers += model_layer(r->mc, l).mlp.E > 0 && !model_layer(r->mc, l).mlp.slots;
    make_inputs(r);
    int E = model_encoder_layers(r->mc), first = r->layers.first < E ? E : r->layers.first;
    if (r->layers.first < E) encode(r);
    if (r->task == TASK_ENCODE) {
        cache_source(r);
        return;
    }
    if (r->mc->positions == POSITIONS_RELATIVE) r->relative[1] = model_relative(r, false);
    val x = record_input(r);
    for (int l = first; l < r->layers.end; l++) x = model_record_block(r, l, x);
    if (r->layers.end < model_layers(r->mc) || r->task == TASK_BODY)
        hand_over(r, x);
    else
        record_head(r, x);
}

int64_t model_cache_bytes(const model_config *mc, int tp, int B, int Tmax, dtype dt,
                          dtype activations) {
    return cache_bytes(mc, tp, model_layers(mc), (int64_t)B * Tmax, B, dt, activations);
}

int64_t model_paged_bytes(const model_config *mc, int tp, const model_pages *pages, int modules,
                          dtype dt, dtype activations) {
    return cache_bytes(mc, tp, model_layers(mc) + modules, (int64_t)pages->pages * pages->page,
                       pages->seqs, dt, activations);
}

int64_t model_source_cache_bytes(const model_config *mc, int tp, int B, int Smax, dtype dt) {
    return model_encoder_layers(mc) ? model_cache_bytes(mc, tp, B, Smax, dt, dt) : 0;
}
