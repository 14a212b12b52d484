#!/usr/bin/env python3
"""How far PyTorch's sums are from double precision. Those on the CPU are the figures that `sums` compares with.

scripts/torch-sums.py > crates/conformance/src/bin/sums.json
scripts/torch-sums.py --device cuda --case attention --most 1000
(pip install torch numpy)

Elements and computations are those of crates/conformance/src/bin/sums.rs. A GPU computes without TF32.
"""

import argparse
import json
import sys

import numpy
import torch
from torch.nn import functional as F

CHUNK = 1 << 22


def elements(shape, operand, is_positive):
    """Numbers in [0, 1), or in [-1, 1), that splitmix64 makes of their places."""
    count = int(numpy.prod(shape))
    parts = []
    with numpy.errstate(over="ignore"):
        start = numpy.uint64(operand + 1) * numpy.uint64(0xD1B54A32D192ED03)
        for first in range(0, count, CHUNK):
            place = numpy.arange(first, min(first + CHUNK, count), dtype=numpy.uint64)
            z = (place + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15) + start
            z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
            z = (z ^ (z >> numpy.uint64(31))) >> numpy.uint64(40)
            parts.append(z.astype(numpy.float32) / numpy.float32(1 << 24))
    x = torch.from_numpy(numpy.concatenate(parts)).reshape(shape)
    return x if is_positive else 2 * x - 1


def gradient(x, which, run):
    x = [t.detach().requires_grad_(i == which) for i, t in enumerate(x)]
    run(x).backward()
    return x[which].grad


def rows(k):
    return max(4, min(64, (1 << 21) // k))


def attend(x):
    return F.scaled_dot_product_attention(*x[:3])


def added(x):
    index = torch.arange(x[0].shape[0], device=x[0].device) % 4
    return x[0].new_zeros(4, x[0].shape[1]).index_add(0, index, x[0])


def normed(x):
    return F.batch_norm(x[0], None, None, training=True)


CASES = {
    "sum of rows": (lambda k: [(rows(k), k)], lambda x: x[0].sum(1)),
    "sum of columns": (lambda k: [(k, rows(k))], lambda x: x[0].sum(0)),
    "cumsum": (lambda k: [(rows(k), k)], lambda x: x[0].cumsum(1)),
    "var": (lambda k: [(rows(k), k)], lambda x: x[0].var(1)),
    "vector_norm": (lambda k: [(rows(k), k)], lambda x: torch.linalg.vector_norm(x[0], dim=1)),
    "logsumexp": (lambda k: [(rows(k), k)], lambda x: x[0].logsumexp(1)),
    "softmax": (lambda k: [(rows(k), k)], lambda x: x[0].softmax(1)),
    "layer_norm": (lambda k: [(rows(k), k)], lambda x: F.layer_norm(x[0], x[0].shape[1:])),
    "rms_norm": (lambda k: [(rows(k), k)], lambda x: F.rms_norm(x[0], x[0].shape[1:], eps=1e-5)),
    "batch_norm": (lambda k: [(k, rows(k))], normed),
    "cosine_similarity": (lambda k: [(rows(k), k)] * 2, lambda x: F.cosine_similarity(x[0], x[1])),
    "index_add": (lambda k: [(k, rows(k))], added),
    "matmul": (lambda k: [(64, k), (k, 64)], lambda x: x[0] @ x[1]),
    "matrix by vector": (lambda k: [(rows(k), k), (k,)], lambda x: x[0] @ x[1]),
    "vector by matrix": (lambda k: [(k,), (k, rows(k))], lambda x: x[0] @ x[1]),
    "conv2d": (lambda k: [(1, -(-k // 9), 8, 8), (8, -(-k // 9), 3, 3)], lambda x: F.conv2d(*x)),
    "attention": (lambda k: [(1, 64, 64), (1, k, 64), (1, k, 64)], attend),
    "gradient of conv2d's weight": (
        lambda k: [(-(-k // 64), 4, 10, 10), (4, 4, 3, 3), (-(-k // 64), 4, 8, 8)],
        lambda x: gradient(x, 1, lambda x: (F.conv2d(x[0], x[1]) * x[2]).sum()),
    ),
    "gradient of attention's keys": (
        lambda k: [(1, k, 64), (1, 64, 64), (1, 64, 64), (1, k, 64)],
        lambda x: gradient(x, 1, lambda x: (attend(x) * x[3]).sum()),
    ),
    "gradient of layer_norm's weight": (
        lambda k: [(k, 16), (16,), (k, 16)],
        lambda x: gradient(x, 1, lambda x: (F.layer_norm(x[0], (16,), x[1]) * x[2]).sum()),
    ),
    "gradient of batch_norm": (
        lambda k: [(k, rows(k)), (k, rows(k))],
        lambda x: gradient(x, 0, lambda x: (normed(x) * x[1]).sum()),
    ),
}


def error_and_bias(found, truth):
    """The root of the mean square of errors, relative to that of results, and by how much results are too
    large, relative to their mean size."""
    found, truth = found.double().flatten(), truth.flatten()
    wrong = found - truth
    error = (wrong.square().mean() / truth.square().mean()).sqrt()
    bias = (wrong * truth.sign()).mean() / truth.abs().mean()
    return [float(f"{error:.3e}"), float(f"{bias:.3e}")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1_000_000, metavar="K", help="the most addends")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--case", default="", help="cases whose names have this in them")
    options = parser.parse_args()
    most = options.most
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    found = {}
    for name, (shapes, run) in CASES.items():
        if options.case not in name:
            continue
        found[name] = {}
        for k in (10**n for n in range(1, 7) if 10**n <= most):
            print(name, k, file=sys.stderr, flush=True)
            signs = []
            for is_positive in (True, False):
                x = [elements(shape, i, is_positive).to(options.device) for i, shape in enumerate(shapes(k))]
                signs.append(error_and_bias(run(x), run([x.double() for x in x])))
            found[name][k] = signs
    text = json.dumps({"torch": torch.__version__, "cases": found}, indent=1)
    print(text)


if __name__ == "__main__":
    main()
