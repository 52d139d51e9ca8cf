"""Encoder-decoder transformers: T5 (relative position buckets) and one from torch's own transformer layers."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.export.llama import RmsNorm
from tests.export.network import Input, Network, dynamo


class Attention(nn.Module):
    """Unscaled attention without biases; `memory` gives keys and values, `bias` is added to the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.heads, self.head_width).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        query, key, value = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        scores = torch.matmul(query, key.transpose(3, 2)) + bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        context = torch.matmul(weights, value).transpose(1, 2).contiguous()
        return self.o(context.view(x.shape[0], -1, self.heads * self.head_width))


class RelativeBias(nn.Module):
    """A learned bias per head and bucket of relative positions, logarithmic far away (Raffel et al. 2019)."""

    def __init__(self, buckets: int, heads: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.buckets, self.bidirectional = buckets, bidirectional
        self.embedding = nn.Embedding(buckets, heads)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length, dtype=torch.long)
        relative = places[None, :] - places[:, None]
        buckets, result = self.buckets, torch.zeros_like(relative)
        if self.bidirectional:
            buckets //= 2
            result = result + (relative > 0).to(torch.long) * buckets
            relative = torch.abs(relative)
        else:
            relative = -torch.min(relative, torch.zeros_like(relative))
        exact = buckets // 2
        far = exact + (torch.log(relative.float() / exact) / math.log(32 / exact) * (buckets - exact)).to(torch.long)
        far = torch.min(far, torch.full_like(far, buckets - 1))
        result = result + torch.where(relative < exact, relative, far)
        return self.embedding(result).permute(2, 0, 1).unsqueeze(0)


class T5Layer(nn.Module):
    """Self-attention, cross-attention in the decoder, feed-forward; each on the normalised input and added."""

    def __init__(self, width: int, heads: int, *, decoder: bool) -> None:
        super().__init__()
        self.self_norm, self.self_attention = RmsNorm(width), Attention(width, heads)
        self.decoder = decoder
        if decoder:
            self.cross_norm, self.cross_attention = RmsNorm(width), Attention(width, heads)
        self.feed_norm = RmsNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width, bias=False), nn.ReLU(), nn.Linear(2 * width, width, bias=False)
        )

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
        y = self.self_norm(x)
        x = x + self.self_attention(y, y, bias)
        if self.decoder:
            x = x + self.cross_attention(self.cross_norm(x), memory, hidden)
        return x + self.feed(self.feed_norm(x))


class T5(nn.Module):
    """T5: logits of the target and the encoder's states."""

    def __init__(self, *, words: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(words, width)
        self.encoder_bias = RelativeBias(16, heads, bidirectional=True)
        self.decoder_bias = RelativeBias(16, heads, bidirectional=False)
        self.encoder = nn.ModuleList(T5Layer(width, heads, decoder=False) for _ in range(layers))
        self.decoder = nn.ModuleList(T5Layer(width, heads, decoder=True) for _ in range(layers))
        self.encoder_norm, self.decoder_norm = RmsNorm(width), RmsNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.shared(source)
        lowest = torch.finfo(memory.dtype).min
        hidden = (1.0 - source_mask[:, None, None, :].to(memory.dtype)) * lowest
        bias = self.encoder_bias(source.shape[1]) + hidden
        for layer in self.encoder:
            memory = layer(memory, bias)
        memory = self.encoder_norm(memory)
        length = target.shape[1]
        causal = torch.triu(torch.full((length, length), lowest), diagonal=1)
        bias = self.decoder_bias(length) + causal
        x = self.shared(target)
        for layer in self.decoder:
            x = layer(x, bias, memory, hidden)
        return self.lm_head(self.decoder_norm(x)), memory


class Translator(nn.Module):
    """Sinusoidal positions and torch's own encoder and decoder layers (Vaswani et al. 2017)."""

    def __init__(self, *, words: int, positions: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(words, width)
        rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        angles = torch.arange(positions).unsqueeze(1) * rates
        table = torch.zeros(1, positions, width)
        table[0, :, 0::2], table[0, :, 1::2] = torch.sin(angles), torch.cos(angles)
        self.register_buffer("table", table)
        encoder = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True)
        decoder = nn.TransformerDecoderLayer(width, heads, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, layers, nn.LayerNorm(width))
        self.generator = nn.Linear(width, words)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) * math.sqrt(self.width) + self.table[:, : tokens.size(1)]

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.encoder(self.embed(source))
        length = target.size(1)
        causal = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        x = self.decoder(self.embed(target), memory, tgt_mask=causal, tgt_is_causal=True)
        return self.generator(x), memory


def networks() -> tuple[Network, ...]:
    """The encoder-decoder transformers."""
    source = Input(name="source", shape=("batch", "source_length"), high=160)
    target = Input(name="target", shape=("batch", "target_length"), high=160)
    outputs = {"logits": {0: "batch", 1: "target_length"}, "encoder_states": {0: "batch", 1: "source_length"}}
    dims = {"batch": 2, "source_length": 32, "target_length": 24}
    other_dims = {"batch": 3, "source_length": 11, "target_length": 5}
    return (
        Network(
            name="t5",
            family="encoder-decoder transformer",
            build=lambda: T5(words=160, width=64, heads=4, layers=1),
            inputs=(source, Input(name="source_mask", shape=("batch", "source_length"), high=2), target),
            outputs=outputs,
            dims=dims,
            other_dims=other_dims,
        ),
        Network(
            name="translator",
            family="encoder-decoder transformer",
            build=lambda: Translator(words=160, positions=32, width=64, heads=4, layers=1),
            inputs=(source, target),
            outputs=outputs,
            dims=dims,
            other_dims=other_dims,
            variants=(dynamo(21),),
            not_exported={
                "torchscript": "the file has the example's target length in a Reshape of the decoder's self-attention, "
                "so it runs at that length only"
            },
        ),
    )
