#!/usr/bin/env python3
"""PyTorch beside `crates/tensor/benches/speed.rs`: the same operations at the same sizes, in turns.

scripts/compare-torch.py PROGRAM [DEVICE] [--threads N] [--rounds N] [NAME...]   (pip install torch)

PROGRAM is the benchmark's executable (`cargo bench -p rustorch-tensor --bench speed --no-run` says
where it is), DEVICE `cpu` or `cuda`. Prints a table in Markdown: medians of the rounds' medians in
microseconds, and PyTorch's time over RusTorch's, the median of the rounds' ratios.
"""

import argparse
import statistics
import subprocess
import time

import torch
from torch.nn import functional

# As in speed.rs: rows and columns, the side of matrices, images, heads.
SIZES = {
    "small": ((16, 64), 64, (1, 16, 16), (1, 4, 64, 64)),
    "middle": ((256, 1024), 512, (4, 32, 56), (1, 8, 512, 64)),
    "large": ((8192, 2048), 2048, (16, 64, 56), (2, 16, 2048, 64)),
}

# Seconds for which a call is repeated, calls at least, seconds of calls between synchronisations.
TIME, CALLS, BATCH = 0.2, 5, 2e-3

attention = functional.scaled_dot_product_attention

SUBJECTS = {
    "add": ("xy", torch.add),
    "add number": ("x", lambda x: x + 1.5),
    "add row": ("xr", torch.add),
    "mul column": ("xc", torch.mul),
    "div": ("xp", torch.div),
    "pow": ("p", lambda x: torch.pow(x, 2.5)),
    "lerp": ("xy", lambda x, y: torch.lerp(x, y, 0.3)),
    "addcmul": ("xyz", lambda x, y, z: torch.addcmul(x, y, z, value=0.5)),
    "exp": ("x", torch.exp),
    "log": ("p", torch.log),
    "sqrt": ("p", torch.sqrt),
    "sin": ("x", torch.sin),
    "tanh": ("x", torch.tanh),
    "erf": ("x", torch.erf),
    "sigmoid": ("x", torch.sigmoid),
    "relu": ("x", torch.relu),
    "gelu": ("x", functional.gelu),
    "silu": ("x", functional.silu),
    "clamp": ("x", lambda x: torch.clamp(x, -0.5, 0.5)),
    "where": ("mxy", torch.where),
    "gt": ("xy", torch.gt),
    "masked_fill": ("xm", lambda x, m: x.masked_fill(m, 0)),
    "add i32": ("nn", torch.add),
    "add bf16": ("hh", torch.add),
    "to bf16": ("x", lambda x: x.to(torch.bfloat16)),
    "sum": ("x", torch.sum),
    "sum rows": ("x", lambda x: x.sum(1)),
    "sum columns": ("x", lambda x: x.sum(0)),
    "mean rows": ("x", lambda x: x.mean(1)),
    "amax columns": ("x", lambda x: x.amax(0)),
    "max rows": ("x", lambda x: x.max(1)),
    "argmax": ("x", lambda x: x.argmax(1)),
    "var": ("x", lambda x: x.var(1)),
    "norm": ("x", lambda x: torch.linalg.vector_norm(x, 2, 1)),
    "logsumexp": ("x", lambda x: x.logsumexp(1)),
    "any": ("m", lambda m: m.any(1)),
    "cumsum": ("x", lambda x: x.cumsum(1)),
    "softmax": ("x", lambda x: x.softmax(1)),
    "log_softmax": ("x", lambda x: x.log_softmax(1)),
    "layer_norm": ("xrr", lambda x, w, b: functional.layer_norm(x, w.shape, w, b)),
    "rms_norm": ("xr", lambda x, w: functional.rms_norm(x, w.shape, w, 1e-5)),
    "group_norm": ("gww", lambda g, w, b: functional.group_norm(g, 4, w, b)),
    "batch_norm": ("gww", lambda g, w, b: functional.batch_norm(g, None, None, w, b, True)),
    "sort": ("x", lambda x: x.sort(1)),
    "topk": ("x", lambda x: x.topk(10, 1)),
    "transpose": ("x", lambda x: x.t().contiguous()),
    "cat": ("xy", lambda x, y: torch.cat((x, y), 1)),
    "index_select": ("xj", lambda x, j: x.index_select(0, j)),
    "gather": ("xi", lambda x, i: x.gather(1, i)),
    "scatter_add": ("xiy", lambda x, i, y: x.scatter_add(1, i, y)),
    "flip": ("x", lambda x: x.flip(1)),
    "roll": ("x", lambda x: x.roll(3, 1)),
    "pad": ("x", lambda x: functional.pad(x, (2, 3))),
    "tril": ("x", torch.tril),
    "matmul": ("ab", torch.matmul),
    "matmul bf16": ("AB", torch.matmul),
    "bmm": ("de", torch.bmm),
    "linear": ("abv", functional.linear),
    "mv": ("av", torch.mv),
    "outer": ("vv", torch.outer),
    "einsum": ("de", lambda d, e: torch.einsum("bij,bkj->bik", d, e)),
    "conv2d 3x3": ("gkw", lambda g, k, w: functional.conv2d(g, k, w, padding=1)),
    "conv2d 1x1": ("gow", functional.conv2d),
    "conv2d of channels": ("gl", lambda g, k: functional.conv2d(g, k, padding=1, groups=g.shape[1])),
    "max_pool2d": ("g", lambda g: functional.max_pool2d(g, 2)),
    "avg_pool2d": ("g", lambda g: functional.avg_pool2d(g, 2)),
    "interpolate": ("g", lambda g: functional.interpolate(g, scale_factor=2, mode="bilinear")),
    "cross_entropy": ("xt", functional.cross_entropy),
    "mse_loss": ("xy", functional.mse_loss),
    "embedding": ("xj", lambda x, j: functional.embedding(j, x)),
    "attention": ("qqq", attention),
    "attention causal": ("qqq", lambda q, k, v: attention(q, k, v, is_causal=True)),
    "fft": ("x", lambda x: torch.fft.fft(x.to(torch.complex64))),
    "rfft": ("x", torch.fft.rfft),
    "rand": ("x", lambda x: torch.rand(x.shape, device=x.device)),
    "randn": ("x", lambda x: torch.randn(x.shape, device=x.device)),
}


