#!/usr/bin/env bash
# Which lines the tests run: at least nine of ten have to be. Told apart is what cannot run here: files of calls to Apple's
# libraries, which are not even compiled here, of calls to NVIDIA's driver where there is none, and of products by AMX on
# processors without. Kernels of GPUs are
# texts that no counter is in; of those the conformance suite tries every variant (`Backend::variants`).
#
# scripts/coverage.sh [-p CRATE…]
# scripts/coverage.sh report
#
# Needs rustup's llvm-tools, which it fetches. The project's crates are built anew, in target/coverage, with
# little optimisation: counters in every line make what is optimised no faster. `report` tells again what the last run counted.
# The tests of instruction counts are left out by themselves; examples in the documentation are not counted. Lines are in
# target/coverage/report.
set -euo pipefail
cd "$(dirname "$0")/.."

at_least=90
# Files that this machine cannot run.
elsewhere='NO FILE'
# All of the driver's but pack.rs.
[ -e /dev/nvidiactl ] || elsewhere='backends/cuda/src/[^p]'
grep -qs amx_tile /proc/cpuinfo ||
    elsewhere+='|backends/cpu/src/(planes/|qmatmul/tiled|kernels/attention/planes|simd/amx)'

rustup component add llvm-tools
export CARGO_TARGET_DIR=$PWD/target/coverage
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/rustc-coverage.sh
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
counts=$CARGO_TARGET_DIR/counts
tests=$CARGO_TARGET_DIR/tests.json
if [ "${1:-}" != report ]; then
    packages=("$@")
    ((${#packages[@]})) || packages=(--workspace)
    mkdir -p "$counts"
    rm -f "$counts"/test-*
    # Macros run while others are compiled.
    export LLVM_PROFILE_FILE=$counts/macros-%m.profraw
    cargo test --release "${packages[@]}" --lib --bins --tests --no-run --message-format=json-render-diagnostics > "$tests"
    export LLVM_PROFILE_FILE=$counts/test-%m.profraw
    cargo test --release "${packages[@]}" --lib --bins --tests --no-fail-fast
fi
"$tools/llvm-profdata" merge --sparse "$counts"/*.profraw -o "$CARGO_TARGET_DIR/all.profdata"
scripts/coverage.py "$tools/llvm-cov" "$CARGO_TARGET_DIR" "$elsewhere" "$at_least"
