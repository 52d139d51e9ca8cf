"""Convolutional classifiers: residual bottlenecks, inverted residuals and channel shuffle."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript, unoptimised


class Bottleneck(nn.Module):
    """Reduce, convolve 3×3, expand, add the input (He et al. 2015, stride in the 3×3)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet with bottlenecks: stem, four stages, pooled classifier."""

    def __init__(self, *, stem: int, widths: tuple[int, ...], depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, stem, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, channels = [], stem
        for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            blocks = []
            for block in range(depth):
                blocks.append(Bottleneck(channels, width, 2 if block == 0 and index > 0 else 1))
                channels = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class InvertedResidual(nn.Module):
    """Expand, depthwise, project without activation (Sandler et al. 2018)."""

    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = channels * expand
        self.use_res_connect = stride == 1 and channels == out
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(channels, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2 with narrow stages: (expansion, channels, repeats, stride) each."""

    def __init__(self, *, stages: tuple[tuple[int, int, int, int], ...], last: int, classes: int) -> None:
        super().__init__()
        channels = stages[0][1]
        layers: list[nn.Module] = [
            nn.Conv2d(3, channels, 3, 2, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU6(inplace=True),
        ]
        for expand, out, repeats, stride in stages:
            for index in range(repeats):
                layers.append(InvertedResidual(channels, out, stride if index == 0 else 1, expand))
                channels = out
        layers += [nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Interleave the channels of the groups by reshape and transpose."""
    batch, channels, height, width = x.size()
    x = x.view(batch, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(batch, channels, height, width)


class ShuffleUnit(nn.Module):
    """One unit of ShuffleNet V2: split or two branches, concatenate, shuffle (Ma et al. 2018)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        half = out // 2
        self.stride = stride
        self.branch1 = nn.Sequential()
        if stride > 1:
            self.branch1 = nn.Sequential(
                nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
                nn.BatchNorm2d(channels),
                nn.Conv2d(channels, half, 1, bias=False),
                nn.BatchNorm2d(half),
                nn.ReLU(inplace=True),
            )
        self.branch2 = nn.Sequential(
            nn.Conv2d(channels if stride > 1 else half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, stride, 1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            left, right = x.chunk(2, dim=1)
            out = torch.cat((left, self.branch2(right)), dim=1)
        else:
            out = torch.cat((self.branch1(x), self.branch2(x)), dim=1)
        return channel_shuffle(out, 2)


class ShuffleNet(nn.Module):
    """ShuffleNet V2: stem, three stages of units, last convolution, pooled classifier."""

    def __init__(self, *, widths: tuple[int, ...], repeats: tuple[int, ...], classes: int) -> None:
        super().__init__()
        stem, *stages, last = widths
        self.conv1 = nn.Sequential(nn.Conv2d(3, stem, 3, 2, 1, bias=False), nn.BatchNorm2d(stem), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        units, channels = [], stem
        for out, count in zip(stages, repeats, strict=True):
            units += [ShuffleUnit(channels, out, 2), *(ShuffleUnit(out, out, 1) for _ in range(count - 1))]
            channels = out
        self.stages = nn.Sequential(*units)
        self.conv5 = nn.Sequential(
            nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU(inplace=True)
        )
        self.fc = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv5(self.stages(self.maxpool(self.conv1(x)))).mean([2, 3]))


def networks() -> tuple[Network, ...]:
    """The classifiers of this file."""
    logits = {"logits": {0: "batch"}}
    image = (Input(name="image", shape=("batch", 3, 224, 224)),)
    small = (Input(name="image", shape=("batch", 3, 128, 128)),)
    return (
        Network(
            name="resnet",
            family="residual CNN",
            build=lambda: ResNet(stem=16, widths=(8, 12, 16, 24), depths=(2, 2, 2, 2), classes=20),
            inputs=image,
            outputs=logits,
            dims={"batch": 4},
            other_dims={"batch": 1},
            variants=(torchscript(), dynamo(), unoptimised()),
        ),
        Network(
            name="mobilenet_v2",
            family="depthwise CNN",
            build=lambda: MobileNetV2(
                stages=((1, 8, 1, 1), (6, 12, 2, 2), (6, 16, 2, 2), (6, 20, 3, 2), (6, 24, 2, 1), (6, 32, 2, 2)),
                last=96,
                classes=20,
            ),
            inputs=image,
            outputs=logits,
            dims={"batch": 4},
            other_dims={"batch": 1},
        ),
        Network(
            name="shufflenet_v2",
            family="channel shuffle CNN",
            build=lambda: ShuffleNet(widths=(16, 24, 48, 72, 96), repeats=(3, 4, 3), classes=20),
            inputs=small,
            outputs=logits,
            dims={"batch": 4},
            other_dims={"batch": 1},
        ),
    )
