#!/usr/bin/env python3
"""PyTorch's values, gradients and second derivatives where functions have kinks, poles, ties or limits.

scripts/edge-goldens.py --out DIR [--ops clamp,median] [--dtypes f64,f32]
(pip install torch numpy scipy expecttest safetensors)

Every function of elements is asked at each of its kinks, at zeros of both signs, infinities, NaN, the largest and
smallest numbers; every reduction and loss of equal elements, ties, zeros, infinities, one element and none. DIR gets
files as those of torch-goldens.py; `replay DIR` compares the values, `replay DIR --grad` the derivatives. Every
point is a sample of its own. Derivatives that are NaN, but of NaN, are left out.
"""

import argparse
import importlib.util
import itertools
import json
import math
import sys
import warnings
from pathlib import Path

ARGUMENTS, sys.argv = sys.argv[1:], sys.argv[:1]

spec = importlib.util.spec_from_file_location(
    "torch_goldens", Path(__file__).with_name("torch-goldens.py")
)
goldens = importlib.util.module_from_spec(spec)
spec.loader.exec_module(goldens)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.testing._comparison import default_tolerances  # noqa: E402

INF, NAN = math.inf, math.nan
DTYPES = {"f64": torch.float64, "f32": torch.float32}

# The least normal and the largest number of single precision stand for those of each dtype.
TINY, HUGE = 1.1754943508222875e-38, 3.4028234663852886e38
COMMON = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, INF, -INF, NAN, HUGE, -HUGE, TINY, -TINY]
WIDE = [30.0, -30.0, 1000.0, -1000.0]


class Of:
    """A call: tensors that want a gradient are lists of numbers, others are given as they are."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


class Leaf:
    """A tensor of the sample's dtype that wants a gradient."""

    def __init__(self, values, wants=True):
        self.values, self.wants = values, wants


def leaf(values):
    return Leaf(values)


def fixed(values):
    return Leaf(values, wants=False)


def integers(values):
    return torch.tensor(values, dtype=torch.int64)


def points(*kinks, common=COMMON, **kwargs):
    """One call for each point."""
    found = []
    for x in [*common, *kinks]:
        if not any(repr(x) == repr(y) for y in found):
            found.append(x)
    return [Of(leaf([x]), **kwargs) for x in found]


def behind(arguments, *kinks):
    """One call for each point, with further arguments."""
    return [Of(*call.args, *arguments) for call in points(*kinks)]


def pairs(first, second=None, *rest, wants=(True, True), **kwargs):
    """One call for each pair of numbers."""
    make = [leaf if want else fixed for want in wants]
    both = itertools.product(first, second or first)
    return [Of(make[0]([a]), make[1]([b]), *rest, **kwargs) for a, b in both]


def rows(*arguments, lists=None, **kwargs):
    """One call for each list of numbers."""
    return [Of(leaf(list_), *arguments, **kwargs) for list_ in (lists or LISTS)]


LISTS = [
    [2.0],
    [0.0],
    [1.0, 1.0, 1.0],
    [0.0, 0.0, 0.0],
    [1.0, 3.0, 3.0, 2.0],
    [-1.0, -3.0, -3.0, -2.0],
    [2.0, 1.0, 2.0, 1.0],
    [0.0, -0.0, 3.0],
    [3.0, 0.0, 4.0],
    [1.0, INF, INF],
    [1.0, -INF, -INF],
    [INF, 1.0, -INF],
    [-INF, -INF],
    [1.0, NAN, 2.0],
    [NAN, NAN, 1.0, INF],
    [NAN],
    [HUGE, HUGE],
    [1e3, 0.0],
    [-1e3, 0.0],
]
EMPTY = [[]]
TWO_ROWS = [[[1.0, 1.0], [2.0, 2.0]], [[0.0, 0.0], [3.0, 4.0]], [[1.0, 2.0], [2.0, 1.0]]]
TWO_ROWS += [[[1.0], [2.0]], [[INF, 1.0], [1.0, 1.0]]]
FEW = [0.0, -0.0, 1.0, -1.0, 2.0, INF, -INF, NAN]

