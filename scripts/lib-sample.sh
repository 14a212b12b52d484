# Sourced by scripts that try a sample of what grows with the project, at the root of the
# repository.
# shellcheck shell=bash

# Prints `$1` of the lines of standard input: which, the commit decides, or RUSTORCH_TEST_SEED, as
# for the tests. All with RUSTORCH_TEST_FULL.
sample() {
    local count=$1 lines seed i
    mapfile -t lines
    if [ -n "${RUSTORCH_TEST_FULL+set}" ] || ((count > ${#lines[@]})); then
        count=${#lines[@]}
    fi
    seed=${RUSTORCH_TEST_SEED:-$(git rev-parse HEAD 2> /dev/null || echo 0)}
    for ((i = 0; i < count; i++)); do
        echo "${lines[(0x${seed:0:8} + i * ${#lines[@]} / count) % ${#lines[@]}]}"
    done
}
