"""GatherND, GatherElements, ScatterND and ScatterElements at known positions, as lookups along one axis and joins.

A position in several axes is one along these axes merged. What is written at known positions is, if these are a box of
the data, joined with what lies around it; else the result is looked up in the data with the updates behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.frontend.fold import FOLD_ELEMENTS
from compiler.ir.symbol import Dim
from compiler.ops.base import Call

_Positions = NDArray[np.int64]
# What reductions of updates with the data are.
_REDUCTIONS: Final = MappingProxyType({"add": "Add", "mul": "Mul", "min": "Min", "max": "Max"})


def _strides(extents: Sequence[int]) -> list[int]:
    return [prod(extents[number + 1 :]) for number in range(len(extents))]


def _known(call: Call, index: int) -> _Positions | None:
    """The values of an input, if they are the same at all extents."""
    values = call.values.get(index)
    if values is None or call.tensor(index).at_maxima or any(isinstance(item, Dim) for item in values.reshape(-1)):
        return None
    return np.asarray(values.tolist(), dtype=np.int64).reshape(values.shape)


def _from_front(positions: _Positions, extents: Any) -> _Positions:
    """Positions counted from the front, negative ones from the end."""
    return np.where(positions < 0, positions + extents, positions)


def _coordinates(call: Call, positions: _Positions) -> list[int]:
    """The extents of the first axes of the data, in which positions lie; each position is a row of coordinates.

    Axes of batches, which data and indices share, are not among them.
    """
    shape = call.tensor(0).shape[_batches(call) :]
    if not positions.ndim:
        call.fail("indices must have an axis of coordinates", actual="a scalar", limit="1 axis or more")
    if positions.shape[-1] > len(shape):
        call.fail("a position must have at most one coordinate per axis", actual=positions.shape[-1], limit=len(shape))
    return [int(extent) for extent in shape[: positions.shape[-1]]]


def _checked_elements(call: Call, positions: _Positions, axis: int) -> list[int]:
    """The extents of the data, in which positions along one axis lie; beside it they are as many at most."""
    extents = [int(extent) for extent in call.tensor(0).shape]
    if positions.ndim != len(extents):
        call.fail("indices must have as many axes as the data", actual=positions.ndim, limit=len(extents))
    for other, (found, extent) in enumerate(zip(positions.shape, extents, strict=True)):
        if other != axis and found > extent:
            call.fail(f"indices must not be longer than the data on axis {other}", actual=found, limit=extent)
    return extents


def _check_updates(call: Call, wanted: Sequence[int]) -> None:
    """Raises ModelError if updates are of another shape; an extent that varies may be any."""
    found = call.tensor(2).shape
    fixed = [ends for ends in zip(found, wanted, strict=False) if not any(isinstance(end, Dim) for end in ends)]
    if len(found) != len(wanted) or any(one != other for one, other in fixed):
        call.fail("updates (input 2) are of another shape than they must be", actual=found, limit=tuple(wanted))


def _gather_nd(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known = call.tensor(0), _known(call, 1)
    assert known is not None
    extents = _coordinates(call, known)
    batch = [int(extent) for extent in data.shape[: _batches(call)]]
    if list(known.shape[: len(batch)]) != batch or known.ndim <= len(batch):
        call.fail("data and indices must share the axes of batches", actual=known.shape, limit=batch)
    flat = _from_front(known, np.array(extents)) @ np.array(_strides(extents), dtype=np.int64)
    offsets = np.arange(prod(batch), dtype=np.int64).reshape((*batch, *(1,) * (flat.ndim - len(batch))))
    flat = flat + offsets * prod(extents)
    rows = nodes.reshape(node.input[0], (prod(batch) * prod(extents), *data.shape[len(batch) + len(extents) :]))
    nodes.add("Gather", rows, nodes.constant(np.asarray(flat)), out=node.output[0], axis=0)


def _gather_elements(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known = call.tensor(0), _known(call, 1)
    assert known is not None
    axis = call.axis("axis", 0, len(data.shape))
    extents = _checked_elements(call, known, axis)
    flat = _elements(_from_front(known, extents[axis]), axis, _strides(extents))
    nodes.add("Gather", nodes.reshape(node.input[0], (-1,)), nodes.constant(flat), out=node.output[0], axis=0)


def _along(axis: int, extent: int, strides: Sequence[int]) -> _Positions:
    """What the positions along one axis add to the flat position."""
    return (np.arange(extent, dtype=np.int64) * strides[axis]).reshape(-1, *(1,) * (len(strides) - axis - 1))


def _elements(positions: _Positions, axis: int, strides: Sequence[int]) -> _Positions:
    """Flat positions of elements that are given along one axis."""
    flat = positions * strides[axis]
    for other, extent in enumerate(positions.shape):
        if other != axis:
            flat = flat + _along(other, extent, strides)
    return np.asarray(flat)


def _scatter_nd(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known = call.tensor(0), _known(call, 1)
    assert known is not None
    extents = _coordinates(call, known)
    _check_updates(call, (*known.shape[:-1], *data.shape[len(extents) :]))
    flat = _from_front(known, np.array(extents)) @ np.array(_strides(extents), dtype=np.int64)
    _written(node, call, nodes, extents, flat.reshape(-1))


def _scatter_elements(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known = call.tensor(0), _known(call, 1)
    assert known is not None
    axis = call.axis("axis", 0, len(data.shape))
    extents = _checked_elements(call, known, axis)
    _check_updates(call, known.shape)
    flat = _elements(_from_front(known, extents[axis]), axis, _strides(extents))
    _written(node, call, nodes, extents, flat.reshape(-1))


def _written(node: onnx.NodeProto, call: Call, nodes: NodeList, extents: list[int], flat: _Positions) -> None:
    """Writes one update after the other at positions along the first axes of the data, which have these extents.

    With a reduction what is written is made of the data at these positions and the updates.
    """
    data, updates, rest = node.input[0], node.input[2], call.tensor(0).shape[len(extents) :]
    reduction = call.text("reduction", "none")
    if reduction != "none" and flat.size:
        old = nodes.add("Gather", nodes.reshape(data, (prod(extents), *rest)), nodes.constant(flat), axis=0)
        updates = nodes.add(_REDUCTIONS[reduction], old, nodes.reshape(updates, (flat.size, *rest)))
    sources = np.full(prod(extents), -1, dtype=np.int64)
    sources[flat] = np.arange(flat.size)
    box = _box(sources.reshape(extents), flat.size)
    if box is not None:
        inner = nodes.reshape(updates, (*(end - begin for begin, end in box), *rest))
        nodes.add("Identity", _around(nodes, data, inner, extents, box), out=node.output[0])
        return
    chosen = np.where(sources < 0, np.arange(sources.size), sources.size + sources)
    both = (nodes.reshape(value, (count, *rest)) for value, count in ((data, sources.size), (updates, flat.size)))
    found = nodes.add("Gather", nodes.add("Concat", *both, axis=0), nodes.constant(chosen), axis=0)
    nodes.reshape(found, (*extents, *rest), out=node.output[0])


def _box(sources: _Positions, count: int) -> list[tuple[int, int]] | None:
    """The box that the updates fill in their order; None if they do not."""
    where = np.argwhere(sources >= 0)
    if not len(where):
        return None
    box = [(int(low), int(high) + 1) for low, high in zip(where.min(axis=0), where.max(axis=0), strict=True)]
    inside = sources[tuple(slice(*ends) for ends in box)]
    return box if np.array_equal(inside.reshape(-1), np.arange(count)) else None


def _around(nodes: NodeList, data: str, inner: str, extents: Sequence[int], box: Sequence[tuple[int, int]]) -> str:
    """The data with a box of it replaced: from the last axis to the first, what lies around the box is added."""
    for axis in reversed(range(len(extents))):
        begin, end = box[axis]
        beside = data
        for before in range(axis):
            if box[before] != (0, extents[before]):
                beside = nodes.slice(beside, before, *box[before])
        parts = [nodes.slice(beside, axis, 0, begin)] if begin else []
        parts.append(inner)
        parts += [nodes.slice(beside, axis, end, extents[axis])] if end < extents[axis] else []
        inner = inner if len(parts) == 1 else nodes.add("Concat", *parts, axis=axis)
    return inner


def _indexed(call: Call, kind: str) -> tuple[int, ...]:
    """The extents of the axes of the data in which positions lie."""
    shape, indices = call.tensor(0).shape, call.tensor(1).shape
    return shape[: _batches(call) + int(indices[-1])] if kind.endswith("ND") and indices else shape


def _many(node: onnx.NodeProto, call: Call) -> object | None:
    indices = call.tensor(1).shape
    extents = (*_indexed(call, node.op_type), *(indices[-1:] if node.op_type.endswith("ND") else indices))
    varying = next((str(extent) for extent in extents if isinstance(extent, Dim)), None)
    positions = max(prod(map(int, _indexed(call, node.op_type))), call.tensor(1).elements)
    return varying or (positions if positions > FOLD_ELEMENTS else None)


def _at_run_time(_: onnx.NodeProto, call: Call) -> object | None:
    return "known at run time" if _known(call, 1) is None else None


def _outside(node: onnx.NodeProto, call: Call) -> object | None:
    """A position that the data does not have; the host says what it makes of it. Illegal ranks are refused later."""
    shape, positions = call.tensor(0).shape, _known(call, 1)
    if positions is None or not positions.size:
        return None
    extents = np.array([int(extent) for extent in shape], dtype=np.int64)
    if node.op_type.endswith("ND"):
        extents = extents[_batches(call) :]
        count = positions.shape[-1] if positions.ndim else len(extents) + 1
        if count > len(extents):
            return None
        extents = extents[:count]
    else:
        extents = extents[call.axis("axis", 0, len(extents))]
    found = positions[(positions < -extents) | (positions >= extents)]
    return int(found[0]) if found.size else None


def _repeated(node: onnx.NodeProto, call: Call) -> object | None:
    """The reduction, if ONNX has none of this name or if two updates meet at one position. Illegal ranks pass here."""
    reduction, positions = call.text("reduction", "none"), _known(call, 1)
    if reduction == "none" or positions is None or not positions.size:
        return None
    if reduction not in _REDUCTIONS:
        return reduction
    extents = [int(extent) for extent in call.tensor(0).shape]
    if node.op_type.endswith("ND"):
        found = _from_front(positions, np.array(extents[: positions.shape[-1]])).reshape(-1, positions.shape[-1])
    elif positions.ndim == len(extents):
        axis = call.axis("axis", 0, len(extents))
        found = _elements(_from_front(positions, extents[axis]), axis, _strides(extents)).reshape(-1, 1)
    else:
        return None
    return reduction if len(np.unique(found, axis=0)) < len(found) else None


def _batches(call: Call) -> int:
    """How many of the first axes data and indices share."""
    return call.integer("batch_dims", 0)


_FEW: Final = Limit(f"positions are of fixed number, at most {FOLD_ELEMENTS}", _many)
_TYPES: Final = MappingProxyType({1: ("int32", "int64")})
_KNOWN: Final = (_FEW, Limit("positions (input 1) are known at compile time", _at_run_time))
_INSIDE: Final = Limit("positions lie in the data", _outside)
_WRITTEN: Final = (
    *_KNOWN,
    _INSIDE,
    Limit("reduction is none, or positions differ and it is add, mul, min or max", _repeated),
)

INDEXED: Final = (
    Decomposition(
        op_type="GatherND",
        replace=_gather_nd,
        dtypes=_TYPES,
        limits=(*_KNOWN, _INSIDE),
    ),
    Decomposition(op_type="GatherElements", replace=_gather_elements, dtypes=_TYPES, limits=(*_KNOWN, _INSIDE)),
    Decomposition(op_type="ScatterND", replace=_scatter_nd, dtypes=_TYPES, limits=_WRITTEN),
    Decomposition(op_type="ScatterElements", replace=_scatter_elements, dtypes=_TYPES, limits=_WRITTEN),
)
