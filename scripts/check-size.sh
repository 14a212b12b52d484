#!/usr/bin/env bash
# Builds a program that adds two tensors with no Cargo feature, for the processor alone, as docs/installing.md
# recommends for small programs: more than 4 MB are an error. With RUSTORCH_TEST_FULL it also runs examples of
# what features bring, which have to work without them.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=4000000

cargo build --profile small --locked --quiet -p rustorch --no-default-features --example add
add=${CARGO_TARGET_DIR:-target}/small/examples/add
"$add" > /dev/null
bytes=$(wc -c < "$add")
echo "a program that adds two tensors: $bytes bytes"
if ((bytes > limit)); then
    echo "more than $limit: see what has grown, as by cargo-bloat, or raise the limit with a reason" >&2
    exit 1
fi
if [ -n "${RUSTORCH_TEST_FULL+set}" ]; then
    for example in attention mandelbrot pca spectrum; do
        cargo run --release --locked --quiet -p rustorch --no-default-features --example "$example" > /dev/null
    done
fi
