"""Published architectures that no library of the export environment has, written here in plain torch, narrow."""
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Edsr(nn.Module):
    """EDSR: residual blocks without normalisation, then sub-pixel upsampling by four."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(3)
        )
        self.up = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x: Any) -> Any:
        """[N, 3, H, W] to [N, 3, 4 H, 4 W]."""
        head = x = self.head(x)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return self.up(x + head)


class _Dense(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width + index * growth, width if index == 4 else growth, 3, padding=1) for index in range(5)
        )

    def forward(self, x: Any) -> Any:
        parts = [x]
        for convolution in self.convolutions[:-1]:
            parts.append(functional.leaky_relu(convolution(torch.cat(parts, 1)), 0.2))
        return x + 0.2 * self.convolutions[-1](torch.cat(parts, 1))


class ResidualDense(nn.Module):
    """ESRGAN's generator: residual-in-residual dense blocks, nearest upsampling."""

    def __init__(self, width: int = 16, growth: int = 8) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(_Dense(width, growth) for _ in range(3)))
        self.up = nn.Conv2d(width, width, 3, padding=1)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        """[N, 3, H, W] to [N, 3, 2 H, 2 W]."""
        x = self.head(x)
        x = x + self.body(x)
        return self.last(
            functional.leaky_relu(self.up(functional.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        )


def denoiser(width: int = 24, depth: int = 6) -> Any:
    """DnCNN: a plain chain that predicts the noise."""
    middle: list[Any] = []
    for _ in range(depth):
        middle += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), *middle, nn.Conv2d(width, 1, 3, padding=1))


class _ChannelNorm(nn.Module):
    """Layer normalisation over the channels of a picture, by parts, as NAFNet writes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Any) -> Any:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        return (x - mean) / (variance + 1e-6).sqrt() * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class _NafBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(_ChannelNorm(width) for _ in range(2))
        self.widen = nn.Conv2d(width, 2 * width, 1)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.attention = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1))
        self.narrow = nn.Conv2d(width, width, 1)
        self.feed = nn.ModuleList((nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)))

    def forward(self, x: Any) -> Any:
        one, two = self.depthwise(self.widen(self.norms[0](x))).chunk(2, dim=1)
        gated = one * two
        x = x + self.narrow(gated * self.attention(gated))
        one, two = self.feed[0](self.norms[1](x)).chunk(2, dim=1)
        return x + self.feed[1](one * two)


class NafNet(nn.Module):
    """NAFNet: a U-Net of gated blocks without activation functions."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.encoders = nn.ModuleList(_NafBlock(width * 2**level) for level in range(2))
        self.downs = nn.ModuleList(nn.Conv2d(width * 2**level, width * 2 ** (level + 1), 2, 2) for level in range(2))
        self.middle = _NafBlock(4 * width)
        self.ups = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width * 2 ** (level + 1), width * 2 ** (level + 2), 1, bias=False), nn.PixelShuffle(2)
            )
            for level in (1, 0)
        )
        self.decoders = nn.ModuleList(_NafBlock(width * 2**level) for level in (1, 0))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, picture: Any) -> Any:
        """[N, 3, H, W] to the same."""
        x = self.head(picture)
        kept = []
        for encoder, down in zip(self.encoders, self.downs, strict=True):
            x = encoder(x)
            kept.append(x)
            x = down(x)
        x = self.middle(x)
        for up, decoder in zip(self.ups, self.decoders, strict=True):
            x = decoder(up(x) + kept.pop())
        return self.last(x) + picture


