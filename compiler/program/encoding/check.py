"""What holds of every program that is written or read: numbers name things that are there (PROG-3).

Whether it may run is another question, which compiler/program/loops/proof.py answers (PROG-4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.errors import printable
from compiler.ir.graph import MAX_AXES
from compiler.program.encoding.manifest import Refuse
from compiler.program.errors import ProgramError
from compiler.program.loops.form import check_loops
from compiler.program.program import Opcode, Program, Role


def check_program(program: Program, fail: Refuse) -> None:
    """Calls `fail`, which raises, unless all indices of a program lie in its lists and its loops are well formed."""
    commands, calls, bindings, places = program.commands, program.calls, program.bindings, len(program.places)
    _within(fail, "a command's opcode", commands["opcode"], 0, len(Opcode))
    _within(fail, "a command's queue", commands["queue"], 0, len(program.queues))
    _within(fail, "a command's step", commands["step"], -1, len(program.steps))
    for name in ("source", "target"):
        _within(fail, f"a command's {name}", commands[name], -1, places)
    _within(fail, "a command's call", commands["call"], -1, len(calls))
    _within(fail, "a binding's place", bindings["place"], -1, places)
    _within(fail, "a call's table", calls["table"], 0, len(program.tables))
    sizes = np.array([len(table.entries) for table in program.tables], dtype=np.int64)
    late = calls["entry"] >= sizes[calls["table"]]
    if late.any() or (len(calls) and int(calls["entry"].min()) < 0):
        fail("a call's entry is not in its table", actual=int(calls["entry"].max()), limit=int(sizes.max()) - 1)
    _within(fail, "a call's first binding", calls["first"], 0, len(bindings) + 1)
    _within(fail, "a call's binding count", calls["count"], 0, len(bindings) + 1)
    ends = calls["first"].astype(np.int64) + calls["count"]
    _within(fail, "a call's last binding", ends, 0, len(bindings) + 1)
    _check_lists(program, fail)
    try:
        check_loops(program)
    except ProgramError as error:
        fail(error.message, actual=error.actual, limit=error.limit)


def check_tensors(
    given: Iterable[str], steps: Iterable[tuple[Iterable[str], Iterable[str]]], wanted: Iterable[str], fail: Refuse
) -> None:
    """Calls `fail` unless each segment reads tensors that are there by then, and the outputs are there in the end.

    `given` are the tensors before the first segment, `steps` the tensors that each segment reads and makes.
    """
    known = set(given)
    for reads, makes in (*steps, (wanted, ())):
        for name in reads:
            if name not in known:
                fail("a tensor is read that nothing has made", actual=printable(name, 80), limit="a tensor made before")
        known.update(makes)


def check_shapes(shapes: Iterable[tuple[int, ...] | None], fail: Refuse) -> None:
    """Calls `fail` unless the extents of inputs, outputs and constants are possible."""
    for shape in shapes:
        _count(fail, "an extent of a tensor", shape or ())


def _within(fail: Refuse, what: str, values: NDArray[Any], low: int, high: int) -> None:
    """`low` is the smallest value, `high` lies beyond the largest."""
    if len(values) == 0:
        return
    least, most = int(values.min()), int(values.max())
    if least < low or most >= high:
        fail(f"{what} is not there", actual=least if least < low else most, limit=high - 1)


def _check_lists(program: Program, fail: Refuse) -> None:
    for table in program.tables:
        if not 0 <= table.unit < len(program.units):
            fail("a table's unit is not there", actual=table.unit, limit=len(program.units) - 1)
        if max((len(shape) for shape in (table.shape, *table.operand_shapes)), default=0) > MAX_AXES:
            fail("a table's tensor has too many axes", actual="more", limit=MAX_AXES)
    for region in program.regions:
        lengths = {len(region.shape), len(region.order), len(region.strides)}
        if len(lengths) > 1 or len(region.shape) > MAX_AXES or sorted(region.order) != list(range(len(region.shape))):
            fail("a region's axes, their order and strides differ", actual=region.name, limit=MAX_AXES)
        _count(fail, "a region's address, extent or size", (region.address, region.size_bytes, *region.shape))
        _count(fail, "a region's stride", tuple(abs(stride) for stride in region.strides))
    for resident in program.residents:
        if not 0 <= resident.region < len(program.regions):
            fail("a resident's region is not there", actual=resident.region, limit=len(program.regions) - 1)
        if not 0 <= resident.place < len(program.places):
            fail("a resident's place is not there", actual=resident.place, limit=len(program.places) - 1)
        region = program.regions[resident.region]
        if region.role is not Role.WEIGHT:
            fail("a resident's region holds no weight", actual=region.role.value, limit=Role.WEIGHT.value)
        if {len(resident.starts), len(resident.lengths), len(resident.strides)} != {len(region.shape)}:
            fail("a resident's axes are not its region's", actual=len(resident.starts), limit=len(region.shape))
        _count(fail, "a resident's address, start or length", (resident.address, *resident.starts, *resident.lengths))
        _count(fail, "a resident's stride", tuple(abs(stride) for stride in resident.strides))
    for place in program.places:
        _count(fail, "a place's number or capacity", (place.number, place.capacity_bytes))


def _count(fail: Refuse, what: str, values: tuple[int, ...]) -> None:
    """Sizes and positions are 0 or above, and small enough to be added and multiplied in 64 bits."""
    for value in values:
        if not 0 <= value < 1 << 62:
            fail(f"{what} is out of range", actual=value, limit=(1 << 62) - 1)
