"""Writes the golden files beside it; tests/goldens.rs compares with them.

  quantize/inputs.f32        rows of 256 values, each of another kind
  quantize/<format>.blocks   those rows as ggml's quantize_row_<format>_ref gives them
  quantize/many.txt          FNV-1a hashes of the blocks of many more rows, a format a line
  dequantize/<format>.blocks random blocks
  dequantize/<format>.f32    their values by gguf.quants.dequantize

Needs numpy, the PyPI package gguf (0.19.0), and as argument libggml-base.so of an x86 build of
llama.cpp (0.5.0, the one in the PyPI source package llama-cpp-python 0.3.36):

  python generate.py llama.cpp/build/bin/libggml-base.so
"""

import ctypes
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

ALL = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K MXFP4".split()
NOT_IN_GGUF = ["Q8_1", "Q8_K"]
HERE = Path(__file__).parent


def inputs(rng):
    normal = lambda: rng.standard_normal(256)
    yield normal()
    yield (normal() * 0.02).astype(np.float16)
    yield rng.laplace(size=256)
    yield rng.random(256)
    yield -rng.random(256)
    yield 5 + rng.random(256) * 1e-3
    yield -5 - rng.random(256) * 1e-6
    yield np.full(256, 0.75)
    yield np.repeat(rng.standard_normal(16), 16)
    yield np.zeros(256)
    yield np.where(rng.random(256) < 0.5, 0.0, -0.0)
    yield np.where(rng.random(256) < 0.1, normal(), 0.0)
    yield rng.integers(-8, 8, 256)
    yield np.arange(-127, 129) / 2
    yield normal() * 1e-44
    yield normal() * 1e-38
    yield normal() * 1e-15
    yield normal() * 1e-8
    yield normal() * 1e6
    yield normal() * 1e37
    yield normal() * np.repeat(10.0 ** rng.uniform(-44, 30, 16), 16)
    yield np.where(np.arange(256) % 50 == 7, 1e4, 1.0) * normal()
    yield 0.1 + 2 * np.cos(np.arange(256))


def many():
    """Rows of random products and rows of random integers, which tests/goldens.rs computes likewise."""
    n = np.arange(2 * 1024 * 256, dtype=np.uint32) * np.uint32(0x9E3779B9)
    n = (n ^ (n >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    n = (n ^ (n >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    uniform = (n ^ (n >> np.uint32(16))).view(np.int32).astype(np.float32) / np.float32(2**31)
    a, b = uniform.reshape(2, 1024, 256)
    a[0::2] *= b[0::2]
    a[1::2] = np.trunc(a[1::2] * np.float32(33.5))
    return a.ravel()


def fnv1a(data):
    hash = 0xCBF29CE484222325
    for byte in data.tobytes():
        hash = (hash ^ byte) * 0x100000001B3 % 2**64
    return hash


def quantize(ggml, name, x):
    length, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if name == "Q8_1":
        size = 36  # block_q8_1 in ggml-common.h; gguf still counts 40, with f32 fields
    # ggml leaves the sums of a zero Q8_K block as they are.
    blocks = np.zeros(x.size // length * size, np.uint8)
    lower = name[0].lower() + name[1:] if name[0] == "Q" else name.lower()
    function = getattr(ggml, f"quantize_row_{lower}_ref")
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    function(x.ctypes.data, blocks.ctypes.data, x.size)
    return blocks


def random_blocks(rng, name):
    """512 values with any codes and scales, except that f16 fields are finite."""
    length, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (512 // length, size), dtype=np.uint8)
    halves = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
              "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}.get(name, [0])
    for at in halves:
        half = rng.standard_normal(len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = half.view(np.uint8).reshape(-1, 2)
    return blocks


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    rng = np.random.default_rng(2)
    x = np.concatenate([np.asarray(row).astype(np.float32) for row in inputs(rng)])
    assert np.isfinite(x).all()
    x.tofile(HERE / "quantize/inputs.f32")
    hashes = ((name, fnv1a(quantize(ggml, name, many()))) for name in ALL)
    text = "".join(f"{name} {hash:016x}\n" for name, hash in hashes)
    (HERE / "quantize/many.txt").write_text(text)
    for name in ALL:
        quantize(ggml, name, x).tofile(HERE / f"quantize/{name}.blocks")
        if name not in NOT_IN_GGUF:
            blocks = random_blocks(rng, name)
            values = gguf.quants.dequantize(blocks, GGMLQuantizationType[name])
            blocks.tofile(HERE / f"dequantize/{name}.blocks")
            values.astype(np.float32).tofile(HERE / f"dequantize/{name}.f32")


main()
