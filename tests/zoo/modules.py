"""Modules of other libraries made ready to export: plain tensors in and out, weights and statistics not degenerate."""
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tests.export.exporters import torch_inputs
from tests.export.network import Network

CALIBRATION_BATCH = 3


class Call(nn.Module):
    """Calls a module with its inputs by name, and hands out the tensors of what it returns as a flat tuple.

    `pick` names the fields of the result that are wanted; without it all. `fixed` are further arguments; with `masked`
    the first input, which are tokens, comes with a mask that keeps them all.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Sequence[str] = (),
        *,
        pick: Sequence[str] = (),
        fixed: Mapping[str, Any] | None = None,
        method: str | None = None,
        masked: bool = False,
    ) -> None:
        super().__init__()
        self.module = module
        self.names = tuple(names)
        self.pick = tuple(pick)
        self.fixed = dict(fixed or {})
        self.method = method
        self.masked = masked

    def forward(self, *values: Any) -> Any:
        """The picked tensors, one alone or a tuple."""
        call: Callable[..., Any] = self.module if self.method is None else getattr(self.module, self.method)
        masks = {"attention_mask": torch.ones_like(values[0])} if self.masked else {}
        if self.names:
            result = call(**dict(zip(self.names, values, strict=True)), **masks, **self.fixed)
        else:
            result = call(*values, **self.fixed)
        if self.pick:
            result = [getattr(result, name) for name in self.pick]
        found = tuple(tensors(result))
        return found[0] if len(found) == 1 else found


class Cached(nn.Module):
    """A decoder that continues a text: the keys and values of its past are inputs, and longer ones outputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: Any, *past: Any) -> Any:
        """Scores of the new tokens, then keys and values by layer."""
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer, (key, value) in enumerate(zip(past[::2], past[1::2], strict=True)):
            cache.update(key, value, layer)
        result = self.module(input_ids=tokens, past_key_values=cache, use_cache=True)
        kept = [part for layer in result.past_key_values.layers for part in (layer.keys, layer.values)]
        return (result.logits, *kept)


class TextEncoderOfSpeech(nn.Module):
    """VITS's text encoder, which wants a mask over the tokens."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: Any) -> Any:
        """Hidden states, prior means and variances."""
        mask = torch.ones_like(tokens)
        return tuple(tensors(self.module(input_ids=tokens, padding_mask=mask[:, :, None].float(), attention_mask=mask)))


class AutoencoderOfSound(nn.Module):
    """Encoder and decoder of a neural audio codec, without its codebooks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.encoder = module.encoder
        self.decoder = module.decoder

    def forward(self, wave: Any) -> Any:
        """[N, 1, T] to [N, 1, about T]."""
        return self.decoder(self.encoder(wave))


class Patches(nn.Module):
    """Cuts a picture into patches, runs a sequence model over them, and classifies their mean."""

    def __init__(self, module: nn.Module, *, width: int, patch: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.module = module
        self.last = nn.Linear(width, 10)

    def forward(self, picture: Any) -> Any:
        """[N, 3, H, W] to [N, 10]."""
        return self.last(self.module(self.embed(picture).flatten(2).transpose(1, 2)).mean(1))


class First(nn.Module):
    """Calls a module with the first of its inputs only; the others are added in, scaled down."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, picture: Any, step: Any) -> Any:
        """What the module says of the picture."""
        return self.module(picture, torch.exp(-step.abs()))


class Beside(nn.Module):
    """A picture's features laid before the words of a language model, as Llava does without place tokens."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.vision = module.vision_tower
        self.project = module.multi_modal_projector
        self.text = module.language_model

    def forward(self, words: Any, picture: Any) -> Any:
        """[1, T] and [1, 3, H, W] to hidden states of pictures and words."""
        seen = self.project(self.vision(picture).last_hidden_state[:, 1:])
        told = torch.cat([seen, self.text.embed_tokens(words)], 1)
        return self.text(inputs_embeds=told, use_cache=False).last_hidden_state


class Images(nn.Module):
    """A detector of torchvision, which takes a list of pictures and returns a list of dictionaries."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, picture: Any) -> Any:
        """Boxes, scores and labels of the first picture of a batch, padded and cut to nothing."""
        return tuple(tensors(self.module(list(picture))[0]))


def tensors(value: Any) -> list[Any]:
    """All tensors of a nested result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for part in value.values() for tensor in tensors(part)]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors(part)]
    return []


def prepare(network: Network, seed: int) -> Any:
    """The module with seeded weights, ready to infer.

    Parameters that start as one constant (scales, shifts, layer scales, zero-initialised branches) are drawn at random,
    because they would hide an error or switch a branch off. Running statistics come from one pass over random inputs.
    """
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(seed)
    module = network.build()
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if (
                parameter.numel() > 1
                and parameter.is_floating_point()
                and bool((parameter == parameter.flatten()[0]).all())
            ):
                _redraw(parameter, float(parameter.flatten()[0]))
        statistics = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        statistics = [part for part in statistics if part.track_running_stats]
        for part in statistics:
            part.momentum = None
            part.train()
        if statistics:
            module(*_batch(network))
    return module.eval()


def _batch(network: Network) -> list[Any]:
    """Several random inputs as one batch: a channel of one value per image has no variance otherwise."""
    several = [torch_inputs(network, seed=1000 + index) for index in range(CALIBRATION_BATCH)]
    return [torch.cat(parts) for parts in zip(*several, strict=True)]


def _redraw(parameter: Any, value: float) -> None:
    if value == 0:
        parameter.uniform_(-0.1, 0.1)
    elif abs(value) < 0.05:
        parameter.uniform_(0.05, 0.2)
    else:
        parameter.uniform_(0.6 * value, 1.4 * value) if value > 0 else parameter.uniform_(1.4 * value, 0.6 * value)
