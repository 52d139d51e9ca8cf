"""Detectors: a feature pyramid with box and score heads per scale, and a YOLO with decoded boxes."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network


def conv(channels: int, out: int, kernel: int = 3, stride: int = 1, activation: type = nn.SiLU) -> nn.Sequential:
    """Convolution, batch normalisation, activation."""
    layer = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out), activation())


class Pyramid(nn.Module):
    """Backbone of residual pairs, lateral convolutions, top-down sums, shared heads (Lin et al. 2016, 2017)."""

    def __init__(self, *, widths: tuple[int, ...], channels: int, anchors: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, widths[0], 7, 2, nn.ReLU), nn.MaxPool2d(3, 2, 1))
        self.down = nn.ModuleList(conv(before, width, 3, 2, nn.ReLU) for before, width in itertools.pairwise(widths))
        self.stay = nn.ModuleList(conv(width, width, 3, 1, nn.ReLU) for width in widths[1:])
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in widths[1:])
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in widths[1:])
        self.boxes = nn.Sequential(conv(channels, channels), nn.Conv2d(channels, 4 * anchors, 3, padding=1))
        self.scores = nn.Sequential(conv(channels, channels), nn.Conv2d(channels, classes * anchors, 3, padding=1))
        self.classes = classes

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x, maps = self.stem(image), []
        for down, stay in zip(self.down, self.stay, strict=True):
            x = down(x)
            x = x + stay(x)
            maps.append(x)
        top = self.lateral[-1](maps[-1])
        levels = [top]
        for lateral, features in zip(list(self.lateral)[-2::-1], maps[-2::-1], strict=True):
            top = lateral(features) + nn.functional.interpolate(top, size=features.shape[-2:], mode="nearest")
            levels.insert(0, top)
        outputs: list[Tensor] = []
        for smooth, level in zip(self.smooth, levels, strict=True):
            features = smooth(level)
            batch = features.shape[0]
            outputs.append(self.boxes(features).permute(0, 2, 3, 1).reshape(batch, -1, 4))
            outputs.append(self.scores(features).permute(0, 2, 3, 1).reshape(batch, -1, self.classes).sigmoid())
        return tuple(outputs)


class SplitBlock(nn.Module):
    """Split the channels, pass one part on through bottlenecks, concatenate all steps (YOLOv8's C2f)."""

    def __init__(self, channels: int, out: int, repeats: int, *, residual: bool) -> None:
        super().__init__()
        half = out // 2
        self.first = conv(channels, out, 1)
        self.steps = nn.ModuleList(nn.Sequential(conv(half, half), conv(half, half)) for _ in range(repeats))
        self.last = conv((2 + repeats) * half, out, 1)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for step in self.steps:
            parts.append(parts[-1] + step(parts[-1]) if self.residual else step(parts[-1]))
        return self.last(torch.cat(parts, 1))


class PoolPyramid(nn.Module):
    """Three equal poolings in a row, all concatenated."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = conv(channels, channels // 2, 1), conv(2 * channels, channels, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """YOLOv8 on two scales: boxes as expected distances over bins, decoded to pixels, beside class scores."""

    def __init__(self, *, width: int, bins: int, classes: int, size: int) -> None:
        super().__init__()
        self.bins, self.classes = bins, classes
        self.stem = nn.Sequential(conv(3, width, 3, 2), conv(width, 2 * width, 3, 2))
        self.to8 = nn.Sequential(conv(2 * width, 2 * width, 3, 2), SplitBlock(2 * width, 2 * width, 2, residual=True))
        self.to16 = nn.Sequential(conv(2 * width, 4 * width, 3, 2), SplitBlock(4 * width, 4 * width, 1, residual=True))
        self.pool = PoolPyramid(4 * width)
        self.up = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.join8 = SplitBlock(6 * width, 2 * width, 1, residual=False)
        self.down = conv(2 * width, 2 * width, 3, 2)
        self.join16 = SplitBlock(6 * width, 4 * width, 1, residual=False)
        self.heads = nn.ModuleList(
            nn.Sequential(conv(channels, 2 * width), nn.Conv2d(2 * width, 4 * bins + classes, 1))
            for channels in (2 * width, 4 * width)
        )
        grids, strides = [], []
        for stride in (8, 16):
            places = torch.arange(size // stride) + 0.5
            rows, columns = torch.meshgrid(places, places, indexing="ij")
            grids.append(torch.stack((columns, rows)).reshape(2, -1))
            strides.append(torch.full((1, grids[-1].shape[1]), float(stride)))
        self.register_buffer("grid", torch.cat(grids, 1))
        self.register_buffer("stride", torch.cat(strides, 1))
        self.register_buffer("bin_values", torch.arange(bins).float().view(1, bins, 1, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        map8 = self.to8(self.stem(image))
        map16 = self.pool(self.to16(map8))
        map8 = self.join8(torch.cat((self.up(map16), map8), 1))
        map16 = self.join16(torch.cat((self.down(map8), map16), 1))
        raw = [head(features).flatten(2) for head, features in zip(self.heads, (map8, map16), strict=True)]
        distances, scores = torch.cat(raw, 2).split((4 * self.bins, self.classes), 1)
        batch, _, places = distances.shape
        distances = distances.view(batch, 4, self.bins, places).transpose(2, 1).softmax(1)
        before, after = (distances * self.bin_values).sum(1).chunk(2, 1)
        low, high = self.grid - before, self.grid + after
        boxes = torch.cat(((low + high) / 2, high - low), 1) * self.stride
        return boxes, scores.sigmoid()


class CenterNet(nn.Module):
    """Objects as peaks of a heat map: the best places, with size and offset gathered there (Zhou et al. 2019)."""

    def __init__(self, *, width: int, classes: int, best: int) -> None:
        super().__init__()
        self.best = best
        self.trunk = nn.Sequential(conv(3, width, 3, 2), conv(width, 2 * width, 3, 2), conv(2 * width, 2 * width))
        self.heat, self.size, self.offset = (
            nn.Sequential(conv(2 * width, width), nn.Conv2d(width, out, 1)) for out in (classes, 2, 2)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.trunk(image)
        heat = self.heat(features).sigmoid()
        heat = heat * (heat == nn.functional.max_pool2d(heat, 3, 1, 1)).float()
        batch, _, height, width = heat.shape
        scores, places = torch.topk(heat.view(batch, -1), self.best)
        classes, places = places // (height * width), places % (height * width)
        index = places.unsqueeze(1).expand(batch, 2, self.best)
        size = self.size(features).flatten(2).gather(2, index)
        offset = self.offset(features).flatten(2).gather(2, index)
        centre = torch.stack(((places % width).float(), (places // width).float()), dim=1) + offset
        return torch.cat((centre - size / 2, centre + size / 2), dim=1).transpose(1, 2), scores, classes


def networks() -> tuple[Network, ...]:
    """The detectors."""
    dims, other_dims = {"batch": 2}, {"batch": 1}
    names = tuple(f"{what}_{scale}" for scale in ("stride8", "stride16") for what in ("boxes", "scores"))
    return (
        Network(
            name="feature_pyramid",
            family="detector",
            build=lambda: Pyramid(widths=(8, 16, 32), channels=16, anchors=3, classes=8),
            inputs=(Input(name="image", shape=("batch", 3, 160, 160)),),
            outputs={name: {0: "batch"} for name in names},
            dims=dims,
            other_dims=other_dims,
        ),
        Network(
            name="centernet",
            family="detector",
            build=lambda: CenterNet(width=8, classes=4, best=20),
            inputs=(Input(name="image", shape=("batch", 3, 128, 128)),),
            outputs={"boxes": {0: "batch"}, "scores": {0: "batch"}, "classes": {0: "batch"}},
            dims=dims,
            other_dims=other_dims,
        ),
        Network(
            name="yolo",
            family="detector",
            build=lambda: Yolo(width=8, bins=8, classes=8, size=128),
            inputs=(Input(name="image", shape=("batch", 3, 128, 128)),),
            outputs={"boxes": {0: "batch"}, "scores": {0: "batch"}},
            dims=dims,
            other_dims=other_dims,
        ),
    )
