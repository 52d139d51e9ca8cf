"""A residual CNN trained for 8-bit integers: scales per tensor for maps, per output channel for weights."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, torchscript


class QuantisedMap(nn.Module):
    """Round a map to 8 bits; the scale follows the largest magnitude seen while training."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale = max(self.scale, float(x.abs().max()) / 127)
        return torch.fake_quantize_per_tensor_affine(x, self.scale, 0, -128, 127)


class QuantisedConv(nn.Conv2d):
    """A convolution whose weights are rounded to 8 bits per output channel."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__(channels, out, kernel, stride, padding)
        self.register_buffer("scale", self.weight.detach().abs().amax(dim=(1, 2, 3)) / 127)
        self.register_buffer("zero_point", torch.zeros(out, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.fake_quantize_per_channel_affine(self.weight, self.scale, self.zero_point, 0, -128, 127)
        return nn.functional.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class QuantisedBlock(nn.Module):
    """Two convolutions and a sum, every map between them rounded."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(QuantisedConv(channels, out, 3, stride, 1), nn.ReLU(), QuantisedMap())
        self.conv2 = nn.Sequential(QuantisedConv(out, out, 3, 1, 1), QuantisedMap())
        self.match = nn.Sequential(QuantisedConv(channels, out, 1, stride), QuantisedMap())
        self.after = nn.Sequential(nn.ReLU(), QuantisedMap())

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.conv2(self.conv1(x)) + self.match(x))


class QuantisedNet(nn.Module):
    """Stem, residual blocks, pooled classifier, all between quantisation and dequantisation."""

    def __init__(self, *, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(QuantisedMap(), QuantisedConv(3, widths[0], 3, 2, 1), nn.ReLU(), QuantisedMap())
        pairs = itertools.pairwise(widths)
        self.blocks = nn.Sequential(*(QuantisedBlock(a, b, 2) for a, b in pairs))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), QuantisedMap())
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.fc(self.pool(self.blocks(self.first(image))))


def networks() -> tuple[Network, ...]:
    """The network of this file."""
    return (
        Network(
            name="quantised_resnet",
            family="quantised CNN",
            build=lambda: QuantisedNet(widths=(12, 16, 24, 32), classes=20),
            inputs=(Input(name="image", shape=("batch", 3, 64, 64)),),
            outputs={"logits": {0: "batch"}},
            dims={"batch": 4},
            other_dims={"batch": 1},
            variants=(torchscript(),),
            tolerance=1e-2,  # a value at the edge between two steps may round either way
            not_exported={"dynamo": "torch.export does not know aten.fake_quantize_per_tensor_affine"},
        ),
    )
