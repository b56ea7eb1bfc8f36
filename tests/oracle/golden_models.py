"""The golden models: a small awkward config of every family, so that each option and layer pattern occurs.

Nothing is a multiple of a vector width, H != K where the family allows, windows are shorter than T, vocabularies odd.
"""

from transformers import (Gemma2Config, Gemma3TextConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig, MixtralConfig,
                          Olmo2Config, OlmoConfig, OlmoeConfig, PhiConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, SmolLM3Config)

from reference import Config

GPT2_FIXED = dict(
    attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=True
)
LLAMA_FIXED = dict(attention_dropout=0.0, bos_token_id=0, eos_token_id=0, use_cache=True)
ENDS = dict(bos_token_id=1, eos_token_id=2)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    # Short enough that head_dim 16 has frequencies in each of the three branches: wavelengths 6, 20 and above 32.
    original_max_position_embeddings=32,
)


def rope(kind="default", theta=10000.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


def small_llama(rope_parameters, positions, **changes):
    return LlamaConfig(**dict(
        dict(num_hidden_layers=2, hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
             intermediate_size=42, vocab_size=73, max_position_embeddings=positions, rms_norm_eps=1e-5,
             tie_word_embeddings=True, rope_parameters=rope_parameters, **ENDS), **changes))


# name, config, batch, length, seed.
MODELS = [
    ("gpt2-tanh-tied",
     GPT2Config(n_layer=2, n_embd=24, n_head=3, n_inner=100, vocab_size=97, n_positions=24,
                activation_function="gelu_new", tie_word_embeddings=True, **GPT2_FIXED), 3, 13, 11),
    ("gpt2-erf-untied",
     GPT2Config(n_layer=2, n_embd=20, n_head=5, vocab_size=101, n_positions=40, layer_norm_epsilon=1e-4,
                activation_function="gelu", tie_word_embeddings=False, **GPT2_FIXED), 2, 19, 12),
    ("gpt2-scaled",
     GPT2Config(n_layer=3, n_embd=20, n_head=2, vocab_size=89, n_positions=72, activation_function="gelu_new",
                scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True,
                tie_word_embeddings=False, **GPT2_FIXED), 2, 21, 51),
    ("llama-gqa-tied",
     LlamaConfig(num_hidden_layers=2, hidden_size=36, num_attention_heads=6, num_key_value_heads=2,
                 intermediate_size=52, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-5,
                 tie_word_embeddings=True, **LLAMA_FIXED), 3, 23, 13),
    ("llama-bias-untied",
     LlamaConfig(num_hidden_layers=2, hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                 intermediate_size=44, vocab_size=89, max_position_embeddings=48, rms_norm_eps=1e-6,
                 attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                 rope_parameters=dict(rope_type="default", rope_theta=500000.0), **LLAMA_FIXED), 2, 17, 14),
    ("llama-rope3-mqa",
     LlamaConfig(num_hidden_layers=2, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
                 intermediate_size=40, vocab_size=97, max_position_embeddings=256, rms_norm_eps=1e-5,
                 tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE, **LLAMA_FIXED), 1, 61, 15),
    ("gpt2-nanogpt",
     Config(model_type="gpt2", architectures=["GPT2LMHeadModel"], bias=False, n_layer=3, n_embd=20, n_head=5,
            n_inner=None, n_positions=72, vocab_size=83, activation_function="gelu", layer_norm_epsilon=1e-5,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True, **ENDS), 2, 26, 16),
    ("llama-linear", small_llama(rope("linear", factor=2.5), 96), 2, 25, 17),
    # The length is above max_position_embeddings, so that the base grows.
    ("llama-dynamic", small_llama(rope("dynamic", factor=3.0), 30), 2, 41, 18),
    ("llama-yarn",
     small_llama(rope("yarn", 5000.0, factor=4.0, original_max_position_embeddings=24, beta_fast=4.0, beta_slow=1.0),
                 96, head_dim=20), 2, 33, 19),
    ("llama-longrope",
     small_llama(rope("longrope", original_max_position_embeddings=10, short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                      long_factor=[1.0, 1.5, 2.2, 3.1, 4.3, 6.0]), 80), 2, 27, 20),
    ("llama-longrope-short",
     small_llama(rope("longrope", original_max_position_embeddings=96, short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                      long_factor=[1.0, 1.5, 2.2, 3.1, 4.3, 6.0]), 192, num_hidden_layers=1), 2, 27, 21),
    ("llama-interleaved",
     Config(model_type="llama", architectures=["LlamaForCausalLM"], rope_interleaved=True, num_hidden_layers=3,
            hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=42, vocab_size=79,
            max_position_embeddings=96, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None, hidden_act="silu",
            attention_bias=False, mlp_bias=False, tie_word_embeddings=True, **ENDS), 2, 26, 22),
    ("neox-parallel",
     GPTNeoXConfig(num_hidden_layers=3, hidden_size=32, num_attention_heads=2, intermediate_size=60, vocab_size=91,
                   max_position_embeddings=96, hidden_act="gelu", use_parallel_residual=True,
                   rope_parameters=rope(partial_rotary_factor=0.25), **ENDS), 2, 29, 23),
    ("neox-sequential",
     GPTNeoXConfig(num_hidden_layers=2, hidden_size=40, num_attention_heads=2, intermediate_size=72, vocab_size=85,
                   max_position_embeddings=96, hidden_act="gelu", use_parallel_residual=False, layer_norm_eps=1e-4,
                   attention_bias=False, rope_parameters=rope(theta=3000.0, partial_rotary_factor=0.5), **ENDS),
     2, 24, 24),
    ("phi",
     PhiConfig(num_hidden_layers=2, hidden_size=40, num_attention_heads=4, num_key_value_heads=2, intermediate_size=62,
               vocab_size=93, max_position_embeddings=96, rope_parameters=rope(partial_rotary_factor=0.4), **ENDS),
     2, 25, 25),
    ("phi-qknorm",
     PhiConfig(num_hidden_layers=2, hidden_size=36, num_attention_heads=3, intermediate_size=66, vocab_size=77,
               max_position_embeddings=96, qk_layernorm=True, layer_norm_eps=1e-4, rope_parameters=rope(
                   partial_rotary_factor=0.5), **ENDS), 2, 27, 26),
    ("olmo-clip-tied",
     OlmoConfig(num_hidden_layers=3, hidden_size=36, num_attention_heads=6, num_key_value_heads=3, intermediate_size=50,
                vocab_size=87, max_position_embeddings=96, clip_qkv=1.1, tie_word_embeddings=True, pad_token_id=0,
                **ENDS), 2, 28, 27),
    ("olmo-untied",
     OlmoConfig(num_hidden_layers=2, hidden_size=30, num_attention_heads=3, intermediate_size=46, vocab_size=81,
                max_position_embeddings=96, pad_token_id=None, rope_parameters=rope(theta=500000.0), **ENDS),
     2, 24, 28),
    ("olmo2",
     Olmo2Config(num_hidden_layers=3, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=42,
                 vocab_size=89, max_position_embeddings=96, pad_token_id=0, rms_norm_eps=1e-6,
                 rope_parameters=rope(theta=500000.0), **ENDS), 2, 27, 29),
    ("smollm3",
     SmolLM3Config(num_hidden_layers=5, hidden_size=24, num_attention_heads=3, num_key_value_heads=1,
                   intermediate_size=38, vocab_size=75, max_position_embeddings=96, no_rope_layers=[1, 0, 1, 1, 0],
                   pad_token_id=None, rope_parameters=rope(theta=50000.0), **ENDS), 2, 30, 30),
    ("smollm3-window",
     SmolLM3Config(num_hidden_layers=4, hidden_size=32, num_attention_heads=4, num_key_value_heads=1,
                   intermediate_size=44, vocab_size=75, max_position_embeddings=96, no_rope_layer_interval=2,
                   use_sliding_window=True, sliding_window=7, tie_word_embeddings=False, pad_token_id=5,
                   rope_parameters=rope(theta=50000.0), **ENDS), 2, 30, 31),
    ("qwen1",
     Config(model_type="qwen", architectures=["QWenLMHeadModel"], num_hidden_layers=3, hidden_size=30,
            num_attention_heads=3, kv_channels=10, intermediate_size=84, vocab_size=83, seq_length=128,
            max_position_embeddings=128, layer_norm_epsilon=1e-6, rotary_emb_base=10000, rotary_pct=1.0, no_bias=True,
            use_dynamic_ntk=True, use_logn_attn=True, use_flash_attn="auto", scale_attn_weights=True, bf16=False,
            fp16=False, fp32=False, onnx_safe=None, softmax_in_fp32=False, use_cache_quantization=False,
            use_cache_kernel=False, attn_dropout_prob=0.0, emb_dropout_prob=0.0, initializer_range=0.02,
            tie_word_embeddings=False, tokenizer_class="QWenTokenizer", use_cache=True), 2, 26, 32),
    ("qwen1-beyond",
     Config(model_type="qwen", architectures=["QWenLMHeadModel"], num_hidden_layers=2, hidden_size=30,
            num_attention_heads=3, kv_channels=10, intermediate_size=76, vocab_size=83, seq_length=40,
            max_position_embeddings=80, layer_norm_epsilon=1e-6, rotary_emb_base=10000, rotary_pct=1.0, no_bias=True,
            use_dynamic_ntk=True, use_logn_attn=True, scale_attn_weights=True, attn_dropout_prob=0.0,
            emb_dropout_prob=0.0, initializer_range=0.02, tie_word_embeddings=False, use_cache=True), 2, 57, 52),
    ("qwen2-window",
     Qwen2Config(num_hidden_layers=4, hidden_size=36, num_attention_heads=6, num_key_value_heads=2,
                 intermediate_size=46, vocab_size=91, max_position_embeddings=96, use_sliding_window=True,
                 sliding_window=9, max_window_layers=2, rope_parameters=rope(theta=1000000.0), **ENDS), 2, 31, 33),
    ("qwen2-tied",
     Qwen2Config(num_hidden_layers=2, hidden_size=28, num_attention_heads=2, num_key_value_heads=1,
                 intermediate_size=58, vocab_size=93, max_position_embeddings=96, tie_word_embeddings=True,
                 rope_parameters=rope(theta=1000000.0), **ENDS), 2, 25, 34),
    ("qwen3-tied",
     Qwen3Config(num_hidden_layers=3, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                 intermediate_size=50, vocab_size=95, max_position_embeddings=96, tie_word_embeddings=True,
                 pad_token_id=3, rope_parameters=rope(theta=1000000.0), **ENDS), 2, 28, 35),
    ("qwen3-bias-window",
     Qwen3Config(num_hidden_layers=3, hidden_size=30, num_attention_heads=5, num_key_value_heads=1, head_dim=14,
                 intermediate_size=38, vocab_size=71, max_position_embeddings=96, attention_bias=True,
                 use_sliding_window=True, sliding_window=6, layer_types=["sliding_attention", "full_attention"]
                 + ["sliding_attention"], **ENDS), 2, 26, 36),
    ("gemma2",
     Gemma2Config(num_hidden_layers=4, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                  intermediate_size=42, vocab_size=99, max_position_embeddings=96, query_pre_attn_scalar=7,
                  sliding_window=8, attn_logit_softcapping=4.0, final_logit_softcapping=1.5, pad_token_id=0,
                  **ENDS), 2, 29, 37),
    ("gemma3",
     Gemma3TextConfig(num_hidden_layers=7, hidden_size=24, num_attention_heads=2, num_key_value_heads=1, head_dim=18,
                      intermediate_size=34, vocab_size=97, max_position_embeddings=128, query_pre_attn_scalar=13,
                      sliding_window=8, pad_token_id=0, rope_parameters=dict(
                          full_attention=rope("linear", 1000000.0, factor=8.0), sliding_attention=rope()),
                      **ENDS), 2, 33, 38),
    ("gemma3-pattern",
     Gemma3TextConfig(num_hidden_layers=3, hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                      intermediate_size=38, vocab_size=81, max_position_embeddings=96, query_pre_attn_scalar=8,
                      sliding_window=5, final_logit_softcapping=1.2, pad_token_id=0,
                      layer_types=["full_attention", "sliding_attention", "full_attention"], rope_parameters=dict(
                          full_attention=rope(theta=100000.0), sliding_attention=rope(theta=500.0)), **ENDS), 2, 25, 39),
    ("openelm",
     Config(model_type="openelm", architectures=["OpenELMForCausalLM"], num_transformer_layers=4, model_dim=36,
            head_dim=10, num_query_heads=[2, 4, 4, 6], num_kv_heads=[1, 2, 2, 3], num_gqa_groups=2,
            ffn_multipliers=[0.5, 0.9, 1.4, 2.0], ffn_dim_divisor=6, ffn_with_glu=True, qkv_multipliers=[0.5, 1.0],
            normalize_qk_projections=True, share_input_output_layers=True, activation_fn_name="swish",
            normalization_layer_name="rms_norm", rope_freq_constant=10000, rope_max_length=192, max_context_length=96,
            vocab_size=85, initializer_range=0.02, use_cache=True, torch_dtype="float32",
            transformers_version="4.39.3", **ENDS), 2, 27, 40),
    ("mobilellm-shared",
     Config(model_type="mobilellm", architectures=["MobileLLMForCausalLM"], num_hidden_layers=3, hidden_size=36,
            num_attention_heads=6, num_key_value_heads=2, intermediate_size=46, vocab_size=87,
            max_position_embeddings=96, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None, hidden_act="silu",
            attention_bias=False, attention_dropout=0.0, mlp_bias=False, pretraining_tp=1, layer_sharing=True,
            share_embedding=True, tie_word_embeddings=False, initializer_range=0.02, use_cache=True,
            torch_dtype="float32", transformers_version="4.41.2", **ENDS), 2, 25, 41),
    ("mistral",
     MistralConfig(num_hidden_layers=3, hidden_size=30, num_attention_heads=6, num_key_value_heads=2, head_dim=14,
                   intermediate_size=46, vocab_size=91, max_position_embeddings=96, sliding_window=7,
                   rope_parameters=rope(), **ENDS), 2, 27, 43),
    ("minicpm",
     Config(model_type="minicpm", architectures=["MiniCPMForCausalLM"], num_hidden_layers=4, hidden_size=36,
            num_attention_heads=6, num_key_value_heads=2, intermediate_size=46, vocab_size=89,
            max_position_embeddings=96, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, hidden_act="silu",
            scale_emb=2.5, scale_depth=1.4, dim_model_base=16, initializer_range=0.1, use_cache=True,
            torch_dtype="float32", transformers_version="4.36.0", **ENDS), 2, 26, 42),
    ("mixtral",
     MixtralConfig(num_hidden_layers=2, hidden_size=30, num_attention_heads=6, num_key_value_heads=2, head_dim=14,
                   intermediate_size=26, vocab_size=91, max_position_embeddings=96, num_local_experts=5,
                   num_experts_per_tok=2, router_aux_loss_coef=0.02, rope_parameters=rope(), **ENDS), 2, 27, 44),
    ("olmoe",
     OlmoeConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=18,
                 vocab_size=87, max_position_embeddings=96, num_experts=7, num_experts_per_tok=3, clip_qkv=0.6,
                 pad_token_id=None, rope_parameters=rope(), **ENDS), 2, 25, 45),
    ("qwen2-moe",
     Qwen2MoeConfig(num_hidden_layers=3, hidden_size=36, num_attention_heads=6, num_key_value_heads=3, intermediate_size=34,
                    moe_intermediate_size=13, shared_expert_intermediate_size=23, vocab_size=85, max_position_embeddings=96,
                    num_experts=5, num_experts_per_tok=2, decoder_sparse_step=2, use_sliding_window=True, sliding_window=7,
                    max_window_layers=2, router_aux_loss_coef=0.1, rope_parameters=rope(theta=1000000.0), **ENDS), 2, 26, 47),
    ("qwen3-moe",
     Qwen3MoeConfig(num_hidden_layers=3, hidden_size=28, num_attention_heads=4, num_key_value_heads=1, head_dim=10,
                    intermediate_size=40, moe_intermediate_size=15, vocab_size=93, max_position_embeddings=96,
                    num_experts=6, num_experts_per_tok=4, norm_topk_prob=True, mlp_only_layers=[1],
                    router_aux_loss_coef=0.3, tie_word_embeddings=True, rope_parameters=rope(theta=1000000.0), **ENDS),
     2, 26, 46),
]

