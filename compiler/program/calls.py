"""Calls of units: the op that each computes, and the box of every operand that an entry needs (SHAPE-1 to SHAPE-3).

Slots number what a call touches: slot 0 is the result, slot i + 1 operand i. Boxes have MAX_AXES axes; those that a
tensor lacks are [0, 1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from compiler.degraded import reason_of
from compiler.errors import TesseraError
from compiler.ir.box import same
from compiler.ir.graph import MAX_AXES, Tensor
from compiler.ops import ALL_KINDS
from compiler.ops.base import Call, OpKind
from compiler.ops.contraction import Product
from compiler.program.errors import ProgramError
from compiler.program.program import OperandType, ParameterTable, Program, Unit
from compiler.program.strided import Flags, Ints
from compiler.units import element_bytes

# What a definition may raise when it is asked about attributes and shapes that no import has made.
HOSTILE = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableGeometry:
    """All entries of one parameter table: per slot and entry the box needed.

    `starts` and `stops`: (slots, entries, MAX_AXES). `ranks`, `given`, `identity`: per slot its axes, whether the op
    has it, and whether its box is always the result's. `element_bytes`: (slots, entries), in memory: of the result
    that of partial sums where the entry makes some. `scale`: (entries,), by what strides of the result are multiplied
    to be those of its partial sums. `partial`, `is_part`: (entries,), what makes or takes up partial sums, and
    which of these have a part of the summed axis. `summed`: by operand the axis of it that is summed.
    """

    unit: Unit
    kind: OpKind
    call: Call
    starts: Ints
    stops: Ints
    shapes: Ints
    ranks: Ints
    given: Flags
    identity: Flags
    element_bytes: Ints
    scale: int
    partial: Flags
    is_part: Flags
    summed: tuple[int | None, ...]
    rank_list: tuple[int, ...]


class CallBook:
    """The geometry of every table of one program, made once each when first asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[int, TableGeometry] = {}

    def geometry(self, table: int) -> TableGeometry:
        """The geometry of a table; raises ProgramError where unit and table make no sense together."""
        found = self._known.get(table)
        if found is None:
            rows = self._program.tables[table]
            try:
                with np.errstate(all="ignore"):
                    found = _geometry(self._program.units[rows.unit], rows, table)
            except ProgramError:
                raise
            except (TesseraError, *HOSTILE) as error:
                raise ProgramError(
                    f"table {table} does not fit its unit: {reason_of(error)}"[:300],
                    violation="table",
                    actual=type(error).__name__,
                ) from error
            self._known[table] = found
        return found


def call_of_unit(unit: Unit, table: ParameterTable, node: str) -> Call:
    """The op on whole tensors, as its definition wants to see it."""

    def tensor(name: str, operand: OperandType, shape: tuple[int, ...]) -> Tensor:
        return Tensor(name=name, shape=tuple(shape), dtype=operand.dtype, axes=operand.axes)

    return Call(
        op_type=unit.kind,
        node=node,
        attributes=dict(unit.attributes),
        inputs=tuple(
            None if operand is None else tensor(f"operand {number}", operand, shape)
            for number, (operand, shape) in enumerate(zip(unit.operands, table.operand_shapes, strict=True))
        ),
        opset=unit.opset,
        output=tensor("result", unit.output, table.shape),
    )


