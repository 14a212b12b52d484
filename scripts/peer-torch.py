#!/usr/bin/env python3
"""PyTorch's times for the operations of `crates/tensor/benches/operations.rs`, in the same rows.

scripts/peer-torch.py [THREADS [MIB...]] [DTYPE] [--compile] [NAME...]    (pip install torch)

Of a matmul sizes are rows and columns. Columns, medians in milliseconds: `into` writes into a tensor that is there (`out=`, NaN where there
is no such form), `fresh` makes a new one, `compiled` is the same function by torch.compile.
"""

import statistics
import sys
import time

import torch
from torch.nn import functional

WIDTH = 1024
RUNS = 15
LARGE = 1 << 24


def chain(x, y, out=None):
    """Eight operations one by one, all in one tensor where one is given."""
    if out is None:
        v = torch.sigmoid(x * 1.5 + y) * x
        return torch.sqrt(torch.abs(torch.tanh(v) - y))
    torch.mul(x, 1.5, out=out)
    torch.add(out, y, out=out)
    torch.sigmoid(out, out=out)
    torch.mul(out, x, out=out)
    torch.tanh(out, out=out)
    torch.sub(out, y, out=out)
    torch.abs(out, out=out)
    return torch.sqrt(out, out=out)


def layer_norm_into(x, weight, bias, out):
    moments = [torch.empty(x.shape[0], 1) for _ in range(2)]
    norm = torch.ops.aten.native_layer_norm.out
    return lambda: norm(x, (WIDTH,), weight, bias, 1e-5, out0=out, out1=moments[0], out2=moments[1])


def subjects(x, y, weight, bias, a, b):
    """Of each name the function, its operands, and the same into memory that is there."""
    out, c = torch.empty_like(x), torch.empty_like(a)
    total = torch.empty((), dtype=x.dtype)
    totals = torch.empty(x.shape[0], dtype=x.dtype)
    aten = torch.ops.aten
    norm = lambda x, w, b: functional.layer_norm(x, (WIDTH,), w, b)
    return {
        "add": (torch.add, (x, y), lambda: torch.add(x, y, out=out)),
        "gelu": (functional.gelu, (x,), lambda: aten.gelu.out(x, out=out)),
        "softmax": (lambda x: torch.softmax(x, 1), (x,), lambda: torch.softmax(x, 1, out=out)),
        "sum": (torch.sum, (x,), lambda: torch.sum(x, (0, 1), out=total)),
        "sum of rows": (lambda x: x.sum(1), (x,), lambda: torch.sum(x, 1, out=totals)),
        "layer_norm": (norm, (x, weight, bias), layer_norm_into(x, weight, bias, out)),
        "exp": (torch.exp, (x,), lambda: torch.exp(x, out=out)),
        "tanh": (torch.tanh, (x,), lambda: torch.tanh(x, out=out)),
        "sigmoid": (torch.sigmoid, (x,), lambda: torch.sigmoid(x, out=out)),
        "8 operations": (chain, (x, y), lambda: chain(x, y, out)),
        "matmul": (torch.matmul, (a, b), lambda: torch.matmul(a, b, out=c)),
    }


def median(runs, run):
    """The median of some runs' milliseconds."""
    for _ in range(3):
        run()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    args = sys.argv[1:]
    numbers = [int(arg) for arg in args if arg.isdigit()]
    dtypes = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    dtype = next((arg for arg in args if arg in dtypes), "f32")
    compiles = "--compile" in args
    names = [arg for arg in args if not arg.isdigit() and arg not in dtypes and arg != "--compile"]
    torch.set_num_threads(numbers[0] if numbers else torch.get_num_threads())
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'':40}      into     fresh  compiled")
    for mib in numbers[1:] or [1, 256]:
        rows = (mib << 20) // WIDTH // dtypes[dtype].itemsize
        sizes = [(rows, WIDTH), (rows, WIDTH), (WIDTH,), (WIDTH,), (mib, mib), (mib, mib)]
        operands = [(2 * torch.rand(size) - 1).to(dtypes[dtype]) for size in sizes]
        for name, (function, given, into) in subjects(*operands).items():
            if names and name not in names:
                continue
            # An element of a product is worth hundreds.
            work = mib**3 // 256 if name == "matmul" else rows * WIDTH
            runs = 20 * RUNS if work < LARGE else RUNS // 2
            compiled = float("nan")
            if compiles:
                faster = torch.compile(function)
                compiled = median(runs, lambda: faster(*given))
            times = [median(runs, into), median(runs, lambda: function(*given)), compiled]
            label = f"{name} {dtype} {mib}" + (" MiB" if name != "matmul" else "")
            print(f"{label:40} " + " ".join(f"{t:9.4f}" for t in times) + " ms", flush=True)


main()
