#!/usr/bin/env bash
# Runs all that needs an NVIDIA GPU, and writes the results to docs/reports/cuda-DATE.md. It runs the tests of
# rustorch-cuda with and without NVIDIA's libraries. It runs samples of PyTorch's tests with gradients, and of its
# modules and optimisers. It runs `verify`, and measures how long it takes to start, and how fast a model is. Takes
# minutes. Ends with status 1 if something is wrong.
#
#   scripts/verify-cuda.sh               builds programs, tests and samples, and runs them
#   scripts/verify-cuda.sh build FOLDER  puts them into a folder instead, which needs no GPU
#   scripts/verify-cuda.sh run FOLDER    runs those of a folder, which needs neither Rust nor PyTorch
#
# PYTHON is the Python that has PyTorch for the samples (python3), SEED the samples' seed (0). REPORT
# is the file to write instead. FULL=1 tries all cases of all operations, too, which takes many
# minutes.
set -uo pipefail
cd "$(dirname "$0")/.."

build() {
    mkdir -p "$1"
    cargo build --release --locked --package rustorch-cli || exit 1
    cargo build --release --locked --package rustorch-conformance --bin replay || exit 1
    cp "${CARGO_TARGET_DIR:-target}"/release/{rustorch-cli,replay} "$1"
    local built
    built=$(cargo test --release --locked --package rustorch-cuda --test conformance \
        --test attention --test large --test precision --no-run 2>&1) || { echo "$built"; exit 1; }
    echo "$built" | sed -n 's/.*tests\/\(.*\)\.rs (\(.*\))$/\1 \2/p' | while read -r name path; do
        cp "$path" "$1/$name"
    done
    samples torch-goldens.py "$1/values" --sample 4 --max-kib 16
    samples torch-goldens.py "$1/gradients" --sample 4 --max-kib 16 --grad
    samples module-goldens.py "$1/modules" --sample 2 --max-kib 64
    git describe --always --dirty > "$1/commit"
}

# Makes a folder of samples of PyTorch's own tests, by a script; leaves it out without PyTorch.
samples() {
    local script=$1 out=$2
    shift 2
    rm -rf "$out"
    "${PYTHON:-python3}" "scripts/$script" --seed "${SEED:-0}" --out "$out" "$@" > /dev/null ||
        rm -rf "$out"
}

case "${1:-}" in
    build) build "$2"; exit ;;
    run) folder=$2 ;;
    *) folder=target/verify-cuda; build "$folder" ;;
esac

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export RUSTORCH_TEST_CUDA=1 RUSTORCH_CACHE_DIR=$out/cache
# The driver keeps what it has compiled, too.
export CUDA_CACHE_PATH=$out/driver
# With a cache of its own, or what NVRTC has compiled before would be there.
without="RUSTORCH_NVRTC=none RUSTORCH_CUBLASLT=none RUSTORCH_CACHE_DIR=$out/other"
rows=
wrong=0

# Runs a command as a row of the table: what it is, and of what its output's lines tell.
row() {
    local what=$1 pattern=$2 start status=0 told
    start=$(date +%s%N)
    shift 2
    echo "== $what" >&2
    env "$@" > "$out/log" 2>&1 || status=$?
    told=$(sed -n "$pattern" "$out/log" | paste -sd ';' | sed 's/;/; /g')
    if [ "$status" != 0 ]; then
        wrong=1
        told="**status $status** ${told:-$(tail -n 3 "$out/log" | tr '\n' ' ')}"
        tail -n 40 "$out/log" >&2
    fi
    rows+="| $what | $told | $(($(date +%s%N) - start)) |"$'\n'
}

# Replays a folder of samples as a row. The table has the sums and the operations that fail, `failing` the reasons.
replayed() {
    local what=$1 samples=$folder/$2
    shift 2
    if ! [ -x "$folder/replay" ] || ! [ -d "$samples" ]; then
        rows+="| PyTorch's $what | not run: not in $folder | 0 |"$'\n'
        return
    fi
    row "PyTorch's $what" "$answers" "$folder/replay" "$samples" -b cuda -vv "$@"
    awk -v what="$what" '/^    failed: / { sub(/^    failed: /, ""); print "* " what ", " op ": " $0; next }
        { op = $1 }' "$out/log" >> "$out/failing"
}