PLAIN = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac log log10 log1p
    log2 nan_to_num neg positive rad2deg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh sqrt square tan tanh trunc
    angle digamma lgamma erfinv i0 special.entr special.erfcx special.i0e special.i1 special.i1e special.log_ndtr
    special.ndtr special.ndtri special.spherical_bessel_j0 special.bessel_j0 special.bessel_j1
    nn.functional.gelu nn.functional.silu nn.functional.mish nn.functional.relu nn.functional.selu
    nn.functional.softsign nn.functional.tanhshrink nn.functional.logsigmoid""".split()

# PyTorch has sines and cosines of numbers of this size by another reduction, and waves of Bessel's otherwise.
WAVES = {"cos", "sin", "tan", "special.bessel_j0", "special.bessel_j1", "special.spherical_bessel_j0", "sinc"}


def plain(name):
    kinks = [] if name in WAVES else WIDE
    common = [x for x in COMMON if name not in WAVES or abs(x) != HUGE]
    return points(*kinks, 1.5, -1.5, 3.0, -3.0, 0.1, -0.1, common=common)


def of_targets(targets, kinks=(), **kwargs):
    """Losses of one prediction and one target."""
    found = [*COMMON, *WIDE, *kinks]
    return [Of(leaf([x]), fixed([y]), **kwargs) for y in targets for x in found]


def calls():
    """Names of functions, as `replay` has them, with their calls."""
    f = "nn.functional."
    for name in PLAIN:
        yield name, plain(name)
    yield f + "gelu", points(*WIDE, 1.5, approximate="tanh")
    yield "logit", points(0.25, 0.75)
    yield "logit", points(0.25, 0.75, eps=0.25)
    yield "polygamma", [Of(leaf([x]), 1) for x in (0.5, 1.0, 2.0, -0.5, INF)]
    # Bounds.
    for low, high in [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, INF), (-INF, 0.0), (0.0, NAN), (-1.0, 2.0)]:
        yield "clamp", points(min=low, max=high)
    yield "clamp", points(min=0.5) + points(max=0.5)
    for bound in (0.0, 1.0, INF, -INF, NAN):
        yield "clamp_min", behind([bound])
        yield "clamp_max", behind([bound])
    bounds = list(itertools.product(FEW, FEW, FEW))
    yield "clamp", [Of(leaf([x]), leaf([low]), leaf([high])) for x, low, high in bounds]
    yield "clamp_min", pairs(FEW)
    yield "clamp_max", pairs(FEW)
    yield f + "hardtanh", points(*WIDE)
    yield f + "hardtanh", points(3.0, min_val=-0.5, max_val=3.0)
    yield f + "relu6", points(6.0, 3.0, 7.0)
    yield f + "hardsigmoid", points(3.0, -3.0, 4.0, -4.0)
    yield f + "hardswish", points(3.0, -3.0, 4.0, -4.0)
    # Activations with parameters.
    for alpha in (1.0, 0.5, -1.0):
        yield f + "elu", points(*WIDE, alpha=alpha)
        yield f + "celu", points(*WIDE, alpha=alpha)
    for slope in (0.01, 0.0, -1.0):
        yield f + "leaky_relu", points(negative_slope=slope)
    yield f + "rrelu", points(lower=0.125, upper=0.375)
    yield f + "prelu", pairs(FEW + [0.5, -0.5])
    yield f + "glu", [Of(leaf([a, b])) for a, b in itertools.product(FEW, FEW)]
    for bound in (0.5, 0.0):
        yield f + "softshrink", points(lambd=bound)
        yield f + "hardshrink", points(lambd=bound)
    yield f + "softplus", points(*WIDE, 20.0, 19.0, 21.0)
    yield f + "softplus", points(*WIDE, 10.0, beta=2.0, threshold=20.0)
    yield f + "softplus", points(*WIDE, beta=0.5, threshold=0.5)
    for at, value in [(0.5, 7.0), (0.0, 0.0), (-1.0, NAN)]:
        yield f + "threshold", points(threshold=at, value=value)
    # Powers.
    for power in (0, 1, 2, 3, -1, -2, 0.0, 1.0, 2.0, 0.5, -0.5, 1.5, 2.5, -1.5, 1 / 3):
        yield "pow", behind([power])
    yield "pow", pairs(FEW + [0.5, -0.5, 3.0], FEW + [0.5, -0.5, 3.0])
    for base in (0.0, 1.0, 2.0, -1.0, INF):
        yield "__rpow__", behind([base])
    # Functions of two numbers.
    two = """add sub mul div atan2 copysign fmod remainder maximum minimum fmax fmin xlogy special.xlog1py logaddexp
        logaddexp2 hypot""".split()
    for name in two:
        yield name, pairs(FEW + [0.5])
    yield "where", [
        Of(leaf([a]), torch.tensor([c]), leaf([b])) for c in (True, False) for a, b in [(INF, 1.0), (1.0, NAN)]
    ]
    yield "lerp", [Of(leaf([a]), leaf([b]), leaf([c])) for a, b, c in itertools.product(FEW[2:6], FEW[2:6], [0.0, 0.5, 1.0])]
    yield "addcdiv", [Of(leaf([1.0]), leaf([a]), leaf([b])) for a, b in itertools.product(FEW, FEW)]
    yield "masked_fill", [Of(leaf([x]), torch.tensor([True]), 0.0) for x in FEW]
    # Reductions.
    for name in ["sum", "mean", "prod", "amax", "amin", "median", "nanmedian", "nansum", "nanmean"]:
        yield name, rows()
    yield "max.reduction_no_dim", rows()
    yield "min.reduction_no_dim", rows()
    for name in ["amax", "amin", "prod", "logsumexp", "softmax", "log_softmax", "cumsum", "cumprod", "cummax"]:
        yield name, rows(0)
    for name in ["cummin", "logcumsumexp", "median", "nanmedian", "mode", "sort"]:
        yield name, rows(0, lists=LISTS[:14] if name == "mode" else LISTS)
    yield "max.reduction_with_dim", rows(0)
    yield "min.reduction_with_dim", rows(0)
    for name in ["amax", "amin", "logsumexp", "median", "prod", "mean", "sum"]:
        yield name, rows(1, lists=TWO_ROWS)
    for name in ["sum", "mean", "prod"]:
        yield name, rows(lists=EMPTY)
    yield "logsumexp", rows(0, lists=EMPTY)
    yield "aminmax", rows(dim=0)
    for name in ["std", "var", "std_mean", "var_mean"]:
        for correction in (0, 1):
            yield name, rows(correction=correction)
            yield name, rows(1, correction=correction, lists=TWO_ROWS)
    orders = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF, -INF, -1.0, -2.0)
    for p in orders:
        yield "linalg.vector_norm", rows(p)
        yield "norm", rows(p, lists=LISTS[:9])
        yield "linalg.vector_norm", rows(p, 1, lists=TWO_ROWS)
    for p in (1.0, 2.0, 3.0, INF):
        yield f + "normalize", rows(p, 0)
        yield "dist", [Of(leaf(a), leaf(a), p) for a in LISTS[:9]]
        yield "renorm", rows(p, 0, 1.0, lists=TWO_ROWS + [[[0.0, 0.0], [1.0, 0.0]]])
    pair = [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [0.0, 4.0]]]
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF):
        yield "cdist", [Of(leaf(pair[0]), leaf(pair[1]), p)]
        yield f + "pdist", [Of(leaf([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]), p)]
        yield f + "pairwise_distance", [Of(leaf(a), leaf(b), p, 0.0) for a in pair for b in pair]
    yield f + "cosine_similarity", [
        Of(leaf(a), leaf(b), dim=0) for a in LISTS[1:9] for b in LISTS[1:9] if len(a) == len(b)
    ]
    for name in ["layer_norm", "rms_norm"]:
        yield f + name, [Of(leaf(x), [len(x)]) for x in LISTS[:9]]
    # PyTorch does not say which one of equal elements it takes.
    distinct = [LISTS[i] for i in (0, 1, 8)]
    yield "quantile", rows(0.5, lists=distinct)
    yield "kthvalue", rows(1, lists=distinct)
    yield "topk", rows(1, lists=LISTS[:9])
    yield "trace", rows(lists=[[[1.0, 2.0], [3.0, INF]]])
    # Losses.
    for name in ["l1_loss", "mse_loss", "smooth_l1_loss"]:
        yield f + name, of_targets([0.0, 1.0])
    yield f + "smooth_l1_loss", of_targets([0.0], beta=0.5) + of_targets([0.0], beta=0.0)
    yield f + "huber_loss", of_targets([0.0, 1.0]) + of_targets([0.0], delta=0.5)
    for name in ["binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"]:
        yield f + name, of_targets([0.0, 1.0, 0.5])
    yield f + "binary_cross_entropy_with_logits", [
        Of(leaf([x]), fixed([1.0]), pos_weight=fixed([3.0])) for x in COMMON
    ]
    yield f + "soft_margin_loss", of_targets([1.0, -1.0])
    yield f + "hinge_embedding_loss", of_targets([1.0, -1.0]) + of_targets([-1.0], margin=0.5)
    yield f + "margin_ranking_loss", [
        Of(leaf([a]), leaf([b]), fixed([y]), margin=margin)
        for a, b in itertools.product(FEW, [0.0, 1.0, INF])
        for y in (1.0, -1.0)
        for margin in (0.0, 1.0)
    ]
    yield f + "multi_margin_loss", [
        Of(leaf([x]), integers([0]), p=p)
        for x in ([1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [2.0, 1.0, 0.0], [INF, 0.0], [0.0, INF])
        for p in (1, 2)
    ]
    yield f + "multilabel_margin_loss", [
        Of(leaf(x), integers([0, -1, 0][: len(x)])) for x in ([1.0, 0.0], [0.0, 0.0], [2.0, 1.0, 0.0])
    ]
    yield f + "triplet_margin_loss", [
        Of(leaf([a]), leaf([b]), leaf([c]), eps=0.0, swap=swap)
        for a, b, c in [
            ([0.0], [0.0], [0.0]),
            ([0.0], [0.0], [1.0]),
            ([0.0], [1.0], [2.0]),
            ([0.0], [0.0], [3.0]),
            ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0]),
        ]
        for swap in (False, True)
    ]
    yield f + "cosine_embedding_loss", [
        Of(leaf([a]), leaf([b]), fixed([y]))
        for a, b in [([1.0, 0.0], [0.0, 1.0]), ([0.0, 0.0], [1.0, 0.0]), ([1.0, 1.0], [1.0, 1.0]), ([0.0, 0.0], [0.0, 0.0])]
        for y in (1.0, -1.0)
    ]
    yield f + "binary_cross_entropy", [
        Of(leaf([x]), fixed([y])) for x in (0.0, 1.0, 0.5, TINY) for y in (0.0, 1.0, 0.5)
    ]
    for log_target in (False, True):
        yield f + "kl_div", [
            Of(leaf([a]), leaf([b]), reduction="sum", log_target=log_target)
            for a, b in itertools.product([0.0, -1.0, -INF], [0.0, 0.5, 1.0])
        ]
    yield f + "poisson_nll_loss", [
        Of(leaf([x]), fixed([y]), log_input=log_input, full=full)
        for x in (0.0, 1.0, -1.0, INF, -INF)
        for y in (0.0, 1.0, 2.0)
        for log_input in (True, False)
        for full in (True, False)
    ]
    yield f + "gaussian_nll_loss", [
        Of(leaf([x]), fixed([0.0]), leaf([v])) for x in (0.0, 1.0) for v in (0.0, 1e-6, 1.0, INF)
    ]
    yield f + "cross_entropy", [Of(leaf(x), integers(0)) for x in LISTS]
    yield f + "cross_entropy", [Of(leaf([x]), integers([-100])) for x in LISTS[:4]]
    yield f + "cross_entropy", [Of(leaf(x), fixed([1.0] + [0.0] * (len(x) - 1))) for x in LISTS]
    yield f + "cross_entropy", [Of(leaf(x), integers(0), label_smoothing=0.5) for x in LISTS[:9]]
    yield f + "nll_loss", [Of(leaf([x]), integers([0])) for x in LISTS[:13]]
    yield f + "ctc_loss", [
        Of(leaf([[a], [b], [c]]), integers([[1]]), integers([3]), integers([1]))
        for a, b, c in itertools.product(([0.0, 0.0], [0.0, -INF], [-INF, 0.0], [-1.0, -2.0]), repeat=3)
    ]


def function(name):
    """PyTorch's function of a name that `replay` has."""
    if name == "where":
        return lambda x, condition, other: torch.where(condition, x, other)
    if name.startswith("__r") or name == "polygamma":
        return getattr(torch.Tensor, name)
    found = torch
    for part in name.removesuffix(".reduction_no_dim").removesuffix(".reduction_with_dim").split("."):
        found = getattr(found, part)
    return found


