"""GatherND, GatherElements, ScatterND and ScatterElements as lookups along one axis and joins.

A position in several axes is one along these axes merged. What is written at known positions is, if these are a box of
the data, joined with what lies around it; else the result is looked up in the data with the updates behind them.
Positions that are known at run time only: `indexed_at_run_time.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.frontend.decompose.indexed_at_run_time import (
    MOST_LOOKED_UP,
    MOST_WRITES,
    MOST_WRITTEN,
    REDUCTIONS,
    along,
    look_up_elements,
    look_up_rows,
    strides_of,
    write_elements,
    write_rows,
)
from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.frontend.fold import FOLD_ELEMENTS
from compiler.ir.symbol import Dim
from compiler.ops.base import Call

_Positions = NDArray[np.int64]


def _known(call: Call, index: int) -> _Positions | None:
    """The values of an input, if they are the same at all extents."""
    values = call.values.get(index)
    if values is None or call.tensor(index).at_maxima or any(isinstance(item, Dim) for item in values.reshape(-1)):
        return None
    return np.asarray(values.tolist(), dtype=np.int64).reshape(values.shape)


def _from_front(positions: _Positions, extents: Any) -> _Positions:
    """Positions counted from the front, negative ones from the end."""
    return np.where(positions < 0, positions + extents, positions)


def _coordinates(call: Call) -> list[int]:
    """The extents of the first axes of the data, in which positions lie; each position is a row of coordinates.

    Axes of batches, which data and indices share, are not among them.
    """
    shape, counts = call.tensor(0).shape[_batches(call) :], call.tensor(1).shape
    if not counts:
        call.fail("indices must have an axis of coordinates", actual="a scalar", limit="1 axis or more")
    if counts[-1] > len(shape):
        call.fail("a position must have at most one coordinate per axis", actual=counts[-1], limit=len(shape))
    return [int(extent) for extent in shape[: counts[-1]]]


def _checked_elements(call: Call, axis: int) -> list[int]:
    """The extents of the data, in which positions along one axis lie; beside it they are as many at most."""
    extents, counts = [int(extent) for extent in call.tensor(0).shape], call.tensor(1).shape
    if len(counts) != len(extents):
        call.fail("indices must have as many axes as the data", actual=len(counts), limit=len(extents))
    for other, (found, extent) in enumerate(zip(counts, extents, strict=True)):
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
    data, known, counts, batches = call.tensor(0), _known(call, 1), call.tensor(1).shape, _batches(call)
    extents = _coordinates(call)
    batch = [int(extent) for extent in data.shape[:batches]]
    if list(counts[:batches]) != batch or len(counts) <= batches:
        call.fail("data and indices must share the axes of batches", actual=counts, limit=batch)
    if known is None:
        look_up_rows(nodes, node.input[0], data.shape, node.input[1], counts, batches=batches, out=node.output[0])
        return
    flat = _from_front(known, np.array(extents)) @ np.array(strides_of(extents), dtype=np.int64)
    offsets = np.arange(prod(batch), dtype=np.int64).reshape((*batch, *(1,) * (flat.ndim - len(batch))))
    flat = flat + offsets * prod(extents)
    rows = nodes.reshape(node.input[0], (prod(batch) * prod(extents), *data.shape[len(batch) + len(extents) :]))
    nodes.add("Gather", rows, nodes.constant(np.asarray(flat)), out=node.output[0], axis=0)


def _gather_elements(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known = call.tensor(0), _known(call, 1)
    axis = call.axis("axis", 0, len(data.shape))
    extents = _checked_elements(call, axis)
    if known is None:
        counts = call.tensor(1).shape
        look_up_elements(nodes, node.input[0], extents, node.input[1], counts, axis=axis, out=node.output[0])
        return
    flat = _elements(_from_front(known, extents[axis]), axis, strides_of(extents))
    nodes.add("Gather", nodes.reshape(node.input[0], (-1,)), nodes.constant(flat), out=node.output[0], axis=0)


def _elements(positions: _Positions, axis: int, strides: Sequence[int]) -> _Positions:
    """Flat positions of elements that are given along one axis."""
    flat = positions * strides[axis]
    for other, extent in enumerate(positions.shape):
        if other != axis:
            flat = flat + along(other, extent, strides)
    return np.asarray(flat)


def _scatter_nd(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known, counts = call.tensor(0), _known(call, 1), call.tensor(1).shape
    extents = _coordinates(call)
    _check_updates(call, (*counts[:-1], *data.shape[len(extents) :]))
    if known is None:
        given = (node.input[0], data.shape, node.input[1], node.input[2], counts)
        write_rows(nodes, *given, how=call.text("reduction", "none"), out=node.output[0])
        return
    flat = _from_front(known, np.array(extents)) @ np.array(strides_of(extents), dtype=np.int64)
    _written(node, call, nodes, extents, flat.reshape(-1))


def _scatter_elements(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, known, counts = call.tensor(0), _known(call, 1), call.tensor(1).shape
    axis = call.axis("axis", 0, len(data.shape))
    extents = _checked_elements(call, axis)
    _check_updates(call, counts)
    if known is None:
        box = [(0, extent if other == axis else counts[other]) for other, extent in enumerate(extents)]
        inner = node.input[0]
        for other, (_, end) in enumerate(box):
            inner = nodes.slice(inner, other, 0, end) if end < extents[other] else inner
        inner = write_elements(
            nodes,
            inner,
            node.input[1],
            node.input[2],
            axis=axis,
            extent=extents[axis],
            rank=len(extents),
            count=counts[axis],
            how=call.text("reduction", "none"),
        )
        nodes.add("Identity", _around(nodes, node.input[0], inner, extents, box), out=node.output[0])
        return
    flat = _elements(_from_front(known, extents[axis]), axis, strides_of(extents))
    _written(node, call, nodes, extents, flat.reshape(-1))


def _written(node: onnx.NodeProto, call: Call, nodes: NodeList, extents: list[int], flat: _Positions) -> None:
    """Writes one update after the other at positions along the first axes of the data, which have these extents.

    With a reduction what is written is made of the data at these positions and the updates.
    """
    data, updates, rest = node.input[0], node.input[2], call.tensor(0).shape[len(extents) :]
    reduction = call.text("reduction", "none")
    if reduction != "none" and flat.size:
        old = nodes.add("Gather", nodes.reshape(data, (prod(extents), *rest)), nodes.constant(flat), axis=0)
        updates = nodes.add(REDUCTIONS[reduction], old, nodes.reshape(updates, (flat.size, *rest)))
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
    """How many positions there are, if too many or a number that varies; at run time no extent may vary."""
    indices = call.tensor(1).shape
    extents = (*_indexed(call, node.op_type), *(indices[-1:] if node.op_type.endswith("ND") else indices))
    if _known(call, 1) is None:
        if call.tensor(1).at_maxima:
            return "positions that vary with extents"
        extents = tuple(extent for tensor in call.inputs if tensor is not None for extent in tensor.shape)
    varying = next((str(extent) for extent in extents if isinstance(extent, Dim)), None)
    if varying is not None:
        return varying
    shape = call.tensor(0).shape
    if _known(call, 1) is None and shape and node.op_type in ("ScatterElements", "Scatter"):
        # positions are compared along one axis
        along = int(shape[call.axis("axis", 0, len(shape))])
        return along if along > FOLD_ELEMENTS else None
    positions = max(prod(map(int, _indexed(call, node.op_type))), call.tensor(1).elements)
    return positions if positions > (FOLD_ELEMENTS if _known(call, 1) is not None else MOST_LOOKED_UP) else None


def _many_writes(node: onnx.NodeProto, call: Call) -> object | None:
    """How many writes a node makes at positions known at run time, if these are too many. Illegal ranks pass here."""
    data, counts = call.tensor(0), call.tensor(1).shape
    if _known(call, 1) is not None or not counts or not data.shape:
        return None
    by_rows = node.op_type.endswith("ND")
    writes = prod(counts[:-1]) if by_rows else counts[call.axis("axis", 0, len(counts))]
    is_few = writes <= MOST_WRITES and writes * data.elements <= MOST_WRITTEN
    return (
        None
        if call.tensor(1).elements and (is_few or writes == 1)
        else f"{writes} at run time, in {data.elements} elements"
    )


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
    if reduction not in ("none", *REDUCTIONS):
        return reduction
    if reduction == "none" or positions is None or not positions.size:
        return None
    extents = [int(extent) for extent in call.tensor(0).shape]
    if node.op_type.endswith("ND"):
        found = _from_front(positions, np.array(extents[: positions.shape[-1]])).reshape(-1, positions.shape[-1])
    elif positions.ndim == len(extents):
        axis = call.axis("axis", 0, len(extents))
        found = _elements(_from_front(positions, extents[axis]), axis, strides_of(extents)).reshape(-1, 1)
    else:
        return None
    return reduction if len(np.unique(found, axis=0)) < len(found) else None


def _batches(call: Call) -> int:
    """How many of the first axes data and indices share."""
    return call.integer("batch_dims", 0)


_FEW: Final = Limit(
    f"positions are of fixed number, at most {FOLD_ELEMENTS}; "
    f"if known at run time only, at most {MOST_LOOKED_UP} ({FOLD_ELEMENTS} along the axis that is written along), "
    "and no extent varies",
    _many,
)
_TYPES: Final = MappingProxyType({1: ("int32", "int64")})
_INSIDE: Final = Limit("positions lie in the data", _outside)
_WRITTEN: Final = (
    _FEW,
    Limit(
        f"positions are known at compile time, or there is one, or there are at most {MOST_WRITES}, "
        f"and the data times their number have at most {MOST_WRITTEN} elements",
        _many_writes,
    ),
    _INSIDE,
    Limit("reduction is none, or add, mul, min or max, and known positions differ", _repeated),
)

INDEXED: Final = (
    Decomposition(
        op_type="GatherND",
        replace=_gather_nd,
        dtypes=_TYPES,
        limits=(_FEW, _INSIDE),
    ),
    Decomposition(op_type="GatherElements", replace=_gather_elements, dtypes=_TYPES, limits=(_FEW, _INSIDE)),
    Decomposition(op_type="ScatterND", replace=_scatter_nd, dtypes=_TYPES, limits=_WRITTEN),
    Decomposition(op_type="ScatterElements", replace=_scatter_elements, dtypes=_TYPES, limits=_WRITTEN),
    # what ScatterElements was called up to operator set 10
    Decomposition(op_type="Scatter", replace=_scatter_elements, dtypes=_TYPES, limits=_WRITTEN),
)
