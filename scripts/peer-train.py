#!/usr/bin/env python3
"""`rustorch-cli train` beside PyTorch: the same first weights, samples and settings; are the losses the same?

scripts/peer-train.py [--steps 200] [--write FILE.json]
(pip install torch numpy safetensors; `target/release/rustorch-cli` has to be built)

Prints the losses that are farthest apart, and fails if one is farther off than 0.5 %. What is written are PyTorch's
losses, for the test of crates/cli.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

ROOT = Path(__file__).parent.parent
# As in crates/cli/tests/program/train.rs.
SIZES = dict(vocab=300, layers=1, width=32, heads=2, kv_heads=1, ff=48, context=32)
RUN = dict(batch=4, lr=3e-3, warmup=20, seed=3, clip=1.0, weight_decay=0.1)
MASK = 2**64 - 1


def command(folder, steps, more):
    options = {**SIZES, **RUN, "steps": steps}
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    program = [ROOT / "target/release/rustorch-cli", "train", "--text", folder / "text.txt", "--out", folder / "m.gguf"]
    return subprocess.run([*program, *words, "-b", "cpu", *more], check=True, stdout=subprocess.PIPE).stdout.decode()


class SplitMix:
    def __init__(self, state):
        self.state = state & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)


def permutation(length, seed, epoch):
    draw = SplitMix(SplitMix(seed).next() ^ SplitMix(~epoch).next())
    order = list(range(length))
    for last in range(length - 1, 0, -1):
        other = (draw.next() * (last + 1)) >> 64
        order[last], order[other] = order[other], order[last]
    return order


def batches(tokens, steps):
    size, context = RUN["batch"], SIZES["context"]
    windows = (len(tokens) - 1) // context
    windows -= windows // 20
    each = windows // size
    for step in range(steps):
        epoch, batch = divmod(step, each)
        order = permutation(windows, RUN["seed"], epoch)[batch * size : (batch + 1) * size]
        yield torch.stack([tokens[i * context : (i + 1) * context + 1] for i in order])


def rope(x):
    width, length = x.shape[-1], x.shape[-2]
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-5)


def forward(p, tokens):
    b, t = tokens.shape
    x = p["token_embd.weight"][tokens]
    for i in range(SIZES["layers"]):
        w = lambda name: p[f"blk.{i}.{name}.weight"]
        h = norm(x, w("attn_norm"))
        q, k, v = (F.linear(h, w(f"attn_{n}")).view(b, t, -1, SIZES["width"] // SIZES["heads"]).transpose(1, 2) for n in "qkv")
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=True)
        x = x + F.linear(y.transpose(1, 2).reshape(b, t, -1), w("attn_output"))
        h = norm(x, w("ffn_norm"))
        x = x + F.linear(F.silu(F.linear(h, w("ffn_gate"))) * F.linear(h, w("ffn_up")), w("ffn_down"))
    return F.linear(norm(x, p["output_norm.weight"]), p["token_embd.weight"])


def train(weights, tokens, steps):
    p = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    groups = [
        dict(params=[x for x in p.values() if x.dim() >= 2], weight_decay=RUN["weight_decay"]),
        dict(params=[x for x in p.values() if x.dim() < 2], weight_decay=0.0),
    ]
    adam = torch.optim.AdamW(groups, lr=RUN["lr"], betas=(0.9, 0.95))
    for step, batch in enumerate(batches(tokens, steps), 1):
        warmup, high, low = RUN["warmup"], RUN["lr"], RUN["lr"] / 10
        progress = (step - warmup) / max(1, steps - warmup)
        lr = high * step / warmup if step <= warmup else low + (high - low) * (1 + math.cos(math.pi * progress)) / 2
        for group in adam.param_groups:
            group["lr"] = lr
        adam.zero_grad()
        loss = F.cross_entropy(forward(p, batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), RUN["clip"])
        adam.step()
        yield loss.item()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--write", type=Path)
args = parser.parse_args()
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "text.txt").write_bytes((ROOT / "models/classics-eval.txt").read_bytes()[:20000])
    command(folder, 0, ["--checkpoint", folder / "first"])
    state = load_file(folder / "first/step-00000000.safetensors")
    weights = {name[6:]: tensor for name, tensor in state.items() if name.startswith("model.")}
    tokens = torch.from_numpy(numpy.fromfile(folder / "first/tokens.bin", dtype="<u4").astype("int64"))
    ours = [json.loads(line)["loss"] for line in command(folder, args.steps, ["-o", "json"]).splitlines()]
    theirs = list(train(weights, tokens, args.steps))
apart = [abs(a / b - 1) for a, b in zip(ours, theirs)]
step = max(range(args.steps), key=apart.__getitem__)
print(f"from {ours[0]:.6f} to {ours[-1]:.6f}; farthest apart at step {step + 1}: {ours[step]:.6f}, PyTorch's {theirs[step]:.6f}")
if args.write:
    args.write.write_text(json.dumps([round(loss, 6) for loss in theirs]) + "\n")
sys.exit(max(apart) > 0.005)
