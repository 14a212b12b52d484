#!/usr/bin/env python3
"""PyTorch's answers to the samples of its own operator tests, in files that `replay` reads.

scripts/torch-goldens.py --seed N --out DIR [--ops add,mm] [--grad | --numbers] [--max-kib M] [--sample N]
(pip install torch numpy scipy expecttest safetensors)

Of every entry of `op_db`, of every dtype that both libraries have, of every sample: arguments,
results, and how near to them an answer has to be. DIR gets NAME.json and NAME.safetensors for each
operation, and manifest.json. The same seed gives the same files, whether all operations are asked
for or some.

`--numbers` has other samples: each number that an operation takes as a parameter is, for each dtype,
one of those around the ends of every dtype's range, a fraction, infinite, NaN or -0.0. Calls that PyTorch
refuses are kept as errors, unless it has no kernel for the dtype.

A value in JSON is a number, string, boolean, null or list, or an object whose first key says what
it is: `tensor` (its name in the safetensors file, where its memory is a run of elements of `dtype`;
complex128 lies there as pairs of F64), `tuple`, `float` (inf, -inf, nan), `int` (beyond 64 bits),
`complex`, `dtype`, `slice`, `ellipsis`, `dict`, `device`, `layout`, `memory_format`. A result in half
precision has a `truth`, too, where it is not the result in double precision, rounded: that one's name.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import random
import re
import sys
import warnings
from pathlib import Path

NEEDED = ("torch", "numpy", "scipy", "expecttest", "safetensors")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"torch-goldens.py: not installed: pip install {' '.join(missing)}")

# PyTorch's test modules read the command line when they are imported.
ARGUMENTS, sys.argv = sys.argv[1:], sys.argv[:1]

import numpy  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.testing._comparison import default_tolerances  # noqa: E402
from torch.testing._internal import common_methods_invocations as methods  # noqa: E402
from torch.testing._internal.common_device_type import (  # noqa: E402
    precisionOverride,
    toleranceOverride,
)
from torch.testing._internal.opinfo.core import SampleInput  # noqa: E402

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.bool: "bool",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}

# Their results are compared with those in double precision.
HALVES = {torch.float16, torch.bfloat16}

# Families of tensors that are not arrays of numbers, and functions that only GPUs have.
LEFT_OUT = re.compile(r"sparse|nested|quantize|^jiterator_")

# Their results are memory as it was found.
UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# Unique only up to signs, phases or the order of what belongs together.
FACTORS = {"svd", "linalg.svd", "qr", "linalg.qr", "linalg.eig", "linalg.eigh"}
UNORDERED = {"linalg.eigvals"}

# Their last result is indices, which are unique only where no elements are equal. The position of
# the dimension among the arguments behind the first.
TIES = {"argsort": 0, "kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}

# Errors that are limits of PyTorch's, not of what its functions are defined for.
LIMITS = re.compile("up to 64 dims")

# Tests of PyTorch's whose tolerances are those of results, not of gradients or compilers.
RESULT_TESTS = {
    None,
    "TestBinaryUfuncs",
    "TestCommon",
    "TestFFT",
    "TestLinalg",
    "TestReductions",
    "TestUnaryUfuncs",
}

# Numbers around the ends of the dtypes' ranges, and those that are not usual ones.
NUMBERS = (
    *(0, 1, -1, 2, 127, 128, 200, -128, -129, 255, 256, 300, -255, -256, 32767, 32768, -32769),
    *(65504, 65505, 65535, 65536, 70000, 2**31 - 1, 2**31, -(2**31) - 1, 2**32 - 1, 2**32),
    *(2**63 - 1, -(2**63), True, 0.5, -0.5, 1.5, -0.0, 127.5, 255.5, 300.0, -128.5),
    *(3e38, 3.4028235677973366e38, 1e39, -1e39, 1e300, math.inf, -math.inf, math.nan, 1 + 2j),
)

# The operations with numbers as parameters: what they are called with, of a vector `x` of three and
# a number `n`. Several calls are a list.
NUMBER_CALLS = {
    **dict.fromkeys(
        "add sub rsub mul div.no_rounding_mode true_divide floor_divide remainder fmod pow "
        "float_power eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
        "bitwise_right_shift copysign xlogy special.xlog1py special.zeta __radd__ __rsub__ __rmul__ "
        "__rdiv__ __rmod__ __rpow__ clamp_min clamp_max fill full_like nan_to_num "
        "nn.functional.leaky_relu nn.functional.elu nn.functional.celu nn.functional.softplus "
        "nn.functional.hardshrink nn.functional.softshrink logit isin".split(),
        lambda x, n: (x, n),
    ),
    "div.floor_rounding": lambda x, n: (x, n, {"rounding_mode": "floor"}),
    "div.trunc_rounding": lambda x, n: (x, n, {"rounding_mode": "trunc"}),
    "clamp": [lambda x, n: (x, n, 100), lambda x, n: (x, 0, n), lambda x, n: (x, n, n)],
    "nn.functional.hardtanh": [lambda x, n: (x, n, 100), lambda x, n: (x, -1, n)],
    "nn.functional.threshold": [lambda x, n: (x, n, 1), lambda x, n: (x, 1, n)],
    "nn.functional.rrelu": lambda x, n: (x, 0.1, n),
    "where": [lambda x, n: (x, HALF, n), lambda x, n: (n, HALF, x)],
    "masked_fill": lambda x, n: (x, HALF, n),
    "index_fill": lambda x, n: (x, 0, FIRST, n),
    "scatter": [
        lambda x, n: (x, 0, FIRST, n),
        lambda x, n: (x, 0, FIRST, n, {"reduce": "add"}),
        lambda x, n: (x, 0, FIRST, n, {"reduce": "multiply"}),
    ],
    "index_put": [lambda x, n: (x, (FIRST,), n), lambda x, n: (x, (HALF,), n)],
    "nn.functional.pad.constant": lambda x, n: (x, (1, 1), "constant", n),
    "constant_pad_nd": lambda x, n: (x, (1, 1), n),
    "full": [lambda x, n: ((2,), n, {"dtype": x.dtype}), lambda x, n: ((), n, {"dtype": x.dtype})],
    "new_full": lambda x, n: (x, (2,), n),
    "scalar_tensor": lambda x, n: (n, {"dtype": x.dtype}),
    "arange": lambda x, n: (n, n + 2, {"dtype": x.dtype}),
    "linspace": [lambda x, n: (0, n, 3, {"dtype": x.dtype}), lambda x, n: (n, 1, 3, {"dtype": x.dtype})],
    "logspace": lambda x, n: (0, 1, 3, n, {"dtype": x.dtype}),
    "eye": lambda x, n: (n, {"dtype": x.dtype}),
    "randint": lambda x, n: (-1, n, (2,), {"dtype": x.dtype}),
    "randint_like": lambda x, n: (x, n),
    "uniform": lambda x, n: (x, -1, n),
    "normal.in_place": [lambda x, n: (x, n, 1), lambda x, n: (x, 0, n)],
    "cauchy": lambda x, n: (x, 0, n),
    "exponential": lambda x, n: (x, n),
    "geometric": lambda x, n: (x, n),
    "log_normal": lambda x, n: (x, 0, n),
    "lerp": lambda x, n: (x, x.flip(0), n),
    "addcmul": lambda x, n: (x, x, x, {"value": n}),
    "addcdiv": lambda x, n: (x, x, x.flip(0), {"value": n}),
    "index_add": lambda x, n: (x, 0, FIRST, x[:1], {"alpha": n}),
    "addmv": [
        lambda x, n: (x, x.expand(3, 3), x, {"alpha": n}),
        lambda x, n: (x, x.expand(3, 3), x, {"beta": n}),
    ],
    "addr": lambda x, n: (x.expand(3, 3), x, x, {"alpha": n}),
    "addmm": lambda x, n: (x.expand(3, 3), x.expand(3, 3), x.expand(3, 3), {"alpha": n}),
    "renorm": [lambda x, n: (x[None], 2, 0, n), lambda x, n: (x[None], n, 0, 1)],
    "cumsum": lambda x, n: (torch.full((2,), n), 0, {"dtype": x.dtype}),
    "quantile": lambda x, n: (x, n),
    "histc": [lambda x, n: (x, 4, 0, n), lambda x, n: (x, 4, n, 9)],
    "searchsorted": lambda x, n: (x.sort().values, n),
    "nn.functional.one_hot": lambda x, n: (x, n),
    "bincount": lambda x, n: (x, None, n),
    "nn.functional.smooth_l1_loss": lambda x, n: (x, x.flip(0), {"beta": n}),
    "nn.functional.huber_loss": lambda x, n: (x, x.flip(0), {"delta": n}),
    "trapezoid": lambda x, n: (x, {"dx": n}),
}

# Arguments that these are called with beside it: where a mask is true, and the first index.
HALF = torch.tensor([True, False, True])
FIRST = torch.tensor([0])

# More rows or classes are not asked for, whose results would fill memory.
MOST = 1000

# Elements before a view that starts inside its memory: so many of them are kept.
OFFSET = 8


class Unsupported(Exception):
    """What the files cannot hold."""


class Store:
    """The tensors of one operation, equal ones once."""

    def __init__(self):
        self.tensors = {}
        self.names = {}

    def put(self, run):
        if run.dtype is torch.complex128:
            run = torch.view_as_real(run).flatten()
        data = run.view(torch.uint8).numpy().tobytes() if run.numel() else b""
        key = (run.dtype, hashlib.sha256(data).digest(), run.numel())
        if key not in self.names:
            self.names[key] = str(len(self.names))
            self.tensors[self.names[key]] = run
        return self.names[key]


class Case:
    """Writes values down; nothing is in the store until it is known that all of it fits."""

    def __init__(self, limit):
        self.runs = []
        self.left = limit

    def tensor(self, x, whole=False, **more):
        if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.is_nested or x.is_quantized:
            raise Unsupported(f"a {type(x).__name__} that is not a plain tensor")
        if x.layout is not torch.strided or x.device.type != "cpu":
            raise Unsupported(f"a tensor of layout {x.layout} on {x.device}")
        x = x.detach().resolve_conj().resolve_neg()
        if x.dtype not in DTYPES:
            raise Unsupported(f"dtype {x.dtype}")
        empty = x.numel() == 0
        extent = 0 if empty else 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
        offset = 0 if empty or whole else min(x.storage_offset(), OFFSET)
        start = x.storage_offset() - offset
        run = torch.as_strided(x, (offset + extent,), (1,), start).clone()
        self.left -= run.numel() * run.element_size()
        if self.left < 0:
            raise Unsupported("too large")
        self.runs.append(run)
        out = {"tensor": run, "dtype": DTYPES[x.dtype], "shape": list(x.shape)}
        if offset or (not empty and not x.is_contiguous()):
            out |= {"strides": list(x.stride()), "offset": offset}
        return out | more

    def value(self, x):
        """A value as JSON, in which tensors still stand for their names."""
        match x:
            case None | bool() | str():
                return x
            case numpy.generic() | numpy.ndarray():
                return self.value(x.tolist())
            case int():
                return x if -(2**63) <= x < 2**63 else {"int": str(x)}
            case float():
                return x if math.isfinite(x) else {"float": str(x)}
            case complex():
                return {"complex": [self.value(x.real), self.value(x.imag)]}
            case torch.Tensor():
                return self.tensor(x)
            case torch.dtype():
                if x not in DTYPES:
                    raise Unsupported(f"dtype {x}")
                return {"dtype": DTYPES[x]}
            case torch.device() | torch.layout() | torch.memory_format():
                return {type(x).__name__: str(x).removeprefix("torch.")}
            case slice():
                return {"slice": [self.value(v) for v in (x.start, x.stop, x.step)]}
            case dict():
                return {"dict": {str(k): self.value(v) for k, v in x.items()}}
            case list() | range():
                return [self.value(v) for v in x]
            case tuple():
                return {"tuple": [self.value(v) for v in x]}
        if x is Ellipsis:
            return {"ellipsis": True}
        raise Unsupported(f"a {type(x).__name__}")

    def sample(self, sample):
        return {
            "input": self.value(sample.input),
            "args": [self.value(x) for x in sample.args],
            "kwargs": {k: self.value(x) for k, x in sample.kwargs.items()},
        }

    def output(self, x, tolerance, exact=None):
        """A result: of tensors the elements in row-major order, the tolerance, and where it is another than
        `exact` that, too."""
        if isinstance(x, torch.Tensor):
            rtol, atol = tolerance(x.dtype)
            x = x.detach().contiguous() if x.layout is torch.strided else x
            return self.tensor(x, whole=True, rtol=rtol, atol=atol) | self.truth(x, exact)
        if isinstance(x, (list, tuple)):
            each = exact if isinstance(exact, (list, tuple)) else [None] * len(x)
            return [self.output(part, tolerance, truth) for part, truth in zip(x, each)]
        return self.value(x)

    def truth(self, x, exact):
        """The same result in double precision, if there is one and it is another when it is rounded."""
        is_double = isinstance(exact, torch.Tensor) and exact.dtype is torch.float64
        if x.dtype not in HALVES or not is_double or exact.shape != x.shape:
            return {}
        if torch.equal(x.nan_to_num(), exact.to(x.dtype).nan_to_num()):
            return {}
        # It is not a part of what is limited: the same samples have one or not.
        self.runs.append(exact.detach().contiguous().flatten().clone())
        return {"truth": self.runs[-1]}

    def named(self, x, store):
        """`x` with its tensors in the store, by their names."""
        if isinstance(x, torch.Tensor):
            return store.put(x)
        if isinstance(x, dict):
            return {k: self.named(v, store) for k, v in x.items()}
        if isinstance(x, list):
            return [self.named(v, store) for v in x]
        return x


def unseeded(function, *args, **kwargs):
    """In the place of what hides from the outside that a function draws random numbers."""
    return function(*args, **kwargs)


def seed_all(seed):
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def tolerance_of(op, dtype):
    """PyTorch's tolerance for results of `op` on `dtype`: a function of the result's dtype."""
    wider = (0.0, 0.0)
    for info in op.decorators:
        # What stands without a condition is for all tests.
        cls = getattr(info, "cls_name", None)
        device = getattr(info, "device_type", None)
        dtypes = getattr(info, "dtypes", None)
        if cls not in RESULT_TESTS or device not in (None, "cpu"):
            continue
        if not getattr(info, "active_if", True) or (dtypes and dtype not in dtypes):
            continue
        for decorator in getattr(info, "decorators", [info]):
            found = getattr(decorator, "d", {}).get(dtype)
            if isinstance(decorator, toleranceOverride) and found:
                wider = (max(wider[0], found.rtol), max(wider[1], found.atol))
            elif isinstance(decorator, precisionOverride) and found:
                wider = (wider[0], max(wider[1], found))

    def tolerance(result):
        default = default_tolerances(result)
        return tuple(max(pair) for pair in zip(default, wider))

    return tolerance


def tensors_in(x):
    """The tensors in a result, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    return [t for part in x for t in tensors_in(part)] if isinstance(x, (list, tuple)) else []


