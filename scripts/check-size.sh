#!/usr/bin/env bash
# Builds a program that adds two tensors with no Cargo feature, for the processor alone, as docs/installing.md
# recommends for small programs: more than 4.5 MB are an error. With RUSTORCH_TEST_FULL it also runs examples of what
# features bring, which have to work without them, and builds `rustorch-cli` with its default features: stripped, more
# than 52 MB are an error.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}

# check NAME BYTES LIMIT
check() {
    echo "$1: $2 bytes"
    if (($2 > $3)); then
        echo "more than $3: see what has grown, as by cargo-bloat, or raise the limit with a reason" >&2
        exit 1
    fi
}

cargo build --profile small --locked --quiet -p rustorch --no-default-features --example add
add=$target/small/examples/add
"$add" > /dev/null
check "a program that adds two tensors" "$(wc -c < "$add")" 4500000

if [ -n "${RUSTORCH_TEST_FULL+set}" ]; then
    for example in attention mandelbrot pca spectrum; do
        cargo run --release --locked --quiet -p rustorch --no-default-features --example "$example" > /dev/null
    done
    cargo build --release --locked --quiet -p rustorch-cli
    stripped=$(mktemp)
    trap 'rm "$stripped"' EXIT
    strip -o "$stripped" "$target/release/rustorch-cli"
    check "rustorch-cli, stripped" "$(wc -c < "$stripped")" 52000000
fi