def made(value, dtype, leaves, path):
    if not isinstance(value, Leaf):
        return value
    tensor = torch.tensor(value.values, dtype=dtype, requires_grad=value.wants)
    if value.wants:
        leaves.append((path, tensor))
    return tensor


def differentiated(outs, leaves):
    """The gradients of the leaves from ones, each with the tensor that it is, or `None`."""
    starts = [torch.ones_like(x) for x in outs]
    return torch.autograd.grad(outs, leaves, starts, allow_unused=True, create_graph=True)


def says_something(found, inputs):
    """Are there no NaN but of NaN? Where a branch that is not taken has an infinite slope PyTorch gives NaN."""
    has_nan = lambda tensors: any(x is not None and x.isnan().any() for x in tensors)  # noqa: E731
    return has_nan(inputs) or not has_nan(found)


def derivatives(out, leaves, case, output):
    """Gradients from ones, and gradients of their sum."""
    tensors = [(i, x) for i, x in enumerate(goldens.tensors_in(out)) if x.requires_grad]
    inputs = [x for _, x in leaves]
    if not tensors:
        return {}
    try:
        first = differentiated([x for _, x in tensors], inputs)
    except (NotImplementedError, RuntimeError):
        return {}
    if not says_something(first, inputs):
        return {}
    found = {
        "from": [i for i, _ in tensors],
        "cotangents": [case.value(torch.ones_like(x)) for _, x in tensors],
        "of": [path for path, _ in leaves],
        "grads": [output(x) for x in first],
    }
    ends = [x for x in first if x is not None and x.requires_grad]
    try:
        second = differentiated(ends, inputs) if ends else [None] * len(inputs)
    except (NotImplementedError, RuntimeError):
        return {"grad": found}
    if not says_something(second, inputs):
        return {"grad": found}
    return {"grad": found | {"second": [output(x) for x in second]}}


