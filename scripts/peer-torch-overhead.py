#!/usr/bin/env python3
"""PyTorch's times for the operations of `crates/tensor/benches/overhead.rs`, in the same rows.

scripts/peer-torch-overhead.py [THREADS]    (pip install torch)

The least of 40 means of 1000 runs, in microseconds.
"""

import sys
import time

import torch

ELEMENTS = 100
CHAIN = 1000
ROUNDS = 40


def show(what, runs, steps, run):
    """Prints the least mean of one of the `steps` operations that each of `runs` runs has."""
    best = float("inf")
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        for index in range(runs):
            run(index)
        best = min(best, time.perf_counter() - start)
    print(f"{what:<44} {1e6 * best / (runs * steps):>8.3f} µs", flush=True)


def sums(x, y):
    for _ in range(CHAIN):
        x = x + y
    return x


def main():
    torch.set_num_threads(int(sys.argv[1]) if sys.argv[1:] else torch.get_num_threads())
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    pairs = [[torch.full((ELEMENTS + i,), 0.5) for _ in range(2)] for i in range(100)]
    x, y = pairs[0]
    with torch.no_grad():
        show("x + y", 1000, 1, lambda _: x + y)
        show("x.exp()", 1000, 1, lambda _: x.exp())
        show("x * 2.5", 1000, 1, lambda _: x * 2.5)
        show("x * s, each s another", 1000, 1, lambda i: x * float(i))
        show("(x * y + x).relu()", 1000, 1, lambda _: (x * y + x).relu())
        show("x.sum()", 1000, 1, lambda _: x.sum())
        show("x + y + y …, each of 1000", 5, CHAIN, lambda _: sums(x, y))
        show("x + y, each of another shape", 100, 1, lambda i: pairs[i][0] + pairs[i][1])


main()
