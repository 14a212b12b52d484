#!/usr/bin/env bash
# Makes the Debian package of the program, with its manual pages and completions for shells, by cargo-deb
# (`cargo install cargo-deb`), which prints where it is.
#
#   scripts/make-deb.sh        makes the package
#   scripts/make-deb.sh share  makes only the pages and completions, into target/release/share
set -euo pipefail
cd "$(dirname "$0")/.."

release=${CARGO_TARGET_DIR:-target}/release
cargo build --release --locked -p rustorch-cli

share=$release/share
program=$release/rustorch-cli
rm -rf "$share"
mkdir -p "$share/completions"
"$program" man --out "$share/man1"
"$program" completions bash > "$share/completions/rustorch-cli"
"$program" completions zsh > "$share/completions/_rustorch-cli"
"$program" completions fish > "$share/completions/rustorch-cli.fish"

if [ "${1:-}" != share ]; then
    cargo deb --no-build -p rustorch-cli
fi
