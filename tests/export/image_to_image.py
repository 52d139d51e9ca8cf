"""Networks from images to images: U-Net, super-resolution by pixel shuffle, style transfer."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript


def double_conv(channels: int, out: int) -> nn.Sequential:
    """Two 3×3 convolutions, each normalised over the batch and rectified."""
    first, second = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
    return nn.Sequential(first, nn.BatchNorm2d(out), nn.ReLU(), second, nn.BatchNorm2d(out), nn.ReLU())


class UNet(nn.Module):
    """U-Net: pooled encoder, decoder by transposed convolution or bilinear resizing (Ronneberger et al. 2015)."""

    def __init__(self, *, widths: tuple[int, ...], classes: int, transposed: bool) -> None:
        super().__init__()
        self.first = double_conv(3, widths[0])
        self.down = nn.ModuleList(double_conv(a, b) for a, b in itertools.pairwise(widths))
        up: list[nn.Module] = []
        for out, channels in zip(widths[-2::-1], widths[:0:-1], strict=True):
            resize = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(channels, out, 1))
            up.append(nn.ConvTranspose2d(channels, out, 2, 2) if transposed else resize)
        self.up = nn.ModuleList(up)
        self.join = nn.ModuleList(double_conv(2 * out, out) for out in widths[-2::-1])
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        maps = [self.first(image)]
        for down in self.down:
            maps.append(down(self.pool(maps[-1])))
        x = maps.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([maps.pop(), up(x)], dim=1))
        return self.last(x)


class SuperResolution(nn.Module):
    """Residual blocks at low resolution, then convolutions with pixel shuffle (Ledig et al. 2016, Shi et al. 2016)."""

    def __init__(self, *, width: int, blocks: int, factors: tuple[int, ...]) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 9, padding=4), nn.PReLU(width))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        up: list[nn.Module] = []
        for factor in factors:
            up += [nn.Conv2d(width, width * factor**2, 3, padding=1), nn.PixelShuffle(factor), nn.LeakyReLU(0.1)]
        self.up = nn.Sequential(*up)
        self.last = nn.Conv2d(width, 3, 5, padding=2)

    def forward(self, image: Tensor) -> Tensor:
        x = first = self.first(image)
        for block in self.blocks:
            x = x + 0.2 * block(x)
        return torch.clamp(torch.tanh(self.last(self.up(x + first))), -0.9, 0.9)


class StyleTransfer(nn.Module):
    """Reflected borders, instance normalisation, residual blocks with group normalisation (Johnson et al. 2016)."""

    def __init__(self, *, width: int, blocks: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *self.conv(3, width, 9, 1), *self.conv(width, 2 * width, 3, 2), *self.conv(2 * width, 4 * width, 3, 2)
        )
        self.blocks = nn.ModuleList(self.residual(4 * width) for _ in range(blocks))
        self.decoder1 = nn.Sequential(*self.conv(4 * width, 2 * width, 3, 1))
        self.decoder2 = nn.Sequential(*self.conv(2 * width, width, 3, 1))
        self.last = nn.Sequential(nn.ReflectionPad2d(4), nn.Conv2d(width, 3, 9))

    @staticmethod
    def conv(channels: int, out: int, kernel: int, stride: int) -> tuple[nn.Module, ...]:
        layer = nn.Conv2d(channels, out, kernel, stride)
        return nn.ReflectionPad2d(kernel // 2), layer, nn.InstanceNorm2d(out, affine=True), nn.ReLU()

    @staticmethod
    def residual(channels: int) -> nn.Sequential:
        return nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.GroupNorm(4, channels),
            nn.Mish(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            nn.GroupNorm(4, channels),
        )

    def forward(self, image: Tensor) -> Tensor:
        x = self.encoder(image)
        for block in self.blocks:
            x = x + block(x)
        x = self.decoder1(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.decoder2(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return torch.sigmoid(self.last(x))


def networks() -> tuple[Network, ...]:
    """The image-to-image networks."""
    image = (
        Input(
            name="image",
            shape=("batch", 3, "height", "width"),
        ),
    )
    result = {"result": {0: "batch", 2: "result_height", 3: "result_width"}}
    fixed = (Input(name="image", shape=("batch", 3, 96, 96)),)
    batch, other_batch = {"batch": 2}, {"batch": 1}
    return (
        Network(
            name="unet_transposed",
            family="U-Net",
            build=lambda: UNet(widths=(8, 16, 24, 32), classes=4, transposed=True),
            inputs=fixed,
            outputs={"result": {0: "batch"}},
            dims=batch,
            other_dims=other_batch,
        ),
        Network(
            name="unet_bilinear",
            family="U-Net",
            build=lambda: UNet(widths=(8, 12, 24), classes=4, transposed=False),
            inputs=fixed,
            outputs={"result": {0: "batch"}},
            dims=batch,
            other_dims=other_batch,
        ),
        Network(
            name="super_resolution",
            family="super-resolution",
            build=lambda: SuperResolution(width=12, blocks=3, factors=(2, 2)),
            inputs=image,
            outputs=result,
            dims={"batch": 2, "height": 48, "width": 64},
            other_dims={"batch": 1, "height": 31, "width": 20},
        ),
        Network(
            name="style_transfer",
            family="style transfer",
            build=lambda: StyleTransfer(width=8, blocks=2),
            inputs=(Input(name="image", shape=("batch", 3, 128, 128)),),
            outputs={"result": {0: "batch"}},
            variants=(torchscript(), dynamo(21)),
            dims=batch,
            other_dims=other_batch,
        ),
    )
