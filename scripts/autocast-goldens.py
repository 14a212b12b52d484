#!/usr/bin/env python3
"""The dtypes that PyTorch's automatic mixed precision gives on CUDA, for `crates/tensor/tests/api/amp.rs`.

scripts/autocast-goldens.py crates/tensor/tests/goldens/autocast.txt
(pip install torch; no GPU is needed: tensors are PyTorch's fake ones)

A line is a function, the dtypes of its operands, that of autocast, and that of the result; `error` where
PyTorch refuses.
"""

import sys

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
}

# Of matrices 4 x 4.
FUNCTIONS = {
    "matmul": lambda x, y: x @ y,
    "mm": torch.mm,
    "mv": lambda x, y: x.mv(y[0]),
    "bmm": lambda x, y: x[None].bmm(y[None]),
    "linear": lambda x, y: F.linear(x, y, y[0]),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "addmv": lambda x, y: torch.addmv(x[0], x, y[0]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
    "conv1d": lambda x, y: F.conv1d(x[None], y[None]),
    "conv2d": lambda x, y: F.conv2d(x[None, None], y[None, None]),
    "conv_transpose2d": lambda x, y: F.conv_transpose2d(x[None, None], y[None, None]),
    "prelu": lambda x, y: F.prelu(x, y[0]),
    "scaled_dot_product_attention": lambda x, y: F.scaled_dot_product_attention(
        x[None, None], y[None, None], y[None, None]
    ),
    "acos": lambda x, y: x.acos(),
    "asin": lambda x, y: x.asin(),
    "cosh": lambda x, y: x.cosh(),
    "erfinv": lambda x, y: x.erfinv(),
    "exp": lambda x, y: x.exp(),
    "expm1": lambda x, y: x.expm1(),
    "log": lambda x, y: x.log(),
    "log10": lambda x, y: x.log10(),
    "log2": lambda x, y: x.log2(),
    "log1p": lambda x, y: x.log1p(),
    "reciprocal": lambda x, y: x.reciprocal(),
    "rsqrt": lambda x, y: x.rsqrt(),
    "sinh": lambda x, y: x.sinh(),
    "tan": lambda x, y: x.tan(),
    "pow_scalar": lambda x, y: x.pow(2),
    "pow": lambda x, y: x.pow(y),
    "softplus": lambda x, y: F.softplus(x),
    "softmax": lambda x, y: x.softmax(-1),
    "log_softmax": lambda x, y: x.log_softmax(-1),
    "logsumexp": lambda x, y: x.logsumexp(-1),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,)),
    "group_norm": lambda x, y: F.group_norm(x, 2),
    "norm": lambda x, y: x.norm(),
    "sum": lambda x, y: x.sum(0),
    "prod": lambda x, y: x.prod(0),
    "cumsum": lambda x, y: x.cumsum(0),
    "cumprod": lambda x, y: x.cumprod(0),
    "dist": torch.dist,
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "kl_div": F.kl_div,
    "soft_margin_loss": F.soft_margin_loss,
    "poisson_nll_loss": F.poisson_nll_loss,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "addcmul": lambda x, y: torch.addcmul(x, y, y),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, y),
    "atan2": torch.atan2,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "tensordot": lambda x, y: torch.tensordot(x, y, 1),
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(torch.ones_like(x, dtype=torch.bool), x, y),
    "relu": lambda x, y: x.relu(),
    "gelu": lambda x, y: F.gelu(x),
    "silu": lambda x, y: F.silu(x),
    "sigmoid": lambda x, y: x.sigmoid(),
    "tanh": lambda x, y: x.tanh(),
    "sqrt": lambda x, y: x.sqrt(),
    "abs": lambda x, y: x.abs(),
    "mean": lambda x, y: x.mean(0),
    "var": lambda x, y: x.var(0),
    "amax": lambda x, y: x.amax(0),
    "max_pool2d": lambda x, y: F.max_pool2d(x[None], 2),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x[None], 2),
}


def main():
    (path,) = sys.argv[1:]
    lines = []
    with FakeTensorMode():
        tensors = {t: torch.rand(4, 4, device="cuda").to(t) for t in NAMES}
        for half in (torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cuda", half)
            torch.set_autocast_enabled("cuda", True)
            pairs = [(t, t) for t in NAMES]
            pairs += [(torch.float32, half), (half, torch.float32)]
            for name, function in FUNCTIONS.items():
                for first, second in pairs:
                    try:
                        dtype = NAMES[function(tensors[first], tensors[second]).dtype]
                    except (RuntimeError, TypeError):
                        dtype = "error"
                    lines.append(
                        f"{name} {NAMES[first]} {NAMES[second]} {NAMES[half]} {dtype}\n"
                    )
    torch.set_autocast_enabled("cuda", False)
    with open(path, "w") as file:
        file.writelines(lines)


if __name__ == "__main__":
    main()
