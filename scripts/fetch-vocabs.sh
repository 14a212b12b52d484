#!/bin/sh
# Fetches llama.cpp's test vocabularies, for crates/tokenizer/tests/vocabs.rs, into target/vocabs or, if
# set, $RUSTORCH_VOCABS. They come with the source package of llama-cpp-python on PyPI (77 MB).
# Needs python3 with pip, and tar. Does nothing if they are there already.
set -eu
cd "$(dirname "$0")/.."

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
folder=${RUSTORCH_VOCABS:-target/vocabs}
complete=$folder/.complete-$version

if [ -e "$complete" ]; then
    echo "the vocabularies are in $folder"
    exit
fi

mkdir -p "$folder"
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT

# Only this package is taken as source, which then stays as it is: nothing is compiled.
echo "llama-cpp-python==$version --hash=sha256:$sha256" > "$download/requirements.txt"
python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python \
    --requirement "$download/requirements.txt" --dest "$download"

models=llama_cpp_python-$version/vendor/llama.cpp/models
tar -xzf "$download/llama_cpp_python-$version.tar.gz" -C "$download" "$models"
mv "$download/$models"/ggml-vocab-* "$folder"
touch "$complete"
echo "fetched the vocabularies into $folder"
