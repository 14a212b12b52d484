#!/usr/bin/env python3
"""Holds random programs of tensors that share memory to PyTorch.

    RUSTORCH_PROGRAMS=2000 RUSTORCH_PROGRAMS_FILE=/tmp/programs cargo test -p rustorch-tensor --test api -- programs::
    scripts/check-programs.py /tmp/programs.memory /tmp/programs.gradients

Each line of a file is a step of a program, with what it gave; an empty line ends a program. A program is left at the first
step that one of the two refuses, and the other does not.
"""

import collections
import contextlib
import math
import sys

import torch

UNARY = {"square": torch.square, "relu": torch.relu, "neg": torch.neg, "abs": torch.abs}
UNARY |= {"tanh": torch.tanh, "sigmoid": torch.sigmoid}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum}


def shape_of(text):
    return [int(size) for size in text[1:-1].split(",") if size]


def data(shape, seed):
    elements = [((at * 37 + seed * 101) % 23) / 8.0 - 1.3 for at in range(math.prod(shape))]
    return torch.tensor(elements, dtype=torch.float64).reshape(shape)


def refuses(a, b):
    """Whether PyTorch writes nothing from b over a, as their memory overlaps: in a copy of that."""
    memory = a.detach().untyped_storage().clone()
    shown = lambda x: torch.empty(0, dtype=x.dtype).set_(memory, x.storage_offset(), x.shape, x.stride())
    try:
        with torch.no_grad():
            shown(a).add_(shown(b))
    except RuntimeError:
        return True
    return False


class Program:
    """Results are dense in row-major order here: an operation's result is copied to that, or its operands are before."""

    def __init__(self, before):
        self.tensors, self.leaves, self.before = {}, [], before

    def dense(self, function, *operands):
        if self.before:
            operands = [operand.contiguous() for operand in operands]
        return function(*operands).contiguous()

    def shows_leaf(self, a):
        return any(a.untyped_storage().data_ptr() == leaf.untyped_storage().data_ptr() for leaf in self.leaves)

    def step(self, words):
        name, *words = words
        number = lambda at: int(words[at])
        get = lambda at: self.tensors[number(at)]
        if name in ("data", "leaf"):
            new = data(shape_of(words[1]), number(2))
            if name == "leaf":
                new.requires_grad_(True)
                self.leaves.append(new)
        elif name == "full":
            new = torch.full(shape_of(words[1]), float(words[2]), dtype=torch.float64)
        elif name == "unary":
            new = self.dense(UNARY[words[1]], get(2))
        elif name == "binary":
            new = self.dense(BINARY[words[1]], get(2), get(3))
        elif name == "sum":
            new = self.dense(lambda x: x.sum(number(2)), get(1))
        elif name == "narrow":
            new = get(1).narrow(number(2), number(3), number(4))
        elif name == "t":
            new = get(1).t()
        elif name == "view":
            new = get(1).view(shape_of(words[2]))
        elif name == "reshape":
            new = get(1).reshape(shape_of(words[2]))
        elif name == "expand":
            new = get(1).expand(shape_of(words[2]))
        elif name == "select":
            new = get(1).select(number(2), number(3))
        elif name == "part":
            new = get(1).unbind(number(2))[number(3)]
        elif name == "contiguous":
            new = get(1).contiguous()
        elif name == "copy":
            new = get(1).clone(memory_format=torch.contiguous_format)
        elif name == "alias":
            new = get(1)
        elif name == "detach":
            new = get(1).detach()
        else:
            return self.change(name, words, get)
        self.tensors[number(0)] = new

    def change(self, name, words, get):
        if name.endswith("_") and not torch.is_grad_enabled() and self.shows_leaf(get(0)):
            # Behind that, PyTorch loses gradients of other views of the leaf.
            raise StopIteration
        if name == "unary_":
            getattr(get(0), words[1])()
        elif name in ("binary_", "assign"):
            names = {"+=": "add_", "-=": "sub_", "*=": "mul_"}
            a, b = get(0), get(2)
            is_same = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            is_other = is_same and (words[1] == "copy_" and a is not b or a.shape != b.shape)
            if is_other and not refuses(a, b):
                # PyTorch does not say that it reads what it has written over.
                b = b.clone()
            getattr(a, names.get(words[1], words[1]))(b)
            if is_other:
                # A gradient that needs the operand finds it written over, as it finds what was copied.
                with torch.no_grad():
                    b.add_(0)
        elif name == "number_":
            getattr(get(0), words[1])(float(words[2]))
        elif name == "fill_":
            get(0).fill_(float(words[1]))
        elif name == "drop":
            del self.tensors[int(words[0])]
        elif name == "read":
            return get(0).detach().reshape(-1).tolist()
        elif name == "backward":
            total = torch.zeros((), dtype=torch.float64)
            for i, a in enumerate(shape_of(words[0])):
                total = total + (self.tensors[a] * (i + 1)).sum()
            if not total.requires_grad:
                raise KeyError
            total.backward()
            read = []
            for leaf in self.leaves:
                read += [math.nan] if leaf.grad is None else leaf.grad.reshape(-1).tolist()
            return read
        else:
            raise ValueError(name)


def close(a, b):
    if a == b or math.isnan(a) and math.isnan(b):
        return True
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1.0)


def number(text):
    return {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf}.get(text) or float(text)


def compare(lines):
    """How a program ends: with a kind, and the step that shows it."""
    kinds = [compare_as(lines, before) for before in (False, True)]
    return next((kind for kind in kinds if kind[0] == "same"), kinds[0])


def compare_as(lines, before):
    program = Program(before)
    for line in lines:
        text, told = line.split("\t")
        words = text.split()
        quiet = words[0] == "no_grad"
        try:
            with torch.no_grad() if quiet else contextlib.nullcontext():
                read = program.step(words[quiet:])
            outcome = "done" if read is None else "read"
        except KeyError:
            outcome = "skipped"
        except StopIteration:
            return "same", ""
        except RuntimeError as error:
            outcome = "refused"
            why = str(error).split("\n")[0]
        kind, _, rest = told.partition(" ")
        if kind != outcome:
            if outcome == "refused":
                return "PyTorch refuses", f"{text}: {why}"
            return f"{kind} here, {outcome} there", f"{text}: {rest}"
        if kind == "refused":
            continue
        if kind == "read":
            own = [number(x) for x in rest[1:-1].split(", ") if x]
            if len(own) != len(read) or not all(map(close, own, read)):
                return "other values", f"{text}: {own} there {read}"
    return "same", ""


def main():
    failed = False
    for path in sys.argv[1:]:
        kinds, shown = collections.Counter(), collections.Counter()
        with open(path) as file:
            programs = [p.strip("\n").split("\n") for p in file.read().split("\n\n") if p.strip()]
        for lines in programs:
            kind, step = compare(lines)
            kinds[kind] += 1
            agrees = kind in ("same", "PyTorch refuses")
            failed |= not agrees
            shown[kind] += 1
            if not agrees and shown[kind] <= 3:
                print(f"{kind}: {step}\n  " + "\n  ".join(line[:100] for line in lines))
            elif kind == "PyTorch refuses" and shown[kind] <= 5:
                print(f"{kind}: {step}")
        print(path, dict(kinds))
    sys.exit(failed)


main()
