#!/usr/bin/env python3
"""PyTorch's answers for matrices at the edges, in files that `replay` reads.

scripts/hard-matrices.py --out DIR [--ops linalg.det,linalg.svd] [--grad]
(pip install torch numpy scipy expecttest safetensors)

Every factorisation, and what is computed by one, of matrices that are singular, of low rank, with
equal eigenvalues, without enough eigenvectors, huge, tiny, empty, not finite, and of batches with
several of these. A call that PyTorch refuses has to be refused. Values are near by the size of the
matrix, not of each element.
"""

import argparse
import collections
import contextlib
import functools
import importlib.util
import itertools
import json
import math
import sys
import warnings
from pathlib import Path

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0])
PARSER.add_argument("--out", type=Path, required=True, metavar="DIR")
PARSER.add_argument("--ops", help="names by commas")
PARSER.add_argument("--grad", action="store_true", help="gradients in place of results")
OPTIONS = PARSER.parse_args()

PATH = Path(__file__).with_name("torch-goldens.py")
SPEC = importlib.util.spec_from_file_location("goldens", PATH)
goldens = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(goldens)

import torch  # noqa: E402
from torch import linalg  # noqa: E402
from torch.testing._internal.opinfo.core import SampleInput  # noqa: E402

SEED = 0
LIMIT = 1 << 20
DTYPES = [torch.float64, torch.float32, torch.complex128, torch.complex64]
# How near answers are, in units of the size of what is computed.
NEAR = {torch.float64: 1e-9, torch.float32: 1e-4}
# Numbers whose squares are beyond the range.
SCALES = {torch.float64: (1e200, 1e-200), torch.float32: (1e30, 1e-30)}


def real(dtype):
    return torch.empty(0, dtype=dtype).abs().dtype


