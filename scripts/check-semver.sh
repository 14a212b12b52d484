#!/usr/bin/env bash
# Tells what has changed in the public interface of the crate `rustorch`, and of those that it shows, since a
# commit, and whether the version allows it: by cargo-semver-checks (`cargo install cargo-semver-checks`),
# which builds the documentation of both. Before a release, with the tag of the last one:
#
#   scripts/check-semver.sh v0.1.0
set -euo pipefail
cd "$(dirname "$0")/.."

cargo semver-checks --baseline-rev "$1" \
    -p rustorch -p rustorch-ir -p rustorch-runtime -p rustorch-tensor
