#!/usr/bin/env python3
"""Tells what is wrong with the packages in a folder, which scripts/check-packages.sh makes.

Needs Python 3.11.
"""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path, PurePosixPath
from posixpath import normpath

ROOT = Path(__file__).parent.parent

# What the registry takes (https://doc.rust-lang.org/cargo/reference/publishing.html).
LARGEST = 10 << 20
KEYWORDS, LETTERS, CATEGORIES = 5, 20, 5

FILES = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"]
FACTS = ["description", "license", "readme", "keywords", "categories", "rust-version", "edition"]

INCLUDED = re.compile(r'include(?:_str|_bytes)?!\(\s*"([^"]+)"')

# How the module of a file's tests begins, which is at its end.
TESTS = re.compile(r"^#\[cfg\((?:test|all\(test, .+\))\)\]\nmod ", re.MULTILINE)


def faults_of_manifest(package: dict) -> list[str]:
    """What is wrong with `[package]` of the manifest in a package."""
    faults = [f"{fact} is missing" for fact in FACTS if not package.get(fact)]
    keywords = package.get("keywords", [])
    if len(keywords) > KEYWORDS or any(len(word) > LETTERS for word in keywords):
        faults.append(f"keywords: {KEYWORDS} of {LETTERS} letters are allowed")
    if len(package.get("categories", [])) > CATEGORIES:
        faults.append(f"categories: {CATEGORIES} are allowed")
    return faults


def faults_of_files(files: dict[str, bytes]) -> list[str]:
    """What a package lacks: files of every package, and those that its sources include."""
    faults = [f"{name} is missing" for name in FILES if not files.get(name)]
    for name, text in files.items():
        if not name.endswith(".rs"):
            continue
        # What tests include is theirs.
        code = TESTS.split(text.decode())[0]
        for included in INCLUDED.findall(code):
            path = normpath(PurePosixPath(name).parent / included)
            if path not in files:
                faults.append(f"{name} includes {included}, which is not in the package")
    return faults


def faults_of(crate: Path) -> list[str]:
    """What is wrong with a package."""
    folder = crate.name.removesuffix(".crate")
    with tarfile.open(crate) as archive:
        members = [member for member in archive if member.isfile()]
        files = {
            str(PurePosixPath(member.name).relative_to(folder)): archive.extractfile(member).read()
            for member in members
        }
    size = crate.stat().st_size
    print(f"{crate.name:44} {len(files):4} files {size / 2**20:6.2f} MiB")
    too_large = [f"{size} bytes, {LARGEST} are allowed"] if size > LARGEST else []
    manifest = tomllib.loads(files["Cargo.toml"].decode())["package"]
    return too_large + faults_of_manifest(manifest) + faults_of_files(files)


def faults_of_dependencies(packages: list[dict]) -> list[str]:
    """What crates of the workspace need of each other and could not have from the registry."""
    public = {package["name"]: package["version"] for package in packages if package["publish"] != []}
    faults = []
    for package in packages:
        for needed in package["dependencies"]:
            name, version = needed["name"], needed["req"]
            if package["name"] not in public or "path" not in needed:
                continue
            if needed["kind"] == "dev":
                # With a version, crates that test each other could not be published one by one.
                if version != "*":
                    faults.append(f"{package['name']}: {name} is for tests alone and has a version")
            elif name not in public:
                faults.append(f"{package['name']} needs {name}, which is not published")
            elif version != f"={public[name]}":
                faults.append(f"{package['name']} needs {name} {version}, and there is {public[name]}")
    return faults


def main() -> int:
    command = ["cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"]
    packages = json.loads(subprocess.check_output(command, cwd=ROOT))["packages"]
    crates = sorted(Path(sys.argv[1]).glob("*.crate"))
    expected = {f"{p['name']}-{p['version']}.crate" for p in packages if p["publish"] != []}
    faults = faults_of_dependencies(packages)
    faults += [f"{name} was not made" for name in expected - {crate.name for crate in crates}]
    for crate in crates:
        faults += [f"{crate.name}: {fault}" for fault in faults_of(crate)]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(crates)} packages, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
