"""GPT-2: a decoder with a causal mask from a buffer, projections as transposed products, tied output embedding."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript, unfolded


class Projection(nn.Module):
    """A linear layer whose weight lies input first, applied to flattened positions."""

    def __init__(self, out: int, width: int) -> None:
        super().__init__()
        self.out = out
        self.weight = nn.Parameter(torch.randn(width, out) / math.sqrt(width))
        self.bias = nn.Parameter(torch.randn(out) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.size()[:-1], self.out)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


class Attention(nn.Module):
    """Causal attention: one projection to queries, keys and values, the mask sliced from a triangle."""

    def __init__(self, positions: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        triangle = torch.tril(torch.ones((positions, positions), dtype=torch.bool))
        self.register_buffer("triangle", triangle.view(1, 1, positions, positions), persistent=False)
        self.c_attn = Projection(3 * width, width)
        self.c_proj = Projection(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.size()[:-1], self.heads, self.width // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(part) for part in self.c_attn(x).split(self.width, dim=2))
        scores = torch.matmul(query, key.transpose(-1, -2)) / torch.full([], value.size(-1) ** 0.5)
        length, total = query.size(-2), key.size(-2)
        mask = self.triangle[:, :, total - length : total, :total]
        scores = torch.where(mask, scores, torch.full([], torch.finfo(scores.dtype).min))
        context = torch.matmul(nn.functional.softmax(scores, dim=-1), value).permute(0, 2, 1, 3).contiguous()
        return self.c_proj(context.view(*context.size()[:-2], self.width))


class Block(nn.Module):
    """Normalise, attend, add; normalise, feed forward, add (Radford et al. 2019)."""

    def __init__(self, positions: int, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(positions, width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = Projection(4 * width, width)
        self.c_proj = Projection(width, 4 * width)

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """GELU in its hyperbolic form, written out."""
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.activation(self.c_fc(self.ln_2(x))))


class Gpt2(nn.Module):
    """GPT-2: logits of every position."""

    def __init__(self, *, words: int, positions: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(words, width)
        self.wpe = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(positions, width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(0, tokens.size(1), dtype=torch.long, device=tokens.device).unsqueeze(0)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def networks() -> tuple[Network, ...]:
    """The network of this file."""
    return (
        Network(
            name="gpt2",
            family="decoder transformer",
            build=lambda: Gpt2(words=128, positions=64, width=64, heads=4, layers=2),
            inputs=(Input(name="input_ids", shape=("batch", "sequence"), high=128),),
            outputs={"logits": {0: "batch", 1: "sequence"}},
            dims={"batch": 2, "sequence": 48},
            other_dims={"batch": 1, "sequence": 17},
            variants=(torchscript(), unfolded(), dynamo(18)),
        ),
    )