class _Transposed(nn.Module):
    """Restormer's attention: over channels, so the map is as large as the channels."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.project = nn.Conv2d(width, 3 * width, 1, bias=False)
        self.depthwise = nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width, bias=False)
        self.out = nn.Conv2d(width, width, 1, bias=False)

    def forward(self, x: Any) -> Any:
        batch, width, height, columns = x.shape
        parts = self.depthwise(self.project(x)).chunk(3, dim=1)
        query, key, value = (part.reshape(batch, self.heads, width // self.heads, height * columns) for part in parts)
        query, key = functional.normalize(query, dim=-1), functional.normalize(key, dim=-1)
        weights = (query @ key.transpose(-2, -1) * self.temperature).softmax(-1)
        return self.out((weights @ value).reshape(batch, width, height, columns))


class Restormer(nn.Module):
    """Restormer, one level: transposed attention and gated depthwise feed-forward."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.attention = nn.ModuleList(_Transposed(width, 2) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.widen = nn.ModuleList(nn.Conv2d(width, 4 * width, 1, bias=False) for _ in range(2))
        self.depthwise = nn.ModuleList(
            nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width) for _ in range(2)
        )
        self.narrow = nn.ModuleList(nn.Conv2d(2 * width, width, 1, bias=False) for _ in range(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1, bias=False)

    def _norm(self, index: int, x: Any) -> Any:
        batch, width, height, columns = x.shape
        flat = self.norms[index](x.flatten(2).transpose(1, 2))
        return flat.transpose(1, 2).reshape(batch, width, height, columns)

    def forward(self, picture: Any) -> Any:
        """[N, 3, H, W] to the same."""
        x = self.head(picture)
        for index in range(2):
            x = x + self.attention[index](self._norm(2 * index, x))
            one, two = self.depthwise[index](self.widen[index](self._norm(2 * index + 1, x))).chunk(2, dim=1)
            x = x + self.narrow[index](functional.gelu(one) * two)
        return self.last(x) + picture


class PointNet(nn.Module):
    """SuperPoint's two heads: cells of 8 × 8 by softmax and reshapes, and unit descriptors."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layers: list[Any] = []
        channels = 3
        for level in range(4):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
            ]
            layers += [nn.MaxPool2d(2, 2)] if level < 3 else []
            channels = width
        self.encoder = nn.Sequential(*layers)
        self.points = nn.Conv2d(width, 65, 1)
        self.describe = nn.Conv2d(width, 32, 1)

    def forward(self, picture: Any) -> Any:
        """[N, 3, H, W] to scores [N, H, W] and descriptors [N, 32, H/8, W/8]."""
        x = self.encoder(picture)
        scores = self.points(x).softmax(1)[:, :-1]
        batch, _, height, width = scores.shape
        scores = scores.permute(0, 2, 3, 1).reshape(batch, height, width, 8, 8)
        scores = scores.permute(0, 1, 3, 2, 4).reshape(batch, height * 8, width * 8)
        peaks = functional.max_pool2d(scores[:, None], 9, 1, 4)[:, 0]
        return torch.where(scores == peaks, scores, torch.zeros_like(scores)), functional.normalize(
            self.describe(x), dim=1
        )


class ConvTasNet(nn.Module):
    """Conv-TasNet: learned filter bank, dilated separable blocks with global layer norm, masks, overlap-add."""

    def __init__(self, filters: int = 48, width: int = 24, speakers: int = 2) -> None:
        super().__init__()
        self.speakers, self.filters = speakers, filters
        self.encoder = nn.Conv1d(1, filters, 16, stride=8, bias=False)
        self.norm = nn.GroupNorm(1, filters)
        self.narrow = nn.Conv1d(filters, width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, 2 * width, 1),
                nn.PReLU(),
                nn.GroupNorm(1, 2 * width),
                nn.Conv1d(2 * width, 2 * width, 3, padding=2**level, dilation=2**level, groups=2 * width),
                nn.PReLU(),
                nn.GroupNorm(1, 2 * width),
                nn.Conv1d(2 * width, width, 1),
            )
            for level in range(4)
        )
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(width, speakers * filters, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, stride=8, bias=False)

    def forward(self, wave: Any) -> Any:
        """[N, 1, T] to [N, speakers, T]."""
        found = self.encoder(wave)
        x = self.narrow(self.norm(found))
        for block in self.blocks:
            x = x + block(x)
        masks = self.masks(x).reshape(wave.shape[0], self.speakers, self.filters, -1)
        parts = (found[:, None] * masks).reshape(wave.shape[0] * self.speakers, self.filters, -1)
        return self.decoder(parts).reshape(wave.shape[0], self.speakers, -1)


class HifiGan(nn.Module):
    """HiFi-GAN's generator: transposed convolutions, each followed by dilated residual blocks of several kernels."""

    def __init__(self, mels: int = 40, width: int = 64) -> None:
        super().__init__()
        self.head = nn.Conv1d(mels, width, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(width >> level, width >> (level + 1), 8, 4, padding=2) for level in range(3)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.ModuleList(
                    nn.Conv1d(
                        width >> (level + 1),
                        width >> (level + 1),
                        kernel,
                        padding=dilation * (kernel - 1) // 2,
                        dilation=dilation,
                    )
                    for dilation in (1, 3)
                )
                for kernel in (3, 7)
            )
            for level in range(3)
        )
        self.last = nn.Conv1d(width >> 3, 1, 7, padding=3)

    def forward(self, mels: Any) -> Any:
        """[N, mels, T] to [N, 1, 64 T]."""
        x = self.head(mels)
        for up, kernels in zip(self.ups, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            parts = []
            for dilations in kernels:
                part = x
                for convolution in dilations:
                    part = part + convolution(functional.leaky_relu(part, 0.1))
                parts.append(part)
            x = torch.stack(parts).mean(0)
        return torch.tanh(self.last(functional.leaky_relu(x)))


class Crnn(nn.Module):
    """CRNN for text lines: convolutions to a row of features, two bidirectional LSTMs, class scores per column."""

    def __init__(self, width: int = 32, classes: int = 40) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(width, 2 * width, (4, 1)),
            nn.ReLU(),
        )
        self.recurrent = nn.LSTM(2 * width, width, num_layers=2, bidirectional=True)
        self.last = nn.Linear(2 * width, classes)

    def forward(self, line: Any) -> Any:
        """[N, 1, 32, W] to [W / 2, N, classes]."""
        columns = self.features(line).squeeze(2).permute(2, 0, 1)
        return self.last(self.recurrent(columns)[0]).log_softmax(-1)


