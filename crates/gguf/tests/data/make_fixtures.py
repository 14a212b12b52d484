"""Writes the GGUF files that tests/python_files.rs reads: `python3 make_fixtures.py` (needs the PyPI package gguf).

Byte i of tensor number k is (7 i + k) mod 256, whatever its type, so that the test can tell every byte.
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES

FOLDER = Path(__file__).parent

SCALARS = {
    GGMLQuantizationType.F32: np.float32,
    GGMLQuantizationType.F16: np.float16,
    GGMLQuantizationType.F64: np.float64,
    GGMLQuantizationType.I8: np.int8,
    GGMLQuantizationType.I16: np.int16,
    GGMLQuantizationType.I32: np.int32,
    GGMLQuantizationType.I64: np.int64,
}


def pattern(size, number):
    return ((np.arange(size) * 7 + number) % 256).astype(np.uint8)


def add_tensor(writer, number, ty):
    """Two rows of one block (scalar types: of three elements)."""
    block_len, block_bytes = GGML_QUANT_SIZES[ty]
    if ty in SCALARS:
        data = pattern(6 * block_bytes, number).view(SCALARS[ty]).reshape(2, 3)
        writer.add_tensor(ty.name, data)
    else:
        blocks = 3 if block_len == 1 else 1
        writer.add_tensor(ty.name, pattern(2 * blocks * block_bytes, number).reshape(2, -1), raw_dtype=ty)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_type():
    writer = GGUFWriter(FOLDER / "every-type.gguf", "llama")
    writer.add_custom_alignment(64)
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 4294967295)
    writer.add_int32("i32", -2147483648)
    writer.add_uint64("u64", 18446744073709551615)
    writer.add_int64("i64", -9223372036854775808)
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("bool", True)
    writer.add_string("string", "Ünïcødé 🦀")
    numbers = {"u8": "UINT8", "i8": "INT8", "u16": "UINT16", "i16": "INT16", "u32": "UINT32", "i32": "INT32"}
    numbers |= {"u64": "UINT64", "i64": "INT64", "f32": "FLOAT32", "f64": "FLOAT64"}
    for name, ty in numbers.items():
        writer.add_key_value(f"{name}s", [1, 2, 3], GGUFValueType.ARRAY, sub_type=GGUFValueType[ty])
    writer.add_array("bools", [True, False])
    writer.add_array("strings", ["", "a", "ß"])
    writer.add_key_value("byte strings", ["text", b"\xff\xfe"], GGUFValueType.ARRAY, sub_type=GGUFValueType.STRING)
    writer.add_key_value("byte string", b"\xc3(", GGUFValueType.STRING)
    writer.add_key_value("arrays", [[1, 2], ["x"]], GGUFValueType.ARRAY, sub_type=GGUFValueType.ARRAY)
    # The package gives Q8_1 a size that ggml does not.
    types = [ty for ty in GGML_QUANT_SIZES if ty != GGMLQuantizationType.Q8_1]
    for number, ty in enumerate(types):
        add_tensor(writer, number, ty)
    finish(writer)


def split():
    writer = GGUFWriter(FOLDER / "split.gguf", "llama", split_max_tensors=2)
    writer.add_string("general.name", "Split")
    for number in range(5):
        writer.add_tensor(f"t{number}", pattern(4 * (number + 1), number).view(np.float32))
    finish(writer)


every_type()
split()
