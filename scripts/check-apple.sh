#!/usr/bin/env bash
# Lints and documents the program for Apple silicon, and lints the libraries for iOS, on any machine:
# that needs neither a linker nor a Mac, only the standard library for each. `mac`, `documents` or `ios`
# does one of the three.
#
# With other arguments: cargo's, to lint that alone, as in `scripts/check-apple.sh -p rustorch-metal`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib-target.sh

crates=(-p rustorch -p rustorch-metal -p rustorch-coreml)
emulator=(-p rustorch-coreml-emulator)
mac=aarch64-apple-darwin

lint() {
    use_target "$1"
    "${clippy[@]}" "${target_args[@]}" "${@:2}" -- -D warnings
}

document() {
    use_target "$mac"
    RUSTDOCFLAGS="-D warnings" cargo doc "${target_args[@]}" --no-deps \
        -p rustorch-cli -p rustorch-tensor "${crates[@]}"
}

case ${1-all} in
    mac) lint "$mac" -p rustorch-cli "${crates[@]}" "${emulator[@]}" ;;
    documents) document ;;
    ios) lint aarch64-apple-ios "${crates[@]}" "${emulator[@]}" ;;
    all)
        for part in mac documents ios; do
            "$0" "$part"
        done
        ;;
    *) lint "$mac" "$@" ;;
esac