def operand(letter, size, device):
    """The tensor that a letter stands for, as in speed.rs."""
    rows, side, (n, channels, pixels), heads = SIZES[size]
    unit = lambda *shape: 2 * torch.rand(shape, device=device) - 1
    index = lambda shape, end: torch.randint(end, shape, device=device)
    return {
        "x": lambda: unit(*rows),
        "y": lambda: unit(*rows),
        "z": lambda: unit(*rows),
        "r": lambda: unit(rows[1]),
        "c": lambda: unit(rows[0], 1),
        "p": lambda: torch.rand(rows, device=device) + 0.1,
        "h": lambda: unit(*rows).bfloat16(),
        "n": lambda: (100 * unit(*rows)).int(),
        "m": lambda: unit(*rows) > 0,
        "i": lambda: index(rows, rows[1]),
        "t": lambda: index(rows[:1], rows[1]),
        "j": lambda: index(rows[:1], rows[0]),
        "a": lambda: unit(side, side),
        "b": lambda: unit(side, side),
        "A": lambda: unit(side, side).bfloat16(),
        "B": lambda: unit(side, side).bfloat16(),
        "d": lambda: unit(8, side // 2, side // 2),
        "e": lambda: unit(8, side // 2, side // 2),
        "v": lambda: unit(side),
        "g": lambda: unit(n, channels, pixels, pixels),
        "k": lambda: unit(channels, channels, 3, 3),
        "l": lambda: unit(channels, 1, 3, 3),
        "o": lambda: unit(channels, channels, 1, 1),
        "w": lambda: unit(channels),
        "q": lambda: unit(*heads),
    }[letter]()


def torch_time(name, size, device):
    """The median of PyTorch's times for a call, in seconds."""
    operands, function = SUBJECTS[name]
    given = [operand(letter, size, device) for letter in operands]

    def calls(count):
        start = time.perf_counter()
        for _ in range(count):
            function(*given)
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    calls(3)
    batch = max(1, min(1000, int(BATCH / calls(2))))
    times, start = [], time.perf_counter()
    while len(times) < CALLS or time.perf_counter() - start < TIME:
        times.append(calls(batch))
    return statistics.median(times)


def our_times(program, device, threads, name):
    """RusTorch's times by size, in seconds; the sizes that failed are missing."""
    command = [program, device, str(threads), name]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split("\t") for line in lines if line.count("\t") == 2]
    times = {}
    for _, size, text in rows:
        try:
            times[size] = float(text)
        except ValueError:
            print(f"{name} {size}: {text}")
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("names", nargs="*")
    args = parser.parse_intermixed_args()
    torch.set_num_threads(args.threads)
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"{args.threads} threads"
    print(f"PyTorch {torch.__version__}, {where}, {args.rounds} rounds, microseconds\n")
    print("| operation | size | RusTorch | PyTorch | ratio |\n| --- | --- | --- | --- | --- |")
    ratios = []
    with torch.no_grad():
        for name in args.names or SUBJECTS:
            rounds = []
            for _ in range(args.rounds):
                ours = our_times(args.program, args.device, args.threads, name)
                rounds.append({size: (t, torch_time(name, size, args.device)) for size, t in ours.items()})
            for size in SIZES:
                pairs = [times[size] for times in rounds if size in times]
                if not pairs:
                    print(f"| {name} | {size} | failed | | |", flush=True)
                    continue
                ours, theirs = (1e6 * statistics.median(side) for side in zip(*pairs))
                ratio = statistics.median(b / a for a, b in pairs)
                ratios.append(ratio)
                print(f"| {name} | {size} | {ours:.2f} | {theirs:.2f} | {ratio:.2f} |", flush=True)
    mean = statistics.geometric_mean(ratios)
    low = sum(ratio < 0.7 for ratio in ratios)
    print(f"\n{len(ratios)} rows, geometric mean {mean:.2f}, least {min(ratios):.2f}, {low} below 0.7")


main()
