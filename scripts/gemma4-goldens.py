#!/usr/bin/env python3
"""Logits of Gemma 4's small model by `transformers`, for crates/llm/tests/models: llama.cpp's generator does not make
that model.

gemma4-goldens.py header HEADER         writes the header, without logits
gemma4-goldens.py logits HEADER MODEL   adds the logits of the file that `write_models` wrote of it

Needs the PyPI packages gguf, torch and transformers.
"""

import json
import sys
from pathlib import Path

# The tokens of `rustorch_testing::models`.
TOKENS = [(i * i * 7 + 3) % 61 for i in range(40)]
ROWS = 2
WIDTH, VOCAB, HEADS, KV_HEADS, WIDE, NARROW, INPUT = 64, 64, 4, 2, 32, 16, 8
EXPERTS, EXPERT_WIDTH, LAYERS, SHARED, FEED_FORWARD = 8, 24, 4, 2, 96
KEYS = {
    "block_count": LAYERS,
    "context_length": 256,
    "embedding_length": WIDTH,
    "embedding_length_per_layer_input": INPUT,
    "feed_forward_length": [FEED_FORWARD, FEED_FORWARD, 2 * FEED_FORWARD, 2 * FEED_FORWARD],
    "expert_feed_forward_length": EXPERT_WIDTH,
    "expert_count": EXPERTS,
    "expert_used_count": 3,
    "attention.head_count": HEADS,
    "attention.head_count_kv": [KV_HEADS, 1, KV_HEADS, 1],
    "attention.key_length": WIDE,
    "attention.value_length": WIDE,
    "attention.key_length_swa": NARROW,
    "attention.value_length_swa": NARROW,
    "attention.layer_norm_rms_epsilon": 1e-05,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [1, 0, 1, 0],
    "attention.shared_kv_layers": SHARED,
    "rope.freq_base": 700.0,
    "rope.freq_base_swa": 50.0,
    "final_logit_softcapping": 20.0,
}
# Names of a layer's tensors here and there.
NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
    "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
    "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
    "ffn_gate_inp.weight": "router.proj.weight",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj",
    "ffn_down_exps.weight": "experts.down_proj",
    "inp_gate.weight": "per_layer_input_gate.weight",
    "proj.weight": "per_layer_projection.weight",
    "post_norm.weight": "post_per_layer_input_norm.weight",
    "layer_output_scale.weight": "layer_scalar",
}
GLOBALS = {
    "token_embd.weight": "embed_tokens.weight",
    "per_layer_token_embd.weight": "embed_tokens_per_layer.weight",
    "per_layer_model_proj.weight": "per_layer_model_projection.weight",
    "per_layer_proj_norm.weight": "per_layer_projection_norm.weight",
    "output_norm.weight": "norm.weight",
}


def model():
    import transformers

    kinds = ["sliding_attention", "full_attention"] * (LAYERS // 2)
    config = transformers.Gemma4TextConfig(
        vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, hidden_size=WIDTH, intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=NARROW,
        global_head_dim=WIDE, num_global_key_value_heads=1, attention_k_eq_v=True, num_kv_shared_layers=SHARED,
        use_double_wide_mlp=True, hidden_size_per_layer_input=INPUT, enable_moe_block=True, num_experts=EXPERTS,
        top_k_experts=KEYS["expert_used_count"], moe_intermediate_size=EXPERT_WIDTH, layer_types=kinds,
        sliding_window=12, final_logit_softcapping=KEYS["final_logit_softcapping"], rms_norm_eps=1e-05,
        max_position_embeddings=256, pad_token_id=None, attn_implementation="eager", experts_implementation="eager",
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": KEYS["rope.freq_base_swa"]},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 1.0,
                               "rope_theta": KEYS["rope.freq_base"]}})
    return transformers.Gemma4ForCausalLM(config).double().eval()


def tensors() -> dict:
    """Names of the model's tensors, with the names and shapes in `transformers`."""
    state = model().model.state_dict()
    found = {own: (name, state[name].shape) for own, name in GLOBALS.items()}
    for layer in range(LAYERS):
        for own, name in NAMES.items():
            name = f"layers.{layer}.{name}"
            if name in state:
                found[f"blk.{layer}.{own}"] = (name, state[name].shape)
    return found


def header(path: Path):
    keys = {"general.architecture": "gemma4"} | {f"gemma4.{key}": value for key, value in KEYS.items()}
    shapes = {own: list(shape)[::-1] for own, (_, shape) in tensors().items()} | {"rope_freqs.weight": [WIDE // 2]}
    write(path, {"keys": keys | {"tokenizer.ggml.model": "no_vocab"}, "tensors": shapes, "ignored": [], "logits": []})


def logits(path: Path, file: str):
    import gguf
    import torch

    read = {t.name: torch.tensor(t.data.copy()).double() for t in gguf.GGUFReader(file).tensors}
    net = model()
    state = net.model.state_dict()
    for own, (name, shape) in tensors().items():
        state[name].copy_(read[own].reshape(shape))
    net.model.rotary_emb.full_attention_inv_freq = (
        net.model.rotary_emb.full_attention_inv_freq.double() / read["rope_freqs.weight"])
    with torch.no_grad():
        rows = net(torch.tensor([TOKENS])).logits[0, -ROWS:]
    found = json.loads(path.read_text())
    found["logits"] = [[float(f"{x:.6g}") for x in row] for row in rows.tolist()]
    write(path, found)


def write(path: Path, found: dict):
    """In the form of architecture-goldens.py."""
    lines = [",\n ".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in found[part].items())
             for part in ("keys", "tensors")]
    rows = ",\n ".join(json.dumps(row, separators=(",", ":")) for row in found["logits"])
    path.write_text(f'{{"keys":{{\n {lines[0]}}},\n"tensors":{{\n {lines[1]}}},\n"ignored":[],\n"logits":[\n {rows}]}}\n')


match sys.argv[1:]:
    case ["header", to]:
        header(Path(to))
    case ["logits", to, file]:
        logits(Path(to), file)
    case _:
        sys.exit(__doc__)
