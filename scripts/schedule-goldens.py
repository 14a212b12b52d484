#!/usr/bin/env python3
"""Writes the rates of PyTorch's schedules in each other: crates/nn/tests/goldens/nested_schedules.json.

    scripts/schedule-goldens.py [FILE]

Every pair of schedules is put one behind the other, chained, and beside each other on one optimiser; triples are nested
twice. What PyTorch refuses is left out, with a count on the error stream.
"""

import collections
import itertools
import json
import random
import sys
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler, swa_utils

OUT = Path(__file__).parent.parent / "crates/nn/tests/goldens/nested_schedules.json"
STEPS = 8
MOMENTUM = 0.7

# A short name, PyTorch's name and its arguments.
SCHEDULES = {
    "step": ("StepLR", {"step_size": 2, "gamma": 0.5}),
    "multistep": ("MultiStepLR", {"milestones": [0, 1, 4], "gamma": 0.5}),
    "constant": ("ConstantLR", {"factor": 0.25, "total_iters": 2}),
    "linear": ("LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 4}),
    "exponential": ("ExponentialLR", {"gamma": 0.9}),
    "polynomial": ("PolynomialLR", {"total_iters": 7, "power": 1.5}),
    "cosine": ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    "swa": ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 3}),
    "cyclic": ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 2}),
    "onecycle": ("OneCycleLR", {"max_lr": 0.6, "total_steps": 12}),
    "onecycle2": ("OneCycleLR", {"max_lr": 2.0, "total_steps": 16, "pct_start": 0.5}),
    "lambda": ("LambdaLR", {"lr_lambda": lambda epoch: 1 / (1 + epoch)}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.9 - 0.1 * epoch}),
}


def make(tree, optimizer):
    """The schedule of a name, or of `[kind, schedules, milestones]`."""
    if isinstance(tree, str):
        name, arguments = SCHEDULES[tree]
        module = swa_utils if name == "SWALR" else lr_scheduler
        return getattr(module, name)(optimizer, **arguments)
    kind, parts, milestones = tree
    parts = [make(part, optimizer) for part in parts]
    if kind == "sequential":
        return lr_scheduler.SequentialLR(optimizer, parts, milestones)
    return lr_scheduler.ChainedScheduler(parts, optimizer)


def rates(trees, adam, metrics):
    """Learning rates and momenta at first and after each step of schedules on one optimiser."""
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    if adam:
        optimizer = torch.optim.Adam(parameters, lr=1.0, betas=(MOMENTUM, 0.99))
    else:
        optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=MOMENTUM)
    schedules = [make(tree, optimizer) for tree in trees]
    if metrics:
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, cooldown=1)
    group = optimizer.param_groups[0]
    momentum = lambda: group["betas"][0] if adam else group["momentum"]
    lrs, momenta = [group["lr"]], [momentum()]
    for step in range(STEPS):
        optimizer.step()
        for schedule in schedules:
            schedule.step()
        if metrics:
            plateau.step(metrics[step])
        lrs.append(group["lr"])
        momenta.append(momentum())
    rounded = lambda numbers: [float(f"{x:.9g}") for x in numbers]
    changes = any(momentum != MOMENTUM for momentum in momenta)
    return {"lrs": rounded(lrs)} | ({"momenta": rounded(momenta)} if changes else {})


def cases():
    names = list(SCHEDULES)
    sequential = lambda parts, *milestones: ["sequential", list(parts), list(milestones)]
    chained = lambda *parts: ["chained", list(parts), []]
    for name in names:
        yield [name]
        yield [sequential([name])]
        yield [chained(name)]
    for a, b in itertools.product(names, names):
        yield [sequential([a, b], 3)]
        yield [chained(a, b)]
        yield [a, b]
    draw = random.Random(0)
    for _ in range(12):
        a, b, c, d = (draw.choice(names) for _ in range(4))
        yield [sequential([a, b, c], 2, 5)]
        yield [sequential([a, b], 0)]
        yield [sequential([sequential([a, b], 3), c], 6)]
        yield [sequential([sequential([sequential([a, b], 3), c], 5), d], 7)]
        yield [sequential([chained(a, b), c], 4)]
        yield [sequential([chained(a, sequential([b, c], 3)), d], 6)]
        yield [chained(sequential([a, b], 2), c)]
        yield [chained(a, sequential([b, c], 4))]
        yield [chained(chained(a, b), c)]
        yield [chained(sequential([a, b], 2), sequential([c, d], 4))]


def main():
    warnings.filterwarnings("ignore")
    rows, refused = [], collections.Counter()
    draw = random.Random(1)
    for i, trees in enumerate(cases()):
        # Every seventh has a schedule beside it that goes by a figure.
        metrics = [round(draw.random(), 2) for _ in range(STEPS)] if i % 7 == 0 else []
        row = {"trees": trees, "adam": i % 3 == 0} | ({"metrics": metrics} if metrics else {})
        try:
            rows.append(row | rates(trees, row["adam"], metrics))
        except (NotImplementedError, ZeroDivisionError) as e:
            refused[f"{type(e).__name__}: {e}"] += 1
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")
    print(f"{len(rows)} cases; refused: {dict(refused)}", file=sys.stderr)


if __name__ == "__main__":
    main()
