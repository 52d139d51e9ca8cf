"""BERT: an encoder over tokens with an attention mask; batch and sequence are dynamic."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript, unfolded


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, normalised."""

    def __init__(self, words: int, positions: int, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(words, width)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("position_ids", torch.arange(positions).expand((1, -1)), persistent=False)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        positions = self.position_ids[:, : tokens.size(1)]
        summed = self.word_embeddings(tokens) + self.token_type_embeddings(segments)
        return self.dropout(self.norm(summed + self.position_embeddings(positions)))


class SelfAttention(nn.Module):
    """Attention with separate projections, written out as products and a softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.size()[:-1], self.heads, self.head_width).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_width) + mask
        context = torch.matmul(self.dropout(nn.functional.softmax(scores, dim=-1)), value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(*context.size()[:-2], self.heads * self.head_width)


class Layer(nn.Module):
    """Attention and feed-forward, each added and then normalised (Devlin et al. 2018)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, hidden)
        self.activation = nn.GELU()
        self.output = nn.Linear(hidden, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(self.attention_output(self.attention(x, mask)) + x)
        return self.output_norm(self.output(self.activation(self.intermediate(x))) + x)


class Bert(nn.Module):
    """BERT: hidden states of all tokens and the pooled first one."""

    def __init__(self, *, words: int, positions: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(words, positions, width)
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor, attention_mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(tokens, segments)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


def networks() -> tuple[Network, ...]:
    """The network of this file."""
    tokens = ("batch", "sequence")
    return (
        Network(
            name="bert",
            family="encoder transformer",
            build=lambda: Bert(words=128, positions=64, width=64, heads=4, layers=2),
            inputs=(
                Input(name="input_ids", shape=tokens, high=128),
                Input(name="attention_mask", shape=tokens, high=2),
                Input(name="token_type_ids", shape=tokens, high=2),
            ),
            outputs={"last_hidden_state": {0: "batch", 1: "sequence"}, "pooler_output": {0: "batch"}},
            dims={"batch": 4, "sequence": 64},
            other_dims={"batch": 1, "sequence": 13},
            variants=(torchscript(), unfolded(), dynamo(20)),
        ),
    )
