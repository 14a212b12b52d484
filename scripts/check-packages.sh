#!/usr/bin/env bash
# Makes the packages that would be published, into target/package, and tells what is wrong with them: too
# large, files or facts that are missing, dependencies that nobody else could have. With RUSTORCH_TEST_FULL
# it also builds each from its package, which takes minutes. Nothing is published.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t private < <(cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] == []:
        print("--exclude", package["name"], sep="\n")')

# Packages of an earlier version, or of a crate that is no more, are none of these.
rm -rf "${CARGO_TARGET_DIR:-target}"/package/*.crate
verify=--no-verify
if [ -n "${RUSTORCH_TEST_FULL+set}" ]; then
    verify=
fi
cargo package --workspace "${private[@]}" --locked --allow-dirty --quiet $verify
scripts/check-packages.py "${CARGO_TARGET_DIR:-target}/package"