def in_double(sample):
    """The sample with its halves in double precision."""

    def widened(x):
        if isinstance(x, torch.Tensor):
            copy = x.detach().double() if x.dtype in HALVES else x.detach().clone()
            return copy.requires_grad_(x.requires_grad)
        return torch.float64 if isinstance(x, torch.dtype) and x in HALVES else x

    return sample.transform(widened)


def exactly(dtype, compute):
    """What `compute` gives, if that is wanted of `dtype` and there is such a thing."""
    try:
        return compute() if dtype in HALVES else None
    except Exception:
        return None


def differentiated(op, sample, seed, cotangents=None):
    """Places of the differentiable results and of the leaves, the cotangents of the former, or these, and the
    gradients of the latter."""
    leaves = []

    def collect(path, x):
        if isinstance(x, torch.Tensor) and x.requires_grad:
            leaves.append((path, x))
        elif isinstance(x, (list, tuple)):
            for i, part in enumerate(x):
                collect(path + [i], part)

    collect(["input"], sample.input)
    for i, x in enumerate(sample.args):
        collect(["args", i], x)
    for name, x in sample.kwargs.items():
        collect(["kwargs", name], x)
    out = op(sample.input, *sample.args, **sample.kwargs)
    outs = [(i, x) for i, x in enumerate(tensors_in(out)) if x.requires_grad]
    # What is differentiable of the results alone: of vectors what does not depend on their phases.
    ends = [x for x in tensors_in(sample.output_process_fn_grad(out)) if x.requires_grad]
    if not leaves or not ends:
        return None
    if cotangents is None:
        generator = torch.Generator().manual_seed(seed)
        starts = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in ends]
        cotangents = torch.autograd.grad(
            ends, [x for _, x in outs], starts, allow_unused=True, retain_graph=True
        )
        outs = [(i, x, ct) for (i, x), ct in zip(outs, cotangents) if ct is not None]
    else:
        outs = [(i, x, cotangents[i].to(x.dtype)) for i, x in outs if i in cotangents]
    grads = torch.autograd.grad(
        [x for _, x, _ in outs], [x for _, x in leaves], [ct for *_, ct in outs], allow_unused=True
    )
    return {i: ct for i, _, ct in outs}, [path for path, _ in leaves], list(grads)


