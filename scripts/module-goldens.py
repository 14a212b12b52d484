#!/usr/bin/env python3
"""PyTorch's answers to the samples of its own tests of modules and optimisers, in files that `replay` reads.

scripts/module-goldens.py --seed N --out DIR [--only nn.Linear,optim.Adam] [--max-kib M] [--sample N]
(pip install torch numpy scipy expecttest safetensors)

Of every entry of `module_db`, in f32 and f64, in training and out of it where that differs: arguments of the
constructor, parameters and buffers, arguments of `forward`, results, buffers afterwards, and in f64 gradients for given
cotangents. Of every entry of `optim_db`: options, parameters, gradients of some steps, and the parameters after
each; L-BFGS gets an objective that is told in `objective`. `lr_scheduler.json` has learning rates.

DIR gets files as those of torch-goldens.py, and manifest.json. The same seed gives the same files.
"""

import argparse
import importlib.util
import json
import sys
import warnings
from pathlib import Path

# It reads the command line, as PyTorch's test modules do.
ARGUMENTS, sys.argv = sys.argv[1:], sys.argv[:1]
spec = importlib.util.spec_from_file_location(
    "torch_goldens", Path(__file__).with_name("torch-goldens.py")
)
goldens = importlib.util.module_from_spec(spec)
spec.loader.exec_module(goldens)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402
from torch.testing._comparison import default_tolerances  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402
from torch.testing._internal.common_optimizers import optim_db  # noqa: E402

# How it is computed, not what.
IMPLEMENTATIONS = {"foreach", "fused", "capturable", "differentiable", "params"}

STEPS = 6


class Case(goldens.Case):
    def value(self, x):
        if callable(x) and hasattr(x, "__name__") and not isinstance(x, (torch.Tensor, type)):
            return x.__name__
        return super().value(x)


def layer_options(layer):
    """What a layer of a transformer was made with."""
    return {
        "d_model": layer.self_attn.embed_dim,
        "nhead": layer.self_attn.num_heads,
        "dim_feedforward": layer.linear1.out_features,
        "dropout": layer.dropout.p,
        "activation": layer.activation.__name__,
        "layer_norm_eps": layer.norm1.eps,
        "batch_first": layer.self_attn.batch_first,
        "norm_first": layer.norm_first,
        "bias": layer.linear1.bias is not None,
    }


def constructor(given):
    """Arguments of a constructor, with modules among them taken apart."""
    args, kwargs = [], {k: v for k, v in given.kwargs.items() if k not in ("device", "dtype")}
    for x in given.args:
        if isinstance(x, torch.nn.Module):
            kwargs |= layer_options(x)
        else:
            args.append(x)
    for name, x in list(kwargs.items()):
        if isinstance(x, torch.nn.Module):
            kwargs |= layer_options(kwargs.pop(name))
    return args, kwargs


def floats(x):
    return [
        part
        for part in torch.utils._pytree.tree_leaves(x)
        if isinstance(part, torch.Tensor) and part.dtype.is_floating_point
    ]


def gradients(case, module, args, out, seed):
    """Cotangents of results, and what they give for parameters and arguments."""
    outs = [x for x in floats(out) if x.requires_grad]
    if not outs:
        return None
    generator = torch.Generator().manual_seed(seed)
    cotangents = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in outs]
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    leaves = [p for _, p in module.named_parameters() if p.requires_grad]
    places = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor) and x.requires_grad]
    wanted = leaves + [args[i] for i in places]
    grads = torch.autograd.grad(outs, wanted, cotangents, allow_unused=True)
    tolerance = lambda dtype: (1e-6, 1e-7)
    answers = [None if x is None else case.output(x.contiguous(), tolerance) for x in grads]
    return {
        "cotangents": [case.value(x) for x in cotangents],
        "parameters": dict(zip(names, answers)),
        "inputs": [[i, x] for i, x in zip(places, answers[len(names) :])],
    }


