#!/usr/bin/env python3
"""llama.cpp's answers for a model: llama-goldens.py LIBRARIES BINDINGS MODEL OUT [TEXT...]

LIBRARIES is a folder with a built llama.cpp 0.5.0, such as bins/linux-x64 of npm's package @node-llama-cpp/linux-x64 3.22.1.
BINDINGS is the folder llama_cpp of the source package llama-cpp-python 0.3.36, whose types are used. Needs numpy.

Writes OUT as `models/goldens` has it: for each prompt its tokens, and 24 greedy steps with their five largest logits. For
each TEXT it prints the perplexity of the first 4 pieces of 256 tokens.
"""

import ctypes
import importlib
import json
import math
import sys
import types
import typing
from pathlib import Path

import numpy as np

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 5, 8, 13,",
    "Es war einmal ein König, der hatte drei Töchter",
]
STEPS = 24
BEST = 5
CONTEXT = 256
CHUNKS = 4


def load(libraries: Path, bindings: Path):
    """The functions of llama.cpp. Its processor is a library of its own, for Ice Lake."""
    ggml = ctypes.CDLL(str(next(libraries.glob("libggml.*"))), mode=ctypes.RTLD_GLOBAL)
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    ggml.ggml_backend_load.argtypes = [ctypes.c_char_p]
    if not ggml.ggml_backend_load(str(libraries / "libggml-cpu-icelake.so").encode()):
        sys.exit(f"{libraries}: no libggml-cpu-icelake.so that runs here")
    library = ctypes.CDLL(str(next(libraries.glob("libllama.*"))))
    # The package's own beginning asks for more packages, and for functions of later versions.
    package = types.ModuleType("llama_cpp")
    package.__path__ = [str(bindings)]
    extensions = types.ModuleType("typing_extensions")
    extensions.TypeAlias = typing.TypeAlias
    sys.modules.update(llama_cpp=package, typing_extensions=extensions)
    ours = importlib.import_module("llama_cpp._ctypes_extensions")
    ours.load_shared_library = lambda *_: library
    declare = ours.ctypes_function_for_shared_library
    ours.ctypes_function_for_shared_library = lambda lib: (
        lambda name, arguments, result, enabled=True: declare(lib)(name, arguments, result, enabled and hasattr(lib, name))
    )
    return importlib.import_module("llama_cpp.llama_cpp")


class Model:
    """A model, and a context of its own for each text."""

    def __init__(self, llama, path: str):
        self.llama = llama
        self.model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        if not self.model:
            sys.exit(f"{path}: no model that llama.cpp takes")
        self.vocab = llama.llama_model_get_vocab(self.model)

    def tokens(self, text: str) -> list[int]:
        data = text.encode()
        ids = (ctypes.c_int32 * (len(data) + 8))()
        return ids[: self.llama.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, False)]

    def context(self):
        parameters = self.llama.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = CONTEXT
        # More than are free would wait for each other.
        parameters.n_threads = parameters.n_threads_batch = 1
        return self.llama.llama_init_from_model(self.model, parameters)

    def logits(self, context, ids: list[int], position: int) -> np.ndarray:
        """Those behind each of the tokens."""
        batch = self.llama.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position + i, 1, 1
            batch.seq_id[i][0] = 0
        if status := self.llama.llama_decode(context, batch):
            sys.exit(f"llama_decode returned {status}")
        shape = (self.llama.llama_vocab_n_tokens(self.vocab),)
        rows = (self.llama.llama_get_logits_ith(context, i) for i in range(len(ids)))
        return np.stack([np.ctypeslib.as_array(row, shape=shape).copy() for row in rows])

    def golden(self, prompt: str) -> dict:
        context, ids, steps = self.context(), self.tokens(prompt), []
        row = self.logits(context, ids, 0)[-1]
        for position in range(len(ids), len(ids) + STEPS):
            best = np.argsort(-row)[:BEST]
            steps.append({"id": int(best[0]), "top": [[int(i), round(float(row[i]), 5)] for i in best]})
            row = self.logits(context, [int(best[0])], position)[-1]
        self.llama.llama_free(context)
        return {"prompt": prompt, "ids": ids, "steps": steps}

    def perplexity(self, text: str) -> float:
        ids, total, count = self.tokens(text), 0.0, 0
        for start in range(0, CHUNKS * CONTEXT, CONTEXT):
            chunk, context = ids[start : start + CONTEXT], self.context()
            rows = self.logits(context, chunk, 0)[CONTEXT // 2 : -1].astype(np.float64)
            targets = chunk[CONTEXT // 2 + 1 :]
            largest = rows.max(axis=1)
            sums = largest + np.log(np.exp(rows - largest[:, None]).sum(axis=1))
            total += (sums - rows[np.arange(len(targets)), targets]).sum()
            count += len(targets)
            self.llama.llama_free(context)
        return math.exp(total / count)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    libraries, bindings, path, out, *texts = sys.argv[1:]
    model = Model(load(Path(libraries).resolve(), Path(bindings).resolve()), path)
    with open(out, "w", encoding="utf-8") as file:
        for prompt in PROMPTS:
            line = json.dumps(model.golden(prompt), separators=(",", ":"), ensure_ascii=False)
            print(line, file=file)
    for text in texts:
        print(f"{text}: {model.perplexity(Path(text).read_text(encoding='utf-8')):.4f}")


if __name__ == "__main__":
    main()
