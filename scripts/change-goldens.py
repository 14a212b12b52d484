#!/usr/bin/env python3
"""What llama.cpp makes of models that are changed as they are loaded, for the tests of crates/cli.

    scripts/change-goldens.py

It needs llama-cpp-python 0.3.36 (which is llama.cpp 0.5.0), gguf and numpy from PyPI. In
crates/cli/tests/data/changes it writes adapters and control vectors for the tiny models of
crates/llm/tests/data/architectures, and goldens.json: of each model and each list of options of the
program, the logits behind some of 24 tokens (CPU, f32 cache, flash attention off).
"""

import ctypes
import json
import pathlib

import gguf
import llama_cpp as L
import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
MODELS = ROOT / "crates/llm/tests/data/architectures"
DATA = ROOT / "crates/cli/tests/data/changes"
TOKENS = [(i * 7 + 3) % 40 for i in range(24)]
POSITIONS = [11, 23]
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, FF, VOCAB = 2, 32, 4, 2, 8, 48, 40

CASES = {
    "llama": [
        "--rope-scaling linear --rope-scale 4",
        "--rope-freq-scale 0.3",
        "--rope-freq-base 500",
        "--rope-scaling yarn --rope-scale 4",
        "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 16",
        "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 16 --yarn-attn-factor 1.5",
        "--rope-scaling yarn --rope-freq-scale 2 --yarn-orig-ctx 16",
        "--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0 --yarn-attn-factor 1.5",
        "--rope-scaling yarn --rope-scale 8 --yarn-orig-ctx 24 --yarn-ext-factor 0.6 "
        "--yarn-beta-slow 0.5 --yarn-beta-fast 3",
        "--rope-scaling linear --rope-scale 4 --yarn-ext-factor 1 --yarn-orig-ctx 16",
        "--yarn-attn-factor 0.8",
        "--override-kv llama.rope.freq_base=float:300",
        "--override-kv llama.attention.layer_norm_rms_epsilon=float:0.1,"
        "llama.rope.scaling.attn_factor=float:1.2",
        "--override-kv llama.rope.scaling.type=str:yarn,llama.rope.scaling.factor=float:4 "
        "--override-kv llama.rope.scaling.original_context_length=int:16",
        "--lora all.gguf",
        "--lora-scaled all.gguf:0.35",
        "--lora all.gguf,no-alpha.gguf",
        "--lora-scaled all.gguf:0.5,no-alpha.gguf:-1.5",
        "--control-vector vector.gguf",
        "--control-vector-scaled vector.gguf:-2.5 --control-vector vector.gguf",
        "--control-vector vector.gguf --control-vector-layer-range 1 1",
        "--lora all.gguf --control-vector vector.gguf --rope-scaling linear --rope-scale 2",
    ],
    "llama-yarn": [
        "--rope-scaling none",
        "--rope-scaling linear",
        "--rope-scale 2",
        "--yarn-orig-ctx 64",
        "--yarn-ext-factor 0",
    ],
    "llama3": ["--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 16", "--rope-freq-base 700"],
    "qwen2": [
        "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 16",
        "--lora qwen2.gguf",
        "--control-vector vector.gguf",
    ],
}