def dump_module(info, dtype, given, training, limit, seed):
    case = Case(limit)
    args, kwargs = constructor(given.constructor_input)
    row = {"args": [case.value(x) for x in args]}
    row["kwargs"] = {k: case.value(v) for k, v in kwargs.items()}
    module = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    module = module.to(dtype)
    module.train(training)
    is_loss = info.name.endswith("Loss")
    inputs = [
        # Of targets there are mostly none.
        x.detach().clone().requires_grad_(dtype is torch.float64 and (i == 0 or not is_loss))
        if isinstance(x, torch.Tensor) and x.dtype.is_floating_point
        else x
        for i, x in enumerate(given.forward_input.args)
    ]
    lazy = isinstance(module, torch.nn.modules.lazy.LazyModuleMixin)
    if lazy:
        module(*inputs, **given.forward_input.kwargs)
    row["state"] = {k: case.value(x.clone()) for k, x in module.state_dict().items()}
    row["inputs"] = [case.value(x.detach() if isinstance(x, torch.Tensor) else x) for x in inputs]
    row["input_kwargs"] = {k: case.value(x) for k, x in given.forward_input.kwargs.items()}
    before = torch.get_rng_state()
    out = module(*inputs, **given.forward_input.kwargs)
    is_random = not torch.equal(before, torch.get_rng_state())
    row["output"] = case.output(out, default_tolerances)
    row["compare"] = "shape_only" if is_random else "close"
    row["buffers"] = {k: case.output(x, default_tolerances) for k, x in module.named_buffers()}
    if dtype is torch.float64 and not is_random:
        row["grad"] = gradients(case, module, inputs, out, seed)
    return case, row


def module_cases(info, options):
    modes = [False, True] if info.train_and_eval_differ else [False]
    for dtype in (torch.float32, torch.float64):
        if dtype not in info.dtypes:
            continue
        for training in modes:
            goldens.seed_all(options.seed)
            samples = info.module_inputs_func(info, "cpu", dtype, False, training=training)
            for i, given in enumerate(samples):
                if given.forward_input is None:
                    continue
                about = {"dtype": goldens.DTYPES[dtype], "sample": i, "training": training}
                limit = options.max_kib * 1024
                make = lambda g=given, d=dtype, t=training: dump_module(
                    info, d, g, t, limit, options.seed
                )
                yield about, make


def objective(parameters, targets, weights):
    """Of L-BFGS: `Σ w (p - t)² / 2 + (p - t)⁴ / 10`."""
    distances = [p - t for p, t in zip(parameters, targets)]
    return sum((w * d**2 / 2 + d**4 / 10).sum() for d, w in zip(distances, weights))


def dump_optimizer(info, given, dtype, seed, limit):
    case = Case(limit)
    name = info.optim_cls.__name__
    kwargs = {k: v for k, v in given.kwargs.items() if k not in IMPLEMENTATIONS}
    kwargs = {k: float(v) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    if any(isinstance(x, torch.Tensor) for x in torch.utils._pytree.tree_leaves(kwargs)):
        kwargs["betas"] = tuple(float(x) for x in kwargs["betas"])
    generator = torch.Generator().manual_seed(seed)
    draw = lambda shape: torch.randn(shape, dtype=dtype, generator=generator)
    shapes = [(4, 3), (3, 5)] if name in ("Muon", "SparseAdam") else [(4, 3), (5,), (2, 3, 2)]
    parameters = [torch.nn.Parameter(draw(shape)) for shape in shapes]
    row = {"options": {k: case.value(v) for k, v in kwargs.items()}}
    row["parameters"] = [case.value(p.detach().clone()) for p in parameters]
    optimizer = info.optim_cls(parameters, **kwargs)
    steps = []
    if name == "LBFGS":
        targets = [draw(shape) for shape in shapes]
        weights = [draw(shape).abs() + 0.1 for shape in shapes]
        row["targets"] = [case.value(x) for x in targets]
        row["weights"] = [case.value(x) for x in weights]

        def closure():
            optimizer.zero_grad()
            loss = objective(parameters, targets, weights)
            loss.backward()
            return loss

    for _ in range(STEPS):
        step = {}
        if name == "LBFGS":
            optimizer.step(closure)
        else:
            grads = [draw(shape) for shape in shapes]
            if name == "SparseAdam":
                for grad in grads:
                    grad[torch.rand(grad.shape[0], generator=generator) < 0.3] = 0
            step["gradients"] = [case.value(x) for x in grads]
            for p, g in zip(parameters, grads):
                p.grad = g.to_sparse(1) if name == "SparseAdam" else g.clone()
            optimizer.step()
        # Steps in bf16 differ by its last digits.
        tolerance = (lambda d: (1e-2, 1e-2)) if name == "Muon" else default_tolerances
        step["parameters"] = [case.output(p.detach().clone(), tolerance) for p in parameters]
        steps.append(step)
    return case, row | {"steps": steps}


def optimizer_cases(info, options):
    for dtype in (torch.float32, torch.float64):
        goldens.seed_all(options.seed)
        for i, given in enumerate(info.optim_inputs_func("cpu")):
            about = {"dtype": goldens.DTYPES[dtype], "sample": i}
            limit = options.max_kib * 1024
            make = lambda g=given, d=dtype: dump_optimizer(info, g, d, options.seed, limit)
            yield about, make


# Schedules: PyTorch's name, arguments, and how many steps.
SCHEDULES = [
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}, 12),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.95 if epoch < 5 else 0.8}, 12),
    ("StepLR", {"step_size": 3, "gamma": 0.5}, 12),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.3}, 12),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}, 8),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 6}, 10),
    ("ExponentialLR", {"gamma": 0.85}, 10),
    ("PolynomialLR", {"total_iters": 7, "power": 1.5}, 10),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.003}, 17),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.001}, 25),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 4, "step_size_down": 3}, 20),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 3, "mode": "triangular2"}, 20),
    (
        "CyclicLR",
        {
            "base_lr": 0.01,
            "max_lr": 0.3,
            "step_size_up": 3,
            "mode": "exp_range",
            "gamma": 0.97,
            "cycle_momentum": False,
        },
        20,
    ),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 20}, 19),
    (
        "OneCycleLR",
        {
            "max_lr": 0.5,
            "total_steps": 20,
            "pct_start": 0.25,
            "anneal_strategy": "linear",
            "three_phase": True,
            "div_factor": 10.0,
        },
        19,
    ),
    ("ReduceLROnPlateau", {"patience": 1, "cooldown": 1, "factor": 0.5, "min_lr": 0.01}, 20),
    (
        "ReduceLROnPlateau",
        {"mode": "max", "patience": 0, "threshold": 0.1, "threshold_mode": "abs"},
        20,
    ),
    ("SequentialLR", {}, 12),
    ("ChainedScheduler", {}, 10),
]


