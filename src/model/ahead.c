/* Multi-token prediction (DeepSeek-AI 2024: DeepSeek-V3 Technical Report, section 2.2): modules behind the
 * last layer, of which the k-th predicts at position i the token of i + k + 1.
 *
 *   e = norm(embedding of the token of i + k)      h_0 = what the model's own head reads
 *   x = M_k [e | norm(h_{k-1})]                    M_k [C,2C]
 *   h_k = norm(block_k(x))                         a block like the last layer's
 *   logits = the model's own head of h_k
 *
 * Embedding and head are the model's. The embedding's half of M_k comes first, as in the published weights
 * (equation 21 writes it second). The loss is added to that of the model with the weight
 * mtp_loss_weight / D for each of the D modules (equation 25). Where the token of i + k, or the one after
 * it, lies in another document or behind the sequence, position i of module k has no loss; no position
 * with one sees it.
 *
 * The modules are used in training, and to try tokens in advance (infer/draft.h). Everything else, the
 * programs of other people included, computes the model without them. */
#include "model/parts.h"

bool model_trains_modules(const model_rec *r) {
    bool adapted = r->adapters && r->adapters->rank > 0;
    return r->mc->num_nextn_predict_layers > 0 && r->task == TASK_LM && !adapted &&
           graph_get_options(r->g)->train;
}

bool model_trains_ahead(const model_rec *r) {
    return model_trains_modules(r) && r->layers.end == model_layers(r->mc);
}

val model_head_norm(model_rec *r, int l, val x) {
    if (l < model_layers(r->mc)) return model_norm(r, PART_FINAL_NORM, -1, x, 0);
    return model_norm(r, PART_AHEAD_HEAD_NORM, model_layer(r->mc, l).stored, x, 0);
}

val model_join(model_rec *r, int l, val h, val ids) {
    int stored = model_layer(r->mc, l).stored;
    val e = model_norm(r, PART_AHEAD_EMBED_NORM, stored, model_embed(r, ids, VAL_NONE), 0);
    val both = graph_concat(r->g, e, model_norm(r, PART_AHEAD_NORM, stored, h, 0));
    return model_product(r, PART_AHEAD_JOIN, stored, both);
}

void model_record_ahead(model_rec *r, val h, val *out) {
    int first = model_layers(r->mc);
    for (int i = 0; i < (int)r->mc->num_nextn_predict_layers; i++) {
        val ids = graph_ahead(r->g, h, r->ids, r->start, r->T, i + 1, 0);
        val y = model_record_block(r, first + i, model_join(r, first + i, h, ids));
        out[i] = h = model_head_norm(r, first + i, y);
    }
}