def adapter(name, arch, rank, alpha, parts, embedding=False):
    """A LoRA adapter of the parts of layers, and of the table and the head."""
    rng = np.random.default_rng(sum(map(ord, name)))
    writer = gguf.GGUFWriter(DATA / f"{name}.gguf", arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    if alpha is not None:
        writer.add_float32("adapter.lora.alpha", alpha)

    def pair(weight, a, b):
        for side, shape in [("a", a), ("b", b)]:
            values = rng.standard_normal(shape) * 0.3
            writer.add_tensor(f"{weight}.lora_{side}", values.astype(np.float32))

    shapes = {
        "attn_q": (WIDTH, HEADS * HEAD),
        "attn_k": (WIDTH, KV_HEADS * HEAD),
        "attn_v": (WIDTH, KV_HEADS * HEAD),
        "attn_output": (HEADS * HEAD, WIDTH),
        "ffn_gate": (WIDTH, FF),
        "ffn_up": (WIDTH, FF),
        "ffn_down": (FF, WIDTH),
    }
    for layer in range(LAYERS):
        for part in parts or shapes:
            inputs, outputs = shapes[part]
            pair(f"blk.{layer}.{part}.weight", (rank, inputs), (outputs, rank))
    if embedding:
        pair("token_embd.weight", (VOCAB, rank), (WIDTH, rank))
        pair("output.weight", (rank, WIDTH), (VOCAB, rank))
    write(writer)


def vector(name):
    """A control vector for both layers, of which there is none for the first."""
    rng = np.random.default_rng(sum(map(ord, name)))
    writer = gguf.GGUFWriter(DATA / f"{name}.gguf", "controlvector")
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_uint32("controlvector.layer_count", LAYERS - 1)
    writer.add_tensor("direction.1", rng.standard_normal(WIDTH).astype(np.float32))
    write(writer)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def overrides(texts):
    """llama.cpp's array of them, with an empty one at its end."""
    kinds = {"int": 0, "float": 1, "bool": 2, "str": 3}
    found = (L.llama_model_kv_override * (len(texts) + 1))()
    for place, text in zip(found, texts):
        key, typed = text.split("=", 1)
        kind, value = typed.split(":", 1)
        place.key, place.tag = key.encode(), kinds[kind]
        if kind == "int":
            place.value.val_i64 = int(value)
        elif kind == "float":
            place.value.val_f64 = float(value)
        elif kind == "bool":
            place.value.val_bool = value == "true"
        else:
            place.value.val_str = value.encode()
    return found


def scaled(values, default):
    """Names and scales of an option with and of one without scales."""
    for value in values:
        for item in value.split(","):
            name, _, scale = item.partition(":")
            yield str(DATA / name), float(scale or default)


def control(ctx, files, layers):
    """As llama.cpp's common library does it."""
    sums = np.zeros((LAYERS - 1, WIDTH), dtype=np.float32)
    for path, scale in files:
        for tensor in gguf.GGUFReader(path).tensors:
            layer = int(tensor.name.removeprefix("direction."))
            sums[layer - 1] += tensor.data * np.float32(scale)
    data = sums.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    first, last = layers or (1, LAYERS)
    assert L.llama_set_adapter_cvec(ctx, data, sums.size, WIDTH, first, last) == 0


def parse(text):
    """Options by their names."""
    options, name = {}, None
    for word in text.split():
        if word.startswith("--"):
            name = word[2:]
        else:
            options.setdefault(name, []).append(word)
    return options


def logits(model_name, text):
    options = parse(text)
    params = L.llama_model_default_params()
    keys = [item for value in options.get("override-kv", []) for item in value.split(",")]
    if keys:
        array = overrides(keys)
        params.kv_overrides = array
    model = L.llama_model_load_from_file(str(MODELS / f"{model_name}.gguf").encode(), params)
    p = L.llama_context_default_params()
    p.n_ctx = p.n_batch = p.n_ubatch = 64
    p.n_threads = p.n_threads_batch = 1
    p.flash_attn_type = p.type_k = p.type_v = 0
    number = lambda name: float(options[name][0])
    for name, value in options.items():
        match name:
            case "rope-scaling":
                p.rope_scaling_type = {"none": 0, "linear": 1, "yarn": 2}[value[0]]
            case "rope-scale":
                p.rope_freq_scale = 1 / number(name)
            case "rope-freq-base" | "rope-freq-scale" | "yarn-ext-factor" | "yarn-attn-factor":
                setattr(p, name.replace("-", "_"), number(name))
            case "yarn-beta-slow" | "yarn-beta-fast":
                setattr(p, name.replace("-", "_"), number(name))
            case "yarn-orig-ctx":
                p.yarn_orig_ctx = int(value[0])
    ctx = L.llama_init_from_model(model, p)
    loras = [*scaled(options.get("lora", []), 1), *scaled(options.get("lora-scaled", []), 1)]
    if loras:
        adapters = [L.llama_adapter_lora_init(model, path.encode()) for path, _ in loras]
        assert all(adapters)
        pointers = (L.llama_adapter_lora_p_ctypes * len(adapters))(*adapters)
        scales = (ctypes.c_float * len(loras))(*(scale for _, scale in loras))
        assert L.llama_set_adapters_lora(ctx, pointers, len(adapters), scales) == 0
    vectors = [*scaled(options.get("control-vector", []), 1)]
    vectors += scaled(options.get("control-vector-scaled", []), 1)
    if vectors:
        layers = options.get("control-vector-layer-range")
        control(ctx, vectors, layers and tuple(map(int, layers)))
    batch = L.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for i, token in enumerate(TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    assert L.llama_decode(ctx, batch) == 0
    row = lambda i: np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), shape=(VOCAB,))
    found = np.concatenate([row(i) for i in POSITIONS])
    L.llama_free(ctx)
    L.llama_model_free(model)
    return found


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    adapter("all", "llama", 4, 6.0, None, embedding=True)
    adapter("no-alpha", "llama", 1, None, ["attn_v", "ffn_down"])
    adapter("qwen2", "qwen2", 3, 3.0, ["attn_q", "attn_k", "ffn_up"])
    vector("vector")
    L.llama_backend_init()
    lines = []
    for model, cases in CASES.items():
        plain = logits(model, "")
        for options in ["", *cases]:
            found = logits(model, options)
            assert np.isfinite(found).all()
            change = np.square(found - plain).sum() / np.square(plain).sum()
            print(f"{model:<12} changes by {change:.1e}: {options}")
            values = [float(f"{value:.6g}") for value in found]
            lines.append(json.dumps({"model": model, "options": options, "logits": values}))
    text = ",\n".join(lines)
    (DATA / "goldens.json").write_text(f"[\n{text}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
