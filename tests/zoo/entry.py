"""Short ways to describe the zoo's networks (tests/export/network.py), and which exporter writes which."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.export.network import Axis, Input, Network, dynamo, torchscript

SEED = 2026


def draw(name: str, of: int) -> int:
    """A number below `of` that follows from the seed and the name alone."""
    return int.from_bytes(hashlib.sha256(f"{SEED} {name}".encode()).digest()[:8], "big") % of


def entry(
    name: str, family: str, build: Callable[[], Any], *inputs: Input, dims: Mapping[str, int] | None = None
) -> Network:
    """A network of the zoo: one of the two exporters writes it, the other if that one cannot."""
    variants = (dynamo(20), torchscript(17)) if draw(name, 2) else (torchscript(17), dynamo(20))
    return Network(
        name=name, family=family, build=build, inputs=inputs, outputs={}, dims=dict(dims or {}), variants=variants
    )


def image(*shape: Axis, name: str = "image") -> Input:
    """A float32 input: a picture, a sound, features."""
    return Input(name=name, shape=shape)


def ids(*shape: Axis, name: str = "input_ids", high: int = 1000) -> Input:
    """An int64 input of values in [0, high)."""
    return Input(name=name, shape=shape, high=high)
