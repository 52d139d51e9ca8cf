"""What one exported network is: an architecture, its inputs and outputs, and how it is exported.

Nothing here imports torch, so the tests can use it without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Axis = int | str
Values = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A graph input; named axes are dynamic.

    Without `high` it takes float32 values of a standard normal distribution, with it int64 values in [0, high).
    """

    name: str
    shape: tuple[Axis, ...]
    high: int | None = None

    def values(self, dims: Mapping[str, int], random: np.random.Generator) -> Values:
        """Random values of the shape that `dims` gives."""
        shape = tuple(dims[axis] if isinstance(axis, str) else axis for axis in self.shape)
        if self.high is None:
            return random.standard_normal(shape, dtype=np.float32)
        return random.integers(0, self.high, shape, dtype=np.int64)

    @property
    def dynamic_axes(self) -> dict[int, str]:
        """Position and name of the dynamic axes."""
        return {position: axis for position, axis in enumerate(self.shape) if isinstance(axis, str)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to export a network: `suffix` ends the file's name.

    Without `optimise` TorchScript folds no constants, so the chains that compute shapes stay in the file, and the
    dynamo exporter runs no rewriting, so batch normalisations stay.
    """

    exporter: str
    opset: int
    suffix: str
    optimise: bool = True


def torchscript(opset: int = 17) -> Variant:
    """The exporter that traces the module."""
    return Variant(exporter="torchscript", opset=opset, suffix="torchscript")


def unfolded(opset: int = 17) -> Variant:
    """The tracing exporter without constant folding."""
    return Variant(exporter="torchscript", opset=opset, suffix="torchscript_unfolded", optimise=False)


def dynamo(opset: int = 18) -> Variant:
    """The exporter that captures the module with torch.export."""
    return Variant(exporter="dynamo", opset=opset, suffix="dynamo")


def unoptimised(opset: int = 18) -> Variant:
    """The capturing exporter without its optimiser."""
    return Variant(exporter="dynamo", opset=opset, suffix="dynamo_unoptimised", optimise=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """An architecture to export.

    `build` makes the module (its weights follow from the seed set before the call); `outputs` maps each output's name
    to its dynamic axes; `dims` gives the sizes that the manifest suggests as maxima, `other_dims` a second set at which
    values are compared; `tolerance` bounds the difference from torch in proportion to an output's largest value;
    `not_exported` says per exporter why it cannot export this network.
    """

    name: str
    family: str
    build: Callable[[], Any]
    inputs: tuple[Input, ...]
    outputs: Mapping[str, Mapping[int, str]]
    dims: Mapping[str, int] = field(default_factory=dict)
    other_dims: Mapping[str, int] = field(default_factory=dict)
    variants: tuple[Variant, ...] = (torchscript(), dynamo())
    tolerance: float = 1e-3
    not_exported: Mapping[str, str] = field(default_factory=dict)

    def input_values(self, dims: Mapping[str, int], seed: int) -> dict[str, Values]:
        """Random values of all inputs by name."""
        random = np.random.default_rng(seed)
        return {entry.name: entry.values(dims, random) for entry in self.inputs}