# Standard deviations of embeddings and of other matrices, where not 0.15: a tied head else repeats the last token.
SCALES = {name: dict(embedding=0.15, matrix=0.25) for name, *_ in MODELS[6:]} | {
    name: dict(embedding=0.04, matrix=0.25) for name in ("gemma2", "gemma3", "gemma3-pattern", "minicpm")} | {
    name: dict(embedding=0.15, matrix=0.18) for name in ("mobilellm-shared", "qwen2-window")}
# Lengths of the documents of one row; attention inside each only. (Lengths decide the frequencies of some scalings.)
PACKED = {
    "llama-gqa-tied": [7, 1, 12, 9], "llama-rope3-mqa": [41, 3, 17], "gpt2-nanogpt": [9, 1, 14],
    "llama-linear": [11, 2, 15], "llama-yarn": [8, 19], "llama-interleaved": [13, 1, 8], "neox-parallel": [6, 14, 5],
    "phi": [10, 1, 13], "olmo-clip-tied": [7, 15], "olmo2": [12, 11], "smollm3": [5, 17, 4], "smollm3-window": [16, 1, 11],
    "qwen1": [9, 14], "qwen2-window": [19, 3, 12], "qwen3-tied": [8, 15], "gemma2": [17, 2, 13], "gemma3": [20, 1, 12],
    "openelm": [14, 9], "mobilellm-shared": [6, 16], "minicpm": [11, 2, 10], "mistral": [14, 10],
}
# Ten steps of AdamW.
CURVES = ["gpt2-tanh-tied", "gpt2-erf-untied", "llama-gqa-tied", "llama-bias-untied", "llama-rope3-mqa", "neox-parallel",
          "openelm"]
# Prompts must lie beyond the length where the frequencies change (longrope), or all tokens below it (dynamic).
PROMPT_LENGTHS = {"llama-longrope": 12, "qwen1-beyond": 42}
GREEDY_END = {"gpt2-tanh-tied": 24, "gpt2-erf-untied": 40, "llama-dynamic": 30, "qwen1-beyond": 80}
