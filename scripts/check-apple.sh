#!/usr/bin/env bash
# Lints and documents the program for Apple silicon, and lints the libraries for iOS, on any machine:
# that needs neither a linker nor a Mac, only the standard library for each.
#
# With arguments: cargo's, to lint that alone, as in `scripts/check-apple.sh -p rustorch-metal`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib-target.sh

use_target aarch64-apple-darwin

if (($#)); then
    "${clippy[@]}" "${target_args[@]}" "$@" -- -D warnings
    exit
fi
crates=(-p rustorch -p rustorch-metal -p rustorch-coreml)
"${clippy[@]}" "${target_args[@]}" -p rustorch-cli "${crates[@]}" -p rustorch-coreml-emulator \
    -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc "${target_args[@]}" --no-deps \
    -p rustorch-cli -p rustorch-tensor "${crates[@]}"

use_target aarch64-apple-ios
"${clippy[@]}" "${target_args[@]}" "${crates[@]}" -p rustorch-coreml-emulator -- -D warnings
