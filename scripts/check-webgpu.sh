#!/usr/bin/env bash
# Builds the program with the feature `webgpu`, and tests it and the backend on a WebGPU device: on a machine without
# a GPU, Mesa's processor (Debian: libvulkan1 and mesa-vulkan-drivers, which it installs there).
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v dpkg > /dev/null && ! dpkg -s mesa-vulkan-drivers libvulkan1 > /dev/null 2>&1; then
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers libvulkan1
fi
export RUSTORCH_TEST_WEBGPU=1
cargo test --release --locked -p rustorch-wgpu
cargo test --release --locked -p rustorch-cli --features webgpu --test program webgpu
