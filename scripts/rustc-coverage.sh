#!/usr/bin/env bash
# A compiler for `RUSTC_WORKSPACE_WRAPPER`, which counts the lines that run, as `scripts/coverage.sh` wants: of this
# project's crates, not of libraries. It optimises little: that is compiled in half the time, and lines stay lines.
set -euo pipefail
source "${BASH_SOURCE%/*}/lib-rustc.sh"

# What only runs while the others are compiled.
[[ $crate == build_script_* ]] && exec "$@"
level=$([[ -n $tests ]] && echo 0 || echo 1)
exec "$@" -C instrument-coverage -C opt-level="$level"
