"""Written-out GroupNorm: a view of channels as groups, a normalisation, a view back to channels (IMPORT-8).

    Reshape [N, C, ...] → [N, G, ...],  normalised over all axes behind G,  Reshape → [N, C, ...],  · scale,  + bias

Exporters write the middle as an InstanceNormalization, whose scale and bias are per group. Hand-written code has a mean
and a variance, which `normalisations.py` has turned into a LayerNormalization without a scale. Scale and bias per
channel are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.frontend.constant_values import derive
from compiler.frontend.patterns.graph_queries import Lookup, Replacement, Rewrite
from compiler.ir.constant import Constant, Splat
from compiler.ir.graph import Op, Tensor
from compiler.units import numpy_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class _Affine:
    """A scale and a bias, constants of one shape; None for a scale of all 1 or a bias of all 0."""

    scale: Constant | None
    bias: Constant | None


def _group_normalisation(lookup: Lookup, index: int) -> Replacement | None:
    """The rewrite at the normalisation."""
    op = lookup.graph.ops[index]
    grouped = lookup.tensor(op.inputs[0])
    own = _own_parameters(lookup, op)
    if own is None or len(grouped.shape) < 3:
        return None
    views = _views_around(lookup, index, grouped)
    if views is None:
        return None
    before, after = views
    data = lookup.tensor(lookup.graph.ops[before[-1]].inputs[0])
    per_channel, behind = _channel_parameters(lookup, after[-1], data)
    ops = sorted({*before, index, *after, *behind})
    if not lookup.is_closed(ops):
        return None
    affine = _combined(own, per_channel, data, grouped.shape[1])
    return Replacement(
        pattern="group-norm",
        ops=tuple(ops),
        kind="GroupNormalization",
        inputs=(data.name, _or_all(affine.scale, 1, data), _or_all(affine.bias, 0, data)),
        attributes={"num_groups": grouped.shape[1], "epsilon": dict(op.attributes)["epsilon"]},
    )


def _own_parameters(lookup: Lookup, op: Op) -> _Affine | None:
    """The scale and bias of the normalisation itself; None unless they are constants per group."""
    constants = [lookup.tensor(name).constant for name in op.inputs[1:] if name]
    if any(constant is None for constant in constants):
        return None
    if op.kind == "LayerNormalization":
        # a scale and bias along the normalised axes are not per group, so they must be 1 and 0
        neutral = [lookup.uniform(name) for name in op.inputs[1:] if name] == [1.0, 0.0][: len(constants)]
        return _Affine(scale=None, bias=None) if neutral and dict(op.attributes)["axis"] == 2 else None
    scale, bias = (
        None if lookup.uniform(name) == neutral else constant
        for name, neutral, constant in zip(op.inputs[1:], (1.0, 0.0), constants, strict=True)
    )
    return _Affine(scale=scale, bias=bias)


def _views_before(lookup: Lookup, name: str) -> list[int]:
    """The successive Reshapes that make `name` and have no other readers, the last one first."""
    found: list[int] = []
    while (maker := lookup.maker(name, "Reshape")) is not None and len(lookup.readers(name)) == 1:
        found.append(maker)
        name = lookup.graph.ops[maker].inputs[0]
    return found


def _views_behind(lookup: Lookup, index: int) -> list[int]:
    """The successive Reshapes that are the only readers of a result, the first one first."""
    found: list[int] = []
    while (reader := lookup.sole_reader(lookup.graph.ops[index].output, "Reshape")) is not None:
        found.append(reader)
        index = reader
    return found


def _views_around(lookup: Lookup, index: int, grouped: Tensor) -> tuple[list[int], list[int]] | None:
    """The fewest Reshapes from channels to groups and back to the same channels; None if there are none."""
    before, after = _views_before(lookup, grouped.name), _views_behind(lookup, index)
    for first in range(len(before)):
        data = lookup.tensor(lookup.graph.ops[before[first]].inputs[0])
        for last in range(len(after)):
            result = lookup.tensor(lookup.graph.ops[after[last]].output)
            if _is_grouping(data, grouped) and _is_alike(data, result):
                return before[: first + 1], after[: last + 1]
    return None


def _is_grouping(data: Tensor, grouped: Tensor) -> bool:
    """True if each position on axis 1 of `grouped` holds whole channels of `data`, completely."""
    varying = [tuple(entry for entry in tensor.symbols if entry[0] < 2) for tensor in (data, grouped)]
    return (
        len(data.shape) > 1
        and data.shape[0] == grouped.shape[0]
        and data.shape[1] % grouped.shape[1] == 0
        and prod(data.shape[1:]) == prod(grouped.shape[1:])
        # images and channels agree at all extents, so the remaining elements of an image agree too
        and varying[0] == varying[1]
        and all(axis == 0 for axis, _ in varying[0])
    )


def _is_alike(data: Tensor, result: Tensor) -> bool:
    return (data.shape, data.symbols, data.dtype) == (result.shape, result.symbols, result.dtype)


def _channel_parameters(lookup: Lookup, last: int, data: Tensor) -> tuple[_Affine, list[int]]:
    """The scale and bias per channel that the next ops apply as sole readers, and the indices of those ops."""
    found: dict[str, Constant] = {}
    ops: list[int] = []
    for kind in ("Mul", "Add"):
        name = lookup.graph.ops[last].output
        reader = lookup.sole_reader(name, kind)
        op = lookup.graph.ops[reader] if reader is not None else None
        others = [other for other in op.inputs if other != name] if op is not None and not op.attributes else []
        constant = lookup.tensor(others[0]).constant if len(others) == 1 else None
        if reader is None or constant is None or not _is_per_channel(constant.shape, data.shape):
            continue
        found[kind] = derive("Reshape", (constant,), data.shape[1:2], {"shape": data.shape[1:2]})
        ops.append(reader)
        last = reader
    return _Affine(scale=found.get("Mul"), bias=found.get("Add")), ops


def _is_per_channel(shape: tuple[int, ...], data: tuple[int, ...]) -> bool:
    return (1,) * (len(data) - len(shape)) + shape == (1, data[1], *(1 for _ in data[2:]))


def _combined(own: _Affine, behind: _Affine, data: Tensor, groups: int) -> _Affine:
    """Both applied in turn, per channel: (x·s + b)·m + a = x·(s·m) + (b·m + a)."""
    channels = data.shape[1]

    def by_group(constant: Constant, width: int) -> Constant:
        return derive("Reshape", (constant,), (groups, width), {"shape": (groups, width)})

    def by_channel(kind: str, left: Constant, right: Constant) -> Constant:
        result = derive(kind, (left, right), (groups, channels // groups))
        return derive("Reshape", (result,), (channels,), {"shape": (channels,)})

    def each(constant: Constant | None, neutral: int) -> Constant:
        return by_group(_or_all(constant, neutral, data), channels // groups)

    scale, bias = behind.scale, behind.bias
    if own.scale is not None:
        scale = by_channel("Mul", by_group(own.scale, 1), each(behind.scale, 1))
    if own.bias is not None:
        moved = by_channel("Mul", by_group(own.bias, 1), each(behind.scale, 1))
        bias = moved if bias is None else derive("Add", (moved, bias), (channels,))
    return _Affine(scale=scale, bias=bias)


def _or_all(constant: Constant | None, value: float, data: Tensor) -> Constant:
    """The constant, or `value` for each channel."""
    if constant is not None:
        return constant
    element = np.array(value, dtype=numpy_dtype(data.dtype)).tobytes()
    return Constant(shape=data.shape[1:2], dtype=data.dtype, data=Splat(value=element))


GROUP_NORMALISATIONS: Final[Mapping[str, Rewrite]] = MappingProxyType(
    {"InstanceNormalization": _group_normalisation, "LayerNormalization": _group_normalisation}
)
