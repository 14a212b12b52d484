#!/usr/bin/env bash
# Runs tests where mistakes with memory and threads are found that tests alone do not show, on rustup's nightly Rust
# (`rustup toolchain install nightly --component miri,rust-src`):
#
# scripts/sanitize.sh miri|address|thread [-p CRATE… [-- TESTS…]]
#
# miri: interprets the code, at a hundredth of its speed, and finds undefined behaviour. It knows no vector instructions
#   beyond SSE2, no mapped files, and no libraries that are not Rust. So it runs what places, shares and copies memory
#   (the runtime's arena, storages, journal), graphs, block formats and layouts, and reading GGUF from memory; not the
#   kernels, whose results the conformance suite compares, nor whole models, which would take days.
# address: finds memory that is used behind its end or its life, and what is never given back, in native code, too, at half
#   the speed. It runs what Miri cannot: vector instructions, mapped files, the part of GPUs' code that is on the host, and
#   tensors, modules and language models, whole. The compiler's messages are left out: what they try is not compiled so.
# thread: finds data races, at a tenth of the speed; the standard library is built with it. It runs what has threads: the
#   runtime, the profiler, loaders of data, and the processor's kernels with what they call, these for the least level of
#   vector instructions alone, as all levels share their work out alike and take an hour to compile so.
#
# What is run under the two is optimised little, which takes half as long to compile.
#
# Left out are drivers of GPUs, which load libraries that are not built so, and report what those do; their calls are tried
# with libraries that are made for tests. The fuzzed readers under AddressSanitizer are in the folder `fuzz`.
set -euo pipefail
cd "$(dirname "$0")/.."

how=${1:?miri, address or thread?}
shift
host=x86_64-unknown-linux-gnu
export CARGO_TARGET_DIR=$PWD/target/$how
# Tests that take minutes under them and touch no memory: 240,000 numbers are rounded, and many values are placed.
slow=(--skip round_ties_away_is_round --skip values_without_a_pattern)
sanitized() {
    local build=()
    [ "$how" = address ] || build=(-Z build-std)
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 RUSTFLAGS="-Z sanitizer=$how" cargo +nightly test --release "${build[@]}" --target "$host" "$@"
}
case $how in
miri)
    # Random numbers that differ from run to run, clocks and folders are the system's.
    export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance"
    if (($#)); then
        cargo +nightly miri test "$@"
        exit
    fi
    cargo +nightly miri test -p rustorch-ir --lib -- graph layout shape check
    cargo +nightly miri test -p rustorch-quant --lib -- "${slow[@]}"
    cargo +nightly miri test -p rustorch-runtime --lib -- arena storage host_pool journal observer memory "${slow[@]}"
    cargo +nightly miri test -p rustorch-gguf --lib
    ;;
address)
    # Tests ask for more memory than there is, and expect an error. The signal stack of a thread that used an OpenCL driver on
    # LLVM (PoCL) is LLVM's, from its heap: as it ends, AddressSanitizer would take it for its own and unmap it.
    export ASAN_OPTIONS=allocator_may_return_null=1:use_sigaltstack=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
    if (($#)); then
        sanitized "$@"
        exit
    fi
    sanitized -p rustorch-quant -p rustorch-gguf -p rustorch-gpu -p rustorch-runtime -p rustorch-cpu -p rustorch-files --lib --tests
    sanitized -p rustorch-tokenizer -p rustorch-grammar -p rustorch-chat -p rustorch-tensor -p rustorch-nn -p rustorch-llm \
        --lib --tests -- --skip what_cannot_be_rust_is_told_with_what_can
    ;;
thread)
    if (($#)); then
        sanitized "$@"
        exit
    fi
    sanitized -p rustorch-runtime -p rustorch-profile -p rustorch-data --lib --tests
    sanitized -p rustorch-cpu -p rustorch-math --no-default-features --features \
        rustorch-math/default,rustorch-cpu/dtypes,rustorch-cpu/fft,rustorch-cpu/linalg,rustorch-cpu/llm --lib --tests
    ;;
*)
    echo "$how: expected miri, address or thread" >&2
    exit 2
    ;;
esac
