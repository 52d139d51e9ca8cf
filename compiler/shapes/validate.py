"""What holds of every compiled model, asked of one that was read from a file (SHAPE-10)."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, prod
from typing import Final

import numpy as np

from compiler.ir.constant import Constant, Splat, Stored
from compiler.ir.graph import HOST, Graph, Op, Tensor
from compiler.ir.symbol import Expression
from compiler.ops import ALL_KINDS
from compiler.shapes.legal import MAX_ELEMENTS
from compiler.shapes.model import ShapeModel
from compiler.shapes.table import MAX_EXTENT
from compiler.shapes.unit_library import Library
from compiler.units import DTYPE_NAMES, element_bytes

# Cores of one chip, far more than any has.
_MAX_CORES: Final = 1 << 20


def check_model(model: ShapeModel) -> None:
    """Raise ValueError, KeyError or TypeError naming what no compiled model has."""
    for name, one in (*model.ranges.items(), *model.reach.items()):
        if not (1 <= one.low <= one.high <= MAX_EXTENT and one.step >= 1):
            raise ValueError(f"dimension {name} has no range: {one}")
    if set(model.reach) != set(model.ranges):
        raise ValueError("other dimensions are served than the model has")
    if not (1 <= model.cores <= _MAX_CORES and model.profile_name):
        raise ValueError("the profile has no cores")
    dims = frozenset(model.ranges)
    for tensor in model.graph.tensors.values():
        _check_tensor(tensor, dims)
    for tensor in model.graph.unread:
        if tensor.constant is not None or any(not 0 <= axis < len(tensor.shape) for axis, _ in tensor.symbols):
            raise ValueError(f"{tensor.name} is no input")
    for op in model.graph.ops:
        _check_op(model.graph, op, dims)
    for library in model.libraries:
        _check_library(model.graph, library, dims)
        _check_cost(library, model.cores)
    _check_parts(model)


def _check_tensor(tensor: Tensor, dims: frozenset[str]) -> None:
    if prod(tensor.shape) > MAX_ELEMENTS:
        raise ValueError(f"tensor {tensor.name} has too many elements")
    if any(not 0 <= axis < len(tensor.shape) for axis, _ in tensor.symbols):
        raise ValueError(f"tensor {tensor.name} varies along an axis that it has not")
    if any(not 0 <= position < tensor.elements for position, _ in tensor.element_symbols):
        raise ValueError(f"tensor {tensor.name} has varying elements that it has not")
    _check_symbols((e for _, e in (*tensor.symbols, *tensor.element_symbols)), dims, tensor.name)
    if tensor.constant is not None:
        if tensor.constant.shape != tensor.shape or tensor.constant.dtype != tensor.dtype:
            raise ValueError(f"constant {tensor.name} is not of its tensor's type")
        _check_constant(tensor.constant, tensor.name)


def _check_constant(constant: Constant, name: str) -> None:
    data = constant.data
    if prod(constant.shape) > MAX_ELEMENTS:
        raise ValueError(f"constant {name} has too many elements")
    if isinstance(data, Splat) and len(data.value) != element_bytes(constant.dtype):
        raise ValueError(f"constant {name} is no value of its type")
    if isinstance(data, Stored) and data.size_bytes != prod(constant.shape) * element_bytes(constant.dtype):
        raise ValueError(f"constant {name} is not as long as its shape says")
    for part in getattr(data, "inputs", ()):
        _check_constant(part, name)


def _check_op(graph: Graph, op: Op, dims: frozenset[str]) -> None:
    attributes = dict(op.attributes)
    if op.kind == HOST:
        if attributes["node"] not in graph.host:
            raise ValueError(f"op {op.node} is no node of the host")
        return
    if op.kind not in ALL_KINDS:
        raise ValueError(f"no op is {op.kind!r}")
    for name in (*op.inputs, op.output):
        if name and not (graph.tensors[name].is_known and graph.tensors[name].dtype in DTYPE_NAMES):
            raise ValueError(f"op {op.node} reads or makes {name}, of which no chip knows the type")
    for name, position, _ in op.symbols:
        value = attributes[name]
        if not 0 <= position < (len(value) if isinstance(value, tuple) else 1):
            raise ValueError(f"attribute {name} of op {op.node} has no element {position}")
    _check_symbols((expression for _, _, expression in op.symbols), dims, op.node)


def _check_symbols(expressions: Iterable[Expression], dims: frozenset[str], name: str) -> None:
    for expression in expressions:
        if not expression.symbols <= dims:
            raise ValueError(f"{name} varies with {', '.join(sorted(expression.symbols - dims))}, of no range")


def _check_library(graph: Graph, library: Library, dims: frozenset[str]) -> None:
    result = graph.tensors[graph.ops[library.routine.ops[-1]].output]
    rank, tiled = len(result.shape), library.routine.tiled
    if list(tiled) != sorted(set(tiled)) or any(not 0 <= axis < rank for axis in tiled):
        raise ValueError(f"routine of {result.name} divides axes that it has not")
    if not set(library.summed) <= dims or len(set(library.summed)) != len(library.summed):
        raise ValueError(f"routine of {result.name} sums over what has no range")
    if library.cost.rank != rank + len(library.summed) or any(len(tile) != rank for tile in library.tiles):
        raise ValueError(f"units of {result.name} are of another rank")
    if any(not 1 <= length <= extent for length, extent in _lengths(library.tiles, library.cost.maxima[:rank])):
        raise ValueError(f"units of {result.name} have no costs")
    for buffers in library.buffers:
        if any(not _is_size(n) for n in (buffers.activation_bytes, buffers.weight_bytes)):
            raise ValueError(f"units of {result.name} take no memory that can be told")
        for name, placed in buffers.placed.items():
            sizes = (*placed.extents, *placed.addresses, placed.size_bytes)
            if not placed.addresses or any(not _is_size(n) for n in sizes):
                raise ValueError(f"the buffer of {name} lies nowhere")
            tensor = graph.tensors.get(name)
            if tensor is not None and placed.size_bytes < prod(placed.extents) * element_bytes(tensor.stored_dtype):
                raise ValueError(f"the buffer of {name} is smaller than what it holds")


def _check_cost(library: Library, cores: int) -> None:
    """Costs are known for all lengths of all axes, and are numbers that can be compared."""
    cost = library.cost
    if not 1 <= library.loaders <= cores:
        raise ValueError(f"{library.loaders} of {cores} cores read what all of them need")
    amounts = [cost.call_cycles, cost.variable_cycles, cost.compute_cycles]
    amounts += [cycles for operand in cost.operands for cycles in (operand.start_cycles, operand.move_cycles)]
    if any(not 0 <= cycles < inf for cycles in amounts):
        raise ValueError("a call costs no number of cycles")
    for operand in cost.operands:
        if len(operand.factors) != cost.rank:
            raise ValueError("an operand has factors along other axes than its routine")
    by_axis = [(axis, factor) for axis, factor in enumerate(cost.compute)]
    by_axis += [
        (axis, factor) for one in cost.operands for axis, factor in enumerate(one.factors) if factor is not None
    ]
    for axis, factor in by_axis:
        if len(factor) <= cost.maxima[axis] or not (np.isfinite(factor) & (factor >= 0)).all():
            raise ValueError("factors of costs are missing, or no numbers that can be compared")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ELEMENTS


def _lengths(tiles: Iterable[tuple[int, ...]], maxima: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """Every length of every tile beside the longest of which costs are known."""
    return ((length, most) for tile in tiles for length, most in zip(tile, maxima, strict=True))


def _check_parts(model: ShapeModel) -> None:
    """Every op is run once, by the host or in a routine, after what it reads was made.

    Of what a routine makes only its last op's result is there for others.
    """
    ops = model.graph.ops
    if any(not 0 <= part.chip < model.chips for part in model.parts):
        raise ValueError("a part is run by a chip that is not there")
    runs: list[tuple[int, ...]] = []
    for part in model.parts:
        routines = (model.libraries[number].routine for number in part.routines)
        runs += [(op,) for op in part.ops] if part.is_host else [routine.ops for routine in routines]
    if sorted(op for run in runs for op in run) != list(range(len(ops))):
        raise ValueError("not every op is run once")
    made = {"", *model.graph.inputs}
    made |= {name for name, tensor in model.graph.tensors.items() if tensor.constant is not None}
    for run in runs:
        inside = set(made)
        for op in run:
            if not inside.issuperset(ops[op].inputs):
                raise ValueError(f"op {ops[op].node} is run before what it reads is made")
            inside.add(ops[op].output)
        made.add(ops[run[-1]].output)
    if not made.issuperset((*model.graph.outputs, *model.graph.output_tensors)):
        raise ValueError("an output is left inside a routine")
