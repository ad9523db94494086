"""Tiny but structurally honest config.json contents for every model type of mlx-lm 0.31.3.

CONFIGS maps a case name to its config. A case name is MODEL_TYPE or MODEL_TYPE@VARIANT.
Run as a script to write them out as JSON:  python configs.py OUTDIR

Sizes are chosen so that every kind of layer occurs, windows are shorter than the default
20-token prompt, and nearly every matrix has an input dimension divisible by 64.
"""

import copy
import json
import sys
from pathlib import Path

D, H, K, HD, FF, V = 128, 4, 2, 64, 192, 320  # HD != D / H on purpose
EOS, BOS = 319, 318
INF = float("inf")

CONFIGS = {}

# Cases whose lm_head exists in the module but is dropped when the file has none, which is
# how these families ship.
TIED_BY_ABSENCE = {"gemma3", "gemma3_text", "recurrent_gemma"}

# model_type names that mlx-lm maps onto another file (utils.MODEL_REMAPPING).
ALIASES = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
}


def bare(name, arch, **keys):
    """Register a config that shares only the token ids with the others."""
    config = {"architectures": [arch], "model_type": name, "bos_token_id": BOS, "eos_token_id": EOS, **keys}
    CONFIGS[name] = config
    return config


def hf(name, arch, **keys):
    """Register a config with the usual Hugging Face decoder keys."""
    return bare(name, arch, **{**decoder(), **keys})


def decoder(**keys):
    return {
        "hidden_act": "silu",
        "hidden_size": D,
        "intermediate_size": FF,
        "max_position_embeddings": 1024,
        "num_attention_heads": H,
        "num_hidden_layers": 2,
        "num_key_value_heads": K,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "vocab_size": V,
        **keys,
    }


def variant(base, tag, drop=(), text=None, **keys):
    """Register BASE@TAG: the base config with some keys changed, at top level or in text_config."""
    config = copy.deepcopy(CONFIGS[base])
    for key in drop:
        del config[key]
    config.update(keys)
    if text:
        config["text_config"].update(text)
    CONFIGS[f"{base}@{tag}"] = config
    return config


def alias(name, base, arch, **keys):
    config = copy.deepcopy(CONFIGS[base])
    config.update(model_type=name, architectures=[arch], **keys)
    CONFIGS[name] = config


def yarn(**keys):
    """Scaling with a context short enough that the prompt reaches the interpolated part."""
    return {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        **keys,
    }


def longrope(dims, **keys):
    half = dims // 2
    return {
        "type": "longrope",
        "short_factor": [1.0 + 0.01 * i for i in range(half)],
        "long_factor": [1.0 + 0.25 * i for i in range(half)],
        **keys,
    }


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_type": "llama3",
}
SLIDE, FULL = "sliding_attention", "full_attention"
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
ROUTED = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 1,
}
MLA = {
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 32,
    "num_key_value_heads": H,
    "attention_bias": False,
}
DEEPSEEK_YARN = yarn(factor=40, mscale=1.0, mscale_all_dim=1.0)


