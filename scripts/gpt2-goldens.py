#!/usr/bin/env python3
"""PyTorch's training of a GPT-2 with random weights, in files that `cargo test -p rustorch-bench --test gpt2` compares with.

scripts/gpt2-goldens.py --out DIR [--size tiny|124m] [--steps N] [--batch N] [--length N] [--lr F] [--seed N]
(pip install torch numpy safetensors)

DIR gets weights.safetensors, gradients.safetensors (of the first step) and steps.safetensors: `tokens` [batch,
length + 1], `lr`, and `losses` [steps] of AdamW steps on these tokens (betas 0.9 and 0.95, weight decay 0.1), f32 on
the CPU. RUSTORCH_GPT2=DIR tells the test to take those.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

SIZES = {
    # layers, heads, width, vocabulary, context
    "tiny": (2, 2, 16, 61, 16),
    "124m": (12, 12, 768, 50257, 1024),
}


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, context):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        # The head's weights are the embedding's.
        return F.linear(self.ln_f(x), self.wte.weight)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    sizes = SIZES[options.size]
    model = Gpt2(*sizes)

    def save(name, tensors):
        tensors = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
        save_file(tensors, options.out / f"{name}.safetensors")

    save("weights", model.state_dict())
    adam = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    tokens = torch.randint(sizes[3], (options.batch, options.length + 1))
    losses = []
    for step in range(options.steps):
        adam.zero_grad()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if step == 0:
            save("gradients", {name: p.grad for name, p in model.named_parameters()})
        adam.step()
        losses.append(loss.item())
        print(f"step {step}: loss {losses[-1]:.6f}")
    figures = {"lr": torch.tensor(options.lr), "losses": torch.tensor(losses, dtype=torch.float64)}
    save("steps", {"tokens": tokens, **figures})


main()
