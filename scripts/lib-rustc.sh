# Sourced by compilers for `RUSTC_WORKSPACE_WRAPPER`, with their arguments.
# shellcheck shell=bash

# What is compiled: `crate`, its name, and `tests`, not empty if its tests are.
crate=
tests=
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
        --crate-name) next=$((i + 1)) crate=${!next} ;;
        --test) tests=1 ;;
    esac
done
