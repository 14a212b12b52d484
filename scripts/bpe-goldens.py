#!/usr/bin/env python3
"""Vocabularies that Hugging Face's trainer makes, which the tests of crates/tokenizer compare with.

scripts/bpe-goldens.py make DIR                 writes a text and its vocabularies for the tests
scripts/bpe-goldens.py compare MODEL.gguf FILE… does a model that `rustorch-cli train` made of FILE… have the same?
(pip install tokenizers; to compare also gguf)
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>"]
ROOT = Path(__file__).parent.parent


def train(files, vocab_size):
    """Tokens by id, and merges, of byte-level BPE as GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(file) for file in files], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def text():
    """Prose, Japanese, code, and words of few letters, whose pairs are often equally frequent."""
    prose = (ROOT / "models/classics-eval.txt").read_text()[:12000]
    japanese = (ROOT / "README.ja.md").read_text()[:3000]
    code = (ROOT / "tests/layers.rs").read_text()[:3000]
    draw = random.Random(0)
    word = lambda: "".join(draw.choice("abc") for _ in range(draw.randint(1, 12)))
    words = "".join(word() + draw.choice(["  ", " ", "\n", "\t", "\r\n", "'s ", "12 "]) for _ in range(600))
    return "\n\n\n".join([prose, japanese, code, words, "\u3000 \u00a0wide  \n   \n\n end  "])


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "text.txt"
    path.write_bytes(text().encode())
    tokens, merges = train([path], 5000)
    (folder / "vocab.json").write_bytes((json.dumps({"tokens": tokens, "merges": merges}, ensure_ascii=False) + "\n").encode())
    print(f"{len(tokens)} tokens, {len(merges)} merges")


def compare(model, files):
    from gguf import GGUFReader

    fields = GGUFReader(model).fields
    ours = [fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges")]
    theirs = train(files, len(ours[0]))
    for what, own, other in zip(("tokens", "merges"), ours, theirs):
        if own != other:
            place = next((i for i, pair in enumerate(zip(own, other)) if pair[0] != pair[1]), min(len(own), len(other)))
            sys.exit(f"{what}: {len(own)} and {len(other)}, the first that differs is {place}")
    print(f"the same {len(ours[0])} tokens and {len(ours[1])} merges")


match sys.argv[1:]:
    case ["make", folder]:
        make(Path(folder))
    case ["compare", model, *files] if files:
        compare(model, files)
    case _:
        sys.exit(__doc__)
