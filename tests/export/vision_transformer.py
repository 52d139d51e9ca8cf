"""ViT (class token, learned positions) and Swin (shifted windows, relative position bias, patch merging)."""
# mypy: disable-error-code="import-not-found", allow-subclassing-any

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.export.network import Input, Network, dynamo, torchscript, unfolded


class VitBlock(nn.Module):
    """Normalise, attend with torch's attention module, add; normalise, feed forward, add."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(3 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln_2(x))


class Vit(nn.Module):
    """ViT: patches by a strided convolution, class token, encoder, classifier (Dosovitskiy et al. 2020)."""

    def __init__(self, *, size: int, patch: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, width) * 0.5)
        self.pos_embedding = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.2)
        self.layers = nn.Sequential(*(VitBlock(width, heads) for _ in range(layers)))
        self.ln = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.conv_proj(image)
        x = x.reshape(x.shape[0], x.shape[1], -1).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embedding
        return self.head(self.ln(self.layers(x))[:, 0])


def windows_of(x: Tensor, size: int) -> Tensor:
    """Maps [batch, height, width, channels] as windows [batch · windows, size · size, channels]."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // size, size, width // size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, channels)


def map_of(windows: Tensor, size: int, height: int, width: int) -> Tensor:
    """The inverse of windows_of."""
    batch = windows.shape[0] // (height // size * (width // size))
    x = windows.view(batch, height // size, width // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(batch, height, width, -1)


class WindowAttention(nn.Module):
    """Attention inside windows with a learned bias per relative position, and a mask after a shift."""

    def __init__(self, width: int, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.bias_table = nn.Parameter(torch.randn((2 * size - 1) ** 2, heads) * 0.5)
        places = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        offset = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + (size - 1)
        self.register_buffer("position_index", offset[..., 0] * (2 * size - 1) + offset[..., 1])
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, tokens, width = x.shape
        qkv = self.qkv(x).reshape(count, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv[0] * self.scale, qkv[1], qkv[2]
        bias = self.bias_table[self.position_index.view(-1)].view(tokens, tokens, -1)
        scores = query @ key.transpose(-2, -1) + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(count // windows, windows, self.heads, tokens, tokens)
            scores = (scores + mask.unsqueeze(1).unsqueeze(0)).view(-1, self.heads, tokens, tokens)
        x = (torch.softmax(scores, dim=-1) @ value).transpose(1, 2).reshape(count, tokens, width)
        return self.proj(x)


class SwinBlock(nn.Module):
    """Window attention, cyclically shifted if `shift` is not 0, and feed-forward (Liu et al. 2021)."""

    def __init__(self, width: int, resolution: int, heads: int, size: int, shift: int) -> None:
        super().__init__()
        self.resolution, self.size, self.shift = resolution, size, shift
        self.norm1 = nn.LayerNorm(width)
        self.attn = WindowAttention(width, size, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        mask = None
        if shift > 0:
            regions = torch.zeros(1, resolution, resolution, 1)
            cuts = (slice(0, -size), slice(-size, -shift), slice(-shift, None))
            for index, (rows, columns) in enumerate((rows, columns) for rows in cuts for columns in cuts):
                regions[:, rows, columns, :] = index
            region = windows_of(regions, size).view(-1, size * size)
            mask = (region.unsqueeze(1) != region.unsqueeze(2)).float() * -100.0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        y = self.norm1(x).view(batch, self.resolution, self.resolution, width)
        if self.shift > 0:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = map_of(self.attn(windows_of(y, self.size), self.mask), self.size, self.resolution, self.resolution)
        if self.shift > 0:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y.view(batch, tokens, width)
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    """Four neighbouring tokens become one of twice the width."""

    def __init__(self, width: int, resolution: int) -> None:
        super().__init__()
        self.resolution = resolution
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, width = x.shape
        x = x.view(batch, self.resolution, self.resolution, width)
        corners = (x[:, 0::2, 0::2, :], x[:, 1::2, 0::2, :], x[:, 0::2, 1::2, :], x[:, 1::2, 1::2, :])
        return self.reduction(self.norm(torch.cat(corners, -1).view(batch, -1, 4 * width)))


class Swin(nn.Module):
    """Swin: patches, stages of plain and shifted blocks with merging between, pooled classifier."""

    def __init__(self, *, size: int, width: int, heads: tuple[int, ...], window: int, classes: int) -> None:
        super().__init__()
        resolution = size // 4
        self.patch_embed = nn.Conv2d(3, width, 4, 4)
        self.patch_norm = nn.LayerNorm(width)
        layers: list[nn.Module] = []
        for stage, count in enumerate(heads):
            shifts = (0, window // 2 if resolution > window else 0)
            layers += [SwinBlock(width, resolution, count, window, shift) for shift in shifts]
            if stage < len(heads) - 1:
                layers.append(PatchMerging(width, resolution))
                width, resolution = 2 * width, resolution // 2
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch_norm(self.patch_embed(image).flatten(2).transpose(1, 2))
        x = self.norm(self.layers(x))
        return self.head(torch.flatten(x.transpose(1, 2).mean(-1), 1))


def networks() -> tuple[Network, ...]:
    """The image transformers of this file."""
    logits = {"logits": {0: "batch"}}
    return (
        Network(
            name="vit",
            family="vision transformer",
            build=lambda: Vit(size=64, patch=8, width=64, heads=4, layers=2, classes=20),
            inputs=(Input(name="image", shape=("batch", 3, 64, 64)),),
            outputs=logits,
            dims={"batch": 4},
            other_dims={"batch": 1},
            variants=(torchscript(), dynamo(20)),
        ),
        Network(
            name="swin",
            family="windowed vision transformer",
            build=lambda: Swin(size=64, width=24, heads=(2, 4), window=4, classes=20),
            inputs=(Input(name="image", shape=("batch", 3, 64, 64)),),
            outputs=logits,
            dims={"batch": 4},
            other_dims={"batch": 1},
            variants=(torchscript(), unfolded(), dynamo(18)),
        ),
    )
