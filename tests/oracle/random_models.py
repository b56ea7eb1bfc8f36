"""Random configs of every family: sizes, options and layer patterns. compare_family.py draws from it."""

from transformers import (DeepseekV2Config, DeepseekV3Config, Gemma2Config, Gemma3TextConfig, GPT2Config, GPTNeoXConfig, LlamaConfig,
                          MiniCPM3Config, MinistralConfig, MistralConfig, MixtralConfig, MT5Config, Olmo2Config, OlmoConfig,
                          OlmoeConfig, PhiConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, Qwen3NextConfig,
                          SmolLM3Config, T5Config)

from reference import Config

CONTEXT = 160  # prompts and 64 new tokens fit


class Draw:
    """Random choices, and the sizes that a model's parts share."""

    def __init__(self, rng):
        self.rng = rng
        self.vocab = 2 * self.int(30, 70) + 1
        self.layers = self.int(1, 5)
        self.kv = self.int(1, 3)
        self.heads = self.kv * self.int(1, 3)
        self.head_dim = 2 * self.int(2, 9)
        self.ffn = self.int(9, 80)

    def int(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def one(self, *choices):
        return choices[self.int(0, len(choices) - 1)]

    def flag(self):
        return bool(self.int(0, 1))

    def rare(self):
        """What few models have, and llama.cpp mostly not."""
        return self.int(0, 3) == 0

    def theta(self):
        return self.one(500.0, 10000.0, 1e6)

    def window(self):
        return self.int(2, 14)

    def width(self):
        """H heads of this head_dim exactly."""
        return self.heads * self.head_dim

    def free_width(self):
        """A width that the heads divide, but not by head_dim (transformers insists on the first)."""
        return self.heads * self.int(max(2, 16 // self.heads), max(6, 48 // self.heads))

    def layer_types(self):
        return [self.one("sliding_attention", "full_attention") for _ in range(self.layers)]

    def ends(self):
        return dict(bos_token_id=None, eos_token_id=None)

    def pad(self):
        return self.one(None, self.int(0, self.vocab - 1))

    def llama_keys(self, width=None):
        return dict(num_hidden_layers=self.layers, hidden_size=width or self.width(), num_attention_heads=self.heads,
                    num_key_value_heads=self.kv, intermediate_size=self.ffn, vocab_size=self.vocab,
                    max_position_embeddings=CONTEXT, tie_word_embeddings=self.flag(), rms_norm_eps=self.one(1e-5, 1e-6),
                    **self.ends())


def plain_rope(d, **more):
    return dict(rope_type="default", rope_theta=d.theta(), **more)


def rope(d, head_dim=None, partial=None):
    """Plain in most models, or scaled in one of the ways that every family may have."""
    head_dim = head_dim or d.head_dim
    half = int(head_dim * (partial or 1)) // 2
    keys = scaled_rope(d, half) if d.rare() and half > 2 else plain_rope(d)
    return keys | (dict(partial_rotary_factor=partial) if partial else {})


def scaled_rope(d, half):
    """Any scaling of Llama; half: frequencies."""
    theta = d.theta()
    kind = d.one("default", "linear", "dynamic", "llama3", "yarn", "longrope")
    keys = dict(rope_type=kind, rope_theta=theta)
    if kind in ("linear", "dynamic"):
        keys["factor"] = d.one(2.0, 3.5)
    elif kind == "llama3":
        keys |= dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=d.one(3.0, 4.0),
                     original_max_position_embeddings=d.int(20, 60))
    elif kind == "yarn":
        keys |= dict(factor=d.one(2.0, 4.0), original_max_position_embeddings=d.int(20, 60))
        if d.flag():
            keys |= dict(beta_fast=8.0, beta_slow=2.0)
        if d.flag():
            keys["attention_factor"] = 1.3
        elif d.flag():
            keys |= dict(mscale=0.7, mscale_all_dim=1.2)
    elif kind == "longrope":
        # All prompts are longer than the first, or everything is shorter than the second.
        keys |= dict(original_max_position_embeddings=d.one(8, CONTEXT - 10),
                     short_factor=[1.0 + 0.07 * i for i in range(half)],
                     long_factor=[1.0 + 0.6 * i for i in range(half)])
    return keys


def gpt2(d):
    scaled = not d.rare()
    d.head_dim = d.head_dim if scaled else 4
    return GPT2Config(
        n_layer=d.layers, n_embd=d.width(), n_head=d.heads, n_inner=d.one(None, d.ffn), vocab_size=d.vocab,
        n_positions=CONTEXT, activation_function=d.one("gelu_new", "gelu", "relu"), layer_norm_epsilon=d.one(1e-5, 1e-3),
        tie_word_embeddings=d.flag(), attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        scale_attn_weights=scaled, scale_attn_by_inverse_layer_idx=d.rare(), reorder_and_upcast_attn=d.flag(), **d.ends())


def nanogpt(d):
    return Config(model_type="gpt2", bias=False, n_layer=d.layers, n_embd=d.width(), n_head=d.heads, n_inner=None,
                  n_positions=CONTEXT, vocab_size=d.vocab, activation_function="gelu", layer_norm_epsilon=1e-5,
                  attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True)


def gpt_neox(d):
    d.head_dim = d.one(8, 16, 24)
    return GPTNeoXConfig(
        num_hidden_layers=d.layers, hidden_size=d.width(), num_attention_heads=d.heads, intermediate_size=d.ffn,
        vocab_size=d.vocab, max_position_embeddings=CONTEXT, hidden_act=d.one("gelu", "gelu_new"),
        use_parallel_residual=d.flag(), attention_bias=d.flag(), layer_norm_eps=d.one(1e-5, 1e-4),
        rope_parameters=rope(d, partial=d.one(0.25, 0.5, 1.0)), **d.ends())


def phi(d):
    d.head_dim = d.one(8, 16, 20)
    return PhiConfig(
        num_hidden_layers=d.layers, hidden_size=d.width(), num_attention_heads=d.heads, num_key_value_heads=d.kv,
        intermediate_size=d.ffn, vocab_size=d.vocab, max_position_embeddings=CONTEXT, qk_layernorm=d.rare(),
        layer_norm_eps=d.one(1e-5, 1e-4), rope_parameters=rope(d, partial={8: 0.5, 16: 0.5, 20: 0.4}[d.head_dim]),
        **d.ends())


def without(keys, *names):
    return {k: v for k, v in keys.items() if k not in names}


def olmo(d):
    return OlmoConfig(**without(d.llama_keys(), "rms_norm_eps"), clip_qkv=d.one(None, 0.8, 2.0), pad_token_id=d.pad(),
                      attention_bias=d.flag(), rope_parameters=rope(d))


def olmo2(d):
    return Olmo2Config(**d.llama_keys(), pad_token_id=d.pad(), attention_bias=d.rare(), rope_parameters=rope(d))


def llama(d):
    d.head_dim = max(d.head_dim, 6)
    return LlamaConfig(**d.llama_keys(d.free_width()), head_dim=d.head_dim, attention_bias=d.flag(), mlp_bias=d.flag(),
                       pad_token_id=d.pad(), rope_parameters=scaled_rope(d, d.head_dim // 2))


def llama_sinks(d):
    """With sinks, chunks in some layers, or both (sinks.py)."""
    config = llama(d)
    chunks, has_chunks = [d.one(0, d.window()) for _ in range(d.layers)], d.flag()
    config.athanor = dict(attention_sinks=True) if not has_chunks or d.flag() else {}
    config.athanor |= dict(attention_chunk_size=chunks) if has_chunks else {}
    return config


def mistral(d):
    d.head_dim = max(d.head_dim, 6)
    return MistralConfig(**d.llama_keys(d.free_width()), head_dim=d.head_dim, pad_token_id=d.pad(), rope_parameters=rope(d),
                         sliding_window=d.one(None, d.window()))


def ministral(d):
    """Mistral with windows in some layers."""
    d.head_dim = max(d.head_dim, 6)
    return MinistralConfig(**d.llama_keys(d.free_width()), head_dim=d.head_dim, pad_token_id=d.pad(), rope_parameters=rope(d),
                           sliding_window=d.window(), layer_types=d.layer_types())


def llama_interleaved(d):
    return Config(model_type="llama", rope_interleaved=True, rope_theta=d.theta(), rope_scaling=None, hidden_act="silu",
                  attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
                  **without(d.llama_keys(), "tie_word_embeddings"))


def smollm3(d):
    return SmolLM3Config(**d.llama_keys(), no_rope_layers=[d.int(0, 1) for _ in range(d.layers)] if d.flag() else None,
                         use_sliding_window=(windows := d.rare()), sliding_window=d.window() if windows else None,
                         pad_token_id=d.pad(), rope_parameters=rope(d))


def qwen1(d):
    return Config(model_type="qwen", num_hidden_layers=d.layers, hidden_size=d.width(), num_attention_heads=d.heads,
                  kv_channels=d.head_dim, intermediate_size=2 * d.ffn, vocab_size=d.vocab, seq_length=d.one(CONTEXT, CONTEXT, 7),
                  max_position_embeddings=CONTEXT, layer_norm_epsilon=1e-6, rotary_emb_base=10000, rotary_pct=1.0,
                  no_bias=True, use_dynamic_ntk=False, use_logn_attn=d.flag(), attn_dropout_prob=0.0, emb_dropout_prob=0.0,
                  tie_word_embeddings=False)


def windows(d):
    if not d.rare():
        return {}
    keys = dict(use_sliding_window=True, sliding_window=d.window())
    return keys | (dict(max_window_layers=d.int(0, d.layers)) if d.flag() else dict(layer_types=d.layer_types()))


def qwen2(d):
    return Qwen2Config(**d.llama_keys(), **windows(d), pad_token_id=d.pad(), rope_parameters=rope(d))


def qwen3(d):
    return Qwen3Config(**d.llama_keys(d.free_width()), head_dim=d.head_dim, attention_bias=d.rare(), **windows(d),
                       pad_token_id=d.pad(), rope_parameters=rope(d))


def expert_keys(d):
    experts = d.int(2, 9)
    return dict(num_experts_per_tok=d.int(1, min(experts, 4)), router_aux_loss_coef=d.one(0.0, 0.02, 0.3)), experts


def mixtral(d):
    keys, experts = expert_keys(d)
    return MixtralConfig(**d.llama_keys(d.free_width()), **keys, num_local_experts=experts, head_dim=d.head_dim, pad_token_id=d.pad(),
                         rope_parameters=rope(d), sliding_window=d.one(None, d.window()))


def olmoe(d):
    keys, experts = expert_keys(d)
    return OlmoeConfig(**d.llama_keys(), **keys, num_experts=experts, norm_topk_prob=d.flag(), clip_qkv=d.one(None, 0.5),
                       pad_token_id=d.pad(), rope_parameters=rope(d))


def qwen2_moe(d):
    keys, experts = expert_keys(d)
    sparse = dict(decoder_sparse_step=d.one(1, 1, 2), mlp_only_layers=[0] if d.layers > 2 and d.flag() else [])
    d.layers = max(d.layers, 2)
    return Qwen2MoeConfig(**d.llama_keys(), **keys, **sparse, **windows(d), num_experts=experts, norm_topk_prob=d.flag(),
                          moe_intermediate_size=d.int(5, 40), shared_expert_intermediate_size=d.int(3, 60), qkv_bias=d.flag(),
                          pad_token_id=d.pad(), rope_parameters=rope(d))


def qwen3_moe(d):
    keys, experts = expert_keys(d)
    sparse = dict(decoder_sparse_step=d.one(1, 1, 2), mlp_only_layers=[0] if d.layers > 2 and d.flag() else [])
    d.layers = max(d.layers, 2)
    return Qwen3MoeConfig(**d.llama_keys(d.free_width()), **keys, **sparse, num_experts=experts, norm_topk_prob=d.flag(),
                          moe_intermediate_size=d.int(5, 40), head_dim=d.head_dim, attention_bias=d.rare(), pad_token_id=d.pad(),
                          rope_parameters=rope(d), **(dict(use_sliding_window=True, sliding_window=d.window()) if d.rare() else {}))


def latent_keys(d):
    """All heads have keys of their own; widths of the latents, and of a head's parts."""
    d.kv = d.heads = d.int(1, 6)
    d.layers = max(d.layers, 2)
    return d.llama_keys(d.free_width()) | dict(
        q_lora_rank=d.one(None, d.int(4, 30)), kv_lora_rank=d.int(3, 30), qk_nope_head_dim=d.int(2, 12),
        qk_rope_head_dim=2 * d.int(3, 6), v_head_dim=d.int(2, 14), attention_bias=d.rare(), pad_token_id=d.pad())


def deepseek_keys(d):
    """Experts of the layers behind the first, in groups or not; a token's experts fit into the groups that are kept."""
    keys, groups = latent_keys(d), d.int(1, 4)
    size, kept = d.int(2, 3), d.int(1, groups)
    keys["rope_parameters"] = deepseek_rope(d)
    return keys | dict(
        n_routed_experts=groups * size, n_group=groups, topk_group=kept, num_experts_per_tok=d.int(1, min(size * kept, 4)),
        n_shared_experts=d.int(1, 3), moe_intermediate_size=d.int(5, 40), first_k_dense_replace=d.int(0, d.layers - 1),
        routed_scaling_factor=d.one(1.0, 2.5))


def deepseek_rope(d):
    if not d.flag():
        return plain_rope(d)
    return dict(rope_type="yarn", rope_theta=d.theta(), factor=d.one(2.0, 4.0), beta_fast=d.one(4.0, 32.0), beta_slow=1.0,
                original_max_position_embeddings=d.int(20, 60), mscale=d.one(0.707, 1.0), mscale_all_dim=d.one(0.707, 1.0))


def deepseek_v2(d):
    keys = deepseek_keys(d)
    for name in ("kv_lora_rank", "qk_nope_head_dim"):
        keys[name] += keys[name] % 2  # or its class cannot make complex numbers of what lies behind
    keys["topk_method"] = "group_limited_greedy" if keys["n_group"] > 1 else "greedy"
    return DeepseekV2Config(**keys)


def deepseek_v3(d):
    keys = deepseek_keys(d)
    more = dict(athanor=dict(mtp_loss_weight=0.4), num_nextn_predict_layers=d.int(1, 2)) if d.flag() else {}
    return DeepseekV3Config(**keys, **more, norm_topk_prob=d.flag(), rope_interleave=d.flag())


def minicpm3(d):
    keys = latent_keys(d)
    return MiniCPM3Config(**keys | dict(q_lora_rank=d.int(4, 30), attention_bias=False), scale_emb=d.one(1, 2.5, 12),
                          scale_depth=d.one(1.4, 0.7), dim_model_base=d.int(5, 20), rope_parameters=plain_rope(d))


def qwen3_next(d):
    d.layers, d.head_dim, keys_of_linear = max(d.layers, 2), d.one(8, 16, 24), d.int(1, 3)
    types = [d.one("linear_attention", "linear_attention", "full_attention") for _ in range(d.layers)]
    keys, experts = expert_keys(d)
    in_gguf = d.flag()  # as llama.cpp knows them
    dense = d.rare() and not in_gguf
    width = d.int(3, 18)
    types[:2] = ["linear_attention", "full_attention"] if in_gguf else types[:2]
    keys |= dict(router_aux_loss_coef=0.0) if dense else {}
    of_all = d.llama_keys(d.free_width()) | (dict(rms_norm_eps=1e-6) if in_gguf else {})
    return Qwen3NextConfig(
        **of_all, **keys, num_experts=0 if dense else experts, norm_topk_prob=d.flag() or in_gguf,
        moe_intermediate_size=d.int(5, 40), shared_expert_intermediate_size=d.int(3, 60), head_dim=d.head_dim,
        mlp_only_layers=[0] if d.flag() and not in_gguf else [], decoder_sparse_step=1 if in_gguf else d.one(1, 1, 2),
        attention_bias=d.rare() and not in_gguf,
        layer_types=types, linear_num_key_heads=keys_of_linear, linear_num_value_heads=keys_of_linear * d.int(1, 3),
        linear_key_head_dim=width, linear_value_head_dim=width if in_gguf else d.int(3, 18), linear_conv_kernel_dim=d.int(2, 5),
        pad_token_id=d.pad(), rope_parameters=plain_rope(d, partial_rotary_factor=d.one(0.25, 0.5)))


def gemma_keys(d):
    return without(d.llama_keys(d.free_width()), "tie_word_embeddings") | dict(
        head_dim=d.head_dim, query_pre_attn_scalar=d.int(4, 20) if d.rare() else d.head_dim,
        sliding_window=d.window(), pad_token_id=d.pad(),
        final_logit_softcapping=d.one(None, 1.0, 3.0), layer_types=d.one(None, None, d.layer_types()))


def gemma2(d):
    return Gemma2Config(**gemma_keys(d), attn_logit_softcapping=d.one(None, 2.0, 6.0), rope_parameters=rope(d))


def gemma3(d):
    d.layers = d.one(3, 7)
    far = dict(rope_type="linear", rope_theta=1e6, factor=8.0) if d.flag() else rope(d)
    return Gemma3TextConfig(**gemma_keys(d), rope_parameters=dict(full_attention=far, sliding_attention=plain_rope(d)))


def openelm(d):
    ratio = d.int(1, 3)
    kv = [d.int(1, 3) for _ in range(d.layers)]
    return Config(
        model_type="openelm", num_transformer_layers=d.layers, model_dim=d.int(16, 44), head_dim=d.head_dim,
        num_query_heads=[ratio * k for k in kv], num_kv_heads=kv, num_gqa_groups=ratio,
        ffn_multipliers=[round(0.5 + 1.5 * float(d.rng.random()), 2) for _ in range(d.layers)], ffn_dim_divisor=d.int(2, 9),
        ffn_with_glu=True, qkv_multipliers=[0.5, 1.0], normalize_qk_projections=d.flag(), share_input_output_layers=d.flag(),
        activation_fn_name="swish", normalization_layer_name="rms_norm", rope_freq_constant=10000,
        rope_max_length=2 * CONTEXT, max_context_length=CONTEXT, vocab_size=d.vocab, initializer_range=0.02)


def mobilellm(d):
    return Config(model_type="mobilellm", rope_theta=d.theta(), rope_scaling=None, hidden_act="silu", attention_bias=False,
                  attention_dropout=0.0, mlp_bias=False, layer_sharing=d.flag(), share_embedding=d.flag(),
                  tie_word_embeddings=False, **without(d.llama_keys(), "tie_word_embeddings"))


def minicpm(d):
    keys = d.llama_keys()
    if d.flag():  # the key may be missing: then it means tied
        del keys["tie_word_embeddings"]
    return Config(model_type="minicpm", rope_theta=d.theta(), rope_scaling=None, hidden_act="silu",
                  scale_emb=d.one(1, 2.5, 12), scale_depth=d.one(1.4, 0.7), dim_model_base=d.int(5, 20), initializer_range=0.1, **keys)


def encoder_decoder(d, cls):
    buckets = d.int(4, 13)
    pad = d.int(0, d.vocab - 1)
    config = cls(num_layers=d.int(1, 4), num_decoder_layers=d.one(None, d.int(1, 4)), num_heads=d.int(1, 7), d_kv=d.int(2, 18),
                 d_model=d.int(9, 48), d_ff=d.ffn, vocab_size=d.vocab, relative_attention_num_buckets=buckets,
                 relative_attention_max_distance=d.int(buckets // 2 + 1, 40), dropout_rate=0.0, layer_norm_epsilon=d.one(1e-6, 1e-5),
                 feed_forward_proj=d.one("relu", "gated-gelu", "gated-silu", "gated-relu", "gelu", "gelu_new"),
                 pad_token_id=pad, eos_token_id=None, decoder_start_token_id=d.one(pad, d.int(0, d.vocab - 1)))
    config.tie_word_embeddings = d.flag()
    return config


def t5(d):
    config = encoder_decoder(d, T5Config)
    config.scale_decoder_outputs = config.tie_word_embeddings if d.flag() else d.flag()
    return config


def mt5(d):
    return encoder_decoder(d, MT5Config)


FAMILIES = dict(gpt2=gpt2, nanogpt=nanogpt, gpt_neox=gpt_neox, phi=phi, olmo=olmo, olmo2=olmo2, mistral=mistral,
                ministral=ministral, llama=llama, llama_sinks=llama_sinks, llama_interleaved=llama_interleaved, smollm3=smollm3, qwen1=qwen1, qwen2=qwen2,
                qwen3=qwen3, gemma2=gemma2, gemma3=gemma3, mixtral=mixtral, olmoe=olmoe, qwen2_moe=qwen2_moe,
                qwen3_moe=qwen3_moe, qwen3_next=qwen3_next, deepseek_v2=deepseek_v2, deepseek_v3=deepseek_v3, minicpm3=minicpm3,
                openelm=openelm, mobilellm=mobilellm, minicpm=minicpm, t5=t5, mt5=mt5)


def without_derivable_windows(config):
    """Files of transformers 4 have no layer_types: the layers with windows follow from other keys."""
    out, layers = dict(config), range(config.get("num_hidden_layers", 0))
    kind = config["model_type"]
    if kind in ("qwen2", "qwen3") and not config["use_sliding_window"]:
        return without(out, "layer_types") | dict(sliding_window=4096)  # off, but there
    first = config.get("max_window_layers", 0)
    rules = dict(gemma2=lambda i: i % 2 == 0, gemma3_text=lambda i: (i + 1) % 6 != 0, qwen2=lambda i: i >= first,
                 qwen3=lambda i: i >= first)
    rule = rules.get(kind)
    if rule and config["layer_types"] == ["sliding_attention" if rule(i) else "full_attention" for i in layers]:
        out = without(out, "layer_types", "_sliding_window_pattern")
        if kind == "gemma3_text":
            out["sliding_window_pattern"] = 6
    if kind == "gemma2":
        out["hidden_act"] = out["hidden_activation"]
    if kind == "t5" and config["scale_decoder_outputs"] == config["tie_word_embeddings"]:
        out = without(out, "scale_decoder_outputs")
    if kind.startswith("gemma"):
        out["cache_implementation"] = "hybrid"
    return out


def as_version_4(config, type_key="rope_type"):
    """A config.json of transformers 5 in the words of 4: rope_theta and rope_scaling, torch_dtype, rotary_pct.

    type_key: what rope_scaling calls its kind; the oldest files say "type".
    """
    out = without(config, "rope_parameters", "dtype") | dict(torch_dtype="float32", transformers_version="4.51.0")
    out = without_derivable_windows(out)
    rope = config.get("rope_parameters")
    if not rope:
        return out
    if "full_attention" in rope:
        type_key = "rope_type"  # transformers itself does not see the other word in Gemma 3
        out["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    rope = dict(rope)
    neox = config["model_type"] == "gpt_neox"
    out["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta")
    if "partial_rotary_factor" in rope:
        out["rotary_pct" if neox else "partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    kind = rope.pop("rope_type")
    out["rope_scaling"] = {type_key: kind} | rope if kind != "default" else None
    return out
