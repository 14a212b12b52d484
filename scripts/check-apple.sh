#!/usr/bin/env bash
# Checks, lints and documents the program for Apple silicon on a Linux machine, without a linker
# or a Mac: the standard library is checked from source. Rustup's own library for that target
# would do as well; this needs nothing but Debian's packages of a newer compiler, which are
# unpacked, not installed, into target/apple.
#
# Arguments, if any, are cargo's for the check alone: `scripts/check-apple.sh -p rustorch-metal`.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$PWD/target/apple
packages=(libllvm22 libstd-rust-web-1.96 libstd-rust-web-dev rust-web-clippy rust-web-src
    rustc-web)
if ! [ -e "$cache/complete" ]; then
    rm -rf "$cache"
    mkdir -p "$cache/packages" "$cache/root"
    (cd "$cache/packages" && apt-get download -q "${packages[@]}")
    for package in "$cache"/packages/*.deb; do
        dpkg -x "$package" "$cache/root"
    done
    rm -r "$cache/packages"
    touch "$cache/complete"
fi

bin=$cache/root/usr/bin
export LD_LIBRARY_PATH=$cache/root/usr/lib/x86_64-linux-gnu RUSTC=$bin/rustc RUSTDOC=$bin/rustdoc
# `-Z build-std` is allowed, in the build only: the code stays stable Rust.
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$cache/target
apple=(-Z build-std=std,panic_abort --target aarch64-apple-darwin --locked)

if (($#)); then
    cargo check "${apple[@]}" "$@"
    exit
fi
# What `cargo clippy` does, with the clippy of that compiler.
RUSTC_WORKSPACE_WRAPPER=$bin/clippy-driver CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings" \
    cargo check "${apple[@]}" -p rustorch-cli -p rustorch -p rustorch-metal
RUSTDOCFLAGS="-D warnings" cargo doc "${apple[@]}" --no-deps \
    -p rustorch-cli -p rustorch -p rustorch-tensor -p rustorch-metal