class TemporalNet(nn.Module):
    """TCN: causal dilated convolutions, left padding cut off again."""

    def __init__(self, channels: int = 8, width: int = 24) -> None:
        super().__init__()
        self.first = nn.Conv1d(channels, width, 1)
        self.blocks = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 3, padding=2 * 2**level, dilation=2**level))
            for level in range(4)
        )
        self.last = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        """[N, channels, T] to [N, T, 10]."""
        x = self.first(x)
        for level, block in enumerate(self.blocks):
            x = torch.relu(x + torch.relu(block(x)[:, :, : -2 * 2**level]))
        return self.last(x.transpose(1, 2))


class StateSpace(nn.Module):
    """S4D: a diagonal state space as a long convolution, its kernel worked out from the parameters."""

    def __init__(self, width: int = 24, states: int = 8, length: int = 64) -> None:
        super().__init__()
        self.length = length
        self.log_step = nn.Parameter(torch.rand(width) * 2 - 4)
        self.log_decay = nn.Parameter(torch.rand(width, states))
        self.mix = nn.Parameter(torch.randn(width, states))
        self.skip = nn.Parameter(torch.randn(width))
        self.out = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        """[N, T, width] to the same; the kernel is a Toeplitz matrix product."""
        time = torch.arange(self.length)
        decay = -torch.exp(self.log_decay) * torch.exp(self.log_step)[:, None]
        kernel = (self.mix[:, :, None] * torch.exp(decay[:, :, None] * time)).sum(1)
        lag = time[:, None] - time[None, :]
        matrix = torch.where(lag >= 0, kernel[:, lag.clamp(min=0)], torch.zeros(()))
        mixed = torch.einsum("wij,njw->niw", matrix, self.norm(x)) + self.skip * x
        return x + functional.glu(self.out(functional.gelu(mixed)), dim=-1)


