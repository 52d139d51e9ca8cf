"""ConvNeXt: wide depthwise convolutions, normalisation over channels, GELU, layer scale."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript


class ChannelNorm(nn.Module):
    """Layer normalisation over the channels of a map, written out on channels first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    """Depthwise 7×7, then on channels last: normalise, widen, GELU, narrow, scale (Liu et al. 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(0.3 * torch.rand(channels) + 0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """ConvNeXt: patches, stages with strided 2×2 convolutions between, pooled classifier."""

    def __init__(self, *, widths: tuple[int, ...], depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if stage > 0:
                layers += [ChannelNorm(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, 2)]
            layers += [Block(width) for _ in range(depth)]
        self.features = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.features(image).mean([-2, -1])))


def networks() -> tuple[Network, ...]:
    """The network of this file."""
    return (
        Network(
            name="convnext",
            family="ConvNeXt",
            build=lambda: ConvNext(widths=(16, 24, 32, 48), depths=(1, 1, 3, 1), classes=20),
            inputs=(Input(name="image", shape=("batch", 3, 128, 128)),),
            outputs={"logits": {0: "batch"}},
            dims={"batch": 4},
            other_dims={"batch": 1},
            variants=(torchscript(), dynamo(20)),
        ),
    )
