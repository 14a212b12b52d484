#!/usr/bin/env bash
# Lints the program and the crate `rustorch` for Windows, on any machine: that needs neither a
# linker nor Windows, only the standard library for it.
#
# With arguments: cargo's, to lint that alone, as in `scripts/check-windows.sh -p rustorch-opencl`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib-target.sh

use_target x86_64-pc-windows-msvc

if ((!$#)); then
    set -- -p rustorch-cli -p rustorch
fi
"${clippy[@]}" "${target_args[@]}" "$@" -- -D warnings
