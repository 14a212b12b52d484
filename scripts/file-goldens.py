#!/usr/bin/env python3
"""Files of tensors as NumPy, PyTorch and safetensors write them, and whether they read what is written here.

scripts/file-goldens.py make DIR    writes the files that the tests of crates/files read
scripts/file-goldens.py check DIR   reads those that its test `what_is_written_is_read` left in DIR
(pip install torch numpy safetensors)

Every file has, of each dtype that its format knows, a tensor of six elements, one of none, and one of rank 0.
"""

import os
import sys
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file, save_file

TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
NUMPY = {
    "f64": "f8",
    "f32": "f4",
    "f16": "f2",
    "i64": "i8",
    "i32": "i4",
    "i16": "i2",
    "i8": "i1",
    "u8": "u1",
    "u16": "u2",
    "u32": "u4",
    "u64": "u8",
    "bool": "b1",
    "complex64": "c8",
    "complex128": "c16",
}


def values(name):
    """Six numbers that the dtype holds exactly."""
    numbers = numpy.arange(6).reshape(2, 3)
    if name == "bool":
        return numbers % 2 == 1
    if name.startswith("u"):
        return numbers
    if name.startswith("i"):
        return numbers - 2
    if name.startswith("complex"):
        return numbers - 2.5 + 1j * numbers
    return numbers - 2.5


def arrays(order="<"):
    made = {}
    for name, code in NUMPY.items():
        array = values(name).astype(order + code)
        made[name] = array
        made[f"{name}.empty"] = array[:0]
        made[f"{name}.scalar"] = array[1, 2].reshape(())
    return made


def tensors(without=()):
    made = {}
    for name, dtype in TORCH.items():
        if name in without:
            continue
        tensor = torch.from_numpy(values(name)).to(dtype)
        made[name] = tensor
        made[f"{name}.empty"] = torch.empty(0, 3, dtype=dtype)
        made[f"{name}.scalar"] = tensor[1, 2].clone()
    return made


def views():
    """A state with what only PyTorch's format keeps."""
    memory = torch.arange(24, dtype=torch.float32)
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.arange(6.0).reshape(2, 3))
        module.bias.fill_(0.5)
    return {
        "transposed": memory[:6].reshape(2, 3).t(),
        "offset": memory[5:9],
        "every_second": memory[1:10:2],
        "expanded": torch.tensor([7.0]).expand(3, 4),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "module": module.state_dict(),
        "list": [torch.tensor(1), (torch.tensor(2), 3), "text", None, True, 2.5, -1, 2**40, 2**70],
        "ordered": OrderedDict([("b", torch.tensor(3)), (4, torch.tensor(5))]),
        "size": torch.Size([2, 3]),
    }


