#!/usr/bin/env bash
# Lints the crate `rustorch` and the program with no feature, with some alone that the commit
# chooses (with RUSTORCH_TEST_FULL, with each), and with all: here, or with the argument `apple` for
# Apple silicon, with `windows` for Windows. What does not depend on features is compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib-sample.sh

lint() {
    local packages=(--quiet -p rustorch -p rustorch-cli)
    case $target in
        here) cargo clippy --locked "${packages[@]}" "$@" -- -D warnings ;;
        apple | windows) "scripts/check-$target.sh" "${packages[@]}" "$@" ;;
    esac
}

target=${1:-here}
features=$(cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
packages = json.load(sys.stdin)["packages"]
rustorch = next(p for p in packages if p["name"] == "rustorch")
print(*(f for f in rustorch["features"] if f != "default"), sep="\n")' | sample 3)

lint --no-default-features
for feature in $features; do
    echo "$feature"
    lint --no-default-features --features "$feature"
done
echo all
lint --all-features
