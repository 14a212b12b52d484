#!/usr/bin/env python3
"""Tiny models as Hugging Face's `transformers` saves them, with what it computes by them: goldens for
`crates/train/tests/hugging_face.rs`.

scripts/hugging-face-goldens.py crates/train/tests/goldens      (pip install torch transformers tokenizers)
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEXT = Path(__file__).resolve().parent.parent / "models" / "classics-eval.txt"
SAMPLE = "It was 1842, and she'd seen\n\n  nothing of it."
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=304,
             max_position_embeddings=64, bos_token_id=300, eos_token_id=301)


def tokenizer(pattern):
    made = Tokenizer(models.BPE())
    parts = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern is not None:
        parts.insert(0, pre_tokenizers.Split(Regex(pattern), "isolated"))
    made.pre_tokenizer = pre_tokenizers.Sequence(parts) if pattern else parts[0]
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([TEXT.read_text()[:20000]], trainer)
    made.add_special_tokens(["<|begin|>", "<|end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<|begin|>", eos_token="<|end|>")


def main():
    out = Path(sys.argv[1])
    torch.manual_seed(0)
    kinds = {
        "llama": (LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)), tokenizer(LLAMA_3)),
        "qwen2": (Qwen2ForCausalLM(Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True,
                                               rope_theta=1000.0)), tokenizer(None)),
    }
    for name, (model, words) in kinds.items():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        model = model.to(torch.bfloat16)
        model.save_pretrained(out / name)
        words.save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
        ids = words(SAMPLE, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logits = model.float()(torch.tensor([ids])).logits[0, -1]
        expected = {"text": SAMPLE, "ids": ids, "logits": [round(x, 5) for x in logits.tolist()]}
        (out / name / "expected.json").write_text(json.dumps(expected))


main()