def sample(name, call, dtype, number):
    case, leaves = goldens.Case(1 << 20), []
    args = [made(x, dtype, leaves, ["input"] if i == 0 else ["args", i - 1]) for i, x in enumerate(call.args)]
    kwargs = {k: made(x, dtype, leaves, ["kwargs", k]) for k, x in call.kwargs.items()}
    row = {
        "dtype": goldens.DTYPES[dtype],
        "sample": number,
        "input": case.value(args[0]),
        "args": [case.value(x) for x in args[1:]],
        "kwargs": {k: case.value(x) for k, x in kwargs.items()},
    }
    out = function(name)(*args, **kwargs)
    output = lambda x: case.output(x, default_tolerances)  # noqa: E731
    row |= {"output": output(out), "compare": "close"}
    return case, row | derivatives(out, leaves, case, output)


def dump(name, found, dtypes):
    store, cases = goldens.Store(), []
    for dtype in dtypes:
        for number, call in enumerate(found):
            case, row = sample(name, call, DTYPES[dtype], number)
            cases.append(case.named(row, store))
    return {"op": name, "variant": "", "cases": cases, "errors": [], "skipped": []}, store.tensors


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--ops", help="names by commas")
    parser.add_argument("--dtypes", default="f64,f32", help="f64, f32 or both (default)")
    return parser.parse_args(ARGUMENTS)


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, some in calls():
        found.setdefault(name, []).extend(some)
    wanted = options.ops.split(",") if options.ops else found
    if set(wanted) - set(found):
        sys.exit(f"edge-goldens.py: there is no {', '.join(sorted(set(wanted) - set(found)))}")
    files = {}
    for name in wanted:
        row, tensors = dump(name, found[name], options.dtypes.split(","))
        files[name] = goldens.stem(name)
        save_file(tensors, options.out / f"{files[name]}.safetensors")
        (options.out / f"{files[name]}.json").write_text(json.dumps(row))
    manifest = {"torch": torch.__version__, "seed": 0, "files": files, "left_out": []}
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
