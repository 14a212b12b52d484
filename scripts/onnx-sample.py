#!/usr/bin/env python3
"""Packs a sample of ONNX's own node tests for the test `replay`: crates/conformance/goldens/onnx.tar.gz.

scripts/onnx-sample.py REPLAY

REPLAY is the program of that name. Of each operator of which it passes all tests the smallest are taken, and none that is larger
than 4 kB. Needs PyPI's `onnx` (1.22.0 is the last that has the tests), whose licence is Apache-2.0.
"""

import collections
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import onnx

# Tests of an operator, and bytes of one, at most.
TESTS, BYTES = 4, 4000


def owned_by_nobody(entry):
    """The same archive on every machine."""
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


def passed(replay, folder):
    """Operators of which all tests pass."""
    command = [replay, "--onnx", folder, "-b", "cpu", "--format", "json"]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)
    return {op["op"] for op in told["ops"] if op["passed"] and not op["failed"] + op["not_implemented"]}


def main():
    replay = sys.argv[1]
    node = Path(onnx.__file__).parent / "backend/test/data/node"
    of_operator = collections.defaultdict(list)
    for test in node.iterdir():
        size = sum(file.stat().st_size for file in test.rglob("*.*"))
        # What is expanded into other operators is theirs.
        if size <= BYTES and "_expanded" not in test.name:
            model = onnx.load(test / "model.onnx", load_external_data=False)
            of_operator[model.graph.node[-1].op_type].append((size, test))
    known = passed(replay, node)
    of_operator = {name: sorted(tests)[:TESTS] for name, tests in of_operator.items() if name in known}
    taken = [test for tests in of_operator.values() for _, test in tests]
    to = Path(__file__).parent.parent / "crates/conformance/goldens/onnx.tar.gz"
    with tarfile.open(to, "w:gz", compresslevel=9) as archive:
        for test in sorted(taken):
            archive.add(test, test.name, filter=owned_by_nobody)
    print(f"{to}: {len(taken)} tests of {len(of_operator)} operators, {to.stat().st_size} bytes")


if __name__ == "__main__":
    main()
