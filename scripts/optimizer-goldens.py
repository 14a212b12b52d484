#!/usr/bin/env python3
"""Writes checkpoints of PyTorch's optimisers: crates/nn/tests/goldens/optimizers.pt.

    scripts/optimizer-goldens.py [FILE]

Each has two parameters, the optimiser's state behind three steps, and the parameters behind three more. The gradient of a
parameter is 2 (x - 1). L-BFGS has a function that is no square.
"""

import io
import sys
from pathlib import Path

import torch
from torch import optim

OUT = Path(__file__).parent.parent / "crates/nn/tests/goldens/optimizers.pt"

OPTIMIZERS = {
    "SGD": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "SGD plain": (optim.SGD, {"lr": 0.1}),
    "ASGD": (optim.ASGD, {"t0": 1.0}),
    "Rprop": (optim.Rprop, {}),
    "RMSprop": (optim.RMSprop, {"centered": True, "momentum": 0.5}),
    "Adagrad": (optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    "Adadelta": (optim.Adadelta, {}),
    "Adam": (optim.Adam, {"amsgrad": True, "lr": 0.05}),
    "AdamW": (optim.AdamW, {"lr": 0.05, "betas": (0.8, 0.99)}),
    "Adamax": (optim.Adamax, {}),
    "NAdam": (optim.NAdam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": (optim.RAdam, {"betas": (0.9, 0.6)}),
    "Adafactor": (optim.Adafactor, {"weight_decay": 0.1}),
    "Muon": (optim.Muon, {"momentum": 0.8}),
    "SparseAdam": (optim.SparseAdam, {"lr": 0.05}),
}

LBFGS = {
    "LBFGS": {"lr": 0.1, "max_iter": 3, "history_size": 2},
    "LBFGS searching": {"max_iter": 2, "line_search_fn": "strong_wolfe"},
}


def parameters():
    first = [[[3.0, -2.0, 0.5], [0.5, 4.0, -1.0]], [[1.0, -1.0]]]
    return [torch.nn.Parameter(torch.tensor(x, dtype=torch.float64)) for x in first]


def step(optimizer, tensors):
    for tensor in tensors:
        gradient = 2 * (tensor.detach() - 1)
        is_sparse = isinstance(optimizer, optim.SparseAdam)
        tensor.grad = gradient.to_sparse(1) if is_sparse else gradient
    optimizer.step()


def checkpoint(make, options):
    first, second = tensors = parameters()
    rate = options.get("lr", 0.01)
    groups = [{"params": [first]}, {"params": [second], "lr": rate / 2}]
    optimizer = make(groups, **options)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        step(optimizer, tensors)
        schedule.step()
    before = [tensor.detach().clone() for tensor in tensors]
    # It has what later steps change.
    state = {"model": before, "optimizer": optimizer.state_dict()}
    state = torch.load(saved(state), weights_only=True)
    for _ in range(3):
        step(optimizer, tensors)
    return state | {"after": [tensor.detach() for tensor in tensors]}


def lbfgs(options):
    tensors = parameters()
    optimizer = optim.LBFGS(tensors, **options)

    def evaluate():
        optimizer.zero_grad()
        loss = sum(((tensor - 1) ** 4).sum() + (tensor**2).sum() for tensor in tensors)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(evaluate)
    before = [tensor.detach().clone() for tensor in tensors]
    state = {"model": before, "optimizer": optimizer.state_dict()}
    state = torch.load(saved(state), weights_only=True)
    for _ in range(2):
        optimizer.step(evaluate)
    return state | {"after": [tensor.detach() for tensor in tensors]}


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    checkpoints = {name: checkpoint(*given) for name, given in OPTIMIZERS.items()}
    checkpoints |= {name: lbfgs(options) for name, options in LBFGS.items()}
    torch.save(checkpoints, out)


main()
