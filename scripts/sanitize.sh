#!/usr/bin/env bash
# Runs tests where mistakes with memory and threads are found that tests alone do not show, on rustup's nightly Rust
# (`rustup toolchain install nightly --component miri,rust-src`):
#
# scripts/miri.sh miri|address|thread
#
# miri: interprets the code, at a hundredth of its speed, and finds undefined behaviour. It knows no vector instructions
#   beyond SSE2, no mapped files, and no libraries that are not Rust. So it runs what places, shares and copies memory
#   (the runtime's arena, storages, journal), graphs, block formats and layouts, and reading GGUF from memory; not the
#   kernels, whose results the conformance suite compares, nor whole models, which would take days.
# address: finds memory that is used behind its end or its life, in native code, too, at half the speed.
# thread: finds data races, at a tenth of the speed; the standard library is built with it.
#   Both run the tests of the runtime and of the processor's backend. Left out are drivers of GPUs, which load libraries
#   that are not built so, and report what those do.
set -euo pipefail
cd "$(dirname "$0")/.."

how=${1:?miri, address or thread?}
host=x86_64-unknown-linux-gnu
export CARGO_TARGET_DIR=$PWD/target/$how
case $how in
miri)
    # Random numbers that differ from run to run, clocks and folders are the system's.
    export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance"
    cargo +nightly miri test -p rustorch-ir --lib -- graph layout shape check
    # 240,000 numbers are rounded, which takes minutes and touches no memory.
    cargo +nightly miri test -p rustorch-quant --lib -- --skip round_ties_away_is_round
    cargo +nightly miri test -p rustorch-runtime --lib -- arena storage host_pool journal observer memory
    cargo +nightly miri test -p rustorch-gguf --lib
    ;;
address | thread)
    build=()
    [ "$how" = address ] || build=(-Z build-std)
    RUSTFLAGS="-Z sanitizer=$how" cargo +nightly test --release "${build[@]}" --target "$host" \
        -p rustorch-runtime -p rustorch-cpu --lib --tests
    ;;
*)
    echo "$how: expected miri, address or thread" >&2
    exit 2
    ;;
esac
