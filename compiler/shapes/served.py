"""Which shapes the units of a model serve, also beyond the ranges that it was compiled for (SHAPE-9, SHAPE-4).

Units are per tile: a longer result takes more calls. Three things set a limit. A call computes axes that no table
divides, and dimensions that it sums over, as a whole: they must not exceed the extents that the units were made for. A
constant has no more elements than the model gives it, nor more room than it has on a chip with stationary weights. And
buffers hold what tiles need within the ranges: beyond them some units may be too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from compiler.errors import LimitError, RequestError, printable
from compiler.ir.constant import Splat
from compiler.ir.symbol import Expression
from compiler.ops.op_facts import GraphFacts
from compiler.shapes.legal import shape_at
from compiler.shapes.routine import RoutineGeometry
from compiler.shapes.table import MAX_EXTENT
from compiler.shapes.unit_library import Library

if TYPE_CHECKING:
    from compiler.shapes.model import ShapeModel


def check_served(model: ShapeModel, dims: Mapping[str, int]) -> None:
    """Raise RequestError naming dimension, value, limit and cause where a unit would exceed what it was built for."""
    for name, tensor in model.graph.tensors.items():
        if tensor.constant is None or not tensor.symbols:
            continue
        if isinstance(tensor.constant.data, Splat) and name not in model.resident:
            continue
        there = shape_at(tensor, dims)
        for axis, expression in tensor.symbols:
            if there[axis] > tensor.shape[axis]:
                cause = f"constant {printable(name, 80)!r} has {tensor.shape[axis]} elements along axis {axis}"
                raise _not_served(model, dims, expression, there[axis], tensor.shape[axis], cause)
    for number, library in enumerate(model.libraries):
        op = model.graph.ops[library.routine.ops[-1]]
        result = model.graph.tensors[op.output]
        problem, varying = model.problem(number, dims), dict(result.symbols)
        rank = len(result.shape)
        for axis, (extent, known) in enumerate(zip(problem, library.cost.maxima, strict=True)):
            is_tiled = axis in library.routine.tiled
            most = MAX_EXTENT if is_tiled else known
            if extent <= most:
                continue
            summed = axis >= rank
            grown = library.summed[axis - rank] if summed else varying.get(axis)
            what = "all that it sums over" if summed else f"all of axis {axis} of its result"
            cause = f"a table has {most} elements along an axis at most"
            if not is_tiled:
                cause = f"each call of node {printable(op.node, 80)!r} takes {what}, its units were built for {most}"
            raise _not_served(model, dims, grown, extent, most, cause)


def units_with_room(model: ShapeModel, number: int, facts: GraphFacts) -> tuple[int, ...]:
    """The units of a library whose buffers hold what their tiles need, wherever they lie, in a graph at some extents.

    Raises LimitError where there are none.
    """
    library = model.libraries[number]
    geometry = RoutineGeometry(facts, library.routine.ops)
    found = tuple(unit for unit in range(len(library.units)) if has_room(geometry, library, unit))
    if not found:
        node = model.graph.ops[library.routine.ops[-1]]
        raise LimitError(
            "no shape unit of an op has room for what its tile needs at this shape",
            code="no_unit_fits",
            stage="shapes",
            node=node.node,
            op_type=node.kind,
            actual="×".join(map(str, facts.tensors[node.output].shape)),
            limit=f"{len(library.units)} units, laid out for {_ranges(model)}",
            hint="Compile the model for ranges of its dynamic dimensions that hold this shape (option dims)",
        )
    return found


def has_room(geometry: RoutineGeometry, library: Library, unit: int) -> bool:
    """Whether a unit's buffers hold what its tile needs at the geometry's extents, wherever it lies."""
    placed = library.buffers[unit].placed
    return all(
        length <= extent
        for name, extents in geometry.extents(library.tiles[unit]).items()
        if name in placed
        for length, extent in zip(extents, placed[name].extents, strict=True)
    )


def _not_served(
    model: ShapeModel, dims: Mapping[str, int], expression: Expression | str | None, extent: int, most: int, cause: str
) -> RequestError:
    names = [expression] if isinstance(expression, str) else sorted(expression.symbols) if expression else sorted(dims)
    name = next((n for n in names if dims[n] not in model.ranges[n]), names[0])
    at = f" (an extent of {extent} there)" if extent != dims[name] else ""
    return RequestError(
        f"dimension {printable(name, 80)!r} is longer than its units serve{at}: {cause}",
        code="extent_out_of_range",
        stage="shapes",
        actual=dims[name],
        limit=str(most) if extent == dims[name] else f"an extent of {most}; compiled for {model.ranges[name]}",
        hint=f"Compile the model for a range that holds it: dims.{printable(name, 40)} up to {dims[name]}",
    )


def _ranges(model: ShapeModel) -> str:
    return ", ".join(f"{printable(name, 40)} = {one}" for name, one in model.ranges.items()) or "one shape"
