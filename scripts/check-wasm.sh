#!/usr/bin/env bash
# Checks that the crates below the drivers compile for WebAssembly, without a browser's interfaces. They reach files,
# threads and the clock through one module, crates/runtime/src/platform.rs.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup target add wasm32-unknown-unknown
cargo check --locked --quiet --target wasm32-unknown-unknown -p rustorch-tensor --no-default-features "$@"
