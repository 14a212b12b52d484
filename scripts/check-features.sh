#!/usr/bin/env bash
# Lints the crate `rustorch` and the program with no feature, with some alone that the commit
# chooses (with RUSTORCH_TEST_FULL, with each), and with all: here, or with the argument `apple` for
# Apple silicon, with `windows` for Windows. What does not depend on features is compiled once. The program
# has all kernels of the processor, so without them the library is linted alone.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib-sample.sh

lint() {
    case $target in
        here) cargo clippy --locked --quiet "$@" -- -D warnings ;;
        apple | windows) "scripts/check-$target.sh" --quiet "$@" ;;
    esac
}

target=${1:-here}
# Parquet's compression is written in C: for another system it needs that system's compiler.
skipped=$([[ $target == here ]] || echo parquet)
features=$(cargo metadata --no-deps --locked --format-version 1 | python3 -c '
import json, sys
packages = json.load(sys.stdin)["packages"]
rustorch = next(p for p in packages if p["name"] == "rustorch")
print(*(f for f in rustorch["features"] if f not in ("default", sys.argv[1])), sep="\n")' "$skipped")

both=(-p rustorch -p rustorch-cli)
lint "${both[@]}" --no-default-features
for feature in $(sample 3 <<< "$features"); do
    echo "$feature"
    lint "${both[@]}" --no-default-features --features "$feature"
    lint -p rustorch --no-default-features --features "$feature"
done
lint -p rustorch --no-default-features
echo all
lint "${both[@]}" --features "${features//$'\n'/,}"
