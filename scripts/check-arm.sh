#!/usr/bin/env bash
# Tests the CPU backend for 64-bit Arm, on any machine: an emulator runs it as processors with ever
# more of the instructions that it can use. That needs Debian's packages qemu-user and
# gcc-aarch64-linux-gnu, or their like.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib-sample.sh
source scripts/lib-target.sh

use_target aarch64-unknown-linux-gnu
variables=CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU
export "${variables}_LINKER=aarch64-linux-gnu-gcc"
# So that the emulator needs no libraries.
export "${variables}_RUSTFLAGS=-C target-feature=+crt-static"
# Faster under the emulator, by more than the compiler takes for it.
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=false
log=$(mktemp)
trap 'rm "$log"' EXIT

# Runs tests as on a processor.
emulate() {
    local processor=$1
    shift
    # Always the same packages, for what they depend on to be built once.
    env "${variables}_RUNNER=qemu-aarch64 -cpu $processor" \
        cargo test "${target_args[@]}" -p rustorch-cpu -p rustorch-cpu-tests -p rustorch-conformance "$@"
}

sample 1 << 'END' | while read -r processor level; do
cortex-a72 neon
neoverse-n1 neon-dotprod
max neon-i8mm
END
    echo "$processor, which has $level"
    # A test that starts itself anew for every level would have to be emulated anew.
    skipped=(--skip every_level)
    # Those of elementary functions are long, and try the code of every level that a processor has:
    # the last one has them all.
    [ "$processor" = max ] || skipped+=(--skip math::tests)
    emulate "$processor" --lib --test cpu -- --nocapture "${skipped[@]}" > "$log" || {
        cat "$log"
        exit 1
    }
    grep "test result" "$log"
    # The tests of products say at which levels they run.
    grep -q " $level " "$log" || {
        echo "the level was not found" >&2
        exit 1
    }
done
