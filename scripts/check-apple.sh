#!/usr/bin/env bash
# Lints and documents the program for Apple silicon, on any machine: that needs neither a linker
# nor a Mac, only the standard library for it. Rustup has that; where rustup cannot fetch it,
# packages of Debian's have a compiler with the library's source. Those are unpacked, not
# installed, into target/apple.
#
# With arguments: cargo's, to lint that alone, as in `scripts/check-apple.sh -p rustorch-metal`.
set -euo pipefail
cd "$(dirname "$0")/.."

apple=(--locked --target aarch64-apple-darwin)
clippy=(cargo clippy)

# Debian's compiler is another version, so it has a target folder of its own.
use_debian() {
    local cache=$PWD/target/apple
    local root=$cache/root
    if ! [ -e "$cache/complete" ]; then
        rm -rf "$cache"
        mkdir -p "$cache/packages" "$root"
        (cd "$cache/packages" && apt-get download -q libllvm22 libstd-rust-web-1.96 \
            libstd-rust-web-dev rust-web-clippy rust-web-src rustc-web)
        for package in "$cache"/packages/*.deb; do
            dpkg -x "$package" "$root"
        done
        rm -r "$cache/packages"
        touch "$cache/complete"
    fi
    export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu CARGO_TARGET_DIR=$cache/target
    export RUSTC=$root/usr/bin/rustc RUSTDOC=$root/usr/bin/rustdoc
    # For `-Z build-std` alone: the code stays stable Rust.
    export RUSTC_BOOTSTRAP=1
    apple+=(-Z build-std=std,panic_abort)
    clippy=("$root/usr/bin/cargo-clippy" clippy)
}

rustup target add aarch64-apple-darwin 2> /dev/null || use_debian

if (($#)); then
    "${clippy[@]}" "${apple[@]}" "$@" -- -D warnings
    exit
fi
"${clippy[@]}" "${apple[@]}" -p rustorch-cli -p rustorch -p rustorch-metal -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc "${apple[@]}" --no-deps \
    -p rustorch-cli -p rustorch -p rustorch-tensor -p rustorch-metal
