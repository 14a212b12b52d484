#!/usr/bin/env python3
"""The seven programs of examples/ported in PyTorch: ported.py [NAME…] [--scale N] [--steps N] [--dtype f32|f64] [--write FILE]

Prints the losses of each program and the seconds that its steps took. --write keeps the losses as the goldens that
examples/ported compares with: `scripts/ported.py --write examples/ported/losses.json`. Weights and data follow from names
and indices (`uniform`), so that both programs begin with the same numbers. --scale makes the programs larger, for times.
"""

import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def uniform(seed: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) by SplitMix64 (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53


def seed_of(name: str) -> int:
    """FNV-1a of 32 bits (Fowler, Noll, Vo)."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    return seed


def numbers(name: str, *shape: int) -> torch.Tensor:
    """Numbers in [-1, 1)."""
    values = 2 * uniform(seed_of(name), int(np.prod(shape))) - 1
    return torch.tensor(values.reshape(shape)).to(torch.get_default_dtype())


def integers(name: str, below: int, *shape: int) -> torch.Tensor:
    values = np.floor(uniform(seed_of(name), int(np.prod(shape))) * below)
    return torch.tensor(values.reshape(shape).astype(np.int64))


@torch.no_grad()
def initialise(model: nn.Module) -> nn.Module:
    for name, p in model.named_parameters():
        values = numbers(name, *p.shape)
        if p.ndim > 1:
            p.copy_(values * (p.shape[0] / p.numel()) ** 0.5)
        else:
            p.copy_(values * 0.1 + (1.0 if name.endswith("weight") else 0.0))
    return model


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask=None, is_causal=False):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharGpt(nn.Module):
    def __init__(self, vocab, width, context):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.head(self.norm(x))


def char_gpt(scale, steps):
    vocab, width, context, batch = 28, 32 * scale, 16 * scale, 4 * scale
    model = initialise(CharGpt(vocab, width, context))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    for step in range(steps):
        ids = integers(f"text {step}", vocab, batch, context + 1)
        scores = model(ids[:, :-1])
        loss = F.cross_entropy(scores.reshape(-1, vocab), ids[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        yield loss.item()


def cnn(scale, steps):
    batch = 8 * scale
    model = initialise(
        nn.Sequential(
            nn.Conv2d(1, 4 * scale, 3, padding=1), nn.BatchNorm2d(4 * scale), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4 * scale, 8 * scale, 3, padding=1), nn.BatchNorm2d(8 * scale), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(8 * scale * 9, 10),
        )
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(opt, 4, gamma=0.5)
    for step in range(steps):
        images, labels = numbers(f"images {step}", batch, 1, 12, 12), integers(f"labels {step}", 10, batch)
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        yield loss.item()


class Vae(nn.Module):
    def __init__(self, pixels, width, latent):
        super().__init__()
        self.encode, self.mean, self.logvar = nn.Linear(pixels, width), nn.Linear(width, latent), nn.Linear(width, latent)
        self.decode, self.pixels = nn.Linear(latent, width), nn.Linear(width, pixels)

    def forward(self, x, noise):
        h = F.relu(self.encode(x))
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + torch.exp(0.5 * logvar) * noise
        return self.pixels(F.relu(self.decode(z))), mean, logvar


def vae(scale, steps):
    pixels, width, latent, batch = 64, 32 * scale, 8, 16 * scale
    model = initialise(Vae(pixels, width, latent))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x = (numbers(f"pixels {step}", batch, pixels) > 0).to(torch.get_default_dtype())
        scores, mean, logvar = model(x, numbers(f"noise {step}", batch, latent))
        likeness = F.binary_cross_entropy_with_logits(scores, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        loss = (likeness + divergence) / batch
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss.item()


class Tagger(nn.Module):
    def __init__(self, vocab, width, tags):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
        output, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(output)


def lstm_lengths(scale, steps):
    vocab, width, tags, batch, longest = 20, 16 * scale, 5, 4 * scale, 9 * scale
    model = initialise(Tagger(vocab, width, tags))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        lengths = integers(f"lengths {step}", longest, batch) + 1
        lengths[0] = longest
        ids, wanted = integers(f"words {step}", vocab, batch, longest), integers(f"tags {step}", tags, batch, longest)
        wanted[torch.arange(longest) >= lengths[:, None]] = -100
        loss = F.cross_entropy(model(ids, lengths).flatten(0, 1), wanted.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        yield loss.item()


def dqn(scale, steps):
    batch, width = 16 * scale, 32 * scale
    net = initialise(nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)))
    target = initialise(nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)))
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    memory = []
    state = numbers("state", 4) * 0.05
    for step in range(steps * 4):
        with torch.no_grad():
            greedy = net(state[None]).argmax(1).item()
        action = greedy if uniform(seed_of("explores"), step + 1)[-1] > 0.3 else step % 2
        after, reward = pole(state, action)
        memory.append((state, action, reward, after))
        state = numbers(f"state {step}", 4) * 0.05 if reward == 0.0 else after
        if step % 4 != 3:
            continue
        chosen = [memory[i] for i in (uniform(seed_of(f"chosen {step}"), batch) * len(memory)).astype(int)]
        states, afters = torch.stack([s for s, *_ in chosen]), torch.stack([a for *_, a in chosen])
        actions, rewards = torch.tensor([a for _, a, *_ in chosen]), torch.tensor([r for *_, r, _ in chosen]).to(states.dtype)
        values = net(states).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            expected = rewards + 0.99 * target(afters).max(1).values * rewards
        loss = F.smooth_l1_loss(values, expected)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, p in zip(target.parameters(), net.parameters()):
                t *= 0.9
                t += 0.1 * p
        yield loss.item()


def pole(state, action):
    """One step of the cart and pole of Barto, Sutton and Anderson (1983), and the reward: 0 where it has fallen."""
    x, speed, angle, turn = (float(v) for v in state)
    force = 10.0 if action == 1 else -10.0
    cos, sin = np.cos(angle), np.sin(angle)
    pushed = (force + 0.05 * turn**2 * sin) / 1.1
    spin = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    gain = pushed - 0.05 * spin * cos / 1.1
    after = [x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turn, turn + 0.02 * spin]
    has_fallen = abs(after[0]) > 2.4 or abs(after[2]) > 0.2
    return torch.tensor(after, dtype=state.dtype), 0.0 if has_fallen else 1.0


class Backbone(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.last, self.last_norm = nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False), nn.BatchNorm2d(2 * channels)
        self.head = nn.Linear(2 * channels, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.last_norm(self.last(x)))
        return self.head(x.mean((2, 3)))


def transfer(scale, steps):
    batch = 8 * scale
    model = initialise(Backbone(4 * scale)).eval()
    for p in model.parameters():
        p.requires_grad = False
    for p in [*model.head.parameters(), *model.last.parameters()]:
        p.requires_grad = True
    groups = [{"params": model.head.parameters()}, {"params": model.last.parameters(), "lr": 1e-3}]
    opt = torch.optim.AdamW(groups, lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for step in range(steps):
        images, labels = numbers(f"photos {step}", batch, 3, 16, 16), integers(f"kinds {step}", 4, batch)
        loss = F.cross_entropy(model(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        yield loss.item()


class MiniLm(nn.Module):
    def __init__(self, vocab, width, longest):
        super().__init__()
        self.word, self.position = nn.Embedding(vocab, width), nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))

    def forward(self, ids, is_word):
        x = self.norm(self.word(ids) + self.position(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x, mask=is_word[:, None, None, :])
        weights = is_word[..., None].to(x.dtype)
        return F.normalize((x * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=1)


def mini_lm(scale, steps):
    vocab, width, longest, batch = 30, 32 * scale, 12 * scale, 6 * scale
    model = initialise(MiniLm(vocab, width, longest))
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: min((n + 1) / 4, (steps - n) / steps))
    for step in range(steps):
        sides = []
        for side in ("question", "answer"):
            lengths = integers(f"{side} lengths {step}", longest, batch) + 1
            sides.append(model(integers(f"{side} {step}", vocab, batch, longest), torch.arange(longest) < lengths[:, None]))
        loss = F.cross_entropy(20 * sides[0] @ sides[1].T, torch.arange(batch))
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        yield loss.item()


PROGRAMS = {f.__name__: f for f in (char_gpt, cnn, vae, lstm_lengths, dqn, transfer, mini_lm)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PROGRAMS], metavar="NAME")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--dtype", choices=["f32", "f64"], default="f64")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--write")
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64 if args.dtype == "f64" else torch.float32)
    if args.threads:
        torch.set_num_threads(args.threads)
    losses = {}
    for name in args.names or PROGRAMS:
        start = time.perf_counter()
        losses[name] = list(PROGRAMS[name](args.scale, args.steps))
        print(f"{name}: {time.perf_counter() - start:.3f} s, losses", *(f"{loss:.9f}" for loss in losses[name]))
    if args.write:
        with open(args.write, "w") as file:
            json.dump(losses, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
