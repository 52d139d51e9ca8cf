"""LLaMA: RMS normalisation, rotary positions, gated feed-forward, grouped queries, a cache of keys and values."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript, unfolded

LAYERS = 2


class RmsNorm(nn.Module):
    """Scale by the root of the mean square (Zhang and Sennrich 2019), written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotate_half(x: Tensor) -> Tensor:
    """The second half negated, then the first."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """Each head of keys or values for `times` heads of queries."""
    batch, heads, length, width = x.shape
    return x[:, :, None, :, :].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


class Attention(nn.Module):
    """Causal attention of the new tokens to cached and new ones; `fused` calls torch's own attention."""

    def __init__(self, width: int, heads: int, key_heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.key_heads, self.head_width, self.fused = heads, key_heads, width // heads, fused
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, key_heads * self.head_width, bias=False)
        self.v_proj = nn.Linear(width, key_heads * self.head_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        query = self.q_proj(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        key = self.k_proj(x).view(batch, length, self.key_heads, self.head_width).transpose(1, 2)
        value = self.v_proj(x).view(batch, length, self.key_heads, self.head_width).transpose(1, 2)
        cosine, sine = angles
        query = query * cosine + rotate_half(query) * sine
        key = torch.cat((past[0], key * cosine + rotate_half(key) * sine), dim=2)
        value = torch.cat((past[1], value), dim=2)
        if self.fused:
            context = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        else:
            times = self.heads // self.key_heads
            scores = torch.matmul(query, repeat_heads(key, times).transpose(2, 3)) / math.sqrt(self.head_width) + mask
            context = torch.matmul(nn.functional.softmax(scores, dim=-1), repeat_heads(value, times))
        return self.o_proj(context.transpose(1, 2).reshape(batch, length, width)), key, value


class Layer(nn.Module):
    """Attention and the gated feed-forward, each on the normalised input and added to it."""

    def __init__(self, width: int, heads: int, key_heads: int, hidden: int, *, fused: bool) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width, eps=1e-6) if fused else RmsNorm(width)
        self.self_attn = Attention(width, heads, key_heads, fused=fused)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-6) if fused else RmsNorm(width)
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        attended, key, value = self.self_attn(self.input_layernorm(x), angles, mask, past)
        x = x + attended
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y)), key, value


class Llama(nn.Module):
    """LLaMA with a cache: logits of the new tokens and the longer keys and values of each layer."""

    def __init__(self, *, words: int, width: int, heads: int, key_heads: int, hidden: int, fused: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, key_heads, hidden, fused=fused) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(width, eps=1e-6) if fused else RmsNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        exponents = torch.arange(0, width // heads, 2).float() / (width // heads)
        self.register_buffer("inv_freq", 1.0 / 10000.0**exponents, persistent=False)

    def forward(
        self, tokens: Tensor, past_key_0: Tensor, past_value_0: Tensor, past_key_1: Tensor, past_value_1: Tensor
    ) -> tuple[Tensor, ...]:
        length, before = tokens.shape[1], past_key_0.shape[2]
        positions = torch.arange(before, before + length, device=tokens.device)
        frequencies = torch.outer(positions.float(), self.inv_freq)
        angles = torch.cat((frequencies, frequencies), dim=-1)[None, None]
        hidden = torch.arange(before + length, device=tokens.device)[None, :] > positions[:, None]
        x = self.embed_tokens(tokens)
        mask = torch.zeros_like(hidden, dtype=x.dtype).masked_fill(hidden, torch.finfo(x.dtype).min)[None, None]
        cache: list[Tensor] = []
        pasts = ((past_key_0, past_value_0), (past_key_1, past_value_1))
        for layer, past in zip(self.layers, pasts, strict=True):
            x, key, value = layer(x, (angles.cos(), angles.sin()), mask, past)
            cache += [key, value]
        return self.lm_head(self.norm(x)), *cache


def networks() -> tuple[Network, ...]:
    """The same architecture written out, and with torch's own attention and normalisation."""
    past = tuple(
        Input(name=f"past_{what}_{layer}", shape=("batch", 2, "past", 16))
        for layer in range(LAYERS)
        for what in ("key", "value")
    )
    inputs = (Input(name="input_ids", shape=("batch", "sequence"), high=128), *past)
    outputs: dict[str, dict[int, str]] = {"logits": {0: "batch", 1: "sequence"}}
    outputs |= {entry.name.replace("past", "present"): {0: "batch", 2: "total"} for entry in past}
    dims, other_dims = {"batch": 2, "sequence": 16, "past": 48}, {"batch": 1, "sequence": 3, "past": 9}

    def build(*, fused: bool) -> Llama:
        return Llama(words=128, width=64, heads=4, key_heads=2, hidden=128, fused=fused)

    return (
        Network(
            name="llama",
            family="decoder transformer with cache",
            build=lambda: build(fused=False),
            inputs=inputs,
            outputs=outputs,
            dims=dims,
            other_dims=other_dims,
            variants=(torchscript(), unfolded(), dynamo(18)),
        ),
        Network(
            name="llama_fused",
            family="decoder transformer with cache",
            build=lambda: build(fused=True),
            inputs=inputs,
            outputs=outputs,
            dims=dims,
            other_dims=other_dims,
            variants=(dynamo(23),),
        ),
    )
