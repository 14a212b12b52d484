#!/usr/bin/env python3
"""Tells whether the licences of all dependencies, on all platforms, are among those that deny.toml allows.

Needs Python 3.11 and nothing from the network; scripts/check-deny.sh checks more.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether an SPDX expression, or the older form with slashes, can be met with what is allowed."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def one_of(words: list[str]) -> bool:
        met = all_of(words)
        while words[:1] == ["OR"]:
            del words[0]
            met |= all_of(words)
        return met

    def all_of(words: list[str]) -> bool:
        met = term(words)
        while words[:1] == ["AND"]:
            del words[0]
            met &= term(words)
        return met

    def term(words: list[str]) -> bool:
        licence = words.pop(0)
        if licence == "(":
            met = one_of(words)
            del words[0]
            return met
        if words[:1] == ["WITH"]:
            licence = " ".join([licence, words.pop(0), words.pop(0)])
        return licence in allowed

    return one_of(words)


def main() -> int:
    rules = tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]
    exceptions = {one["crate"]: set(one["allow"]) for one in rules["exceptions"]}
    command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    refused = [
        f"{package['name']} {package['version']}: {package['license'] or 'no licence'}"
        for package in packages
        if not is_allowed(
            package["license"] or "none", set(rules["allow"]) | exceptions.get(package["name"], set())
        )
    ]
    unused = exceptions.keys() - {package["name"] for package in packages}
    refused += [f"{name}: an exception in deny.toml for a crate that is not a dependency" for name in unused]
    print(*refused, sep="\n", end="\n" if refused else "")
    print(f"{len(packages)} packages, {len(refused)} with a licence that deny.toml does not allow")
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
