#!/usr/bin/env python3
"""`rustorch-cli train` beside PyTorch: the same first weights, samples and settings; are the losses the same?

scripts/peer-train.py [--steps 200] [--write FILE.json]
scripts/peer-train.py --recipe --text FILE [--steps 600] [--batch 128] [--program rustorch-cli]
(pip install torch numpy safetensors; `target/release/rustorch-cli` has to be built)

Prints the losses that are farthest apart, and fails if one is farther off than 0.5 %. What is written are PyTorch's
losses, for the test of crates/cli. With --recipe the model has the sizes of the bundled one and is trained on CUDA in bf16,
there by a compiled step: losses are means of 50 steps then, and tokens a second are those behind the first 50.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

ROOT = Path(__file__).parent.parent
# As in crates/cli/tests/program/train.rs.
SIZES = dict(vocab=300, layers=1, width=32, heads=2, kv_heads=1, ff=48, context=32)
RUN = dict(batch=4, lr=3e-3, warmup=20, seed=3, clip=1.0, weight_decay=0.1)
RECIPE = dict(vocab=4096, layers=6, width=512, heads=8, kv_heads=2, ff=768, context=512)
# Steps that losses and speeds of the recipe are the means of, and that do not count for its speed.
MEAN = 50
MASK = 2**64 - 1


def command(folder, text, steps, more):
    options = {**SIZES, **RUN, "steps": steps}
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    where = ["-b", "cuda", "--precision", "bf16"] if args.recipe else ["-b", "cpu"]
    program = [args.program, "train", "--text", text, "--out", folder / "m.gguf"]
    return subprocess.run([*program, *words, *where, *more], check=True, stdout=subprocess.PIPE).stdout.decode()


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
    within = torch.arange(context + 1, device=tokens.device)
    for step in range(steps):
        epoch, batch = divmod(step, each)
        if batch == 0:
            order = torch.tensor(permutation(windows, RUN["seed"], epoch), device=tokens.device)
        begins = order[batch * size : (batch + 1) * size] * context
        yield tokens[begins[:, None] + within]


def rope(x):
    width, length = x.shape[-1], x.shape[-2]
    there = x.device
    angles = torch.arange(length, device=there)[:, None] * 10000.0 ** (-torch.arange(0, width, 2, device=there) / width)
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


def loss_of(p, batch):
    with torch.autocast("cuda", torch.bfloat16, enabled=args.recipe):
        logits = forward(p, batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def train(weights, tokens, steps):
    p = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    groups = [
        dict(params=[x for x in p.values() if x.dim() >= 2], weight_decay=RUN["weight_decay"]),
        dict(params=[x for x in p.values() if x.dim() < 2], weight_decay=0.0),
    ]
    adam = torch.optim.AdamW(groups, lr=RUN["lr"], betas=(0.9, 0.95), fused=args.recipe)
    compute = torch.compile(loss_of) if args.recipe else loss_of
    for step, batch in enumerate(batches(tokens, steps), 1):
        warmup, high, low = RUN["warmup"], RUN["lr"], RUN["lr"] / 10
        progress = (step - warmup) / max(1, steps - warmup)
        lr = high * step / warmup if step <= warmup else low + (high - low) * (1 + math.cos(math.pi * progress)) / 2
        for group in adam.param_groups:
            group["lr"] = lr
        adam.zero_grad()
        loss = compute(p, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), RUN["clip"])
        adam.step()
        # Read when it is wanted, so that nothing waits for it.
        yield loss.detach()


def first(folder, text):
    """The weights of step 0, and the tokens."""
    command(folder, text, 0, ["--checkpoint", folder / "first"])
    state = load_file(folder / "first/step-00000000.safetensors")
    weights = {name[6:]: tensor for name, tensor in state.items() if name.startswith("model.")}
    return weights, torch.from_numpy(numpy.fromfile(folder / "first/tokens.bin", dtype="<u4").astype("int64"))


def recipe(folder, text):
    """Losses and speeds, side by side."""
    weights, tokens = first(folder, text)
    weights, tokens = {name: tensor.cuda() for name, tensor in weights.items()}, tokens.cuda()
    run = folder / "run"
    run.mkdir()
    for name in ("texts.json", "vocabulary.gguf", "tokens.bin"):
        (folder / "first" / name).rename(run / name)
    begun = time.perf_counter()
    # One validation at the end, whose time is in the last line.
    more = ["-o", "json", "--checkpoint", run, "--every", str(args.steps)]
    lines = [json.loads(line) for line in command(folder, text, args.steps, more).splitlines()]
    whole = time.perf_counter() - begun
    each = RUN["batch"] * SIZES["context"]
    at = lambda line: line["tokens"] / line["tokens_per_s"]
    speed = (lines[-2]["tokens"] - lines[MEAN - 1]["tokens"]) / (at(lines[-2]) - at(lines[MEAN - 1]))
    ours, theirs = [line["loss"] for line in lines], []
    begun = time.perf_counter()
    for step, loss in enumerate(train(weights, tokens, args.steps), 1):
        theirs.append(loss)
        if step in (MEAN, args.steps):
            torch.cuda.synchronize()
            now = time.perf_counter()
            since, before = (now, 0) if step == MEAN else (since, now - since)
    others = (args.steps - MEAN) * each / before
    theirs = torch.stack(theirs).tolist()
    print(f"tokens/s behind the first {MEAN} steps: {speed:,.0f}, PyTorch's {others:,.0f} ({speed / others:.2f})")
    print(f"seconds of {args.steps} steps with all that is before and behind: {whole:.1f}, PyTorch's {now - begun:.1f}")
    mean = lambda losses, end: sum(losses[end - MEAN : end]) / MEAN
    ends = sorted({args.steps * i // 6 for i in range(1, 7)})
    for end in (end for end in ends if end >= MEAN):
        a, b = mean(ours, end), mean(theirs, end)
        print(f"step {end}, {end * each / 1e6:.0f} M tokens: loss {a:.4f}, PyTorch's {b:.4f} ({(a / b - 1) * 100:+.2f} %)")
    sys.exit(abs(mean(ours, args.steps) / mean(theirs, args.steps) - 1) > 0.005)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int)
parser.add_argument("--write", type=Path)
parser.add_argument("--recipe", action="store_true")
parser.add_argument("--text", type=Path)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--program", default=ROOT / "target/release/rustorch-cli")
args = parser.parse_args()
args.steps = args.steps or (600 if args.recipe else 200)
if args.recipe:
    SIZES, RUN = RECIPE, {**RUN, "batch": args.batch}
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    if args.recipe:
        recipe(folder, args.text)
    text = folder / "text.txt"
    text.write_bytes((ROOT / "models/classics-eval.txt").read_bytes()[:20000])
    weights, tokens = first(folder, text)
    ours = [json.loads(line)["loss"] for line in command(folder, text, args.steps, ["-o", "json"]).splitlines()]
    theirs = [loss.item() for loss in train(weights, tokens, args.steps)]
apart = [abs(a / b - 1) for a, b in zip(ours, theirs)]
step = max(range(args.steps), key=apart.__getitem__)
print(f"from {ours[0]:.6f} to {ours[-1]:.6f}; farthest apart at step {step + 1}: {ours[step]:.6f}, PyTorch's {theirs[step]:.6f}")
if args.write:
    args.write.write_text(json.dumps([round(loss, 6) for loss in theirs]) + "\n")
sys.exit(max(apart) > 0.005)
