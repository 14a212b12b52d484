#!/usr/bin/env python3
"""A tiny random model of each type as `transformers` saves it, with its logits: goldens for
`crates/llm/tests/hugging_face.rs`.

scripts/hugging-face-families.py crates/llm/tests/data/hugging_face [NAME…]      (pip install torch transformers tokenizers)
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TOKENS = 12
ENDS = ("ForCausalLM", "ForConditionalGeneration", "Model")
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24,
             vocab_size=40, max_position_embeddings=64, bos_token_id=38, eos_token_id=39, pad_token_id=None)
SHORT = dict(vocab_size=40, bos_token_id=38, eos_token_id=39, hidden_size=16, num_hidden_layers=2,
             num_attention_heads=2)
GPT = dict(vocab_size=40, bos_token_id=38, eos_token_id=39, n_embd=16, n_layer=2, n_head=2, n_positions=64)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8)
LOCAL = dict(num_local_experts=4, num_experts_per_tok=2)
ROUTED = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1,
              first_k_dense_replace=1, n_group=1, topk_group=1)
LATENT = dict(num_key_value_heads=2, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8)
GRANITE = dict(attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0)
GEMMA = dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=4)
GEMMA4 = dict(head_dim=8, global_head_dim=16, sliding_window=4, hidden_size_per_layer_input=6,
              vocab_size_per_layer_input=40)
ALPHA = dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0)
LAYERS = ["full_attention", "sliding_attention", "full_attention"]
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)


# A part for images, which is not read.
VISION = dict(depth=1, hidden_size=8, embed_dim=8, num_heads=1, intermediate_size=8, out_hidden_size=16, patch_size=2,
              spatial_merge_size=1, temporal_patch_size=1, num_position_embeddings=4, deepstack_visual_indexes=[])


def llama(**scaling):
    return ("Llama", dict(SIZES, rope_scaling=scaling))


# The name of a folder, the name of the classes, sizes.
KINDS = {
    "llama": ("Llama", SIZES),
    "llama-biased": ("Llama", dict(SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=16)),
    "llama3": llama(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=16),
    "llama-linear": llama(rope_type="linear", factor=4.0),
    "llama-yarn": llama(**YARN),
    "llama-yarn-asked": llama(**YARN, attention_factor=1.5, beta_fast=16.0, beta_slow=2.0),
    "mistral": ("Mistral", SIZES),
    "mixtral": ("Mixtral", dict(SIZES, **LOCAL)),
    "smollm3": ("SmolLM3", dict(SIZES, num_hidden_layers=4)),
    "arcee": ("Arcee", dict(SIZES, hidden_act="relu2")),
    "qwen2": ("Qwen2", SIZES),
    "qwen3": ("Qwen3", dict(SIZES, head_dim=16)),
    "qwen2_moe": ("Qwen2Moe", dict(SIZES, **EXPERTS, shared_expert_intermediate_size=12, norm_topk_prob=False)),
    "qwen3_moe": ("Qwen3Moe", dict(SIZES, **EXPERTS, head_dim=16, norm_topk_prob=True)),
    "gemma": ("Gemma", dict(SIZES, head_dim=16, hidden_act="gelu_pytorch_tanh")),
    "gemma2": ("Gemma2", dict(SIZES, **GEMMA)),
    "gemma3": ("Gemma3", dict(SIZES, **GEMMA, num_hidden_layers=6), "Gemma3TextConfig"),
    "gemma3-period": ("Gemma3", dict(SIZES, **GEMMA, layer_types=["sliding_attention", "full_attention"]),
                      "Gemma3TextConfig"),
    "gemma4": ("Gemma4", dict(SIZES, **dict(GEMMA4, hidden_size_per_layer_input=0), num_experts=4,
                              top_k_experts=2, moe_intermediate_size=8, enable_moe_block=True, attention_k_eq_v=True, num_global_key_value_heads=2,
                              layer_types=["sliding_attention", "full_attention"]),
               "Gemma4TextConfig"),
    "gemma4-shared": ("Gemma4", dict(SIZES, **GEMMA4, num_hidden_layers=5, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=5.0),
        "Gemma4TextConfig"),
    "phi3": ("Phi3", SIZES),
    "phi3-long": ("Phi3", dict(SIZES, original_max_position_embeddings=16, rope_scaling=dict(
        rope_type="longrope", long_factor=[1.0, 1.5, 2.0, 2.5], short_factor=[1.0, 1.1, 1.2, 1.3]))),
    "phi": ("Phi", dict(SIZES, hidden_act="gelu_new")),
    "gpt2": ("GPT2LMHead", GPT, "GPT2Config"),
    "gpt_bigcode": ("GPTBigCode", dict(GPT, activation_function="gelu_pytorch_tanh")),
    "starcoder2": ("Starcoder2", dict(SIZES, sliding_window=None)),
    "gpt_neox": ("GPTNeoX", dict(SHORT, intermediate_size=24, max_position_embeddings=64, hidden_act="gelu_new",
                                 rotary_pct=0.5)),
    "gpt_neox-sequential": ("GPTNeoX", dict(SHORT, intermediate_size=24, hidden_act="gelu_new",
                                            use_parallel_residual=False)),
    "falcon": ("Falcon", dict(SHORT, activation="gelu_pytorch_tanh", multi_query=True)),
    "falcon-new": ("Falcon", dict(SHORT, activation="gelu_pytorch_tanh", num_attention_heads=4, num_kv_heads=2,
                                  new_decoder_architecture=True)),
    "bloom": ("Bloom", dict(vocab_size=40, bos_token_id=38, eos_token_id=39, hidden_size=16, n_layer=2, n_head=2)),
    "olmo": ("Olmo", dict(SIZES, clip_qkv=0.5)),
    "olmo2": ("Olmo2", SIZES),
    "olmo3": ("Olmo3", dict(SIZES, num_hidden_layers=4, sliding_window=4)),
    "olmoe": ("Olmoe", dict(SIZES, num_experts=4, num_experts_per_tok=2)),
    "granite": ("Granite", dict(SIZES, **GRANITE)),
    "granitemoe": ("GraniteMoe", dict(SIZES, **GRANITE, **LOCAL)),
    "granitemoeshared": ("GraniteMoeShared", dict(SIZES, **LOCAL, shared_intermediate_size=12)),
    "gpt_oss": ("GptOss", dict(SIZES, **LOCAL, head_dim=16, sliding_window=4, rope_scaling=dict(
        YARN, beta_fast=32.0, beta_slow=1.0, truncate=True))),
    "ministral3": ("Ministral3", dict(SIZES, head_dim=16, rope_parameters=dict(
        YARN, original_max_position_embeddings=4, rope_theta=10000.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "glm4": ("Glm4", dict(SIZES, head_dim=16, partial_rotary_factor=0.5)),
    "glm4_moe": ("Glm4Moe", dict(SIZES, **ROUTED, head_dim=16, use_qk_norm=True, routed_scaling_factor=1.5)),
    "exaone4": ("Exaone4", dict(SIZES, num_hidden_layers=4, head_dim=8, sliding_window=None,
                                 layer_types=["full_attention"] * 4)),
    "seed_oss": ("SeedOss", dict(SIZES, head_dim=16)),
    "cohere": ("Cohere", SIZES),
    "cohere2": ("Cohere2", dict(SIZES, num_hidden_layers=4, sliding_window=4)),
    "stablelm": ("StableLm", SIZES),
    "nemotron": ("Nemotron", dict(SIZES, hidden_act="relu2")),
    "ernie4_5": ("Ernie4_5", dict(SIZES, head_dim=16)),
    "hunyuan_v1_dense": ("HunYuanDenseV1", dict(SIZES, head_dim=16)),
    "hunyuan_v1_dense-alpha": ("HunYuanDenseV1", dict(SIZES, head_dim=16, rope_parameters=ALPHA)),
    "hunyuan_v1_moe": ("HunYuanMoEV1", dict(SIZES, head_dim=16, num_experts=4, moe_topk=2, rope_parameters=ALPHA)),
    "apertus": ("Apertus", SIZES),
    "mpt": ("Mpt", dict(d_model=16, n_heads=2, n_layers=2, max_seq_len=64, vocab_size=40, bos_token_id=38,
                        eos_token_id=39, attn_config=dict(clip_qkv=0.5))),
    "dbrx": ("Dbrx", dict(d_model=16, n_heads=2, n_layers=2, max_seq_len=64, vocab_size=40, bos_token_id=38,
                          eos_token_id=39, attn_config=dict(kv_n_heads=1, clip_qkv=0.5, rope_theta=500.0), ffn_config=dict(
                              ffn_hidden_size=8, hidden_size=16, moe_num_experts=4, moe_top_k=2))),
    "dots1": ("Dots1", dict(SIZES, **ROUTED, norm_topk_prob=True)),
    "deepseek_v2": ("DeepseekV2", dict(SIZES, **ROUTED, **LATENT, q_lora_rank=None, routed_scaling_factor=1.0)),
    "deepseek_v3": ("DeepseekV3", dict(SIZES, **dict(ROUTED, n_routed_experts=8, n_group=4, topk_group=2), **LATENT,
                                       q_lora_rank=10, routed_scaling_factor=2.5, norm_topk_prob=True, rope_scaling=dict(
                                           YARN, mscale=1.0, mscale_all_dim=1.0))),
    "glm4_moe_lite": ("Glm4MoeLite", dict(SIZES, **ROUTED, **LATENT, q_lora_rank=10, routed_scaling_factor=1.8)),
    "llama4": ("Llama4", dict(SIZES, num_local_experts=4, num_hidden_layers=4, head_dim=16, num_experts_per_tok=1,
                              intermediate_size_mlp=20, interleave_moe_layer_step=2), "Llama4TextConfig"),
    "qwen2_vl": ("Qwen2VL", dict(text_config=dict(SIZES, head_dim=8, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2])), vision_config=VISION)),
    "qwen3_vl": ("Qwen3VL", dict(text_config=dict(SIZES, head_dim=16, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision_config=VISION)),
    "qwen3_vl_moe": ("Qwen3VLMoe", dict(text_config=dict(SIZES, **dict(EXPERTS, moe_intermediate_size=12), head_dim=16, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision_config=VISION)),
    "ernie4_5_moe": ("Ernie4_5_Moe", dict(SIZES, head_dim=16, moe_num_experts=4, moe_k=2, moe_intermediate_size=8,
                                          moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_interval=1,
                                          num_hidden_layers=3, moe_layer_end_index=2)),
    "minimax_m2": ("MiniMaxM2", dict(SIZES, **LOCAL, head_dim=16, rotary_dim=8)),
    "mistral4": ("Mistral4", dict(SIZES, **dict(ROUTED, n_shared_experts=2), **LATENT, q_lora_rank=10,
                                  routed_scaling_factor=1.5, rope_parameters=dict(
        YARN, original_max_position_embeddings=4, rope_theta=10000.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "minicpm3": ("MiniCPM3", dict(SIZES, **LATENT, q_lora_rank=10, tie_word_embeddings=True)),
    "exaone_moe": ("ExaoneMoe", dict(SIZES, **EXPERTS, num_hidden_layers=4, head_dim=8, sliding_window=4,
                                     num_shared_experts=2, routed_scaling_factor=1.5)),
    "cohere2_moe": ("Cohere2Moe", dict(dict(SIZES, intermediate_size=8), num_experts=4, num_experts_per_tok=2, num_hidden_layers=4, head_dim=16,
                                       sliding_window=4, num_shared_experts=1, first_k_dense_replace=1,
                                       expert_selection_fn="sigmoid", prefix_dense_intermediate_size=20)),
    "hy_v3": ("HYV3", dict(SIZES, **EXPERTS, head_dim=16, num_shared_experts=2, router_scaling_factor=1.5)),
    "mimo_v2_flash": ("MiMoV2Flash", dict(SIZES, **LOCAL, num_hidden_layers=3, moe_intermediate_size=8, head_dim=12,
                                          v_head_dim=8, sliding_window=4)),
    "laguna": ("Laguna", dict(SIZES, **EXPERTS, num_hidden_layers=3, head_dim=8, sliding_window=4,
                              shared_expert_intermediate_size=12, moe_routed_scaling_factor=1.5,
                              num_attention_heads_per_layer=[2, 4, 2], layer_types=LAYERS, rope_parameters=dict(
        full_attention=dict(YARN, rope_theta=500000.0, partial_rotary_factor=0.5),
        sliding_attention=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)))),
    "jais2": ("Jais2", SIZES),
    "granite_swa": ("GraniteSWA", dict(SIZES, **GRANITE, sliding_window=4, num_hidden_layers=3,
                                       layer_types=LAYERS, layer_rope_theta=[0, 10000, 10000])),
    "mellum": ("Mellum", dict(SIZES, **EXPERTS, num_hidden_layers=3, head_dim=8, sliding_window=4,
                              layer_types=LAYERS, rope_parameters=dict(
        full_attention=dict(YARN, rope_theta=500000.0),
        sliding_attention=dict(rope_type="default", rope_theta=500000.0)))),
    "hunyuan_vl": ("HunYuanVL", dict(text_config=dict(SIZES, head_dim=16, rope_parameters=dict(ALPHA, mrope_section=[
        2, 2, 2, 2])), vision_config=dict(VISION, num_attention_heads=1, text_hidden_size=16, num_hidden_layers=1,
                                            max_image_size=4))),
    "paddleocr_vl": ("PaddleOCRVL", dict(text_config=dict(SIZES, head_dim=16, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, mrope_section=[2, 3, 3])), vision_config=dict(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=2,
            image_size=4, spatial_merge_size=1))),
    "afmoe": ("Afmoe", dict(SIZES, num_hidden_layers=5, head_dim=16, num_experts=4, num_experts_per_tok=2, num_shared_experts=1,
                            moe_intermediate_size=8, num_dense_layers=1, route_scale=1.5, sliding_window=4, mup_enabled=True)),
}


def random(model, adds_one):
    """Weights that show each mistake: norms far from 1, biases far from 0."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = "norm" in name.lower() or ".ln_" in name
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.4))
            if is_norm and name.endswith("weight") and not adds_one:
                weight += 1
            weight.copy_(weight.bfloat16())
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.copy_(torch.randn_like(buffer) * 0.3)
            if name.endswith("layer_scalar"):
                buffer.fill_(0.75)


def main():
    out = Path(sys.argv[1])
    ids = [(7 * i + 3) % 37 for i in range(TOKENS)]
    for name, (kind, sizes, *config) in KINDS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(1)
        config = getattr(transformers, config[0] if config else f"{kind}Config")
        classes = [getattr(transformers, kind + end, None) for end in ENDS]
        model = next(c for c in classes if c)(config(**sizes, attn_implementation="eager"))
        for module in model.modules():
            # llama.cpp approximates it, whatever a model says.
            if isinstance(module, torch.nn.GELU):
                module.approximate = "tanh"
        random(model, name.startswith(("gemma", "nemotron")) and not name.startswith("gemma4"))
        model.eval()
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -2:]
        model.to(torch.bfloat16).save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
        lines = [" ".join(f"{x:.6g}" for x in row) for row in logits.tolist()]
        (out / name / "logits.txt").write_text("\n".join(lines) + "\n")
    words = Tokenizer(models.BPE(vocab={chr(65 + i): i for i in range(40)}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.save(str(out / "tokenizer.json"), pretty=False)


main()
