#!/usr/bin/env bash
# Makes kernels.ptx.zst in crates/backends/cuda and in crates/backends/cuda-hopper, the CUDA kernels for
# machines without NVRTC, by the one version of NVRTC that they are made by, which is fetched from PyPI (24 MB) into target/nvrtc.
# Needs Linux on x86-64 and python3 with pip, and no GPU.
#
#   scripts/make-ptx.sh         makes the files; compiles what has changed
#   scripts/make-ptx.sh remake  the same, compiling everything
#   scripts/make-ptx.sh check   fails unless the files are up to date, and a sample of them the same
#                               when they are made again: before a release
#   scripts/make-ptx.sh behind  lists kernels that are older than their text, without a compiler
set -euo pipefail
cd "$(dirname "$0")/.."

version=12.4.127
sha256=a178759ebb095827bd30ef56598ec182b85547f1508941a3d560eb7ea1fbf338
folder=target/nvrtc/$version
library=$folder/nvidia/cuda_nvrtc/lib/libnvrtc.so.12

if [ "${1:-}" != behind ] && ! [ -e "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "nvidia-cuda-nvrtc-cu12==$version --hash=sha256:$sha256" > "$folder/requirements.txt"
    python3 -m pip install --quiet --no-deps --only-binary :all: --target "$folder" \
        --requirement "$folder/requirements.txt"
    touch "$folder/complete"
fi

export RUSTORCH_NVRTC=$library
# Of the whole workspace, as the tests are built: packages alone have other features, for which all
# would be compiled once more.
cargo build --release --locked --quiet --workspace --example make_ptx
"${CARGO_TARGET_DIR:-target}/release/examples/make_ptx" "${1:-make}"
