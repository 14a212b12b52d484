#!/usr/bin/env python3
"""Small vocabularies of SentencePiece in both forms that folders of models have, with the tokens of some texts: goldens
for `crates/llm/tests/hugging_face.rs`. Both forms give the same tokens.

scripts/hugging-face-words.py crates/llm/tests/data/hugging_face_words      (pip install sentencepiece tokenizers protobuf)
"""

import json
import sys
import tempfile
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer, sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXT = Path(__file__).resolve().parent.parent / "models" / "classics-eval.txt"
TEXTS = ["It was 1842, and she'd seen\n\n  nothing of it.", " lead and the rest ", "héé 水 🙂 x",
         "the whole of the children were there, said Ａlice"]

OPTIONS = {
    "bpe": dict(byte_fallback=True, character_coverage=0.995, remove_extra_whitespaces=False,
                normalization_rule_name="identity"),
    "unigram": dict(character_coverage=0.995),
}


def train(out, kind):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text, tempfile.NamedTemporaryFile("w") as rules:
        text.write(TEXT.read_text()[:60000])
        text.flush()
        # One rule: a wide A becomes an ordinary one.
        rules.write("FF21\t41\n")
        rules.flush()
        options = OPTIONS[kind] if kind == "bpe" else dict(OPTIONS[kind], normalization_rule_tsv=rules.name)
        SentencePieceTrainer.train(
            input=text.name, model_prefix=str(out / "tokenizer"), vocab_size=400, model_type=kind, pad_id=-1,
            split_digits=True, user_defined_symbols=["<tool>"], **options)
    (out / "tokenizer.vocab").unlink()
    return SentencePieceProcessor(str(out / "tokenizer.model"))


def bpe(pieces):
    """As `transformers` does it: all ways to merge a piece, in the order of scores."""
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    texts = [p for p, i in vocab.items() if not (pieces.is_byte(i) or pieces.is_control(i) or pieces.is_unknown(i))]
    merges = []
    for piece in sorted(texts, key=lambda p: -pieces.get_score(vocab[p])):
        parts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        known = [pair for pair in parts if pair[0] in vocab and pair[1] in vocab]
        merges += sorted(known, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def unigram(pieces):
    """As `transformers` does it for T5."""
    vocab = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(pieces.get_piece_size())]
    made = Tokenizer(models.Unigram(vocab, unk_id=0))
    message = sentencepiece_model_pb2.ModelProto.FromString(pieces.serialized_model_proto())
    made.normalizer = normalizers.Precompiled(message.normalizer_spec.precompiled_charsmap)
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def write(out, kind, texts):
    out.mkdir(exist_ok=True)
    pieces = train(out, kind)
    made = bpe(pieces) if kind == "bpe" else unigram(pieces)
    made.save(str(out / "tokenizer.json"), pretty=False)
    rows = [{"text": text, "ids": made.encode(text).ids} for text in texts]
    for row in rows:
        assert row["ids"][1:] == pieces.encode(row["text"])
    (out / "expected.json").write_text(json.dumps(rows, ensure_ascii=False))


def main():
    out = Path(sys.argv[1])
    write(out / "bpe", "bpe", TEXTS)
    # Spaces beside spaces are another matter in both programs.
    write(out / "unigram", "unigram", [" ".join(text.split()) for text in TEXTS])


main()