def checkpoint():
    """What a training program saves: states of a module and of an optimiser, numbers and texts."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 1))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, 2.0]]))
        module[0].bias.fill_(0.5)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.25)
    module(torch.tensor([[1.0, 3.0]])).sum().backward()
    optimizer.step()
    wrapped = OrderedDict((f"module.{name}", value) for name, value in module.state_dict().items())
    return {
        "model": wrapped,
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "loss": 0.125,
        "name": "net \u00e4",
        "is_best": False,
        "scheduler": None,
        "history": [(1, 0.5), (2, 0.25)],
        "dtype": torch.bfloat16,
        "devices": [torch.device("cpu"), torch.device("cuda", 1)],
        "tags": {"best"},
        "counts": Counter(["a", "a"]),
        "size": torch.Size([2, 3]),
        "parameter": with_attribute(torch.nn.Parameter(torch.ones(2))),
    }


def with_attribute(parameter):
    parameter.tag = "a"
    return parameter


class Hostile:
    """What runs a command when it is unpickled by Python."""

    def __reduce__(self):
        return os.system, ("echo code was run",)


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors(without=["complex128"]), folder / "all.safetensors", {"format": "pt"})
    numpy.savez(folder / "all.npz", **arrays())
    numpy.savez_compressed(folder / "packed.npz", **arrays(), zeros=numpy.zeros(10000))
    numpy.savez(folder / "big.npz", **arrays(">"))
    fortran = numpy.asfortranarray(values("f32").astype("<f4"))
    numpy.save(folder / "fortran.npy", fortran)
    for version in (1, 2, 3):
        with open(folder / f"version{version}.npy", "wb") as out:
            numpy.lib.format.write_array(out, fortran.copy("C"), (version, 0))
    numpy.save(folder / "records.npy", numpy.zeros(2, "f4,i4"))
    numpy.save(folder / "objects.npy", numpy.array([None, 1], object), allow_pickle=True)
    # Numbers of 64 bits for all that is more than this.
    limits = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT
    zipfile.ZIP64_LIMIT = zipfile.ZIP_FILECOUNT_LIMIT = 1
    few = {name: array for name, array in arrays().items() if name.startswith("f")}
    numpy.savez(folder / "zip64.npz", **few)
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limits
    torch.save(tensors(), folder / "all.pt")
    torch.save(views(), folder / "views.pt")
    few = {name: t for name, t in tensors().items() if "8e" not in name and name[0] != "u"}
    torch.save(few | views(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(tensors()["f32"], folder / "alone.pt")
    torch.save({"a": torch.ones(1), "b": Hostile()}, folder / "hostile.pt")
    torch.save(torch.nn.Linear(1, 1), folder / "module.pt")
    torch.save(checkpoint(), folder / "checkpoint.pt")


def same(found, expected, what):
    is_same = found.dtype == expected.dtype and found.shape == expected.shape
    is_same = is_same and bytes(flat(found)) == bytes(flat(expected))
    if not is_same:
        sys.exit(f"{what}: found {found}, expected {expected}")


def flat(values):
    if isinstance(values, torch.Tensor):
        values = values.contiguous().reshape(-1).view(torch.uint8).numpy()
    return values.tobytes()


def check_all(found, expected, file):
    if set(found) != set(expected):
        sys.exit(f"{file}: found {sorted(found)}")
    for name, value in expected.items():
        same(found[name], value, f"{file}: {name}")
    print(f"{file}: {len(found)} tensors")


def check(folder):
    all_tensors = tensors()
    file = "all.safetensors"
    check_all(load_file(folder / file), tensors(without=["complex128"]), file)
    for file in ("all.npz", "packed.npz"):
        with numpy.load(folder / file) as found:
            check_all(dict(found), arrays(), file)
        if zipfile.ZipFile(folder / file).testzip() is not None:
            sys.exit(f"{file}: a checksum is wrong")
    same(numpy.load(folder / "f32.npy"), arrays()["f32"], "f32.npy")
    mapped = numpy.load(folder / "f32.npy", mmap_mode="r")
    same(numpy.asarray(mapped), arrays()["f32"], "f32.npy")
    for mmap in (False, True):
        found = torch.load(folder / "all.pt", weights_only=True, mmap=mmap)
        check_all(found, all_tensors, "all.pt")
    tied = torch.load(folder / "tied.pt", weights_only=True)
    if tied["a"].data_ptr() != tied["b"].data_ptr():
        sys.exit("tied.pt: two storages")
    found = torch.load(folder / "checkpoint.pt", weights_only=True)
    weight = found["model"].pop("fc.weight")
    if found.pop("again").data_ptr() != weight.data_ptr():
        sys.exit("checkpoint.pt: two storages")
    same(weight, torch.tensor([[1.0, 2.0]]), "checkpoint.pt: model")
    expected = {
        "model": {},
        "epoch": 3,
        "loss": 0.125,
        "name": "net \u00e4",
        "is_best": False,
        "scheduler": None,
        "history": [(1, 0.5), (2, 0.25)],
        "large": [2**40, -(2**40), 2**70, -(2**70), -1, 255, 256],
        5: {(1, "a"): []},
    }
    if found != expected or type(found["history"][0]) is not tuple:
        sys.exit(f"checkpoint.pt: found {found}")
    print(f"checkpoint.pt: {len(found)} values")


if __name__ == "__main__":
    commands = {"make": make, "check": check}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](Path(sys.argv[2]))