def gradients(op, sample, exact, case, seed, tolerance, dtype):
    """Cotangents of the results, and what they give for every tensor that wants a gradient."""
    found = differentiated(op, sample, seed)
    if found is None:
        return None
    cotangents, leaves, grads = found
    truth = exactly(dtype, lambda: differentiated(op, exact, seed, cotangents)[2])
    return {
        "from": list(cotangents),
        "cotangents": [case.value(ct) for ct in cotangents.values()],
        "of": leaves,
        "grads": case.output(grads, tolerance, truth),
    }


def how_to_compare(op, sample, is_random):
    if is_random or op.name in UNINITIALISED:
        return {"compare": "shape_only"}
    if op.name in FACTORS:
        return {"compare": "reconstruct"}
    if op.name in TIES and not sample.kwargs.get("stable"):
        at = TIES[op.name]
        dim = sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)
        return {"compare": "ties", "dim": dim}
    return {"compare": "set" if op.name in UNORDERED else "close"}


def dump_sample(op, dtype, sample, limit, seed, grad):
    case = Case(limit)
    row = case.sample(sample)
    # Before the call, which may write over what it is given.
    exact = exactly(dtype, lambda: in_double(sample))
    before = torch.get_rng_state()
    with torch.no_grad():
        out = op(sample.input, *sample.args, **sample.kwargs)
    is_random = not torch.equal(before, torch.get_rng_state())
    truth = None
    if exact is not None and not is_random:
        again = in_double(exact)
        with torch.no_grad():
            truth = exactly(dtype, lambda: op(again.input, *again.args, **again.kwargs))
    row["output"] = case.output(out, tolerance_of(op, dtype), truth)
    row |= how_to_compare(op, sample, is_random)
    if grad and dtype in op.supported_backward_dtypes("cpu") and not is_random:
        found = gradients(op, sample, exact, case, seed, tolerance_of(op, dtype), dtype)
        row |= {"grad": found} if found else {}
    return case, row


