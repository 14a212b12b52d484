#!/usr/bin/env python3
"""Tells of each file how many of its lines ran; `scripts/coverage.sh` starts it.

scripts/coverage.py LLVM_COV FOLDER ELSEWHERE AT_LEAST

FOLDER has all.profdata, which the tests counted, and tests.json, in which cargo tells what it built; the lines come to
be in its folder report. Files whose paths have the regular expression ELSEWHERE in them are told apart. Exits with 1 if less than
AT_LEAST per cent of the others' lines ran. Lines of tests themselves do not count, but for those at the end of a source.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.getcwd() + "/"
# The project's own, without what is only for tests, and what only runs while others are compiled.
SOURCES = re.compile(r"(crates/(backends/)?[^/]+|models)/src/|src/")
TESTS = re.compile(r"/tests?(/|\.rs$)")


def binaries(folder):
    """What counted: tests, programs, and macros."""
    with open(os.path.join(folder, "tests.json")) as lines:
        for line in lines:
            built = json.loads(line) if line.startswith("{") else {}
            if built.get("reason") != "compiler-artifact" or not built["manifest_path"].startswith(ROOT):
                continue
            kind = built["target"]["kind"]
            if built["executable"]:
                yield built["executable"]
            elif kind == ["proc-macro"]:
                yield from (name for name in built["filenames"] if name.endswith((".so", ".dylib")))


def main():
    llvm_cov, folder, elsewhere, at_least = sys.argv[1:]
    options = [f"--instr-profile={folder}/all.profdata"]
    for number, path in enumerate(binaries(folder)):
        options += [path] if number == 0 else ["--object", path]
    counted = subprocess.run([llvm_cov, "export", "--summary-only", *options], stdout=subprocess.PIPE, check=True)
    files = []
    for file in json.loads(counted.stdout)["data"][0]["files"]:
        name = file["filename"].removeprefix(ROOT)
        if SOURCES.match(name) and not TESTS.search(name):
            files.append((name, file["summary"]["lines"]["covered"], file["summary"]["lines"]["count"]))
    files.sort()

    def tell(name, ran, of):
        print(f"{100 * ran / max(of, 1):6.2f} %  {ran:6} of {of:6}  {name}")

    print("== what needs another machine")
    for folder_, _, names in os.walk("crates"):
        if "apple.rs" in names and "/src" in folder_:
            with open(os.path.join(folder_, "apple.rs")) as lines:
                print(f"not compiled: {sum(1 for _ in lines)} lines, {folder_}/apple.rs")
    here = []
    for file in files:
        tell(*file) if re.search(elsewhere, file[0]) else here.append(file)
    print("== everything else")
    for file in here:
        tell(*file)
    print("== by crate")
    crates = {}
    for name, ran, of in here:
        its = crates.setdefault(name.split("/src/")[0] if "/src/" in name else "src", [0, 0])
        its[0] += ran
        its[1] += of
    for crate, its in sorted(crates.items()):
        tell(crate, *its)
    ran, of = (sum(column) for column in list(zip(*here))[1:])
    tell("all", ran, of)
    report = ["show", "--format=html", f"--output-dir={folder}/report", "--ignore-filename-regex=/registry/|/rustc/"]
    subprocess.run([llvm_cov, *report, *options], stdout=subprocess.DEVNULL, check=True)
    sys.exit(100 * ran < float(at_least) * of)


if __name__ == "__main__":
    main()
