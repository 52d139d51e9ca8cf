"""Audio networks on one axis: WaveNet with gated dilated convolutions, and a residual temporal network."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network


class GatedLayer(nn.Module):
    """Causal dilated convolution, tanh gated by a sigmoid, one way to the next layer and one to the sum."""

    def __init__(self, channels: int, skip: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((dilation, 0), 0.0)
        self.filter = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skip, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        padded = self.pad(x)
        y = torch.tanh(self.filter(padded)) * torch.sigmoid(self.gate(padded))
        return x + self.residual(y), self.skip(y)


class WaveNet(nn.Module):
    """WaveNet: stacks of dilations 1, 2, 4, ..., the sum of all skips, class scores per sample (Oord et al. 2016)."""

    def __init__(self, *, channels: int, skip: int, layers: int, stacks: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        dilations = [2**layer for _ in range(stacks) for layer in range(layers)]
        self.layers = nn.ModuleList(GatedLayer(channels, skip, dilation) for dilation in dilations)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, classes, 1))

    def forward(self, audio: Tensor) -> Tensor:
        x, total = self.first(audio), torch.zeros(1)
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.last(total)


class TemporalBlock(nn.Module):
    """Two causal dilated convolutions, the surplus at the end cut off, added to the input (Bai et al. 2018)."""

    def __init__(self, channels: int, out: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.surplus = (kernel - 1) * dilation
        self.conv1 = nn.Conv1d(channels, out, kernel, padding=self.surplus, dilation=dilation)
        self.norm = nn.BatchNorm1d(out)
        self.conv2 = nn.Conv1d(out, out, kernel, padding=self.surplus, dilation=dilation)
        self.match = nn.Conv1d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.conv1(x)[:, :, : -self.surplus]))
        y = torch.relu(self.conv2(y)[:, :, : -self.surplus])
        return torch.relu(y + self.match(x))


class KeywordNet(nn.Module):
    """Strided convolution over samples, temporal blocks, pooling, one score per keyword."""

    def __init__(self, *, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(1, widths[0], 16, 8, 4), nn.BatchNorm1d(widths[0]), nn.Softplus())
        self.pool = nn.AvgPool1d(4)
        pairs = itertools.pairwise(widths)
        self.blocks = nn.Sequential(*(TemporalBlock(a, b, 3, 2**index) for index, (a, b) in enumerate(pairs)))
        self.head = nn.Linear(2 * widths[-1], classes)

    def forward(self, audio: Tensor) -> Tensor:
        x = self.blocks(self.pool(self.first(audio)))
        return torch.softmax(self.head(torch.cat((x.mean(-1), x.amax(-1)), dim=1)), dim=-1)


def networks() -> tuple[Network, ...]:
    """The audio networks."""
    return (
        Network(
            name="wavenet",
            family="1-D convolution",
            build=lambda: WaveNet(channels=16, skip=24, layers=5, stacks=2, classes=64),
            inputs=(Input(name="audio", shape=("batch", 1, "samples")),),
            outputs={"scores": {0: "batch", 2: "samples"}},
            dims={"batch": 2, "samples": 1024},
            other_dims={"batch": 1, "samples": 333},
        ),
        Network(
            name="keyword",
            family="1-D convolution",
            build=lambda: KeywordNet(widths=(16, 24, 32, 32), classes=12),
            inputs=(Input(name="audio", shape=("batch", 1, 4000)),),
            outputs={"scores": {0: "batch"}},
            dims={"batch": 4},
            other_dims={"batch": 1},
        ),
    )