class LinearRecurrence(nn.Module):
    """minGRU: gates that depend on the input only, so the recurrence is cumulative sums of logarithms."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.candidate = nn.Linear(width, width)
        self.last = nn.Linear(width, 12)

    def forward(self, x: Any) -> Any:
        """[N, T, width] to [N, T, 12]."""
        scores = self.gate(x)
        kept = torch.cumsum(functional.logsigmoid(-scores), 1)
        candidate = self.candidate(x)
        written = functional.logsigmoid(scores) + torch.where(
            candidate >= 0, torch.log(functional.relu(candidate) + 0.5), functional.logsigmoid(candidate)
        )
        return self.last(torch.exp(kept + torch.cumsum(torch.exp(written - kept), 1).log()))


class Seq2Seq(nn.Module):
    """A GRU encoder and an additive-attention decoder, unrolled over eight steps."""

    def __init__(self, words: int = 200, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(3 * width, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(2 * width, width)
        self.score = nn.Linear(width, 1)
        self.last = nn.Linear(width, words)

    def forward(self, tokens: Any) -> Any:
        """[N, T] to [N, 8, words]."""
        found, state = self.encoder(self.embed(tokens))
        hidden, keys, word, steps = state[0], self.key(found), self.embed(tokens[:, 0]), []
        for _ in range(8):
            weights = self.score(torch.tanh(keys + self.query(hidden)[:, None])).softmax(1)
            hidden = self.cell(torch.cat([word, (weights * found).sum(1)], -1), hidden)
            scores = self.last(hidden)
            steps.append(scores)
            word = scores.softmax(-1) @ self.embed.weight
        return torch.stack(steps, 1)


class DeepFilter(nn.Module):
    """A speech denoiser: convolutions over frequency, a GRU over time, and a filter of five taps per bin."""

    def __init__(self, bins: int = 32, width: int = 16) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, width, (1, 3), (1, 2), (0, 1)), nn.BatchNorm2d(width), nn.PReLU())
        self.recurrent = nn.GRU(width * bins // 2, 48, batch_first=True)
        self.up = nn.ConvTranspose2d(width, width, (1, 4), (1, 2), (0, 1))
        self.widen = nn.Linear(48, width * bins // 2)
        self.taps = nn.Conv2d(width, 5, 1)

    def forward(self, spectrum: Any) -> Any:
        """[N, 2, T, bins] to the same."""
        x = self.down(spectrum)
        batch, width, time, bins = x.shape
        state = self.recurrent(x.permute(0, 2, 1, 3).reshape(batch, time, width * bins))[0]
        x = x + self.widen(state).reshape(batch, time, width, bins).permute(0, 2, 1, 3)
        taps = torch.tanh(self.taps(self.up(x)))
        frames = functional.pad(spectrum, (0, 0, 4, 0)).unfold(2, 5, 1)
        return (frames * taps.permute(0, 2, 3, 1)[:, None]).sum(-1)


class Gan(nn.Module):
    """StyleGAN2's synthesis: a mapping network, convolutions whose weights the style modulates, noise-free."""

    def __init__(self, width: int = 24, style: int = 32) -> None:
        super().__init__()
        self.mapping = nn.Sequential(
            nn.Linear(style, style), nn.LeakyReLU(0.2), nn.Linear(style, style), nn.LeakyReLU(0.2)
        )
        self.start = nn.Parameter(torch.randn(1, width, 8, 8))
        self.styles = nn.ModuleList(nn.Linear(style, width) for _ in range(3))
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(width, width, 3, 3) / 15) for _ in range(3))
        self.colour = nn.Conv2d(width, 3, 1)

    def forward(self, code: Any) -> Any:
        """[1, style] to [1, 3, 64, 64]."""
        style = self.mapping(code / (code.pow(2).mean(1, keepdim=True) + 1e-8).sqrt())
        x = self.start
        for linear, weight in zip(self.styles, self.weights, strict=True):
            modulated = weight * (1 + linear(style)).view(1, -1, 1, 1)
            modulated = modulated * torch.rsqrt(modulated.pow(2).sum((1, 2, 3), keepdim=True) + 1e-8)
            x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = functional.leaky_relu(functional.conv2d(x, modulated, padding=1), 0.2)
        return torch.tanh(self.colour(x))


class VolumeNet(nn.Module):
    """A U-Net of three-dimensional convolutions with instance normalisation, as for medical volumes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = self._block(1, width)
        self.second = self._block(width, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.merge = self._block(2 * width, width)
        self.last = nn.Conv3d(width, 4, 1)

    @staticmethod
    def _block(before: int, after: int) -> Any:
        return nn.Sequential(
            nn.Conv3d(before, after, 3, padding=1), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01)
        )

    def forward(self, volume: Any) -> Any:
        """[N, 1, D, H, W] to [N, 4, D, H, W]."""
        first = self.first(volume)
        second = self.second(functional.max_pool3d(first, 2))
        return self.last(self.merge(torch.cat([self.up(second), first], 1)))
