#!/usr/bin/env bash
# Gives damaged input to everything that reads some, for as long as it is let:
#
# scripts/fuzz.sh SECONDS [TARGET…]
#
# Inputs that a reader panics on are kept in target/fuzz, as are, in files that end in .input, those that end the
# program; `target/release/rustorch-fuzz --input FILE TARGET` tries one again. Whatever is found becomes a test: it is
# mended, and its input put into crates/fuzz/found/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?how many seconds?}
shift
cargo build --release --workspace --bin rustorch-fuzz
time nice target/release/rustorch-fuzz --seconds "$seconds" "$@"
