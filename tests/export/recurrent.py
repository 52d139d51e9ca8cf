"""Taggers over token sequences with recurrent cells."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

from torch import Tensor, nn

from tests.export.network import Input, Network


class LstmTagger(nn.Module):
    """Embedding, bidirectional LSTM of two layers, one score per tag and token."""

    def __init__(self, *, words: int, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return nn.functional.log_softmax(self.tags(states), dim=-1)


class GruTagger(nn.Module):
    """Embedding, GRU with a given first state, one score per tag and token, and the last state."""

    def __init__(self, *, words: int, width: int, hidden: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.tags = nn.Sequential(nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, tags))

    def forward(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.gru(self.embedding(tokens), state)
        return self.tags(states), last


def networks() -> tuple[Network, ...]:
    """The taggers of this file."""
    tokens = Input(name="tokens", shape=("batch", "sequence"), high=256)
    dims, other_dims = {"batch": 2, "sequence": 24}, {"batch": 3, "sequence": 7}
    return (
        Network(
            name="lstm_tagger",
            family="recurrent tagger",
            build=lambda: LstmTagger(words=256, width=32, hidden=32, tags=12),
            inputs=(tokens,),
            outputs={"scores": {0: "batch", 1: "sequence"}},
            dims=dims,
            other_dims=other_dims,
        ),
        Network(
            name="gru_tagger",
            family="recurrent tagger",
            build=lambda: GruTagger(words=256, width=32, hidden=48, tags=12),
            inputs=(tokens, Input(name="state", shape=(1, "batch", 48))),
            outputs={"scores": {0: "batch", 1: "sequence"}, "last_state": {1: "batch"}},
            dims=dims,
            other_dims=other_dims,
        ),
    )