def dense():
    hf("llama", "LlamaForCausalLM", rope_theta=500000.0, rope_scaling=LLAMA3, head_dim=HD, attention_bias=False, mlp_bias=False)
    variant("llama", "tied", drop=["rope_scaling", "head_dim"], tie_word_embeddings=True)
    variant("llama", "tie-unset", drop=["tie_word_embeddings"])
    variant("llama", "linear", rope_scaling={"type": "linear", "factor": 4.0})
    variant("llama", "yarn", rope_scaling=yarn())
    variant("llama", "longrope", rope_scaling=longrope(HD, original_max_position_embeddings=64))
    variant("llama", "bias", attention_bias=True, mlp_bias=True)
    variant("llama", "mha", num_key_value_heads=H)
    variant("llama", "sliding", num_hidden_layers=3, layer_types=[SLIDE, FULL, SLIDE], sliding_window=8)
    alias("mistral", "llama", "MistralForCausalLM", rope_scaling=None, sliding_window=None)
    alias("iquestcoder", "llama", "IQuestCoderForCausalLM", rope_scaling=None)
    variant("mistral", "tied", tie_word_embeddings=True)
    variant("iquestcoder", "tied", tie_word_embeddings=True)

    hf("qwen2", "Qwen2ForCausalLM", rms_norm_eps=1e-6, rope_theta=1e6, sliding_window=None, use_sliding_window=False)
    variant("qwen2", "tied", tie_word_embeddings=True)
    variant("qwen2", "yarn", rope_scaling=yarn())
    hf("qwen3", "Qwen3ForCausalLM", head_dim=HD, attention_bias=False, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True)
    variant("qwen3", "untied", tie_word_embeddings=False)
    variant("qwen3", "yarn", rope_scaling=yarn())
    hf("mimo", "MiMoForCausalLM", attention_bias=True, rope_theta=640000.0, num_nextn_predict_layers=1)
    hf("seed_oss", "SeedOssForCausalLM", head_dim=HD, attention_bias=True, attention_out_bias=False, mlp_bias=False, rope_theta=1e7, rope_scaling={"rope_type": "default"})
    variant("seed_oss", "tied", tie_word_embeddings=True)
    hf("telechat3", "TeleChat3ForCausalLM", attention_bias=False, mlp_bias=False, head_dim=HD, rope_theta=1e6,
       rope_scaling=yarn(type="telechat3-yarn", mscale=1.0, mscale_all_dim=1.0))
    variant("telechat3", "plain", rope_scaling=None, attention_bias=True)
    hf("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4,
       attention_bias=False, mlp_bias=False, rope_theta=5e6, tie_word_embeddings=True, sliding_window=None, layer_types=[FULL] * 4)
    variant("smollm3", "interval", drop=["no_rope_layers"])
    variant("smollm3", "sliding", layer_types=[SLIDE, FULL, SLIDE, FULL], sliding_window=8)
    ministral_rope = yarn(type="yarn", rope_type="yarn", rope_theta=1e6, llama_4_scaling_beta=0.1, mscale=1.0, mscale_all_dim=1.0,
                          original_max_position_embeddings=8)
    hf("ministral3", "Ministral3ForCausalLM", head_dim=HD, rope_parameters=ministral_rope, sliding_window=None, tie_word_embeddings=True)
    variant("ministral3", "sliding", num_hidden_layers=3, layer_types=[SLIDE, FULL, SLIDE], sliding_window=8, tie_word_embeddings=False)
    hf("helium", "HeliumForCausalLM", head_dim=D // H, attention_bias=False, mlp_bias=False, rms_norm_eps=1e-8, rope_theta=100000.0)
    variant("helium", "tied", tie_word_embeddings=True)
    hf("ernie4_5", "Ernie4_5ForCausalLM", head_dim=HD, use_bias=False, rope_theta=500000.0, tie_word_embeddings=True)
    variant("ernie4_5", "bias", use_bias=True, tie_word_embeddings=False)
    hf("glm", "GlmForCausalLM", head_dim=HD, attention_bias=True, partial_rotary_factor=0.5, rms_norm_eps=1.5625e-7)
    variant("glm", "tied", attention_bias=False, tie_word_embeddings=True)
    hf("glm4", "Glm4ForCausalLM", head_dim=HD, attention_bias=True, partial_rotary_factor=0.5)
    hf("granite", "GraniteForCausalLM", attention_bias=False, mlp_bias=False, attention_multiplier=0.015625, embedding_multiplier=12.0,
       residual_multiplier=0.22, logits_scaling=2.0, rope_theta=1e7, tie_word_embeddings=True)
    variant("granite", "untied", tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
    hf("minicpm", "MiniCPMForCausalLM", dim_model_base=64, scale_depth=1.4, scale_emb=12, drop_rope=False)
    variant("minicpm", "tied", tie_word_embeddings=True)
    hf("internlm2", "InternLM2ForCausalLM", bias=False, rope_theta=1e6, rope_scaling={"type": "dynamic", "factor": 2.0})
    variant("internlm2", "linear", bias=True, rope_scaling={"type": "linear", "factor": 4.0})
    variant("internlm2", "plain", rope_scaling=None)
    variant("internlm2", "grown", max_position_embeddings=30)  # the base grows in the last steps
    hf("internlm3", "InternLM3ForCausalLM", bias=False, qkv_bias=False, head_dim=D // H, rope_theta=5e7,
       rope_scaling={"rope_type": "dynamic", "factor": 6.0})
    variant("internlm3", "bias", bias=True, qkv_bias=True, rope_scaling={"rope_type": "linear", "factor": 4.0})
    bare("exaone", "ExaoneForCausalLM", activation_function="silu", hidden_size=D, intermediate_size=FF, num_layers=2, head_dim=D // H,
         num_attention_heads=H, num_key_value_heads=K, layer_norm_epsilon=1e-5, max_position_embeddings=1024, rope_theta=1e6,
         rope_scaling=LLAMA3, tie_word_embeddings=False, vocab_size=V)
    variant("exaone", "tied", tie_word_embeddings=True)
    hf("phi3", "Phi3ForCausalLM", original_max_position_embeddings=1024, sliding_window=2047)
    variant("phi3", "longrope", original_max_position_embeddings=16, rope_scaling=longrope(D // H))
    variant("phi3", "su", original_max_position_embeddings=16, rope_scaling=longrope(D // H, type="su"))
    variant("phi3", "linear", rope_scaling=longrope(D // H, type="linear", factor=4.0))
    variant("phi3", "partial", original_max_position_embeddings=16, partial_rotary_factor=0.75, rope_scaling=longrope(24), tie_word_embeddings=True)
    bare("lille-130m", "LilleForCausalLM", block_size=512, layer_norm_eps=1e-5, n_embd=D, n_head=H, n_kv_heads=K, n_layer=2,
         rope_theta=10000.0, vocab_size=V, tie_word_embeddings=True)
    bare("qwen", "QWenLMHeadModel", hidden_size=D, intermediate_size=2 * FF, kv_channels=D // H, layer_norm_epsilon=1e-6,
         max_position_embeddings=1024, no_bias=True, num_attention_heads=H, num_hidden_layers=2, rotary_emb_base=10000, vocab_size=V,
         tie_word_embeddings=False)
    hf("apertus", "ApertusForCausalLM", hidden_act="xielu", attention_bias=False, mlp_bias=False, post_norm=False, qk_norm=True,
       rope_theta=12000000.0, rope_scaling=LLAMA3)
    variant("apertus", "tied", mlp_bias=True, tie_word_embeddings=True)
    bare("openelm", "OpenELMForCausalLM", head_dim=32, model_dim=D, num_transformer_layers=3, num_query_heads=[4, 8, 8],
         num_kv_heads=[2, 2, 4], ffn_dim_divisor=64, ffn_multipliers=[0.5, 1.5, 2.0], ffn_with_glu=True, normalize_qk_projections=True,
         share_input_output_layers=True, rope_freq_constant=10000, max_context_length=1024, vocab_size=V)
    variant("openelm", "untied", share_input_output_layers=False, normalize_qk_projections=False)
    hf("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", head_dim=HD, attention_bias=False, use_qk_norm=True, tie_word_embeddings=True,
       rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.0})
    variant("hunyuan_v1_dense", "plain", rope_scaling=None, use_qk_norm=False, attention_bias=True, tie_word_embeddings=False)
    hf("bitnet", "BitNetForCausalLM", hidden_act="relu2", rope_theta=500000.0, tie_word_embeddings=True,
       quantization_config={"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"})
    hf("nemotron-nas", "DeciLMForCausalLM", num_hidden_layers=5, intermediate_size=None, num_key_value_heads=None, rope_theta=500000.0,
       rope_scaling=LLAMA3, attention_bias=False, mlp_bias=False, block_configs=[
           {"attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False}, "ffn": {"ffn_mult": 2.625, "no_op": False, "replace_with_linear": False}},
           {"attention": {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}, "ffn": {"ffn_mult": 1.3125, "no_op": False, "replace_with_linear": False}},
           {"attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False}, "ffn": {"ffn_mult": None, "no_op": False, "replace_with_linear": True}},
           {"attention": {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}, "ffn": {"ffn_mult": None, "no_op": True, "replace_with_linear": False}},
           {"attention": {"n_heads_in_group": 1, "no_op": False, "replace_with_linear": False}, "ffn": {"ffn_mult": 5.25, "no_op": False, "replace_with_linear": False}},
       ])
    linear = copy.deepcopy(CONFIGS["nemotron-nas"]["block_configs"])
    linear[2]["attention"] = {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}
    variant("nemotron-nas", "linear", block_configs=linear)
    hf("llama4_text", "Llama4ForCausalLM", num_hidden_layers=4, intermediate_size_mlp=FF, head_dim=HD, no_rope_layers=[1, 1, 1, 0],
       use_qk_norm=True, rope_theta=500000.0)
    variant("llama4_text", "tied", tie_word_embeddings=True, use_qk_norm=False)
    hf("plamo", "PlamoForCausalLM", n_shared_head=2, num_key_value_heads=None, rms_norm_eps=1e-6)
    bare("nanochat", "NanoChatForCausalLM", hidden_size=D, intermediate_size=4 * D, num_hidden_layers=2, num_attention_heads=H,
         num_key_value_heads=K, max_position_embeddings=1024, rope_theta=10000.0, vocab_size=V)
    hf("olmo2", "Olmo2ForCausalLM", attention_bias=False, rms_norm_eps=1e-6, rope_theta=500000.0)
    variant("olmo2", "bias", attention_bias=True, mlp_bias=True, head_dim=HD, tie_word_embeddings=True)
    hf("olmo3", "Olmo3ForCausalLM", num_hidden_layers=4, attention_bias=False, rms_norm_eps=1e-6, rope_theta=500000.0, sliding_window=8,
       layer_types=[SLIDE, SLIDE, SLIDE, FULL],
       rope_scaling=yarn(rope_type="yarn", factor=8.0, attention_factor=1.2079441541679836))
    hf("exaone4", "Exaone4ForCausalLM", num_hidden_layers=4, head_dim=HD, rms_norm_eps=1e-5, rope_theta=1e6, rope_scaling=LLAMA3,
       sliding_window=8, sliding_window_pattern="LLLG", layer_types=[SLIDE, SLIDE, SLIDE, FULL])
    variant("exaone4", "full", num_hidden_layers=2, sliding_window=None, sliding_window_pattern=None, layer_types=[FULL] * 2, tie_word_embeddings=True)
    hf("gemma", "GemmaForCausalLM", hidden_act="gelu_pytorch_tanh", head_dim=HD, num_key_value_heads=1, rms_norm_eps=1e-6, tie_word_embeddings=True)
    hf("gemma2", "Gemma2ForCausalLM", num_hidden_layers=2, hidden_act="gelu_pytorch_tanh", head_dim=HD, rms_norm_eps=1e-6,
       attn_logit_softcapping=50.0, final_logit_softcapping=30.0, query_pre_attn_scalar=48, sliding_window=8, tie_word_embeddings=True)
    hf("gemma3_text", "Gemma3ForCausalLM", num_hidden_layers=4, hidden_act="gelu_pytorch_tanh", head_dim=HD, num_key_value_heads=1,
       rms_norm_eps=1e-6, query_pre_attn_scalar=48, rope_theta=1e6, rope_local_base_freq=10000.0, sliding_window=8,
       sliding_window_pattern=3, rope_scaling={"rope_type": "linear", "factor": 8.0}, tie_word_embeddings=True)
    variant("gemma3_text", "untied", tie_word_embeddings=False)
    bare("starcoder2", "Starcoder2ForCausalLM", hidden_act="gelu_pytorch_tanh", hidden_size=D, intermediate_size=4 * D, num_hidden_layers=2,
         num_attention_heads=H, num_key_value_heads=K, norm_epsilon=1e-5, rope_theta=100000.0, use_bias=True, sliding_window=8,
         max_position_embeddings=1024, vocab_size=V, tie_word_embeddings=True)
    variant("starcoder2", "untied", tie_word_embeddings=False)
    hf("stablelm", "StableLmForCausalLM", layer_norm_eps=1e-5, partial_rotary_factor=0.25, use_qkv_bias=True, use_parallel_residual=False,
       qk_layernorm=False)
    variant("stablelm", "qknorm", use_qkv_bias=False, use_parallel_residual=True, qk_layernorm=True)
    hf("phi", "PhiForCausalLM", hidden_act="gelu_new", partial_rotary_factor=0.5, layer_norm_eps=1e-5, qk_layernorm=False)
    hf("cohere", "CohereForCausalLM", layer_norm_eps=1e-5, logit_scale=0.5, attention_bias=False, rope_theta=8e6, use_qk_norm=False,
       tie_word_embeddings=True)
    variant("cohere", "qknorm", use_qk_norm=True, attention_bias=True, layer_norm_bias=True)
    variant("cohere", "mqa", num_key_value_heads=1, use_qk_norm=True)
    hf("cohere2", "Cohere2ForCausalLM", num_hidden_layers=4, head_dim=D // H, layer_norm_eps=1e-5, logit_scale=0.25, attention_bias=False,
       rope_theta=50000.0, sliding_window=8, sliding_window_pattern=4, tie_word_embeddings=True)
    hf("nemotron", "NemotronForCausalLM", hidden_act="relu2", head_dim=HD, norm_eps=1e-5, partial_rotary_factor=0.5, attention_bias=False, mlp_bias=False)
    variant("nemotron", "linear", attention_bias=True, mlp_bias=True, rope_scaling={"type": "linear", "factor": 4.0}, tie_word_embeddings=True)
    bare("gpt_neox", "GPTNeoXForCausalLM", hidden_act="gelu", hidden_size=D, intermediate_size=4 * D, layer_norm_eps=1e-5,
         max_position_embeddings=1024, num_attention_heads=H, num_hidden_layers=2, rotary_emb_base=10000, rotary_pct=0.25,
         tie_word_embeddings=False, use_parallel_residual=True, vocab_size=V)
    variant("gpt_neox", "sequential", use_parallel_residual=False, rotary_pct=1.0)
    bare("gpt2", "GPT2LMHeadModel", activation_function="gelu_new", layer_norm_epsilon=1e-5, n_ctx=1024, n_embd=D, n_head=H, n_layer=2,
         n_positions=1024, vocab_size=V)
    bare("gpt_bigcode", "GPTBigCodeForCausalLM", activation_function="gelu_pytorch_tanh", layer_norm_epsilon=1e-5, multi_query=True, n_embd=D,
         n_head=H, n_inner=4 * D, n_layer=2, n_positions=1024, attention_softmax_in_fp32=True, vocab_size=V)
    variant("gpt_bigcode", "mha", multi_query=False, tie_word_embeddings=False)
    bare("olmo", "OLMoForCausalLM", d_model=D, mlp_hidden_size=2 * FF, n_heads=H, n_layers=2, rope_theta=10000.0, embedding_size=V,
         vocab_size=V, weight_tying=False)
    variant("olmo", "tied", weight_tying=True)
    bare("phi3small", "Phi3SmallForCausalLM", hidden_size=D, ff_intermediate_size=FF, dense_attention_every_n_layers=2, gegelu_limit=20.0,
         num_hidden_layers=2, num_attention_heads=H, num_key_value_heads=K, layer_norm_epsilon=1e-5, vocab_size=V,
         mup_attn_multiplier=1.0, mup_use_scaling=True, mup_embedding_multiplier=10.0, mup_width_multiplier=2.0,
         rope_embedding_base=1000000, rope_position_scale=1.0, blocksparse_block_size=64, blocksparse_num_local_blocks=16,
         blocksparse_vert_stride=8, max_position_embeddings=8192)
    variant("phi3small", "sparse", blocksparse_block_size=32, blocksparse_num_local_blocks=1, blocksparse_vert_stride=3)


def moe():
    hf("qwen2_moe", "Qwen2MoeForCausalLM", **EXPERTS, shared_expert_intermediate_size=128, decoder_sparse_step=1, norm_topk_prob=False, rope_theta=1e6)
    hf("qwen3_moe", "Qwen3MoeForCausalLM", num_hidden_layers=3, **EXPERTS, head_dim=HD, mlp_only_layers=[], decoder_sparse_step=1,
       norm_topk_prob=True, attention_bias=False, rms_norm_eps=1e-6, rope_theta=1e6)
    variant("qwen3_moe", "mixed", num_hidden_layers=4, mlp_only_layers=[1], decoder_sparse_step=2, norm_topk_prob=False, tie_word_embeddings=True)
    hf("olmoe", "OlmoeForCausalLM", num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, attention_bias=False, clip_qkv=None)
    variant("olmoe", "norm", norm_topk_prob=True, mlp_bias=True)
    hf("deepseek", "DeepseekForCausalLM", num_hidden_layers=3, n_routed_experts=4, n_shared_experts=2, num_experts_per_tok=2,
       moe_intermediate_size=64, moe_layer_freq=1, first_k_dense_replace=1, norm_topk_prob=False, scoring_func="softmax",
       attention_bias=False, rope_scaling={"type": "linear", "factor": 4.0})
    hf("hunyuan", "HunYuanMoEV1ForCausalLM", num_hidden_layers=4, num_experts=4, moe_topk=[2] * 4, num_shared_expert=[1] * 4,
       moe_intermediate_size=[64] * 4, use_mixed_mlp_moe=True, use_qk_norm=True, use_cla=True, cla_share_factor=2, attention_bias=False,
       tie_word_embeddings=True, rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0})
    variant("hunyuan", "nocla", moe_topk=2, num_shared_expert=1, moe_intermediate_size=64, use_cla=False, use_qk_norm=False, attention_bias=True)
    bare("dbrx", "DbrxForCausalLM", d_model=D, n_heads=H, n_layers=2, max_seq_len=1024, vocab_size=V, tie_word_embeddings=False,
         attn_config={"clip_qkv": 8, "kv_n_heads": K, "rope_theta": 500000},
         ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2, "ffn_act_fn": {"name": "silu"}})
    hf("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", num_hidden_layers=3, head_dim=HD, use_bias=False, rope_theta=500000.0, moe_num_experts=4,
       moe_k=2, moe_intermediate_size=64, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=1,
       moe_use_aux_free=True, moe_gate_act="softmax", moe_capacity=[64, 64, 64], tie_word_embeddings=True)
    variant("ernie4_5_moe", "sigmoid", moe_gate_act="sigmoid", moe_layer_start_index=[1, 1], moe_layer_end_index=[2, 2], use_bias=True,
            tie_word_embeddings=False)
    hf("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, rope_theta=1e6, sliding_window=None)
    variant("mixtral", "tied", tie_word_embeddings=True)
    hf("phimoe", "PhiMoEForCausalLM", num_local_experts=4, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True,
       original_max_position_embeddings=16, rope_scaling=longrope(D // H, short_mscale=1.243163121016122, long_mscale=1.243163121016122,
                                                                  original_max_position_embeddings=16))
    bare("phixtral", "PhiForCausalLM", model_dim=D, num_heads=H, num_layers=2, rotary_dim=16, num_vocab=V, num_local_experts=4,
         num_experts_per_tok=2, activation_function="gelu_new", layer_norm_epsilon=1e-5, n_positions=1024, vocab_size=V)
    alias("phi-msft", "phixtral", "PhiForCausalLM")
    hf("granitemoe", "GraniteMoeForCausalLM", num_local_experts=4, num_experts_per_tok=2, attention_bias=False, attention_multiplier=0.015625,
       embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=1.5, tie_word_embeddings=True)
    hf("gpt_oss", "GptOssForCausalLM", num_hidden_layers=4, head_dim=HD, num_local_experts=4, num_experts_per_tok=2, attention_bias=True,
       sliding_window=8, layer_types=[SLIDE, FULL, SLIDE, FULL], rope_theta=150000, swiglu_limit=7.0,
       rope_scaling=yarn(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False))
    hf("dots1", "Dots1ForCausalLM", **{**ROUTED, "n_group": 1, "topk_group": 1}, num_hidden_layers=3, attention_bias=False, rope_theta=1e7)
    variant("dots1", "groups", n_group=4, topk_group=2, head_dim=HD)
    hf("glm4_moe", "Glm4MoeForCausalLM", **{**ROUTED, "n_group": 1, "topk_group": 1}, num_hidden_layers=3, head_dim=HD, attention_bias=True,
       partial_rotary_factor=0.5, use_qk_norm=True, rope_theta=1e6, num_nextn_predict_layers=1)
    variant("glm4_moe", "groups", n_group=4, topk_group=2, use_qk_norm=False)
    hf("solar_open", "SolarOpenForCausalLM", **{**ROUTED, "n_group": 1, "topk_group": 1}, num_hidden_layers=3, head_dim=HD, attention_bias=False,
       partial_rotary_factor=1.0, use_qk_norm=False, rope_theta=1e6, rope_scaling=yarn())
    hf("exaone_moe", "ExaoneMoEForCausalLM", num_hidden_layers=4, head_dim=HD, **EXPERTS, num_shared_experts=1, n_group=1, topk_group=1,
       routed_scaling_factor=2.5, norm_topk_prob=True, scoring_func="sigmoid", topk_method="noaux_tc", sliding_window=8,
       layer_types=[SLIDE, SLIDE, SLIDE, FULL], is_moe_layer=[False, True, True, True], rope_theta=1e6, rope_scaling=None)
    variant("exaone_moe", "groups", num_experts=8, n_group=4, topk_group=2, rope_parameters={"rope_theta": 500000.0, "rope_type": "default"})
    variant("exaone_moe", "full", layer_types=[FULL] * 4, num_shared_experts=0, tie_word_embeddings=True)
    hf("mimo_v2_flash", "MiMoV2FlashForCausalLM", **{**ROUTED, "n_group": 1, "topk_group": 1, "n_shared_experts": None, "routed_scaling_factor": None},
       num_hidden_layers=4, hybrid_layer_pattern=[0, 1, 1, 0], moe_layer_freq=[0, 1, 1, 1], add_swa_attention_sink_bias=True,
       add_full_attention_sink_bias=False, attention_bias=False, sliding_window_size=8, sliding_window=8, layernorm_epsilon=1e-5, head_dim=96, v_head_dim=64,
       swa_head_dim=96, swa_v_head_dim=64, swa_num_attention_heads=8, swa_num_key_value_heads=4, partial_rotary_factor=0.334,
       rope_theta=5e6, swa_rope_theta=10000.0)
    hf("afmoe", "AfmoeForCausalLM", num_hidden_layers=4, head_dim=HD, **EXPERTS, num_shared_experts=1, num_dense_layers=1, n_group=1, topk_group=1,
       layer_types=[SLIDE, SLIDE, SLIDE, FULL], sliding_window=8, score_func="sigmoid", route_norm=True, route_scale=2.826, mup_enabled=True)
    variant("afmoe", "softmax", score_func="softmax", route_norm=False, mup_enabled=False, num_experts=8, n_group=4, topk_group=2, tie_word_embeddings=True)
    bare("step3p5", "Step3p5ForCausalLM", hidden_size=D, intermediate_size=FF, num_hidden_layers=4, num_attention_heads=H,
         num_attention_groups=K, head_dim=HD, max_position_embeddings=1024, rms_norm_eps=1e-5, vocab_size=V, tie_word_embeddings=False,
         layer_types=[FULL, SLIDE, SLIDE, FULL], sliding_window=8, rope_theta=[5e6, 10000.0, 10000.0, 5e6],
         partial_rotary_factors=[0.5, 1.0, 1.0, 0.5], rope_scaling=LLAMA3, yarn_only_types=[FULL],
         attention_other_setting={"attention_type": SLIDE, "num_attention_heads": 8, "num_attention_groups": 2, "head_dim": HD},
         use_head_wise_attn_gate=True, moe_num_experts=4, moe_top_k=2, moe_intermediate_size=64, share_expert_dim=64,
         moe_layers_enum="1,2,3", moe_router_scaling_factor=3.0, norm_expert_weight=True, use_moe_router_bias=True,
         swiglu_limits=[0.0, 0.0, 0.0, 1.5], swiglu_limits_shared=[0.0, 0.0, 0.0, 2.5])
    variant("step3p5", "defaults", drop=["layer_types", "partial_rotary_factors", "rope_scaling", "yarn_only_types", "moe_layers_enum", "swiglu_limits",
                                         "swiglu_limits_shared", "attention_other_setting"], rope_theta=10000.0, use_head_wise_attn_gate=False)
    hf("bailing_moe", "BailingMoeV2ForCausalLM", num_hidden_layers=3, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64,
       num_shared_experts=1, norm_topk_prob=True, first_k_dense_replace=1, use_bias=False, use_qkv_bias=False, use_qk_norm=True,
       norm_head=False, norm_softmax=False, score_function="sigmoid", n_group=4, topk_group=2, routed_scaling_factor=2.5,
       moe_router_enable_expert_bias=True, moe_router_enable_routed_scaling=True, moe_router_enable_shared_expert=True,
       moe_shared_expert_intermediate_size=64, partial_rotary_factor=0.5, rope_theta=600000.0)
    variant("bailing_moe", "v1", architectures=["BailingMoeForCausalLM"], use_bias=True, use_qkv_bias=True, use_qk_norm=False, norm_head=True,
            score_function="softmax", n_group=1, topk_group=1, moe_router_enable_expert_bias=False, first_k_dense_replace=0,
            routed_scaling_factor=1.0, partial_rotary_factor=1.0)
    hf("Klear", "KlearMoeForCausalLM", **EXPERTS, n_shared_experts=1, mlp_only_layers=[], decoder_sparse_step=1, attention_bias=False,
       norm_topk_prob=True, rope_theta=500000.0)
    hf("minimax", "MiniMaxM2ForCausalLM", num_local_experts=4, num_experts_per_tok=2, head_dim=HD, rotary_dim=32, use_qk_norm=True,
       scoring_func="sigmoid", use_routing_bias=True, shared_intermediate_size=0, intermediate_size=64, rope_theta=5e6, rms_norm_eps=1e-6)
    alias("minimax_m2", "minimax", "MiniMaxM2ForCausalLM")
    llama4_text = decoder(model_type="llama4_text", num_hidden_layers=4, head_dim=HD, attention_bias=False, attention_chunk_size=512,
                          interleave_moe_layer_step=2, intermediate_size=64, intermediate_size_mlp=FF, num_local_experts=4,
                          num_experts_per_tok=1, use_qk_norm=True, rope_theta=500000.0, rope_scaling=LLAMA3, attn_temperature_tuning=4,
                          floor_scale=8, attn_scale=0.1, no_rope_layers=[1, 1, 1, 0])
    bare("llama4", "Llama4ForConditionalGeneration", text_config=llama4_text, tie_word_embeddings=False)
    variant("llama4", "chunk8", text={"attention_chunk_size": 8})  # hits the front-trim defect at once


def mla():
    hf("deepseek_v2", "DeepseekV2ForCausalLM", num_hidden_layers=3, **{**ROUTED, "routed_scaling_factor": 16.0, "topk_method": "group_limited_greedy",
       "scoring_func": "softmax", "norm_topk_prob": False}, **MLA, moe_layer_freq=1, rope_scaling=yarn(factor=40, mscale=0.707, mscale_all_dim=0.707))
    variant("deepseek_v2", "lite", q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1, routed_scaling_factor=1.0, n_shared_experts=2)
    hf("deepseek_v3", "DeepseekV3ForCausalLM", num_hidden_layers=3, **ROUTED, **MLA, moe_layer_freq=1, rms_norm_eps=1e-6,
       num_nextn_predict_layers=1, rope_scaling=DEEPSEEK_YARN)
    variant("deepseek_v3", "noq", q_lora_rank=None, n_group=1, topk_group=1, rope_scaling=None, rope_theta=50000.0)
    variant("deepseek_v3", "bias", attention_bias=True, n_shared_experts=2)
    alias("kimi_k2", "deepseek_v3", "DeepseekV3ForCausalLM", n_group=1, topk_group=1)
    alias("joyai_llm_flash", "deepseek_v3", "DeepseekV3ForCausalLM", n_group=1, topk_group=1, rope_scaling=None)
    dsa = {"index_head_dim": 64, "index_n_heads": 4, "index_topk": 8}
    hf("deepseek_v32", "DeepseekV32ForCausalLM", num_hidden_layers=3, **ROUTED, **MLA, **dsa, moe_layer_freq=1, rms_norm_eps=1e-6,
       num_nextn_predict_layers=1, rope_scaling=DEEPSEEK_YARN)
    variant("deepseek_v32", "dense", index_topk=2048)
    hf("glm_moe_dsa", "GlmMoeDsaForCausalLM", num_hidden_layers=3, **{**ROUTED, "n_group": 1, "topk_group": 1}, **MLA, **dsa, moe_layer_freq=1,
       rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"})
    hf("glm4_moe_lite", "Glm4MoeLiteForCausalLM", num_hidden_layers=3, **{**ROUTED, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.8}, **MLA,
       moe_layer_freq=1, partial_rotary_factor=1.0, rope_theta=1e6, num_nextn_predict_layers=1)
    text = decoder(model_type="deepseek_v3", num_hidden_layers=3, **{**ROUTED, "n_group": 1, "topk_group": 1}, **MLA, moe_layer_freq=1,
                   rope_theta=50000.0)
    bare("kimi_vl", "KimiVLForConditionalGeneration", text_config={**text, "q_lora_rank": None}, vocab_size=V, tie_word_embeddings=False)
    bare("kimi_k25", "KimiK25ForConditionalGeneration", text_config={**text, "model_type": "kimi_k2", "rope_scaling": DEEPSEEK_YARN}, tie_word_embeddings=False)
    longcat = {**decoder(), **MLA, "attention_method": "MLA", "zero_expert_type": "identity", "zero_expert_num": 2, "n_routed_experts": 4,
               "ffn_hidden_size": FF, "expert_ffn_hidden_size": 64, "moe_topk": 2, "num_layers": 2, "norm_topk_prob": False,
               "routed_scaling_factor": 6.0, "router_bias": False, "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "rope_theta": 1e7}
    for key in ("intermediate_size", "num_hidden_layers", "num_key_value_heads"):
        del longcat[key]
    bare("longcat_flash", "LongcatFlashForCausalLM", **longcat)
    variant("longcat_flash", "norm", norm_topk_prob=True, router_bias=True, attention_bias=True)
    bare("longcat_flash_ngram", "LongcatFlashNgramForCausalLM", **longcat, ngram_vocab_size_ratio=3, emb_neighbor_num=3, emb_split_num=2)
    hf("minicpm3", "MiniCPM3ForCausalLM", **{**MLA, "v_head_dim": D // H}, dim_model_base=64, scale_depth=1.4, scale_emb=12,
       rope_scaling=longrope(32, original_max_position_embeddings=64))
    hf("youtu_llm", "YoutuForCausalLM", **MLA, mlp_bias=False, rope_interleave=True, rope_traditional=True, rope_theta=1600000.0,
       tie_word_embeddings=True)
    variant("youtu_llm", "noq", q_lora_rank=None, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
    kimi = {**decoder(), **MLA, "q_lora_rank": None}
    for key in ("attention_bias", "max_position_embeddings"):
        del kimi[key]
    bare("kimi_linear", "KimiLinearForCausalLM", **{**kimi, "num_hidden_layers": 5}, head_dim=D // H, mla_use_nope=True, model_max_length=1024,
         linear_attn_config={"full_attn_layers": [4], "kda_layers": [1, 2, 3, 5], "head_dim": 32, "num_heads": H, "short_conv_kernel_size": 4},
         num_experts=8, moe_intermediate_size=64, num_experts_per_token=2, num_shared_experts=1, moe_router_activation_func="sigmoid",
         moe_renormalize=True, routed_scaling_factor=2.446, first_k_dense_replace=1, moe_layer_freq=1, use_grouped_topk=True,
         num_expert_group=1, topk_group=1)
    variant("kimi_linear", "groups", num_expert_group=4, topk_group=2, moe_router_activation_func="softmax")


def recurrent():
    bare("mamba", "MambaForCausalLM", hidden_size=D, intermediate_size=2 * D, state_size=16, num_hidden_layers=2, conv_kernel=4, use_bias=False,
         use_conv_bias=True, time_step_rank=8, expand=2, layer_norm_epsilon=1e-5, tie_word_embeddings=True, vocab_size=V)
    variant("mamba", "untied", tie_word_embeddings=False, use_bias=True, time_step_rank="auto")
    alias("falcon_mamba", "mamba", "FalconMambaForCausalLM", mixer_rms_eps=1e-6, use_conv_bias=True)
    bare("mamba2", "Mamba2ForCausalLM", hidden_size=D, intermediate_size=2 * D, state_size=32, num_heads=8, head_dim=32, n_groups=2, expand=2,
         num_hidden_layers=2, conv_kernel=4, use_bias=False, use_conv_bias=True, layer_norm_epsilon=1e-5, chunk_size=256, time_step_rank=8,
         time_step_limit=[0.0, INF], tie_word_embeddings=False, norm_before_gate=False, rms_norm=True, vocab_size=V)
    variant("mamba2", "limits", time_step_limit=[0.01, 0.1], use_bias=True, tie_word_embeddings=True, n_groups=1)
    hf("falcon_h1", "FalconH1ForCausalLM", head_dim=HD, attention_bias=False, mlp_bias=False, projectors_bias=False, rope_theta=1e11,
       attention_in_multiplier=1.0, attention_out_multiplier=0.9375, embedding_multiplier=5.656854249492381, key_multiplier=0.390625,
       lm_head_multiplier=0.0390625, mlp_multipliers=[0.8838834764831844, 0.5859375], ssm_in_multiplier=1.25,
       ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738], ssm_out_multiplier=0.23570226039551587,
       mamba_chunk_size=128, mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=32, mamba_d_ssm=256, mamba_d_state=32, mamba_expand=2,
       mamba_n_groups=2, mamba_n_heads=8, mamba_norm_before_gate=False, mamba_proj_bias=False, mamba_rms_norm=False, mamba_use_mlp=True,
       tie_word_embeddings=False)
    variant("falcon_h1", "norm", mamba_rms_norm=True, tie_word_embeddings=True, mamba_n_groups=1, lm_head_multiplier=2.0)
    variant("falcon_h1", "prenorm", mamba_rms_norm=True, mamba_norm_before_gate=True, attention_bias=True, mlp_bias=True, mamba_proj_bias=True)
    hf("jamba", "JambaForCausalLM", num_hidden_layers=4, attn_layer_offset=2, attn_layer_period=4, expert_layer_offset=1, expert_layer_period=2,
       mamba_conv_bias=True, mamba_d_conv=4, mamba_d_state=16, mamba_dt_rank=8, mamba_expand=2, mamba_proj_bias=False, num_experts=4,
       num_experts_per_tok=2, rms_norm_eps=1e-6)
    variant("jamba", "tied", tie_word_embeddings=True, mamba_dt_rank="auto")
    hf("granitemoehybrid", "GraniteMoeHybridForCausalLM", num_hidden_layers=4, layer_types=["mamba", "mamba", "attention", "mamba"],
       attention_bias=False, attention_multiplier=0.015625, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=1.5,
       num_local_experts=4, num_experts_per_tok=2, intermediate_size=64, shared_intermediate_size=FF, mamba_chunk_size=256,
       mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=32, mamba_d_state=32, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=8,
       mamba_proj_bias=False, position_embedding_type="nope", tie_word_embeddings=True)
    variant("granitemoehybrid", "dense", num_local_experts=0, num_experts_per_tok=0, layer_types=["attention"] * 4, intermediate_size=FF,
            position_embedding_type="rope", tie_word_embeddings=False)
    hf("nemotron_h", "NemotronHForCausalLM", num_hidden_layers=6, hybrid_override_pattern="M-M*-M", attention_bias=False, head_dim=HD,
       attention_head_dim=HD, mamba_num_heads=8, mamba_head_dim=32, mamba_proj_bias=False, ssm_state_size=32, conv_kernel=4, n_groups=2,
       mlp_bias=False, mlp_hidden_act="relu2", layer_norm_epsilon=1e-5, use_bias=False, use_conv_bias=True, chunk_size=128,
       time_step_limit=[0.0, INF], time_step_min=0.001, time_step_max=0.1)
    variant("nemotron_h", "moe", drop=["time_step_limit"], num_hidden_layers=6, hybrid_override_pattern="MEM*EM", n_routed_experts=8,
            n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=64, moe_shared_expert_intermediate_size=128, n_group=1,
            topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5)
    variant("nemotron_h@moe", "latent", moe_latent_size=64, n_group=4, topk_group=2)
    CONFIGS["nemotron_h@latent"] = CONFIGS.pop("nemotron_h@moe@latent")
    variant("nemotron_h", "blocks", drop=["hybrid_override_pattern"], layers_block_type=["mamba", "mlp", "attention", "mlp", "mamba", "mlp"],
            use_bias=True, mlp_bias=True, attention_bias=True, time_step_limit=[0.01, 0.1])
    bare("plamo2", "Plamo2ForCausalLM", hidden_size=D, intermediate_size=FF, num_hidden_layers=4, num_attention_heads=H, num_key_value_heads=K,
         hidden_size_per_head=32, rms_norm_eps=1e-6, attention_window_size=2048, full_attention_idx=[1, 3], mamba_d_state=64, mamba_d_conv=4,
         mamba_num_heads=8, mamba_step=2, mamba_chunk_size=256, mamba_enabled=True, max_position_embeddings=1024, tie_word_embeddings=True,
         vocab_size=V)
    lfm2 = {"block_auto_adjust_ff_dim": True, "block_dim": D, "block_ff_dim": 384, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 64,
            "conv_L_cache": 3, "conv_bias": False, "conv_dim": D, "full_attn_idxs": [1, 3], "hidden_size": D, "max_position_embeddings": 1024,
            "norm_eps": 1e-5, "num_attention_heads": H, "num_hidden_layers": 4, "num_key_value_heads": K, "rope_theta": 1e6, "vocab_size": V}
    bare("lfm2", "Lfm2ForCausalLM", **lfm2, tie_embedding=True)
    variant("lfm2", "types", drop=["full_attn_idxs", "rope_theta"], layer_types=["conv", FULL, "conv", FULL], conv_bias=True,
            block_auto_adjust_ff_dim=False, rope_parameters={"rope_theta": 1e6, "rope_type": "default"})
    bare("lfm2-vl", "Lfm2VlForConditionalGeneration", text_config={"model_type": "lfm2", **lfm2}, vocab_size=V)
    bare("lfm2_moe", "Lfm2MoeForCausalLM", hidden_size=D, intermediate_size=FF, **EXPERTS, num_hidden_layers=4, num_dense_layers=1,
         num_attention_heads=H, num_key_value_heads=K, layer_types=["conv", FULL, "conv", FULL], conv_L_cache=3, conv_bias=False,
         max_position_embeddings=1024, norm_eps=1e-5, norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=True,
         rope_theta=1e6, tie_embedding=True, vocab_size=V)
    linear = {"full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
              "linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": HD, "num_hidden_layers": 4, "attention_bias": False,
              "rms_norm_eps": 1e-6}
    hf("qwen3_next", "Qwen3NextForCausalLM", **linear, **EXPERTS, shared_expert_intermediate_size=64, decoder_sparse_step=1, mlp_only_layers=[],
       norm_topk_prob=True, partial_rotary_factor=0.25, rope_theta=1e7)
    variant("qwen3_next", "mixed", mlp_only_layers=[1], norm_topk_prob=False, tie_word_embeddings=True, attention_bias=True)
    rope = {"mrope_interleaved": True, "mrope_section": [3, 3, 2], "partial_rotary_factor": 0.25, "rope_theta": 1e7, "rope_type": "default"}
    text = {**decoder(**linear), "model_type": "qwen3_5_text", "rope_parameters": rope, "attn_output_gate": True,
            "layer_types": ["linear_attention"] * 3 + [FULL], "mtp_num_hidden_layers": 1}
    del text["rope_theta"], text["rope_scaling"]
    bare("qwen3_5", "Qwen3_5ForConditionalGeneration", text_config=text, tie_word_embeddings=False)
    variant("qwen3_5", "tied", text={"tie_word_embeddings": True}, tie_word_embeddings=True)
    bare("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", tie_word_embeddings=False,
         text_config={**text, "model_type": "qwen3_5_moe_text", **EXPERTS, "shared_expert_intermediate_size": 64})
    bare("recurrent_gemma", "RecurrentGemmaForCausalLM", hidden_size=D, intermediate_size=2 * FF, num_hidden_layers=4, num_attention_heads=H,
         num_key_value_heads=1, lru_width=D, conv1d_width=4, attention_bias=False, attention_window_size=8, logits_soft_cap=30.0,
         embeddings_scale_by_sqrt_dim=True, rms_norm_eps=1e-6, rope_theta=10000.0, partial_rotary_factor=0.5,
         block_types=["recurrent", "recurrent", "attention"], hidden_activation="gelu_pytorch_tanh", vocab_size=V)
    variant("recurrent_gemma", "untied", embeddings_scale_by_sqrt_dim=False)
    bare("rwkv7", "RWKV7ForCausalLM", hidden_size=D, intermediate_size=4 * D, hidden_act="sqrelu", head_dim=32, num_hidden_layers=2, num_heads=H,
         norm_eps=1e-5, a_low_rank_dim=64, v_low_rank_dim=32, gate_low_rank_dim=64, decay_low_rank_dim=64, tie_word_embeddings=False, vocab_size=V)
    variant("rwkv7", "tied", tie_word_embeddings=True)
    hf("baichuan_m1", "BaichuanM1ForCausalLM", num_hidden_layers=4, sliding_window=8, sliding_window_layers=[1, 3], conv_window=2,
       num_swa_attention_heads=8, num_swa_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1e6)
    hf("bailing_moe_linear", "BailingMoeLinearV2ForCausalLM", num_hidden_layers=5, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64,
       num_shared_experts=1, norm_topk_prob=True, first_k_dense_replace=1, layer_group_size=2, group_norm_size=2, head_dim=D // H,
       use_bias=False, use_qkv_bias=False, use_qk_norm=True, use_rmsnorm=True, norm_head=False, norm_softmax=False, score_function="sigmoid",
       n_group=4, topk_group=2, routed_scaling_factor=2.5, moe_router_enable_expert_bias=True, moe_router_enable_routed_scaling=True,
       moe_router_enable_shared_expert=True, moe_shared_expert_intermediate_size=64, partial_rotary_factor=0.5, rope_theta=600000.0)


def others():
    hf("iquestloopcoder", "IQuestLoopCoderForCausalLM", head_dim=HD, attention_bias=False, mlp_bias=False, loop_num=2, loop_window_size=8,
       rope_theta=500000.0)
    bare("afm7", "AFMForCausalLM", hidden_dim=D, num_layers=4, num_kv_reuse_layers=2, num_heads=H, num_kv_heads=K, hidden_dim_scale_factor=3.5,
         rope_theta=500000.0, rms_norm_eps=1e-5, vocab_size=V)
    kinds = [SLIDE, SLIDE, FULL, SLIDE, SLIDE, FULL]
    gemma = decoder(hidden_act="gelu_pytorch_tanh", num_hidden_layers=6, head_dim=HD, rms_norm_eps=1e-6, sliding_window=8, rope_theta=1e6,
                    final_logit_softcapping=30.0, layer_types=kinds, hidden_size_per_layer_input=64, vocab_size_per_layer_input=V - 32,
                    num_kv_shared_layers=2, tie_word_embeddings=True)
    bare("gemma3n", "Gemma3nForConditionalGeneration", text_config={
        **gemma, "model_type": "gemma3n_text", "intermediate_size": [FF] * 6, "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0, 0.0, 0.0],
        "altup_active_idx": 0, "altup_coef_clip": 120.0, "altup_correct_scale": True, "altup_num_inputs": 4, "laurel_rank": 64,
        "rope_local_base_freq": 10000.0})
    del gemma["rope_theta"], gemma["rope_scaling"]
    gemma4 = {**gemma, "model_type": "gemma4_text", "head_dim": 32, "global_head_dim": 64, "num_key_value_heads": 1,
              "num_global_key_value_heads": None, "attention_k_eq_v": False, "use_double_wide_mlp": True, "enable_moe_block": False,
              "num_experts": None, "top_k_experts": None, "moe_intermediate_size": None, "vocab_size_per_layer_input": V,
              "rope_parameters": {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                                  SLIDE: {"rope_type": "default", "rope_theta": 10000.0}}}
    bare("gemma4_text", "Gemma4ForCausalLM", **{k: v for k, v in gemma4.items() if k != "model_type"})
    big = {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_key_value_heads": 2,
           "num_global_key_value_heads": 1, "use_double_wide_mlp": False}
    variant("gemma4_text", "keqv", **big)
    variant("gemma4_text", "moe", **big, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=64)
    bare("gemma4", "Gemma4ForConditionalGeneration", text_config=gemma4, vocab_size=V, tie_word_embeddings=True)
    variant("gemma4", "moe", text={**big, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64})

    def text_of(name, **keys):
        config = copy.deepcopy(CONFIGS[name])
        for key in ("architectures", "bos_token_id", "eos_token_id"):
            del config[key]
        return {**config, **keys}

    bare("gemma3", "Gemma3ForConditionalGeneration", text_config=text_of("gemma3_text"), vocab_size=V)
    variant("gemma3", "untied")
    bare("mistral3", "Mistral3ForConditionalGeneration", text_config=text_of("ministral3", tie_word_embeddings=False), spatial_merge_size=2)
    variant("mistral3", "mistral", text_config=text_of("llama", model_type="mistral", rope_scaling=None))
    window = {"num_hidden_layers": 3, "layer_types": [SLIDE, FULL, SLIDE], "sliding_window": 8}
    variant("mistral3", "sliding", text=window)
    bare("llava", "LlavaForConditionalGeneration", text_config=text_of("llama", model_type="mistral", rope_scaling=None))
    bare("pixtral", "LlavaForConditionalGeneration", text_config=text_of("llama", model_type="mistral", rope_scaling=None))
    variant("pixtral", "sliding", text=window)
    mrope = {"type": "mrope", "mrope_section": [4, 6, 6]}
    qwen2 = text_of("qwen2", rope_scaling=mrope)
    del qwen2["model_type"]
    bare("qwen2_vl", "Qwen2VLForConditionalGeneration", **qwen2)
    bare("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", **qwen2)
    variant("qwen2_5_vl", "nested", text_config=text_of("qwen2", model_type="qwen2_5_vl_text", rope_scaling=mrope))
    mrope = {"mrope_interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default"}
    bare("qwen3_vl", "Qwen3VLForConditionalGeneration", tie_word_embeddings=True,
         text_config=text_of("qwen3", model_type="qwen3_vl_text", rope_scaling=mrope))
    bare("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", tie_word_embeddings=False,
         text_config=text_of("qwen3_moe", model_type="qwen3_vl_moe_text", rope_scaling=mrope))


def odd():
    """Sizes that no vector width divides, windows that wrap at other places; ours, to catch what round sizes hide."""
    small = dict(hidden_size=96, intermediate_size=160, num_attention_heads=3, num_key_value_heads=1, head_dim=32, vocab_size=333)
    variant("llama", "odd", rope_scaling=None, attention_bias=True, num_hidden_layers=3, **small)
    variant("llama", "prime", rope_scaling=None, hidden_size=100, intermediate_size=151, num_attention_heads=5, num_key_value_heads=5,
            head_dim=20, vocab_size=331)
    variant("llama", "window5", rope_scaling=None, num_hidden_layers=4, layer_types=[SLIDE, SLIDE, FULL, SLIDE], sliding_window=5, **small)
    variant("qwen2", "odd", **{**small, "num_attention_heads": 3, "num_key_value_heads": 3}, tie_word_embeddings=True)
    variant("qwen3", "odd", **{**small, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 48})
    variant("qwen3", "heads128", head_dim=128)
    variant("gemma3_text", "narrow", num_hidden_layers=5, sliding_window=5, sliding_window_pattern=2, hidden_size=96, intermediate_size=160,
            num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=32, vocab_size=323, rope_scaling=None)
    variant("gemma3_text", "wide", sliding_window=16, sliding_window_pattern=4)
    # Small enough to be committed: the checkpoints of tests/golden.
    small = dict(hidden_size=64, intermediate_size=96, num_attention_heads=2, num_key_value_heads=1)
    variant("llama", "small", **small, head_dim=32)
    variant("llama", "small-sliding", **small, head_dim=32, rope_scaling=None, num_hidden_layers=3, layer_types=[SLIDE, FULL, SLIDE], sliding_window=8)
    variant("qwen2", "small", **small)
    variant("qwen3", "small", **small, head_dim=32)
    variant("gemma3_text", "small", **small, num_hidden_layers=3, head_dim=32, query_pre_attn_scalar=24, sliding_window_pattern=2)


dense()
odd()
moe()
mla()
recurrent()
others()


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, config in CONFIGS.items():
        (out / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{len(CONFIGS)} configs in {out}")


if __name__ == "__main__":
    main()
