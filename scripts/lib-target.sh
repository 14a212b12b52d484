# Sourced by scripts that build for another machine, at the root of the repository.
# shellcheck shell=bash

# Sets `clippy` and `target_args`: cargo with lints, and the arguments that make cargo build for
# the machine `$1`. Needed is the standard library for it. Rustup has that; where rustup cannot
# fetch it, packages of Debian's have a compiler with the library's source. Those are unpacked,
# not installed, into target/debian.
use_target() {
    # In the tests' profile: what runs while others are compiled is compiled once for both.
    clippy=(cargo clippy --release)
    target_args=(--locked --target "$1")
    rustup target add "$1" 2> /dev/null || use_debian
}

# Debian's compiler is another version, so it has a target folder of its own.
use_debian() {
    local cache=$PWD/target/debian
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
    target_args+=(-Z build-std=std,panic_abort)
    clippy=("$root/usr/bin/cargo-clippy" clippy --release)
}
