#!/usr/bin/env python3
"""Headers of small models of every architecture, and llama.cpp's logits of them, for crates/llm/tests/models.

  architecture-goldens.py headers MODELS HEADERS   a header of each GGUF file of a folder
  architecture-goldens.py goldens FILES HEADERS    logits of the files that `write_models` wrote of headers

Of encoders, whose headers are in crates/llm/tests/data/encoders and written by hand, it makes embeddings of the last
tokens in the place of logits, or scores.

`cargo run --release -p rustorch-llm --example write_models -- HEADERS FILES` is the step between. The models were written
by llama.cpp's own test-llama-archs (-o MODELS -d 0.3) after a change of its sizes: 64 features, 4 heads, 2 of keys, 96
between the products, 64 tokens, a window of 12, 3 of 8 experts. Headers of recurrent models are written by hand.
`goldens` takes keys out of a header whose absence
changes no logit of llama.cpp. It lists tensors whose values change none.

Needs the PyPI packages gguf, numpy and llama-cpp-python 0.3.36, and LLAMA_CPP_LIB_PATH, a folder with llama.cpp 0.5.0.
"""

import ctypes
import json
import os
import pickle
import re
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp.llama_cpp as llama
import numpy as np

# The tokens of `rustorch_testing::models`.
TOKENS = [(i * i * 7 + 3) % 61 for i in range(40)]
# Rows that are kept, the last ones; of large vocabularies one.
ROWS = 2
LARGE = 1000
# Logits below are of tokens that are never chosen.
HIDDEN = -1e30
# Architectures without logits.
ENCODERS = "bert|embedding|-embed$|t5encoder"
# Keys of things that none of these models have.
ELSEWHERE = "tokenizer|ssm|kda|wkv|posnet|convnext|classifier|shortconv|hyper_connection|hrm|dense_|general.name"


def header(path: Path) -> dict:
    """Keys that say something, and shapes of tensors."""
    reader = gguf.GGUFReader(path)
    keys = {}
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or re.search(rf"(^|\.)({ELSEWHERE})", key):
            continue
        value = field.contents()
        says = value if isinstance(value, list) else [value]
        if any(x not in (0, -1, False, "") and x != 2**32 - 1 and is_finite(x) for x in says):
            keys[key] = shortest(value)
    keys["tokenizer.ggml.model"] = "no_vocab"
    tensors = {t.name: [int(n) for n in t.shape] for t in reader.tensors}
    return {"keys": keys, "tensors": tensors, "ignored": [], "logits": []}


def shortest(value):
    """The shortest numbers that are the same in f32."""
    if isinstance(value, list):
        return [shortest(x) for x in value]
    return float(str(np.float32(value))) if isinstance(value, float) else value


def is_finite(x) -> bool:
    return not isinstance(x, float) or np.isfinite(x)


def write(path: str, keys: dict, tensors: dict):
    """A file of these keys and tensors. Whole numbers are u32, others f32, as in `rustorch_testing::models`."""
    writer = gguf.GGUFWriter(path, keys["general.architecture"])
    for key, value in keys.items():
        match value:
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str() if key != "general.architecture":
                writer.add_string(key, value)
            case list():
                writer.add_array(key, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(path: str, is_encoder: bool):
    """Rows of the last tokens, or nothing where llama.cpp refuses the file."""
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not model:
        return None
    options = llama.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch = 64, 64, 64
    options.n_threads = options.n_threads_batch = 1
    options.flash_attn_type, options.type_k, options.type_v = 0, 0, 0
    options.embeddings = is_encoder
    context = llama.llama_init_from_model(model, options)
    if not context:
        return None
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    rows = range(len(TOKENS) - (ROWS if vocab < LARGE else 1), len(TOKENS))
    batch = llama.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for i, token in enumerate(TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, i in rows
        batch.seq_id[i][0] = 0
    # T5's encoder has a way of its own.
    compute = llama.llama_encode if llama.llama_model_has_encoder(model) else llama.llama_decode
    if compute(context, batch):
        return None
    array = lambda pointer, n: np.ctypeslib.as_array(pointer, shape=(n,)).copy()
    if is_encoder and llama.llama_pooling_type(context) == llama.LLAMA_POOLING_TYPE_RANK:
        return array(llama.llama_get_embeddings_seq(context, 0), llama.llama_model_n_cls_out(model))[None]
    width = llama.llama_model_n_embd(model)
    token = lambda i: array(llama.llama_get_embeddings_ith(context, i), width)
    row = token if is_encoder else lambda i: array(llama.llama_get_logits_ith(context, i), vocab)
    return np.stack([row(i) for i in rows])


def asked(keys: dict, tensors: dict, is_quiet: bool = True):
    """The same of a file of these, in a process of its own: llama.cpp ends it at some mistakes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if is_quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/model.gguf"
                write(path, keys, tensors)
                with os.fdopen(writing, "wb") as out:
                    is_encoder = re.search(ENCODERS, keys["general.architecture"]) is not None
                    pickle.dump(logits(path, is_encoder), out)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None


def goldens(path: Path, described: dict) -> dict:
    """The header with logits, without keys that do nothing."""
    tensors = {t.name: np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    keys = dict(described["keys"])
    expected = asked(keys, tensors)
    if expected is None:
        asked(keys, tensors, is_quiet=False)
        raise SystemExit(f"{path}: llama.cpp refuses it")
    same = lambda found: found is not None and np.array_equal(found, expected)
    # llama.cpp compares the numbers of experts. It reads no epsilon of Qwen2-VL; files have one.
    groups = [[key] for key in keys] + [[key for key in keys if re.search(r"\.expert(_used)?_count$", key)]]
    for group in groups:
        without = {k: v for k, v in keys.items() if k not in group}
        stays = group[:1] in ([], ["general.architecture"], ["tokenizer.ggml.model"]) or group[0].endswith("epsilon")
        if not stays and same(asked(without, tensors)):
            keys = without
    ignored = []
    for end in sorted({re.sub(r"^blk\.\d+", "", name) for name in tensors}):
        changed = {n: np.flip(t) * np.float32(1.25) if n.endswith(end) else t for n, t in tensors.items()}
        if same(asked(keys, changed)):
            ignored.append(end)
    rows = [[float(f"{x:.6g}") if x > HIDDEN else None for x in row] for row in expected.astype(float)]
    print(path.stem, len(described["keys"]), "keys,", len(keys), "matter;", *ignored, flush=True)
    return {"keys": keys, "tensors": described["tensors"], "ignored": ignored, "logits": rows}


def line(value) -> str:
    return json.dumps(value, separators=(",", ":"))


def save(described: dict, path: Path):
    members = lambda name: ",\n".join(f" {line(k)}:{line(v)}" for k, v in described[name].items())
    rows = ",\n".join(" " + line(row) for row in described["logits"])
    path.write_text(
        f'{{"keys":{{\n{members("keys")}}},\n"tensors":{{\n{members("tensors")}}},\n'
        f'"ignored":{line(described["ignored"])},\n"logits":[\n{rows}]}}\n'
    )


def main():
    mode, models, headers = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    only = sys.argv[4:]
    for path in sorted(models.glob("*.gguf")):
        if only and path.stem not in only:
            continue
        out = headers / f"{path.stem}.json"
        save(header(path) if mode == "headers" else goldens(path, json.loads(out.read_text())), out)


main()
