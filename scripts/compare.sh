#!/usr/bin/env bash
# Which operations does a change make slower? Two builds take turns of milliseconds, so that what else the machine does
# hits both:
#
# scripts/compare.sh OLD NEW [--rounds N] [--seconds S] [--instructions] [OPTIONS OF `rustorch-cli bench --ops`…]
#
# OLD and NEW are commits, which are built, or programs. `-b cuda` compares on a GPU, `--ops matmul` one operation. Exits
# with 1 if something is slower by more than noise: scripts/compare.py says how that is told.
set -euo pipefail
cd "$(dirname "$0")/.."

# The program that `$1` is, or that is built of it.
program() {
    if [ -f "$1" ] && [ -x "$1" ]; then
        echo "$1"
        return
    fi
    local commit tree
    commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
        echo "$1: neither a program nor a commit" >&2
        return 2
    }
    local folder=$PWD/target/compare
    tree=$folder/tree
    if ! [ -x "$folder/$commit" ]; then
        # One tree and one folder for all commits, as most of it does not change.
        [ -e "$tree" ] || git worktree add --quiet --force --detach "$tree" "$commit"
        (cd "$tree" && git checkout --quiet --detach "$commit" && CARGO_TARGET_DIR="$folder/build" cargo build --release >&2)
        cp "$folder/build/release/rustorch-cli" "$folder/$commit"
    fi
    echo "$folder/$commit"
}

(($# >= 2)) || { echo "scripts/compare.sh OLD NEW: commits or programs" >&2; exit 2; }
old=$(program "$1")
new=$(program "$2")
shift 2
exec scripts/compare.py "$old" "$new" "$@"
