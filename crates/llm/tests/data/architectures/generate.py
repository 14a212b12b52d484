"""Tiny random models of every architecture and rotary scaling, for `architectures.rs`.

Needs the PyPI packages gguf and numpy. The expected logits beside the models were computed
by llama.cpp 0.5.0 (CPU, f32 cache, flash attention off) from these files.
"""

import sys

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, FF, VOCAB, CONTEXT = 32, 2, 4, 2, 8, 48, 40, 64
EXPERTS, EXPERT_FF = 3, 64


def write(name, arch, base=10000.0, tied=False, head=HEAD, options=lambda w: None, factors=None):
    rng = np.random.default_rng(sum(map(ord, name)))
    w = gguf.GGUFWriter(f"{name}.gguf", arch)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(base)
    if head * HEADS != WIDTH:
        w.add_key_length(head)
        w.add_value_length(head)
    if arch == "llama":
        w.add_rope_dimension_count(head)
    if arch == "gpt-oss":
        w.add_sliding_window(8)
        w.add_expert_count(EXPERTS)
        w.add_expert_used_count(2)
        w.add_expert_feed_forward_length(EXPERT_FF)
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("no_vocab")
    options(w)

    def tensor(tensor_name, *shape, scale=0.4, offset=0.0):
        values = rng.standard_normal(shape) * scale + offset
        w.add_tensor(tensor_name, values.astype(np.float32))

    def experts(layer):
        """Those of gpt-oss, whose matrices are MXFP4."""
        tensor(f"{layer}.attn_output.bias", WIDTH)
        tensor(f"{layer}.attn_sinks.weight", HEADS)
        tensor(f"{layer}.ffn_gate_inp.weight", EXPERTS, WIDTH)
        tensor(f"{layer}.ffn_gate_inp.bias", EXPERTS)
        mxfp4 = gguf.GGMLQuantizationType.MXFP4
        for part, n, k in [("gate", EXPERT_FF, WIDTH), ("up", EXPERT_FF, WIDTH), ("down", WIDTH, EXPERT_FF)]:
            values = (rng.standard_normal((EXPERTS, n, k)) * 0.4).astype(np.float32)
            blocks = gguf.quants.quantize(values, mxfp4)
            w.add_tensor(f"{layer}.ffn_{part}_exps.weight", blocks, raw_dtype=mxfp4)
            tensor(f"{layer}.ffn_{part}_exps.bias", EXPERTS, n)

    tensor("token_embd.weight", VOCAB, WIDTH, scale=1.0)
    tensor("output_norm.weight", WIDTH, scale=0.2, offset=1.0)
    if not tied:
        tensor("output.weight", VOCAB, WIDTH)
    if factors is not None:
        w.add_tensor("rope_freqs.weight", np.asarray(factors, dtype=np.float32))
    for i in range(LAYERS):
        layer = f"blk.{i}"
        tensor(f"{layer}.attn_norm.weight", WIDTH, scale=0.2, offset=1.0)
        ffn_norm = "post_attention_norm" if arch == "gpt-oss" else "ffn_norm"
        tensor(f"{layer}.{ffn_norm}.weight", WIDTH, scale=0.2, offset=1.0)
        for part, heads in [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)]:
            tensor(f"{layer}.attn_{part}.weight", heads * head, WIDTH)
            if arch in ("qwen2", "gpt-oss"):
                tensor(f"{layer}.attn_{part}.bias", heads * head)
        tensor(f"{layer}.attn_output.weight", WIDTH, HEADS * head)
        if arch == "qwen3":
            tensor(f"{layer}.attn_q_norm.weight", head, scale=0.2, offset=1.0)
            tensor(f"{layer}.attn_k_norm.weight", head, scale=0.2, offset=1.0)
        if arch == "gpt-oss":
            experts(layer)
            continue
        tensor(f"{layer}.ffn_gate.weight", FF, WIDTH)
        tensor(f"{layer}.ffn_up.weight", FF, WIDTH)
        tensor(f"{layer}.ffn_down.weight", WIDTH, FF)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def linear(w):
    w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    w.add_rope_scaling_factor(4.0)


def yarn(w):
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(4.0)
    w.add_rope_scaling_orig_ctx_len(16)


write("llama", "llama")
write("llama-tied", "llama", tied=True)
write("llama-linear", "llama", options=linear)
write("llama-yarn", "llama", options=yarn)
write("llama3", "llama", base=500000.0, factors=[1.0, 1.5, 4.0, 8.0])
write("qwen2", "qwen2", base=1000000.0)
write("qwen3", "qwen3", base=1000000.0, head=16)
write("gpt-oss-mxfp4", "gpt-oss", base=150000.0, options=yarn)
