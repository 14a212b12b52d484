#!/usr/bin/env bash
# Which lines the tests run: at least nine of ten have to be. Told apart is what cannot run here: files of calls to Apple's
# libraries, which are not even compiled here, and of calls to NVIDIA's driver where there is none. Kernels of GPUs are
# texts that no counter is in; of those the conformance suite tries every variant (`Backend::variants`).
#
# scripts/coverage.sh [-p CRATE…]
#
# Needs rustup's llvm-tools and cargo-llvm-cov, which it fetches; builds everything anew, in target/coverage. The tests
# of instruction counts are left out by themselves. Reports are in target/coverage/report.
set -euo pipefail
cd "$(dirname "$0")/.."

at_least=90
# Files that this machine cannot run.
elsewhere='NO FILE'
# All of the driver's but pack.rs.
[ -e /dev/nvidiactl ] || elsewhere='backends/cuda/src/[^p]'
packages=("$@")
((${#packages[@]})) || packages=(--workspace)

rustup component add llvm-tools
export CARGO_TARGET_DIR=$PWD/target/coverage
PATH=$CARGO_TARGET_DIR/tools/bin:$PATH
cargo llvm-cov --version > /dev/null 2>&1 || cargo install --locked --root "$CARGO_TARGET_DIR/tools" cargo-llvm-cov
cargo llvm-cov clean --workspace
cargo llvm-cov --release --no-report "${packages[@]}"
report=(cargo llvm-cov report --release)
echo "== what needs another machine"
find crates -name apple.rs -path '*/src/*' -exec wc -l {} + | sed '/ total$/d; s/$/ (not compiled)/'
"${report[@]}" --summary-only --json | python3 -c '
import json, re, sys
for file in json.load(sys.stdin)["data"][0]["files"]:
    if re.search(sys.argv[1], file["filename"]):
        lines = file["summary"]["lines"]
        print("{} of {} lines {}".format(lines["covered"], lines["count"], file["filename"]))
' "$elsewhere"
echo "== everything else"
"${report[@]}" --html --ignore-filename-regex "$elsewhere" --output-dir target/coverage/report
"${report[@]}" --ignore-filename-regex "$elsewhere" --fail-under-lines "$at_least"
