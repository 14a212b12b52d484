#!/usr/bin/env bash
# A compiler for `RUSTC_WORKSPACE_WRAPPER`, which counts the lines that run, as `scripts/coverage.sh` wants: of this
# project's crates, not of libraries. It optimises little: that is compiled in half the time, and lines stay lines.
set -euo pipefail

crate=
level=1
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
        --crate-name) next=$((i + 1)) crate=${!next} ;;
        --test) level=0 ;;
    esac
done
# What only runs while the others are compiled.
[[ $crate == build_script_* ]] && exec "$@"
exec "$@" -C instrument-coverage -C opt-level=$level
