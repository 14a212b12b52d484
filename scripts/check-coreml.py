#!/usr/bin/env python3
"""Runs ML Programs through coremltools: are they packages, do their types hold, what do they give?

    scripts/check-coreml.py FOLDER

FOLDER is what the conformance test of `rustorch-coreml-emulator` writes: for each program
`model.mlpackage`, and what its inputs and outputs were, as doubles in `NAME.f64`. That test calls this
program, if it finds coremltools. Needs coremltools 9.0 with numpy 1.26.4: with numpy 2 reductions are
not inferred.

Each package has to be valid (`ModelPackage.isValid`), to load (its types are inferred anew) and, where
coremltools can evaluate all its operations, to give what the emulated Core ML gave. The program fails
if one does not, or if there is none.
"""

import collections
import logging
import pathlib
import sys
import warnings

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import coremltools as ct  # noqa: E402
from coremltools.converters.mil.frontend.milproto import load as milproto  # noqa: E402
from coremltools.converters.mil.mil import types  # noqa: E402
from coremltools.converters.mil.mil.types.type_mapping import (  # noqa: E402
    numpy_val_to_builtin_val,
)
from coremltools.libmodelpackage import ModelPackage  # noqa: E402

# The normalised squared error that is allowed, as in the conformance suite.
ALLOWED = {"fp32": 1e-7, "fp16": 5e-4, "int32": 0.0}


# NumPy sums halves along outer dimensions in halves: from so many on, nothing is added any more. How
# far sums are rounded on their way, Apple leaves open.
LONG_SUM = 2048


class NotEvaluated(Exception):
    """coremltools infers the types of an operation, but has no values."""


def has_long_sums(function):
    """Does it sum up more halves than NumPy can?"""
    sums = ("softmax", "layer_norm", "reduce_sum", "reduce_mean")
    return any(op.op_type in sums and types.builtin_to_string(op.x.dtype) == "fp16"
               and max(op.x.shape) > LONG_SUM for op in function.operations)


def wrap(var, value):
    """A value as coremltools keeps it."""
    dtype = types.nptype_from_builtin(var.dtype)
    value = np.asarray(value, dtype=dtype).reshape(var.shape)
    return numpy_val_to_builtin_val(value if var.shape else value[()])[0]


def evaluate(function, inputs):
    """The values of a function's outputs."""
    states = {}
    for name, var in function.inputs.items():
        if types.is_state(var.sym_type):
            held = var.sym_type.wrapped_type()
            dtype = types.nptype_from_builtin(held.get_primitive())
            states[var] = inputs[name].astype(dtype).reshape(held.get_shape())
        else:
            var._sym_val = wrap(var, inputs[name])
    for op in function.operations:
        if op.op_type == "const":
            continue
        # What a state holds at its place of the program has no values there.
        if op.op_type in ("read_state", "coreml_update_state"):
            if op.op_type == "coreml_update_state":
                states[op.state] = op.value.val
            state = op.input if op.op_type == "read_state" else op.state
            op.outputs[0]._sym_val = wrap(op.outputs[0], states[state])
            continue
        try:
            is_compressed = op.op_type.startswith("constexpr_")
            values = op.materialized_val_inference() if is_compressed else op.value_inference()
        except (NotImplementedError, ValueError, TypeError) as error:
            raise NotEvaluated(op.op_type) from error
        if values is None:
            raise NotEvaluated(op.op_type)
        values = values if isinstance(values, (tuple, list)) else [values]
        for var, value in zip(op.outputs, values):
            var._sym_val = wrap(var, getattr(value, "val", value))
    return {var.name: np.asarray(var.val) for var in function.outputs}


def error(result, expected):
    """The sum of the squared differences over that of the squares; infinite where not both are
    finite, or the same."""
    same = (result == expected) | (np.isnan(result) & np.isnan(expected))
    difference = np.where(same, 0.0, np.where(same, 0.0, result) - np.where(same, 0.0, expected))
    if not np.isfinite(difference).all():
        return np.inf
    squares = np.sum(np.where(np.isfinite(expected), expected, 0.0) ** 2)
    return 0.0 if same.all() else np.sum(difference**2) / max(squares, np.finfo(float).tiny)


def compare(folder, function):
    """Holds the outputs that coremltools gives to those that were kept."""
    inputs = {name: np.fromfile(folder / f"{name}.f64") for name in function.inputs}
    dtypes = [types.builtin_to_string(op.outputs[0].dtype) for op in function.operations
              if op.outputs and op.op_type != "const"]
    halves = "fp16" in dtypes
    if has_long_sums(function):
        raise NotEvaluated(f"sums of more than {LONG_SUM} halves")
    with np.errstate(all="ignore"):
        outputs = evaluate(function, inputs)
    for name, value in outputs.items():
        expected = np.fromfile(folder / f"{name}.f64")
        dtype = "fp16" if halves and value.dtype.kind == "f" else {"f": "fp32"}.get(
            value.dtype.kind, "int32")
        found = error(value.astype(np.float64).ravel(), expected)
        if not found <= ALLOWED[dtype]:
            raise AssertionError(f"{name} differs by {found:.1e}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    packages = sorted(pathlib.Path(sys.argv[1]).rglob("model.mlpackage"))
    if not packages:
        sys.exit(f"no packages in {sys.argv[1]}")
    evaluated, lacking, failed = 0, collections.Counter(), 0
    for package in packages:
        try:
            assert ModelPackage.isValid(str(package)), "no valid package"
            spec = ct.utils.load_spec(str(package))
            weights = package / "Data/com.apple.CoreML/weights"
            program = milproto.load(spec, spec.specificationVersion, str(weights))
            ct.models.MLModel(str(package), skip_model_load=True)
            compare(package.parent, program.functions["main"])
            evaluated += 1
        except NotEvaluated as lack:
            lacking[str(lack)] += 1
        except Exception as wrong:  # whatever it is, it is to be shown with the package
            failed += 1
            print(f"{package}: {type(wrong).__name__}: {str(wrong)[:300]}")
    print(f"{len(packages)} packages: {failed} failed, {evaluated} evaluated to the same")
    for op, count in lacking.most_common():
        print(f"not evaluated: {count} with {op}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