def _geometry(unit: Unit, table: ParameterTable, number: int) -> TableGeometry:
    kind = ALL_KINDS[unit.kind]
    call = call_of_unit(unit, table, f"table {number}")
    call = replace(call, maps=kind.access(call))
    entries, slots, rank = table.entries, len(unit.operands) + 1, len(table.shape)
    starts = np.zeros((slots, len(entries), MAX_AXES), dtype=np.int64)
    stops = np.ones_like(starts)
    starts[0, :, :rank] = entries["starts"][:, :rank]
    stops[0, :, :rank] = starts[0, :, :rank] + entries["lengths"][:, :rank]
    shapes = np.ones((slots, MAX_AXES), dtype=np.int64)
    shapes[0, :rank] = table.shape
    ranks, identity = np.zeros(slots, dtype=np.int64), np.zeros(slots, dtype=np.bool_)
    ranks[0] = rank
    given = np.array([True, *(operand is not None for operand in unit.operands)])
    sizes = np.ones((slots, len(entries)), dtype=np.int64)
    sizes[0] = element_bytes(unit.output.dtype)
    for slot, (operand, maps) in enumerate(zip(unit.operands, call.maps or (), strict=True), start=1):
        if operand is None:
            stops[slot] = 0
            continue
        if maps is None:
            raise ProgramError(f"table {number} gives an operand that its op omits", violation="table", actual=slot - 1)
        shape = table.operand_shapes[slot - 1]
        shapes[slot, : len(shape)] = shape
        ranks[slot], sizes[slot] = len(shape), element_bytes(operand.stored_dtype)
        identity[slot] = shape == table.shape and maps == tuple(same(axis) for axis in range(rank))
        for axis, (axis_map, extent) in enumerate(zip(maps, shape, strict=True)):
            if axis_map.axis is None:
                stops[slot, :, axis] = extent
            else:
                of = axis_map.axis
                found = axis_map.project(starts[0, :, of], stops[0, :, of], extent)
                starts[slot, :, axis], stops[slot, :, axis] = found
    # what projects to nothing along one axis is needed nowhere
    stops[(stops <= starts).any(axis=2)] = 0
    partial = (entries["begins"] == 0) | (entries["ends"] == 0)
    summed = (kind.summed(call) if isinstance(kind, Product) else None) or ()
    scale = _restrict_to_parts(unit, kind, call, entries, number, starts, stops, partial)
    return TableGeometry(
        unit=unit,
        kind=kind,
        call=call,
        starts=starts,
        stops=stops,
        shapes=shapes,
        ranks=ranks,
        given=given,
        identity=identity,
        element_bytes=sizes,
        scale=scale,
        partial=np.asarray(partial, dtype=np.bool_),
        is_part=np.asarray(partial & (entries["sum_stop"] > entries["sum_start"]), dtype=np.bool_),
        summed=(*summed, *(None,) * (len(unit.operands) - len(summed))),
        rank_list=tuple(ranks.tolist()),
    )


def _restrict_to_parts(
    unit: Unit,
    kind: OpKind,
    call: Call,
    entries: Any,
    number: int,
    starts: Ints,
    stops: Ints,
    partial: Any,
) -> int:
    """Cut the boxes of summed axes to the entries' parts of them; the factor of partial sums' strides."""
    begin, end = entries["sum_start"], entries["sum_stop"]
    has_part = (begin != 0) | (end != 0)
    if not has_part.any() and not partial.any():
        return 1
    axes = kind.summed(call) if isinstance(kind, Product) else None
    if axes is None or not isinstance(kind, Product):
        raise ProgramError(f"table {number} sums part by part, which {unit.kind} does not", violation="entry")
    extent = kind.summed_extent(call)
    bad = has_part & ((begin < 0) | (end > extent) | (begin >= end))
    # what is neither continued nor to be continued is the whole sum
    bad |= has_part & ~partial & ((begin > 0) | (end < extent))
    if bad.any():
        row = int(bad.argmax())
        raise ProgramError(
            f"entry {row} of table {number} has an impossible part of the sum",
            violation="entry",
            actual=(int(begin[row]), int(end[row])),
            limit=extent,
        )
    cut = partial & has_part
    for slot, axis in enumerate(axes, start=1):
        if axis is None:
            continue
        is_needed = stops[slot, :, axis] > starts[slot, :, axis]
        starts[slot, :, axis] = np.where(cut & is_needed, begin, starts[slot, :, axis])
        stops[slot, :, axis] = np.where(cut & is_needed, end, stops[slot, :, axis])
    # what is added once is added when the sum ends
    stops[1 + kind.factors(call) :, partial & (entries["ends"] == 0)] = 0
    accumulator = unit.accumulator_dtype or unit.output.dtype
    if accumulator != kind.accumulator(call):
        raise ProgramError(
            f"table {number} sums in another type than {unit.kind} does",
            violation="unit",
            actual=accumulator,
            limit=kind.accumulator(call),
        )
    scale, rest = divmod(element_bytes(accumulator), element_bytes(unit.output.dtype))
    if rest or not scale:
        raise ProgramError(
            f"table {number} sums in {accumulator}, whose elements are no multiples of the result's",
            violation="unit",
            actual=unit.output.dtype,
        )
    return scale


def volume(starts: Any, stops: Any) -> Any:
    """Positions of boxes, as floats where an axis is last; 0 where one is empty."""
    return np.prod(np.maximum(stops - starts, 0), axis=-1, dtype=np.float64)


def box_of(starts: Any, stops: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """One row of starts and stops as a box of `rank` axes."""
    return tuple(zip(starts[:rank].tolist(), stops[:rank].tolist(), strict=True))


def elements(box: tuple[tuple[int, int], ...]) -> int:
    """Positions of a box."""
    return prod(max(0, stop - start) for start, stop in box)
