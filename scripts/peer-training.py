#!/usr/bin/env python3
"""What `rustorch-cli bench --train` measures, by PyTorch: the same networks, sizes and optimiser, on random samples.

scripts/peer-training.py gpt2-124m [--batch 8] [--length 1024] [--precision bf16] [--steps 10] [--device cuda] [--compile]
(pip install torch; torchvision for the residual networks)
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

# Layers, width, tokens that there are, samples of a step, tokens of each, precision: as in crates/bench/src/training.
TRANSFORMERS = {
    "gpt2-124m": (12, 768, 50304, 8, 1024, "bf16"),
    "gpt2-1.5b": (48, 1600, 50304, 8, 1024, "bf16"),
    "gpt2-20m": (6, 384, 24576, 4, 256, "f32"),
}
RESNETS = {"resnet-50": (256, 224, "bf16"), "resnet-18": (8, 64, "f32")}
WARM_UP, TOLD = 5, 3
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, 2)
        q, k, v = (part.view(batch, length, -1, 64).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, vocabulary, length):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, tokens):
        x = self.wte(tokens[:, :-1]) + self.wpe(torch.arange(tokens.shape[1] - 1, device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class ResNet(nn.Module):
    def __init__(self, name):
        super().__init__()
        import torchvision

        self.net = getattr(torchvision.models, name.replace("-", ""))()

    def forward(self, images, labels):
        return F.cross_entropy(self.net(images), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=[*TRANSFORMERS, *RESNETS])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--precision", choices=TYPES)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    *sizes, batch, length, precision = TRANSFORMERS.get(options.name) or RESNETS[options.name]
    batch, length = options.batch or batch, options.length or length
    dtype, device = TYPES[options.precision or precision], torch.device(options.device)
    if options.name in TRANSFORMERS:
        net = GPT2(*sizes, length)
        samples = [torch.randint(0, sizes[2], (batch, length + 1))]
        unit, each = "tokens", length
    else:
        net = ResNet(options.name)
        samples = [torch.randn(batch, 3, length, length), torch.randint(0, 1000, (batch,))]
        unit, each = "images", 1
    net = net.to(device)
    samples = [sample.to(device) for sample in samples]
    if options.name in RESNETS:
        net = net.to(memory_format=torch.channels_last)
        samples[0] = samples[0].to(memory_format=torch.channels_last)
    adam = torch.optim.AdamW(
        net.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=device.type == "cuda"
    )
    called = torch.compile(net) if options.compile else net

    def step():
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss = called(*samples)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        return loss

    start = time.perf_counter()
    losses = [step().item() for _ in range(WARM_UP)][:TOLD]
    first = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(options.steps):
        loss = step()
    loss.item()
    seconds = (time.perf_counter() - start) / options.steps
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    print(
        f"PyTorch {torch.__version__} {'compiled' if options.compile else 'eager'}: {options.name} {batch} x {length} "
        f"{str(dtype).removeprefix('torch.')} on {device}: first steps {first:.1f} s, {1e3 * seconds:.2f} ms/step, "
        f"{batch * each / seconds:.0f} {unit}/s, peak {peak:.2f} GiB, losses {' '.join(f'{x:.4f}' for x in losses)}"
    )


if __name__ == "__main__":
    main()
