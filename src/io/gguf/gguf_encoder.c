/* Files of llama.cpp's architecture t5: T5 and mT5.
 *
 *   block_count, decoder_block_count     layers of the encoder, and of the decoder if they are not as many
 *   attention.relative_buckets_count     of the biases by distance, which end at 128
 *   decoder_start_token_id
 *
 * A feed-forward part with a gate has GELU, one without has ReLU. llama.cpp never scales what a tied head reads, so its logits are
 * larger than those of T5 1.0 by sqrt(C), in the same order; a file with a tied head is read as T5 1.0. */
#include <stdio.h>

#include "io/gguf/gguf_config.h"

enum { MOST_DISTANCE = 128 };

const char *gguf_encoder_lacks(const model_config *mc) {
    bool gated = mc->mlp == MLP_GATED;
    if (mc->num_encoder_layers == 0) return "num_encoder_layers";
    /* llama.cpp does not open a file whose decoder is the longer one */
    if (mc->num_hidden_layers > 2 * mc->num_encoder_layers) return "num_hidden_layers";
    if (mc->positions != POSITIONS_RELATIVE) return "position_type";
    if (mc->relative_distance != MOST_DISTANCE) return "relative_attention_max_distance";
    if (mc->act != (gated ? ACT_GELU_TANH : ACT_RELU)) return "hidden_act";
    if (mc->scale_decoder_outputs != mc->tie_word_embeddings) return "scale_decoder_outputs";
    return NULL;
}

#define STACK(S)                                                                                   \
    [PART_ATTN_NORM] = S ".blk.%d.attn_norm", [PART_Q] = S ".blk.%d.attn_q",                       \
    [PART_K] = S ".blk.%d.attn_k", [PART_V] = S ".blk.%d.attn_v", [PART_O] = S ".blk.%d.attn_o",   \
    [PART_MLP_NORM] = S ".blk.%d.ffn_norm", [PART_GATE] = S ".blk.%d.ffn_gate",                    \
    [PART_UP] = S ".blk.%d.ffn_up", [PART_DOWN] = S ".blk.%d.ffn_down"

void gguf_encoder_name_parts(model_config *mc) {
    static const char *const encoder[PART_COUNT] = {STACK("enc")};
    static const char *const decoder[PART_COUNT] = {
        STACK("dec"),
        [PART_EMBED] = "token_embd",
        [PART_HEAD] = "output",
        [PART_RELATIVE] = "dec.blk.0.attn_rel_b",
        [PART_ENCODER_RELATIVE] = "enc.blk.0.attn_rel_b",
        [PART_FINAL_NORM] = "dec.output_norm",
        [PART_ENCODER_NORM] = "enc.output_norm",
        [PART_CROSS_NORM] = "dec.blk.%d.cross_attn_norm",
        [PART_CROSS_Q] = "dec.blk.%d.cross_attn_q",
        [PART_CROSS_K] = "dec.blk.%d.cross_attn_k",
        [PART_CROSS_V] = "dec.blk.%d.cross_attn_v",
        [PART_CROSS_O] = "dec.blk.%d.cross_attn_o",
    };
    mc->names = decoder;
    mc->encoder_names = encoder;
}

void gguf_encoder_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p) {
    const struct {
        const char *key;
        int64_t x;
    } ints[] = {
        {"block_count", mc->num_encoder_layers},
        {"decoder_block_count", mc->num_hidden_layers - mc->num_encoder_layers},
        {"attention.relative_buckets_count", mc->relative_buckets},
        {"decoder_start_token_id", model_decoder_start(mc)},
    };
    char key[128];
    for (int i = 0; i < ARRAY_LEN(ints); i++) {
        snprintf(key, sizeof key, "%s.%s", arch->name, ints[i].key);
        gguf_put_u32(p, key, (uint32_t)ints[i].x);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", arch->name);
    gguf_put_f32(p, key, (float)mc->norm_eps);
}

static void put_int(json_t *o, const char *option, int64_t x) {
    json_object_set_new(o, option, json_integer(x));
}

static bool has(const gguf_facts *f, const char *name) {
    return f->find(f->ctx, name) != NULL;
}

status gguf_encoder_read(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                         err *e) {
    int64_t decoder = layers, buckets = 0, start = 0;
    TRY(gguf_arch_int(f, arch, "decoder_block_count", &decoder, e));
    TRY(gguf_arch_int(f, arch, "attention.relative_buckets_count", &buckets, e));
    TRY(gguf_arch_int(f, arch, "decoder_start_token_id", &start, e));
    if (decoder < 1 || decoder > 4096 - layers) {
        err_set(e, ST_FORMAT, "%s: %lld layers of a decoder are not possible", f->meta->label,
                (long long)decoder);
        return err_where(e, "%s.decoder_block_count", arch->name);
    }
    bool gated = has(f, "enc.blk.0.ffn_gate.weight"), tied = !has(f, "output.weight");
    put_int(o, "num_encoder_layers", layers);
    put_int(o, "num_hidden_layers", layers + decoder);
    put_int(o, "relative_attention_num_buckets", buckets);
    put_int(o, "relative_attention_max_distance", MOST_DISTANCE);
    put_int(o, "decoder_start_id", start);
    json_object_set_new(o, "mlp_type", json_string(gated ? "gated" : "plain"));
    json_object_set_new(o, "hidden_act", json_string(gated ? "gelu_new" : "relu"));
    json_object_set_new(o, "scale_decoder_outputs", json_boolean(tied));
    return ST_OK;
}
