"""Convolutional classifiers with squeeze-and-excitation: MobileNetV3 (hard swish) and EfficientNet (SiLU)."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from tests.export.network import Input, Network

Activation = Callable[[], nn.Module]


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate computed from all channels' means (Hu et al. 2017)."""

    def __init__(self, channels: int, squeezed: int, activation: Activation, gate: Activation) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = activation()
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


def conv_norm(channels: int, out: int, kernel: int, stride: int, groups: int, activation: Activation) -> nn.Sequential:
    """Convolution, batch normalisation, activation."""
    conv = nn.Conv2d(channels, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), activation())


class GatedBlock(nn.Module):
    """Expand, depthwise, gate, project; added to the input where the shapes agree."""

    def __init__(
        self,
        channels: int,
        hidden: int,
        out: int,
        kernel: int,
        stride: int,
        activation: Activation,
        excitation: Callable[[int], nn.Module] | None,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if hidden != channels:
            layers.append(conv_norm(channels, hidden, 1, 1, 1, activation))
        layers.append(conv_norm(hidden, hidden, kernel, stride, hidden, activation))
        if excitation is not None:
            layers.append(excitation(hidden))
        layers.append(conv_norm(hidden, out, 1, 1, 1, nn.Identity))
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.residual else self.block(x)


class MobileNetV3(nn.Module):
    """MobileNetV3: rows of (hidden, out, kernel, stride, gated, hard swish) (Howard et al. 2019)."""

    def __init__(self, *, rows: tuple[tuple[int, int, int, int, bool, bool], ...], last: int, classes: int) -> None:
        super().__init__()
        channels = 16
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1, nn.Hardswish)]
        for hidden, out, kernel, stride, gated, swish in rows:
            activation: Activation = nn.Hardswish if swish else nn.ReLU
            layers.append(
                GatedBlock(channels, hidden, out, kernel, stride, activation, self.excitation if gated else None)
            )
            channels = out
        layers.append(conv_norm(channels, last, 1, 1, 1, nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(last, last), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(last, classes)
        )

    @staticmethod
    def excitation(hidden: int) -> nn.Module:
        """A quarter of the channels between, hard sigmoid as the gate."""
        return SqueezeExcitation(hidden, max(8, hidden // 4), nn.ReLU, nn.Hardsigmoid)

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(image)).flatten(1))


class EfficientNet(nn.Module):
    """EfficientNet: rows of (expansion, out, kernel, stride, repeats), all gated (Tan and Le 2019)."""

    def __init__(self, *, rows: tuple[tuple[int, int, int, int, int], ...], last: int, classes: int) -> None:
        super().__init__()
        channels = 8
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, 1, nn.SiLU)]
        for expansion, out, kernel, stride, repeats in rows:
            for repeat in range(repeats):
                squeezed, step = max(1, channels // 4), stride if repeat == 0 else 1

                def excitation(hidden: int, squeezed: int = squeezed) -> nn.Module:
                    return SqueezeExcitation(hidden, squeezed, nn.SiLU, nn.Sigmoid)

                layers.append(GatedBlock(channels, channels * expansion, out, kernel, step, nn.SiLU, excitation))
                channels = out
        layers.append(conv_norm(channels, last, 1, 1, 1, nn.SiLU))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, image: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(image)).flatten(1))


def networks() -> tuple[Network, ...]:
    """The gated classifiers."""
    logits = {"logits": {0: "batch"}}
    dims, other_dims = {"batch": 4}, {"batch": 1}
    mobilenet_rows = (
        (16, 8, 3, 2, True, False),
        (40, 16, 3, 2, False, False),
        (48, 16, 3, 1, False, False),
        (64, 24, 5, 2, True, True),
        (96, 24, 5, 1, True, True),
        (96, 32, 5, 2, True, True),
    )
    efficientnet_rows = ((1, 8, 3, 1, 1), (6, 12, 3, 2, 2), (6, 16, 5, 2, 2), (6, 24, 3, 2, 2), (6, 32, 5, 2, 1))
    return (
        Network(
            name="mobilenet_v3",
            family="squeeze-excite CNN",
            build=lambda: MobileNetV3(rows=mobilenet_rows, last=96, classes=20),
            inputs=(Input(name="image", shape=("batch", 3, 224, 224)),),
            outputs=logits,
            dims=dims,
            other_dims=other_dims,
        ),
        Network(
            name="efficientnet",
            family="squeeze-excite CNN",
            build=lambda: EfficientNet(rows=efficientnet_rows, last=96, classes=20),
            inputs=(Input(name="image", shape=("batch", 3, 128, 128)),),
            outputs=logits,
            dims=dims,
            other_dims=other_dims,
        ),
    )