counts='s/^test result: [a-zA-Z]*\. \(.* ignored\);.*/\1/p'
verdicts='s/^cuda:[0-9]* *\([a-z]*\)  *\(.*\)/\1: \2/p'
answers='s/^\([^ ]*\)  *[0-9]* passed  *\([1-9][0-9]*\) failed .*/\1 \2/p; s/^\([0-9]* passed, .*\)/\1/p'
speeds='s/.*| *\([pt][pg][0-9][^|]*[^| ]\) *| *\([0-9.]* ± [0-9.]*\) *|.*/\1: \2/p'
text() { echo "$folder/rustorch-cli" -b cuda -p Once -n 24 --temp 0; }
bench() { echo "$folder/rustorch-cli" bench -b cuda --preset llama-3-8b --quant Q4_K_M; }
short="-p 512 -n 128 -r 3"
deep="-p 2048 -n 128 -r 2 -d 4096 --ubatch-size 2048 -b 2048"
load='s/^\(load .*\) · seed.*/\1/p'

row "a text, nothing in caches" "$load" $(text)
row "the same again" "$load" $(text)
row "the same without NVRTC and cuBLASLt, nothing in caches" "$load" \
    $without CUDA_CACHE_PATH="$out/other" $(text)
row "Llama-3-8B's shape, $short" "$speeds" $(bench) $short
row "the same without NVRTC and cuBLASLt" "$speeds" $without $(bench) $short
row "Llama-3-8B's shape, $deep" "$speeds" $(bench) $deep
for test in attention large precision conformance; do
    if ! [ -x "$folder/$test" ]; then
        rows+="| tests: $test | not run: not in $folder | 0 |"$'\n'
        continue
    fi
    row "tests: $test" "$counts" "$folder/$test"
    row "tests: $test, without NVRTC and cuBLASLt" "$counts" $without "$folder/$test"
done
replayed "samples" values
replayed "gradients" gradients --grad
replayed "modules and optimisers" modules --modules --optimizers
row "verify" "$verdicts" "$folder/rustorch-cli" verify -b cuda -o "$out/verify.md"
row "verify, without NVRTC and cuBLASLt" "$verdicts" \
    $without "$folder/rustorch-cli" verify -b cuda -o "$out/without.md"
if [ -n "${FULL:-}" ]; then
    row "verify --full --only conformance, nothing in caches" "$verdicts" \
        RUSTORCH_CACHE_DIR="$out/full" CUDA_CACHE_PATH="$out/full" \
        "$folder/rustorch-cli" verify -b cuda --full --only conformance -o "$out/full.md"
    row "the same without NVRTC and cuBLASLt" "$verdicts" $without \
        RUSTORCH_CACHE_DIR="$out/full-without" CUDA_CACHE_PATH="$out/full-without" \
        "$folder/rustorch-cli" verify -b cuda --full --only conformance -o "$out/full.md"
fi

date=$(date -u +%F)
REPORT=${REPORT:-docs/reports/cuda-$date.md}
mkdir -p "$(dirname "$REPORT")"
{
    echo "# On an NVIDIA GPU, $date"
    echo
    echo "Made by \`scripts/verify-cuda.sh\`."
    echo
    echo "* commit: $(cat "$folder/commit")"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader |
        sed 's/^/* GPU, driver, memory: /'
    echo "* system: $(uname -sr), $(nproc) processors"
    "$folder/rustorch-cli" devices | sed -n '/^cuda/,/^$/s/^  \(compiler\|dense products\)/* \1/p'
    echo
    echo "| what | result | seconds |"
    echo "| --- | --- | --- |"
    printf '%s' "$rows" | awk -F ' [|] ' '{ sub(/[0-9]+ [|]$/, sprintf("%.1f |", $NF / 1e9)); print }'
    echo
    if [ -s "$out/failing" ]; then
        echo "## PyTorch's samples that fail"
        echo
        cat "$out/failing"
        echo
    fi
    echo "## The report of verify"
    echo
    sed 's/^#/##/' "$out/verify.md"
} > "$REPORT"
echo "$REPORT"
exit "$wrong"
