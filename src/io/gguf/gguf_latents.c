/* Latent attention in GGUF files (architectures deepseek2 and minicpm3).
 *
 *   attention.q_lora_rank, kv_lora_rank    widths of latents. 0: queries have none; llama.cpp asks for the key
 *   rope.dimension_count                   rotated columns of a key, its last
 *   attention.key_length, value_length     widths of heads, where keys and values are one tensor (attn_kv_b):
 *                                          in minicpm3, and in older files of deepseek2
 *   attention.key_length_mla, ..._mla      the same where they are two, attn_k_b and attn_v_b. key_length and
 *                                          value_length are then those of the one head that a cache has
 *
 * Files of deepseek2 are written with two tensors, as llama.cpp's converter does, and read with either. */
#include <stdio.h>

#include "io/gguf/gguf_config.h"

static bool is_split(const gguf_arch *arch) {
    return arch->experts & GGUF_EXPERTS_DEEPSEEK;
}

/* ---- metadata ---- */

void gguf_latents_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p) {
    int64_t n = mc->qk_nope_head_dim, rotary = mc->qk_rope_head_dim, R = mc->kv_lora_rank;
    const struct {
        const char *key;
        int64_t x;
        bool said;
    } ints[] = {
        {"q_lora_rank", mc->q_lora_rank, true},
        {"kv_lora_rank", R, true},
        {"head_count_kv", is_split(arch) ? 1 : mc->num_attention_heads, true},
        {"key_length", is_split(arch) ? R + rotary : n + rotary, true},
        {"value_length", is_split(arch) ? R : mc->v_head_dim, true},
        {"key_length_mla", n + rotary, is_split(arch)},
        {"value_length_mla", mc->v_head_dim, is_split(arch)},
    };
    char key[128];
    for (int i = 0; i < ARRAY_LEN(ints); i++) {
        snprintf(key, sizeof key, "%s.attention.%s", arch->name, ints[i].key);
        if (ints[i].said) gguf_put_u32(p, key, (uint32_t)ints[i].x);
    }
}

static int64_t number_in(const json_t *o, const char *option) {
    return json_integer_value(json_object_get(o, option));
}

static void put_int(json_t *o, const char *option, int64_t x) {
    json_object_set_new(o, option, json_integer(x));
}

/* Widths of a head: keys and values as a model without latents would have them. The number of heads was read. */
status gguf_latents_read(const gguf_facts *f, const gguf_arch *arch, json_t *o, err *e) {
    int64_t heads = number_in(o, "num_attention_heads");
    int64_t key = 0, value = heads > 0 ? number_in(o, "hidden_size") / heads : 0;
    int64_t rotary = 0, q = 0, kv = 0, split = 0;
    TRY(gguf_arch_int(f, arch, "attention.key_length_mla", &split, e));
    TRY(gguf_arch_int(f, arch, split ? "attention.key_length_mla" : "attention.key_length", &key,
                      e));
    TRY(gguf_arch_int(f, arch, split ? "attention.value_length_mla" : "attention.value_length",
                      &value, e));
    TRY(gguf_arch_int(f, arch, "rope.dimension_count", &rotary, e));
    TRY(gguf_arch_int(f, arch, "attention.q_lora_rank", &q, e));
    TRY(gguf_arch_int(f, arch, "attention.kv_lora_rank", &kv, e));
    if (kv < 1 || value < 1 || rotary < 1 || rotary >= key) {
        err_set(e, ST_FORMAT,
                "%s: latents of %lld, keys of %lld (%lld rotated) and values of %lld "
                "are not possible",
                f->meta->label, (long long)kv, (long long)key, (long long)rotary, (long long)value);
        return err_where(e, "%s.attention.kv_lora_rank", arch->name);
    }
    put_int(o, "q_lora_rank", q);
    put_int(o, "kv_lora_rank", kv);
    put_int(o, "qk_nope_head_dim", key - rotary);
    put_int(o, "qk_rope_head_dim", rotary);
    put_int(o, "v_head_dim", value);
    put_int(o, "num_key_value_heads", heads);
    json_object_set_new(o, "partial_rotary_factor", json_real(1));
    json_object_del(o, "head_dim");
    return ST_OK;
}
