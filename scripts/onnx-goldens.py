#!/usr/bin/env python3
"""Writes what tests of ONNX files read: crates/onnx/tests/goldens.

scripts/onnx-goldens.py MODELS

Small models are made. For `silero_vad.onnx` and `magika.onnx` in the folder MODELS, which `scripts/fetch-onnx.sh`
fetches, onnxruntime's answers are written. Needs PyPI's `onnx`, `onnxruntime`, `safetensors` and `numpy`.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

TO = Path(__file__).parent.parent / "crates/onnx/tests/goldens"

# Samples of a second, samples of a piece, and samples before it that a call has again.
RATES = [(16000, 512, 64), (8000, 256, 32)]
PIECES = 4


def tensor(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype), name)


def write(name, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, TO / f"{name}.onnx")


def perceptron():
    """Two layers of whole numbers, so that results are exact."""
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["sums"]),
        node("Relu", ["sums"], ["hidden"]),
        node("Gemm", ["hidden", "w2"], ["scores"]),
        node("ArgMax", ["scores"], ["class/best"], axis=1, keepdims=0),
    ]
    outputs = [tensor("scores", TensorProto.FLOAT, ["batch", 3]), tensor("class/best", TensorProto.INT64, ["batch"])]
    constants = [
        constant("w1", np.arange(8).reshape(4, 2) - 3),
        constant("b1", [1, -1]),
        constant("w2", [[1, 0, -1], [2, 1, 1]]),
    ]
    write("perceptron", nodes, [tensor("x", TensorProto.FLOAT, ["batch", 4])], outputs, constants)


def parts():
    """Operators of several families, with a choice among graphs."""
    node = helper.make_node
    result = [tensor("chosen", TensorProto.FLOAT, [1, "size"])]
    softmax = helper.make_graph([node("Softmax", ["flat"], ["chosen"], axis=1)], "yes", [], result)
    negative = helper.make_graph([node("Neg", ["flat"], ["chosen"])], "no", [], result)
    nodes = [
        node("Conv", ["x", "w"], ["convolved"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["convolved"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        node("QuantizeLinear", ["pooled", "scale", "zero"], ["quantized"]),
        node("DequantizeLinear", ["quantized", "scale", "zero"], ["real"]),
        node("Resize", ["real", "", "factors"], ["resized"], mode="linear"),
        node("Slice", ["resized", "starts", "ends"], ["sliced"]),
        node("Reshape", ["sliced", "shape"], ["flat"]),
        node("ReduceSum", ["flat"], ["sum"], keepdims=0),
        node("Greater", ["sum", "limit"], ["is_large"]),
        node("If", ["is_large"], ["y"], then_branch=softmax, else_branch=negative),
    ]
    constants = [
        constant("w", np.arange(36).reshape(2, 2, 3, 3) / 36 - 0.4),
        constant("scale", 0.125),
        constant("zero", 128, np.uint8),
        constant("factors", [1, 1, 2, 2]),
        constant("starts", [0, 0], np.int64),
        constant("ends", [1, 2], np.int64),
        constant("shape", [1, -1], np.int64),
        constant("limit", 0),
    ]
    inputs = [tensor("x", TensorProto.FLOAT, [1, 2, 4, 4])]
    write("parts", nodes, inputs, [tensor("y", TensorProto.FLOAT, [1, "size"])], constants)


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def silero(path):
    """Probabilities of speech in pieces of a tone that rises, with the state from piece to piece."""
    model = session(path)
    found = {}
    for rate, piece, before in RATES:
        time = np.arange(before + PIECES * piece) / rate
        tone = sum(np.sin(2 * np.pi * part * (120 * time + 200 * time**2)) / part for part in range(1, 9))
        sound = (0.2 * tone).astype(np.float32)
        state = np.zeros([2, 1, 128], np.float32)
        outputs = []
        for at in range(0, PIECES * piece, piece):
            part = sound[None, at : at + piece + before]
            output, state = model.run(None, {"input": part, "state": state, "sr": np.array(rate)})
            outputs.append(output)
        found |= {f"{rate}.sound": sound, f"{rate}.outputs": np.concatenate(outputs), f"{rate}.state": state}
    save_file(found, TO / "silero.safetensors")


def magika(path):
    """Kinds of this script and of a safetensors file, whose first and last bytes are the features; 256 fills up."""
    given = []
    for file in [Path(__file__), TO / "silero.safetensors"]:
        data = file.read_bytes()
        features = np.full(2048, 256, np.int32)
        begin, end = data[:1024], data[-1024:]
        features[: len(begin)] = list(begin)
        features[2048 - len(end) :] = list(end)
        given.append(features)
    given = np.stack(given)
    [labels] = session(path).run(None, {"bytes": given})
    save_file({"bytes": given, "labels": labels}, TO / "magika.safetensors")


def main():
    models = Path(sys.argv[1])
    TO.mkdir(parents=True, exist_ok=True)
    perceptron()
    parts()
    silero(models / "silero_vad.onnx")
    magika(models / "magika.onnx")


if __name__ == "__main__":
    main()
