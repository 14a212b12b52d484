#!/usr/bin/env bash
# Gives damaged input to everything that reads some, for as long as it is let:
#
# scripts/fuzz.sh SECONDS [-p PROCESSES] [TARGET…]
#
# Each process goes on from a seed of its own and what target/fuzz/corpus has from earlier; the sum of what they did comes at the end, and is in
# target/fuzz/counts.json all the time. Inputs that a reader panics on are kept in target/fuzz, and in a folder for each process
# if there are several, as are those that end a process (TARGET-ended-PROCESS, or of one process the files that end in .input);
# `target/release/rustorch-fuzz --input FILE TARGET` tries one again. Whatever is found becomes a test: it is mended,
# and its input put into crates/fuzz/found/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?how many seconds?}
shift
cargo build --release --workspace --bin rustorch-fuzz
nice -n 19 target/release/rustorch-fuzz --corpus target/fuzz/corpus --seconds "$seconds" "$@"