def schedule(name, kwargs, optimizer):
    if name == "SequentialLR":
        parts = [
            lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=3),
            lr_scheduler.ExponentialLR(optimizer, gamma=0.9),
            lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, milestones=[3, 7])
    if name == "ChainedScheduler":
        parts = [
            lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=3),
            lr_scheduler.ExponentialLR(optimizer, gamma=0.9),
        ]
        return lr_scheduler.ChainedScheduler(parts)
    return getattr(lr_scheduler, name)(optimizer, **kwargs)


def schedules():
    """Learning rates and momenta of two groups, at first and after each step."""
    rows = []
    for name, kwargs, steps in SCHEDULES:
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
        groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 0.02}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        scheduler = schedule(name, kwargs, optimizer)
        generator = torch.Generator().manual_seed(0)
        metrics = torch.rand(steps, generator=generator, dtype=torch.float64).tolist()
        now = lambda key: [group[key] for group in optimizer.param_groups]
        lrs, momenta = [now("lr")], [now("momentum")]
        for metric in metrics:
            optimizer.step()
            if name == "ReduceLROnPlateau":
                scheduler.step(metric)
            else:
                scheduler.step()
            lrs.append(now("lr"))
            momenta.append(now("momentum"))
        kwargs = {k: v for k, v in kwargs.items() if not callable(v)}
        row = {"name": name, "kwargs": kwargs, "lrs": lrs, "momenta": momenta}
        rows.append(row | ({"metrics": metrics} if name == "ReduceLROnPlateau" else {}))
    return rows


def collect(cases, sample):
    """What goes to JSON, the tensors, and what is left out."""
    rows, skipped = [], []
    for about, make in cases:
        try:
            case, row = make()
        except Exception as e:
            skipped.append(about | {"reason": goldens.reason(e)})
            continue
        rows.append((case, about | row))
    store = goldens.Store()
    rows = [case.named(row, store) for case, row in goldens.spread(rows, sample)]
    return {"cases": rows, "skipped": skipped}, store.tensors


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", help="names as nn.Linear or optim.Adam, by commas")
    help = "samples that are larger are left out (default 2048)"
    parser.add_argument("--max-kib", type=int, default=2048, metavar="M", help=help)
    parser.add_argument("--sample", type=int, metavar="N", help="at most so many of each")
    return parser.parse_args(ARGUMENTS)


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    entries = {info.name: module_cases(info, options) for info in module_db}
    entries |= {
        f"optim.{info.optim_cls.__name__}": optimizer_cases(info, options) for info in optim_db
    }
    if options.only:
        wanted = options.only.split(",")
        if unknown := [name for name in wanted if name not in entries]:
            sys.exit(f"module-goldens.py: PyTorch's tests have no {', '.join(unknown)}")
        entries = {name: entries[name] for name in wanted}
    files = {}
    for i, (name, cases) in enumerate(entries.items()):
        print(f"{i + 1}/{len(entries)} {name}", file=sys.stderr, flush=True)
        row, tensors = collect(cases, options.sample)
        files[name] = goldens.stem(name)
        save_file(tensors, options.out / f"{files[name]}.safetensors")
        (options.out / f"{files[name]}.json").write_text(json.dumps({"name": name} | row))
    (options.out / "lr_scheduler.json").write_text(json.dumps(schedules()))
    manifest = {"torch": torch.__version__, "seed": options.seed, "files": files}
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