def dump_error(op, error, limit):
    if LIMITS.search(str(error.error_regex)):
        raise Unsupported("a limit of PyTorch's")
    case = Case(limit)
    sample = error.sample_input
    row = case.sample(sample)
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except Exception as e:
        return case, row | {"type": type(e).__name__, "regex": str(error.error_regex)}
    raise Unsupported("PyTorch takes it")


def reason(e):
    return f"{type(e).__name__}: {e}".splitlines()[0][:200]


def spread(rows, count):
    """At most so many of the rows, from the first to the last."""
    if count is None or len(rows) <= count:
        return rows
    return [rows[i * len(rows) // count] for i in range(count)]


def number_calls(op):
    """The calls of an operation with numbers as parameters, by dtype."""
    calls = NUMBER_CALLS[full_name(op)]
    calls = calls if isinstance(calls, list) else [calls]
    sizes = full_name(op) in ("eye", "nn.functional.one_hot", "bincount")
    for dtype in DTYPES:
        x = torch.tensor([1.0, 0.0, 3.0]).to(dtype)
        for call in calls:
            for n in NUMBERS:
                if sizes and isinstance(n, int) and n > MOST:
                    continue
                try:
                    first, *rest = call(x, n)
                except Exception:
                    # A vector that the call needs cannot be made in this dtype.
                    continue
                kwargs = rest.pop() if rest and isinstance(rest[-1], dict) else {}
                yield dtype, SampleInput(first, args=tuple(rest), kwargs=kwargs)


def put_number(x, indices, value):
    """`index_put` of a number, for which PyTorch has an operator alone."""
    x = x.clone()
    x[indices] = value
    return x


def dump_numbers(op, options):
    """The same of the calls with numbers."""
    function = put_number if op.name == "index_put" else op
    cases, errors, skipped = [], [], []
    for i, (dtype, sample) in enumerate(number_calls(op)):
        case, about = Case(options.max_kib * 1024), {"dtype": DTYPES[dtype]}
        try:
            row = case.sample(sample)
            before = torch.get_rng_state()
            out = function(sample.input, *sample.args, **sample.kwargs)
        except (NotImplementedError, TypeError, Unsupported) as e:
            skipped.append(about | {"sample": i, "reason": reason(e)})
            continue
        except Exception as e:
            row |= {"error": i, "type": type(e).__name__, "regex": reason(e)}
            errors.append((case, about | row))
            continue
        try:
            is_random = not torch.equal(before, torch.get_rng_state())
            row["output"] = case.output(out, tolerance_of(op, dtype))
            row |= {"sample": i} | how_to_compare(op, sample, is_random)
        except Unsupported as e:
            skipped.append(about | {"sample": i, "reason": reason(e)})
            continue
        cases.append((case, about | row))
    return stored(op, options, cases, errors, skipped)


def dump(op, options):
    """The samples of an operation: what goes to JSON, and its tensors."""
    seed, limit, grad = options.seed, options.max_kib * 1024, options.grad
    cases, errors, skipped = [], [], []

    def keep(rows, about, make):
        try:
            case, row = make()
        except Exception as e:
            skipped.append(about | {"reason": reason(e)})
            return
        rows.append((case, about | row))

    for dtype in sorted(op.supported_dtypes("cpu") & DTYPES.keys(), key=str):
        name = DTYPES[dtype]
        seed_all(seed)
        try:
            wants_grad = grad and dtype in op.supported_backward_dtypes("cpu")
            samples = list(op.sample_inputs("cpu", dtype, wants_grad, set_seed=False))
        except Exception as e:
            skipped.append({"dtype": name, "reason": reason(e)})
            continue
        for i, sample in enumerate(samples):
            about = {"dtype": name, "sample": i}
            keep(cases, about, lambda: dump_sample(op, dtype, sample, limit, seed, grad))
    seed_all(seed)
    try:
        bad = list(op.error_inputs("cpu")) if op.error_inputs_func else []
    except Exception as e:
        bad = []
        skipped.append({"error": None, "reason": reason(e)})
    for i, error in enumerate(bad):
        keep(errors, {"error": i}, lambda: dump_error(op, error, limit))
    if grad:
        cases = [(case, row) for case, row in cases if "grad" in row]
        errors = []
    return stored(op, options, cases, errors, skipped)


def stored(op, options, cases, errors, skipped):
    """What goes to JSON, with the names of the tensors in the store."""
    store = Store()
    chosen = [spread(rows, options.sample) for rows in (cases, errors)]
    cases, errors = ([case.named(row, store) for case, row in rows] for rows in chosen)
    row = {"op": op.name, "variant": op.variant_test_name}
    return row | {"cases": cases, "errors": errors, "skipped": skipped}, store.tensors


def full_name(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def stem(name):
    """A file's name; file systems may not tell `T` from `t`."""
    return re.sub("[A-Z]", lambda m: "_" + m[0].lower(), name)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--ops", help="names, with or without their variants, by commas")
    parser.add_argument("--grad", action="store_true", help="samples that have gradients, with those")
    help = "calls with numbers as parameters, around the ends of the dtypes' ranges"
    parser.add_argument("--numbers", action="store_true", help=help)
    help = "samples that are larger are left out (default 2048)"
    parser.add_argument("--max-kib", type=int, default=2048, metavar="M", help=help)
    help = "at most so many samples of each operation, and as many errors"
    parser.add_argument("--sample", type=int, metavar="N", help=help)
    return parser.parse_args(ARGUMENTS)


def chosen(ops, wanted):
    if wanted is None:
        return ops
    names = set(wanted.split(","))
    known = {name for op in ops for name in (op.name, full_name(op))}
    if names - known:
        sys.exit(f"torch-goldens.py: op_db has no {', '.join(sorted(names - known))}")
    return [op for op in ops if {op.name, full_name(op)} & names]


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    methods.wrapper_set_seed = unseeded
    op_db = methods.op_db
    # Sums do not depend on how many threads there are.
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    left_out = sorted({full_name(op) for op in op_db if LEFT_OUT.search(op.name)})
    ops = [op for op in op_db if not LEFT_OUT.search(op.name)]
    if options.numbers:
        ops = [op for op in ops if full_name(op) in NUMBER_CALLS]
    ops = chosen(ops, options.ops)
    files = {}
    for i, op in enumerate(ops):
        name = full_name(op)
        print(f"{i + 1}/{len(ops)} {name}", file=sys.stderr, flush=True)
        row, tensors = dump_numbers(op, options) if options.numbers else dump(op, options)
        files[name] = stem(name)
        save_file(tensors, options.out / f"{stem(name)}.safetensors")
        (options.out / f"{stem(name)}.json").write_text(json.dumps(row))
    manifest = {
        "torch": torch.__version__,
        "seed": options.seed,
        "files": files,
        "left_out": left_out,
    }
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
