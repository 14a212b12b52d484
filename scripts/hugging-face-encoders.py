#!/usr/bin/env python3
"""Folders of small random encoders, and what transformers makes of texts, for crates/llm/tests/hugging_face_encoders.rs.

  hugging-face-encoders.py FOLDER [NAME…]

Needs the PyPI packages torch, transformers, tokenizers and numpy.
"""

import json
import sys
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ["The cat sat on the mat.", "Café, naïve: don't!", "cats", "What do cats eat at night, and where do they sleep?"]
WORDS = TEXTS + ["Cats eat fish and sleep on mats at night.", "The dog ran where it sat."] * 3
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)


def bert_words():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(WORDS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
    )


def byte_pairs(begin, end, pad, processor):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [begin, pad, end, "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(WORDS, trainer)
    tokenizer.post_processor = processor
    roles = dict(bos_token=begin, cls_token=begin, eos_token=end, sep_token=end, pad_token=pad, unk_token="<unk>")
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def roberta_words():
    return byte_pairs("<s>", "</s>", "<pad>", processors.RobertaProcessing(("</s>", 2), ("<s>", 0)))


def modern_words():
    template = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    return byte_pairs("[CLS]", "[SEP]", "[PAD]", template)


def modern(tokenizer, **more):
    return hf.ModernBertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, local_attention=8, global_attn_every_n_layers=2,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, **SIZES | more,
    )


def bert(tokenizer, **more):
    return hf.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=0, **SIZES | more)


def roberta(tokenizer, **more):
    return hf.RobertaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, **SIZES | more,
    )


def nomic(tokenizer, **more):
    return hf.NomicBertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=0, **SIZES | more)


# Name, tokenizer, configuration, class, pooling of `sentence-transformers`.
MODELS = [
    ("bert", bert_words, bert, hf.BertModel, "mean"),
    ("bert-ranker", bert_words, bert, hf.BertForSequenceClassification, None),
    ("roberta", roberta_words, roberta, hf.RobertaModel, "mean"),
    ("roberta-ranker", roberta_words, roberta, hf.RobertaForSequenceClassification, None),
    ("nomic_bert", bert_words, nomic, hf.NomicBertModel, "mean"),
    ("modernbert", modern_words, modern, hf.ModernBertModel, "cls"),
    ("modernbert-ranker", modern_words, modern, hf.ModernBertForSequenceClassification, None),
]


def main():
    for name, words, config, kind, pooling in MODELS:
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(len(name))
        folder = Path(sys.argv[1]) / name
        tokenizer = words()
        model = kind(config(tokenizer, **({} if pooling else {"num_labels": 1}))).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model = model.half()
        model.save_pretrained(folder)
        model = model.float()
        tokenizer.save_pretrained(folder)
        (folder / "special_tokens_map.json").unlink(missing_ok=True)
        rows = []
        with torch.no_grad():
            for text in TEXTS:
                if pooling is None:
                    rows.append(model(**tokenizer(TEXTS[-1], text, return_tensors="pt")).logits[0].tolist())
                    continue
                ids = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
                hidden = model(**ids).last_hidden_state[0]
                rows.append((hidden.mean(0) if pooling == "mean" else hidden[0]).tolist())
        if pooling:
            modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
            modules.append({"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
            (folder / "modules.json").write_text(json.dumps(modules))
            (folder / "1_Pooling").mkdir(exist_ok=True)
            modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
            (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
        rows = [[float(f"{x:.7g}") for x in row] for row in rows]
        (folder / "expected.json").write_text(json.dumps({"texts": TEXTS, "rows": rows}))
        print(name, rows[0][:3])


main()
