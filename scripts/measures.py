#!/usr/bin/env python3
"""Measures the shape of the code: circles of files, folders, files, functions, error types.

A measure may not be above its limit in measures.json, which is its value when it was last written. The goal is what
it should become. `--write` writes today's values as limits, `--list MEASURE` lists what counts.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "scripts" / "measures.json"
# Sources of crates; tests and benchmarks do not count.
SOURCES = sorted({*ROOT.glob("crates/**/src"), ROOT / "src", ROOT / "models" / "src"})
FILES_BESIDE, LINES, KERNEL_LINES, FUNCTION_LINES = 20, 600, 700, 80
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|async|unsafe|extern \"C\") )*fn (\w+)")
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
ERROR = re.compile(r"^pub (?:enum|struct) (\w*Error)\b", re.MULTILINE)


def code(path):
    """The text of a file without the tests at its end."""
    text = path.read_text()
    test = TEST_MODULE.search(text)
    return text[: test.start()] if test else text


def module(source, path):
    """The path of a file's module: `a/b.rs` and `a/b/mod.rs` are `a::b`."""
    parts = list(path.relative_to(source).with_suffix("").parts)
    if parts[-1] == "mod" or (len(parts) == 1 and parts[0] in ("lib", "main")):
        parts.pop()
    return tuple(parts)


def paths(tree):
    """The paths of a `use`: `a::{b, c::d as e}` has `a::b` and `a::c::d`, each with its name here."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        path, _, name = (part.strip() for part in tree.partition(" as "))
        parts = tuple(part.strip() for part in path.split("::"))
        return [(parts, name or parts[-1])]
    before = tuple(part.strip() for part in head.split("::") if part.strip())
    found, depth, start = [], 0, 0
    inner = rest[: rest.rindex("}")] + ","
    for at, char in enumerate(inner):
        depth += (char == "{") - (char == "}")
        if char == "," and not depth:
            if inner[start:at].strip():
                found += paths(inner[start:at])
            start = at + 1
    return [(before + path, before[-1] if path == ("self",) and before else name) for path, name in found]


def uses(source):
    """For each file of a crate, the files that its `use`s name, also by way of others that pass a name on."""
    files = [path for path in source.rglob("*.rs") if path.name != "tests.rs"]
    modules = {module(source, path): path for path in files}
    # Names that each module has from elsewhere.
    names = {of: {} for of in modules}
    for of, path in modules.items():
        for statement in USE.findall(code(path)):
            for parts, name in paths(statement):
                names[of][name] = absolute(of, parts, modules)

    def home(parts, depth=0):
        """The module of a path, and of the name behind it."""
        parts = tuple(part for part in parts if part != "self")
        for end in range(len(parts), -1, -1):
            if parts[:end] in modules:
                rest = parts[end:]
                known = names[parts[:end]].get(rest[0]) if rest else None
                if known is not None and known != parts and depth < 8:
                    return home(known + rest[1:], depth + 1)
                return parts[:end]
        return ()

    found = {}
    for of in modules:
        targets = {home(parts) for parts in names[of].values() if parts is not None}
        # A crate's root passes names on; nothing is in it.
        found[of] = targets - {of, ()}
    return {modules[of]: {modules[to] for to in targets} for of, targets in found.items()}


def absolute(of, parts, modules):
    """A path from the crate's root; `None` for paths into other crates."""
    if parts[0] == "crate":
        return parts[1:]
    here = list(of)
    parts = list(parts)
    if parts[0] not in ("super", "self") and (*of, parts[0]) not in modules:
        return None
    while parts and parts[0] in ("super", "self"):
        if parts.pop(0) == "super":
            here = here[:-1]
    return tuple(here + parts)


def circles():
    """Sets of files that use each other, directly or by way of others (Tarjan)."""
    found = []
    for source in SOURCES:
        graph = uses(source)
        index, low, stack = {}, {}, []

        def visit(at):
            index[at] = low[at] = len(index)
            stack.append(at)
            for to in graph.get(at, ()):
                if to not in index:
                    visit(to)
                if to in stack:
                    low[at] = min(low[at], low[to])
            if low[at] == index[at]:
                members = []
                while not members or members[-1] != at:
                    members.append(stack.pop())
                if len(members) > 1:
                    names = sorted(str(member.relative_to(source)) for member in members)
                    found.append(f"{source.relative_to(ROOT)}: {' '.join(names)}")

        for at in sorted(graph):
            if at not in index:
                visit(at)
    return found


def sources():
    return [path for source in SOURCES for path in sorted(source.rglob("*.rs"))]


def folders():
    """Folders with too many files beside each other."""
    folders = {path.parent for path in sources()}
    counts = {folder: len(list(folder.glob("*.rs"))) for folder in sorted(folders)}
    return [f"{folder.relative_to(ROOT)}: {n}" for folder, n in counts.items() if n > FILES_BESIDE]


def files():
    """Files with too many lines."""
    found = []
    for path in sources():
        limit = KERNEL_LINES if "kernels" in path.parts else LINES
        lines = path.read_text().count("\n")
        if lines > limit:
            found.append(f"{path.relative_to(ROOT)}: {lines}")
    return found


def functions():
    """Functions with too many lines. As rustfmt writes it, the end is a brace below the beginning."""
    found = []
    for path in sources():
        open_ = []
        for number, line in enumerate(code(path).splitlines(), 1):
            start = FUNCTION.match(line)
            if start and not line.rstrip().endswith(";"):
                open_.append((start[1] + "}", start[2], number))
            elif open_ and line == open_[-1][0]:
                _, name, first = open_.pop()
                if number - first + 1 > FUNCTION_LINES:
                    found.append(f"{path.relative_to(ROOT)}:{first}: {name}, {number - first + 1}")
    return found


def errors():
    """Error types beyond the first of each crate."""
    found = []
    for source in SOURCES:
        text = "\n".join(code(path) for path in sorted(source.rglob("*.rs")))
        types = sorted(set(ERROR.findall(text)))
        found += [f"{source.relative_to(ROOT)}: {name}" for name in types[1:]]
    return found


MEASURES = {
    "circles of files": (circles, 8),
    f"folders of more than {FILES_BESIDE} files": (folders, 0),
    f"files of more than {LINES} lines, kernels {KERNEL_LINES}": (files, 0),
    f"functions of more than {FUNCTION_LINES} lines": (functions, 0),
    "further error types of a crate": (errors, 0),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write today's values as limits")
    parser.add_argument("--list", metavar="MEASURE", help="list what counts, by the beginning of the measure's name")
    options = parser.parse_args()
    sys.setrecursionlimit(10_000)
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    is_worse = False
    for name, (measure, goal) in MEASURES.items():
        if options.list and not name.startswith(options.list):
            continue
        found = measure()
        value, limit = len(found), limits.get(name, 0)
        if options.write:
            limits[name] = value
        elif value > limit:
            is_worse = True
        note = "" if options.write or value == limit else f", limit {limit}"
        print(f"{value:4} {name} (goal {goal}{note})")
        if options.list or (value > limit and not options.write):
            print("".join(f"       {line}\n" for line in found), end="")
    if options.write:
        LIMITS.write_text(json.dumps(limits, indent=4) + "\n")
    if is_worse:
        sys.exit("A measure is above its limit: see CONTRIBUTING, Shape.")


if __name__ == "__main__":
    main()