def random(*shape):
    generator = torch.Generator().manual_seed(len(shape) * 100 + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def matrices(dtype):
    """Names and matrices: first those that are exact in every arithmetic."""
    basis = linalg.qr(random(4, 4))[0]
    diagonal = lambda *values: torch.diag(torch.tensor(values, dtype=torch.float64))
    rotated = lambda *values: basis @ diagonal(*values) @ basis.mT
    exact = {
        "zero": torch.zeros(3, 3),
        "ones": torch.ones(3, 3),
        "sevens": torch.full((3, 3), 7.0),
        "identity": torch.eye(3),
        "rank 1 of 2": [[1, 2], [2, 4]],
        "first pivot 0": [[0, 0], [0, 1]],
        "nilpotent": [[0, 1], [0, 0]],
        "exchange": [[0, 1], [1, 0]],
        "zero column": [[1, 0, 2], [3, 0, 4], [5, 0, 7]],
        "zero row": [[1, 2, 3], [0, 0, 0], [4, 5, 7]],
        "rank 1 of 3": [[1, 2, 4], [2, 4, 8], [4, 8, 16]],
        "rank 2 of 4": diagonal(1, 2, 0, 0),
        "rank 3 of 4": diagonal(1, 0, 2, 4),
        "definite": [[4, 1], [1, 3]],
        "indefinite": [[1, 2], [2, 1]],
        "semidefinite": [[1, 1], [1, 1]],
        "one": [[3]],
        "one zero": [[0]],
        "none": torch.zeros(0, 0),
        "no rows": torch.zeros(0, 3),
        "no columns": torch.zeros(3, 0),
        "no matrices": torch.zeros(0, 3, 3),
        "wide": [[1, 2, 4, 8], [2, 4, 8, 16]],
        "tall": [[1, 2], [2, 4], [0, 0], [4, 8]],
        "wide zero": torch.zeros(2, 3),
        "batch": [[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[2, 1], [1, 3]], [[0, 1], [0, 0]]],
    }
    rounded = {
        "low rank": random(5, 2) @ random(2, 5),
        "nearly full rank": random(5, 4) @ random(4, 5),
        "large": random(20, 20) + 5 * torch.eye(20),
        "large of low rank": random(40, 7) @ random(7, 40),
        "equal eigenvalues": rotated(2, 2, 2, 5),
        "equal, and 0": rotated(3, 3, 0, 0),
        "opposite eigenvalues": rotated(1, -1, 2, -2),
        "one vector": [[2, 1, 0], [0, 2, 1], [0, 0, 2]],
        "complex pairs": [[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 2], [0, 0, -2, 1]],
        "graded": diagonal(1, 1e-5, 1e-10, 1e-15),
        "nan": [[1, 2], [math.nan, 4]],
        "inf": [[1, math.inf], [2, 4]],
        "all nan": torch.full((2, 2), math.nan),
        "nan in a batch": [[[1, 2], [2, 4.5]], [[1, math.nan], [2, 4]]],
    }
    for scale, name in zip(SCALES[real(dtype)], ("huge", "tiny")):
        rounded[name] = (random(3, 3) + 3 * torch.eye(3)) * scale
        rounded[f"{name} definite"] = torch.tensor([[4.0, 1], [1, 3]]).double() * scale
        rounded[f"{name} of rank 1"] = torch.ones(3, 3).double() * scale
        rounded[f"one {name}"] = diagonal(1, 2, scale)
    for name, x in (exact | rounded).items():
        x = torch.as_tensor(x, dtype=torch.float64)
        if dtype.is_complex:
            # Quarter turns of rows, and back of columns, are exact. They keep ranks and symmetry.
            turns = torch.tensor([1, 1j, -1, -1j]).to(torch.complex128).repeat(10)
            turned = turns[: x.shape[-2], None] * turns[: x.shape[-1]].conj()
            x = torch.where(x == 0, 0, x * turned) if x.isfinite().all() else x * (1 + 0j)
        yield name, name in exact, x.to(dtype)


def right(a):
    """Right-hand sides for a matrix."""
    return random(a.shape[-2], 2).to(a.dtype).expand(*a.shape[:-2], -1, -1).contiguous()


SQUARE, ANY, DIAGONABLE = "square", "any", "diagonable"
# Only the matrices that are exact in every arithmetic.
EXACT, EXACT_ANY = "exact", "exact, any"


class Function:
    """A function, the matrices that it is tried with, and further arguments."""

    def __init__(self, name, call, fits=SQUARE, args=((),), kwargs=({},), size=None):
        self.name, self.call, self.fits = name, call, fits
        self.args, self.kwargs = args, kwargs
        # The size of what is computed, beside that of the result.
        self.size = size or (lambda a: 0.0)

    def __call__(self, *args, **kwargs):
        return self.call(*args, **kwargs)

    def takes(self, a, name, is_exact):
        # LAPACK ends the process.
        if self.name in ("linalg.eig", "linalg.eigvals") and not a.isfinite().all():
            return False
        # The order of conjugates is a matter of rounding.
        is_paired = "large" in name or name in ("complex pairs", "huge")
        if self.name == "linalg.eigvals" and a.is_complex() and is_paired:
            return False
        is_square = a.shape[-1] == a.shape[-2]
        if self.fits == DIAGONABLE and name in ("one vector", "nilpotent", "batch"):
            return False
        fits = is_square or self.fits in (ANY, EXACT_ANY)
        return fits and (is_exact or self.fits not in (EXACT, EXACT_ANY))

    def samples(self, dtype):
        for name, is_exact, a in matrices(dtype):
            if not self.takes(a, name, is_exact):
                continue
            for args, kwargs in itertools.product(self.args, self.kwargs):
                args = [x(a) if callable(x) else x for x in args]
                yield name, a, args, kwargs


def norm(a):
    finite = a.abs()[a.isfinite()]
    return finite.max().item() if finite.numel() else 0.0


def power(a):
    try:
        return norm(a) ** a.shape[-1]
    except OverflowError:
        return math.inf


MODES = ({"mode": "reduced"}, {"mode": "complete"})
P = ((0,), (0.5,), (1,), (2,), (3,), (math.inf,))
ORDERS = (("fro",), ("nuc",), (math.inf,), (-math.inf,), (1,), (-1,), (2,), (-2,))
UPPER = ({"upper": False}, {"upper": True})
FUNCTIONS = [
    Function("linalg.det", linalg.det, size=power),
    Function("linalg.slogdet", linalg.slogdet, EXACT),
    Function("logdet", torch.logdet, EXACT),
    Function("linalg.lu", linalg.lu, EXACT_ANY, size=norm),
    Function("linalg.lu_factor", linalg.lu_factor, EXACT, size=norm),
    Function("linalg.lu_factor_ex", linalg.lu_factor_ex, EXACT, size=norm),
    Function("linalg.inv", linalg.inv, EXACT),
    Function("linalg.solve", linalg.solve, EXACT, args=((right,),)),
    Function("linalg.cholesky", linalg.cholesky, kwargs=UPPER),
    Function("linalg.cholesky_ex", linalg.cholesky_ex, EXACT),
    Function("linalg.ldl_factor_ex", linalg.ldl_factor_ex, EXACT, size=norm),
    Function("linalg.ldl_factor", linalg.ldl_factor, EXACT, size=norm),
    Function("linalg.qr", linalg.qr, ANY, kwargs=MODES, size=norm),
    Function("linalg.svd", linalg.svd, ANY, kwargs=({"full_matrices": False}, {}), size=norm),
    Function("linalg.svdvals", linalg.svdvals, ANY, size=norm),
    Function("linalg.eigh", linalg.eigh, kwargs=({}, {"UPLO": "U"}), size=norm),
    Function("linalg.eigvalsh", linalg.eigvalsh, kwargs=({}, {"UPLO": "U"}), size=norm),
    Function("linalg.eig", linalg.eig, DIAGONABLE, size=norm),
    Function("linalg.eigvals", linalg.eigvals, size=norm),
    Function("linalg.pinv", linalg.pinv, ANY),
    Function("linalg.pinv", linalg.pinv, EXACT, kwargs=({"hermitian": True},)),
    Function("linalg.matrix_rank", linalg.matrix_rank, ANY),
    Function("linalg.matrix_rank", linalg.matrix_rank, EXACT, kwargs=({"atol": 0.5},)),
    Function("linalg.matrix_rank", linalg.matrix_rank, EXACT, kwargs=({"hermitian": True},)),
    Function("linalg.lstsq", linalg.lstsq, ANY, args=((right,),), kwargs=({"driver": "gelsd"},)),
    Function("linalg.solve_triangular", linalg.solve_triangular, args=((right,),), kwargs=UPPER),
    Function("matrix_exp", torch.matrix_exp),
    Function("linalg.matrix_power", linalg.matrix_power, args=((0,), (1,), (3,)), size=norm),
    Function("linalg.matrix_power", linalg.matrix_power, EXACT, args=((-1,), (-2,))),
    Function("linalg.cond", linalg.cond, ANY),
    Function("linalg.cond", linalg.cond, EXACT, args=ORDERS),
    Function("linalg.matrix_norm", linalg.matrix_norm, ANY, args=ORDERS, size=norm),
    Function("linalg.norm", linalg.norm, ANY, size=norm),
    Function("linalg.vector_norm", linalg.vector_norm, ANY, args=P, size=norm),
]


def outputs(case, found, rtol, size):
    """Results, near by the largest of them and by the size of what is computed."""
    parts = goldens.tensors_in(found if isinstance(found, torch.Tensor) else tuple(found))
    size = max([size, *map(norm, parts)])
    atol = rtol * size if math.isfinite(rtol * size) else 0.0

    def bound(x):
        x = x.detach().contiguous()
        exact = not (x.is_floating_point() or x.is_complex())
        return case.tensor(x, whole=True, rtol=0.0 if exact else rtol, atol=0.0 if exact else atol)

    return bound(found) if isinstance(found, torch.Tensor) else [bound(x) for x in found]


def dump(function, dtype, name, a, args, kwargs):
    """A sample as it goes to JSON, with its case; whether it is one that is refused."""
    case = goldens.Case(LIMIT)
    sample = SampleInput(a, args=tuple(args), kwargs=kwargs)
    row = {"dtype": goldens.DTYPES[dtype], "name": name} | case.sample(sample)
    near = NEAR[real(dtype)]
    rtol = near ** (1 / 3) if name in ("one vector", "nilpotent") else near
    try:
        found = function(a, *args, **kwargs)
    except Exception as e:
        return case, row | {"type": type(e).__name__, "regex": str(e)}, True
    if function.name == "linalg.cond" and kwargs | dict(enumerate(args)) in ({}, {0: 2}, {0: -2}):
        if linalg.matrix_rank(a).min() < min(a.shape[-2:]):
            raise goldens.Unsupported("a condition that is a matter of rounding")
    if function.name == "linalg.cholesky_ex" and found.info.any():
        raise goldens.Unsupported("a factor that is of no use")
    row["output"] = outputs(case, found, rtol, function.size(a))
    how = "reconstruct" if function.name in goldens.FACTORS else "close"
    row["compare"] = "set" if function.name in goldens.UNORDERED else how
    if OPTIONS.grad:
        leaf = SampleInput(a.clone().requires_grad_(), args=tuple(args), kwargs=kwargs)
        tolerance = lambda _: (rtol, rtol)
        with graphs(function.name == "linalg.det"):
            found = goldens.gradients(function, leaf, None, case, SEED, tolerance, dtype)
        if not found:
            raise goldens.Unsupported("no gradient")
        for x in found["grads"]:
            if isinstance(x, dict):
                x["atol"] = rtol * max(1.0, norm(x["tensor"]))
        row["grad"] = found
    return case, row, False


@contextlib.contextmanager
def graphs(wanted):
    """Gradients by `create_graph`, without which that of a singular determinant is 0 in PyTorch."""
    before = torch.autograd.grad
    if wanted:
        torch.autograd.grad = functools.partial(before, create_graph=True)
    yield
    torch.autograd.grad = before


def dump_all(name):
    store, rows = goldens.Store(), {False: [], True: []}
    samples, reasons = 0, collections.Counter()
    for function, dtype in itertools.product((f for f in FUNCTIONS if f.name == name), DTYPES):
        for about, a, args, kwargs in function.samples(dtype):
            try:
                case, row, refused = dump(function, dtype, about, a, args, kwargs)
            except Exception as e:
                reasons[goldens.reason(e)] += 1
                continue
            number = "error" if refused else "sample"
            rows[refused].append({number: samples} | case.named(row, store))
            samples += 1
    for reason, count in reasons.items():
        print(f"{name}: left out {count}: {reason}", file=sys.stderr)
    errors = [] if OPTIONS.grad else rows[True]
    row = {"op": name, "variant": "", "cases": rows[False], "errors": errors, "skipped": []}
    return row, store.tensors


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    OPTIONS.out.mkdir(parents=True, exist_ok=True)
    wanted = OPTIONS.ops.split(",") if OPTIONS.ops else [f.name for f in FUNCTIONS]
    files = {}
    for name in dict.fromkeys(wanted):
        row, tensors = dump_all(name)
        files[name] = goldens.stem(name)
        goldens.save_file(tensors, OPTIONS.out / f"{files[name]}.safetensors")
        (OPTIONS.out / f"{files[name]}.json").write_text(json.dumps(row))
    manifest = {"torch": torch.__version__, "seed": SEED, "files": files, "left_out": []}
    (OPTIONS.out / "manifest.json").write_text(json.dumps(manifest, indent=1))


if __name__ == "__main__":
    main()
