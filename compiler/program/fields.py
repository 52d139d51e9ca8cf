"""The fields of a program are sane: every index names something, every number is within reason (PROG-4).

Nothing here is believed: an executable may have been uploaded. After these checks arithmetic on its numbers neither
overflows nor asks for more memory than the limits allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.ops import ALL_KINDS
from compiler.program.errors import ProgramError
from compiler.program.program import (
    ADDRESSES,
    BINDING,
    CALL,
    COMMAND,
    ENTRY,
    OUTPUT,
    Level,
    Opcode,
    ParameterTable,
    Program,
    Region,
    Role,
    Unit,
)
from compiler.program.strided import FAR, Flags
from compiler.units import DTYPE_NAMES, SUM_TYPE_NAMES, element_bytes

_MOST_PLACES: Final = 1 << 14
_MOST_AXIS: Final = 1 << 40
_MOST_OPERANDS: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """How large a program may be that is proved or simulated.

    `dram_bytes` is what regions take in all; `chip_bytes` what is touched of all other places; `touched_bytes` what all
    commands read and write together; `clock_entries` statements × queues, and commands that are waited for at one time
    × queues; `shadow_bytes` what the proof itself may take for saying what has been written. `commands` are those that
    are listed, `looped_commands` those that loops make of them: their values take some 20 µs each, an hour and a half
    in all.
    """

    commands: int = 1 << 22
    looped_commands: int = 1 << 28
    bindings: int = 1 << 24
    entries: int = 1 << 24
    dram_bytes: int = 1 << 35
    chip_bytes: int = 1 << 32
    touched_bytes: int = 1 << 40
    clock_entries: int = 1 << 27
    shadow_bytes: int = 1 << 29


DEFAULT_LIMITS: Final = ProgramLimits()


def refuse_first(
    bad: Any,
    commands: Any,
    message: str,
    violation: str,
    actual: Any = None,
    limit: Any = None,
) -> None:
    """Raise ProgramError for the first row that is bad, if one is; rows are those of `commands` (numbers of them).

    `commands` None: rows are commands; `actual` and `limit` have a value per row, or one for all.
    """
    if not bad.any():
        return
    row = int(bad.argmax())
    command = row if commands is None else int(commands[row])
    raise ProgramError(
        message,
        violation=violation,
        command=None if command < 0 else command,
        actual=_of_row(actual, row),
        limit=_of_row(limit, row),
    )


def _of_row(values: Any, row: int) -> object:
    if isinstance(values, np.ndarray):
        found: object = values[row].tolist()
        return found
    return None if values is None else values


def is_transfer(opcodes: Any) -> Flags:
    """Which commands copy bytes."""
    return np.asarray(opcodes <= Opcode.EXCHANGE)


def is_call(opcodes: Any) -> Flags:
    """Which commands call a unit."""
    return np.asarray((opcodes == Opcode.COMPUTE) | (opcodes == Opcode.GATHER))


def check_fields(program: Program, limits: ProgramLimits = DEFAULT_LIMITS) -> None:
    """Raise ProgramError if a field of the program names nothing or is beyond reason.

    Loops and waits are judged apart (`loops/form.py`).
    """
    _check_tables(program, limits)
    _check_places(program)
    _check_commands(program)
    _check_calls(program)
    for number, unit in enumerate(program.units):
        _check_unit(number, unit)
    for number, table in enumerate(program.tables):
        _check_table(program, number, table, limits)
    _check_regions(program, limits)
    _check_residents(program)


def _check_tables(program: Program, limits: ProgramLimits) -> None:
    sizes = (
        ("commands", program.commands, COMMAND, limits.commands),
        ("calls", program.calls, CALL, limits.commands),
        ("bindings", program.bindings, BINDING, limits.bindings),
        *((f"entries of table {i}", table.entries, ENTRY, limits.entries) for i, table in enumerate(program.tables)),
    )
    for name, rows, dtype, limit in sizes:
        if rows.ndim != 1 or rows.dtype != dtype:
            raise ProgramError(f"the {name} are no rows of their type", violation="tables")
        if len(rows) > limit:
            raise ProgramError(f"too many {name}", violation="size", actual=len(rows), limit=limit)
    entries = (len(program.commands) + 1) * len(program.queues)
    if entries > limits.clock_entries:
        raise ProgramError(
            "too many commands for so many queues", violation="size", actual=entries, limit=limits.clock_entries
        )


def _check_places(program: Program) -> None:
    seen: set[tuple[Level, int]] = set()
    if not 0 < len(program.places) <= _MOST_PLACES:
        raise ProgramError(
            "a program has memories", violation="places", actual=len(program.places), limit=f"1 to {_MOST_PLACES}"
        )
    for index, place in enumerate(program.places):
        is_known = place.level in tuple(Level)
        if not is_known or (place.level, place.number) in seen or not 0 <= place.number < _MOST_PLACES:
            raise ProgramError(f"place {index} is none of its own", violation="places", actual=f"{place}"[:120])
        if not 0 <= place.capacity_bytes < FAR:
            raise ProgramError(
                f"place {index} has an impossible capacity", violation="places", actual=place.capacity_bytes, limit=FAR
            )
        seen.add((place.level, place.number))
    if sum(place.level == Level.DRAM for place in program.places) != 1:
        raise ProgramError("a chip has one DRAM", violation="places", limit=1)
    if len({(queue.engine, queue.number) for queue in program.queues}) < len(program.queues):
        raise ProgramError("two queues are the same engine", violation="queues")


def _check_commands(program: Program) -> None:
    commands, places = program.commands, len(program.places)
    _within(commands["opcode"], 0, len(Opcode), "an unknown opcode", "opcode")
    _within(commands["queue"], 0, len(program.queues), "an unknown queue", "queue")
    # a command may work for no step, as it may call nothing: -1
    _within(commands["step"], -1, len(program.steps), "an unknown step", "step")
    moves = np.flatnonzero(is_transfer(commands["opcode"]))
    rows = commands[moves]
    _within(rows["source"], 0, places, "an unknown source place", "place", moves)
    _within(rows["target"], 0, places, "an unknown target place", "place", moves)
    _within(rows["targets"], 1, places + 1, "an impossible number of targets", "place", moves)
    last = rows["target"].astype(np.int64) + rows["targets"] - 1
    _within(last, 0, places, "targets go past the last place", "place", moves)
    # runs of places of one level, numbered one after another: several targets lie in one run
    breaks = [
        index > 0 and (place.level != before.level or place.number != before.number + 1)
        for index, (before, place) in enumerate(zip((program.places[0], *program.places), program.places, strict=False))
    ]
    run = np.cumsum(breaks)
    apart = run[last] != run[rows["target"]]
    refuse_first(apart, moves, "targets are places of different kinds", "place", rows["targets"])
    for name in ("run_bytes", "counts"):
        least = rows[name] if rows[name].ndim == 1 else rows[name].min(axis=1, initial=1)
        refuse_first(least < 1, moves, f"{name} must be at least 1", "extent", least, 1)
    calls = np.flatnonzero(is_call(commands["opcode"]))
    _within(commands["call"][calls], 0, len(program.calls), "an unknown call", "call", calls)


def _check_calls(program: Program) -> None:
    calls, bindings = program.calls, program.bindings
    none = np.full(len(calls), -1)
    _within(calls["table"], 0, len(program.tables), "a call's table is unknown", "call", none)
    sizes = np.array([len(table.entries) for table in program.tables] or [0])
    tables = calls["table"] if len(calls) else np.zeros(0, dtype=np.int32)
    _within(calls["entry"], 0, sizes[tables], "a call's entry is unknown", "call", none)
    stop = calls["first"].astype(np.int64) + calls["count"]
    bad = (calls["first"] < 0) | (calls["count"] < 1) | (stop > len(bindings))
    refuse_first(bad, none, "a call's bindings are outside the list", "call", stop, len(bindings))
    none = np.full(len(bindings), -1)
    _within(bindings["place"], 0, len(program.places), "a binding's place is unknown", "place", none)
    last = ADDRESSES - len(program.addresses) + 1
    bad = bindings["operand"] < min(last, OUTPUT)
    refuse_first(bad, none, "binds an operand or address table that is not there", "binding", bindings["operand"], last)
    for name, least in (("starts", 0), ("lengths", 0)):
        values = bindings[name]
        bad = ((values < least) | (values > _MOST_AXIS)).any(axis=1)
        refuse_first(bad, none, f"a binding's {name} are impossible", "extent", values, _MOST_AXIS)


def _check_unit(number: int, unit: Unit) -> None:
    if unit.kind not in ALL_KINDS:
        raise ProgramError(f"unit {number} is of an unknown kind", violation="unit", actual=unit.kind)
    if len(unit.operands) > _MOST_OPERANDS:
        raise ProgramError(
            f"unit {number} has too many operands", violation="unit", actual=len(unit.operands), limit=_MOST_OPERANDS
        )
    for operand in (*unit.operands, unit.output):
        if operand is None:
            continue
        types = (operand.dtype, operand.stored_dtype)
        if not set(types) <= set(DTYPE_NAMES) or len(operand.axes) > MAX_AXES:
            raise ProgramError(f"unit {number} has an unknown operand type", violation="unit", actual=str(types))
    if unit.accumulator_dtype and unit.accumulator_dtype not in SUM_TYPE_NAMES:
        raise ProgramError(
            f"unit {number} sums in an unknown element type", violation="unit", actual=unit.accumulator_dtype
        )
    # as numbers of Python, which have no size: those of a file need not fit an array
    extent = next((extent for extent in unit.extents if not 0 <= extent <= _MOST_AXIS), None)
    if extent is not None:
        raise ProgramError(
            f"unit {number} has an impossible extent", violation="unit", actual=str(extent)[:40], limit=_MOST_AXIS
        )
    if unit.gathers != -1 and (
        not 0 <= unit.gathers < len(unit.operands) or unit.operands[unit.gathers] is None or len(unit.operands) < 2
    ):
        raise ProgramError(f"unit {number} gathers from no operand", violation="unit", actual=unit.gathers)


def _check_table(program: Program, number: int, table: ParameterTable, limits: ProgramLimits) -> None:
    if not 0 <= table.unit < len(program.units):
        raise ProgramError(f"table {number} is of no unit", violation="table", actual=table.unit)
    unit = program.units[table.unit]
    if len(table.operand_shapes) != len(unit.operands) or len(unit.extents) != len(table.shape):
        raise ProgramError(f"table {number} does not fit its unit", violation="table", actual=len(table.operand_shapes))
    for operand, shape in zip((*unit.operands, unit.output), (*table.operand_shapes, table.shape), strict=True):
        if operand is not None and len(operand.axes) != len(shape):
            raise ProgramError(f"table {number} has a shape of other axes", violation="table", actual=str(shape))
        _check_shape(f"table {number}", shape)
    if (len(unit.operands) + 1) * len(table.entries) > limits.entries:
        raise ProgramError(
            f"too many entries in table {number}", violation="size", actual=len(table.entries), limit=limits.entries
        )
    entries, rank = table.entries, len(table.shape)
    extent_of = np.array(table.shape, dtype=np.int64)
    starts, lengths = entries["starts"][:, :rank], entries["lengths"][:, :rank]
    none = np.full(len(entries), -1)
    is_inside = (starts >= 0) & (lengths >= 1) & (lengths <= extent_of) & (starts <= extent_of - lengths)
    refuse_first(
        ~is_inside.all(axis=1), none, f"an entry of table {number} leaves the tensor", "entry", starts, str(table.shape)
    )
    extents = np.array(unit.extents, dtype=np.int64)
    bad = (lengths > extents).any(axis=1)
    refuse_first(bad, none, f"an entry of table {number} is beyond its unit", "entry", lengths, str(unit.extents))
    flags = np.stack([entries["begins"], entries["ends"]], axis=1)
    bad = ((flags < 0) | (flags > 1)).any(axis=1)
    refuse_first(bad, none, f"an entry of table {number} begins and ends, or not", "entry", flags, "0 or 1")


def _check_shape(what: str, shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_AXES or any(extent < 0 for extent in shape) or prod(max(1, e) for e in shape) > _MOST_AXIS:
        raise ProgramError(f"{what} has an impossible shape", violation="shape", actual=str(shape)[:120])


def _check_regions(program: Program, limits: ProgramLimits) -> None:
    names: set[str] = set()
    total = 0
    for region in program.regions:
        what = f"region {region.name!r}"
        if region.name in names or region.dtype not in DTYPE_NAMES or region.role not in tuple(Role):
            raise ProgramError(f"{what} is not of its own", violation="region", actual=region.dtype)
        names.add(region.name)
        _check_shape(what, region.shape)
        _check_region(what, region)
        total = max(total, region.address + region.size_bytes)
    dram = next(place for place in program.places if place.level == Level.DRAM)
    if total > dram.capacity_bytes:
        raise ProgramError("regions exceed the DRAM", violation="size", actual=total, limit=dram.capacity_bytes)
    if total > limits.dram_bytes:
        raise ProgramError("regions exceed what is allowed", violation="size", actual=total, limit=limits.dram_bytes)


def _check_region(what: str, region: Region) -> None:
    rank, size = len(region.shape), element_bytes(region.dtype)
    if len(region.strides) != rank or sorted(region.order) != list(range(rank)):
        raise ProgramError(f"{what} has strides or an order of other axes", violation="region")
    if not 0 <= region.address < FAR or not 0 <= region.size_bytes < FAR:
        raise ProgramError(f"{what} lies nowhere", violation="region", actual=region.address, limit=FAR)
    if any(v % size for v in (region.address, *region.strides)):
        raise ProgramError(f"{what} is not aligned", violation="alignment", actual=str(region.strides), limit=size)
    if any(not 0 <= stride < FAR for stride in region.strides):
        raise ProgramError(f"{what} has an impossible stride", violation="region", actual=str(region.strides))
    if prod(region.shape):
        reach = size
        for axis in sorted(range(rank), key=lambda axis: region.strides[axis]):
            if region.shape[axis] > 1 and region.strides[axis] < reach:
                raise ProgramError(f"{what} has elements on one another", violation="region", actual=region.strides)
            reach += (region.shape[axis] - 1) * region.strides[axis]
        if reach > region.size_bytes:
            raise ProgramError(f"{what} exceeds its size", violation="region", actual=reach, limit=region.size_bytes)


def _check_residents(program: Program) -> None:
    for number, resident in enumerate(program.residents):
        what = f"resident {number}"
        if not 0 <= resident.place < len(program.places) or not 0 <= resident.region < len(program.regions):
            raise ProgramError(f"{what} names no place or no region", violation="resident", actual=resident.place)
        region = program.regions[resident.region]
        if region.role != Role.WEIGHT or program.places[resident.place].level == Level.DRAM:
            raise ProgramError(f"{what} is no weight on the chip", violation="resident", actual=region.role)
        parts = (resident.starts, resident.lengths, resident.strides)
        if any(len(part) != len(region.shape) for part in parts):
            raise ProgramError(f"{what} is of other axes", violation="resident", actual=str(resident.lengths))
        for start, length, extent in zip(resident.starts, resident.lengths, region.shape, strict=True):
            if start < 0 or length < 1 or start + length > extent:
                raise ProgramError(f"{what} leaves its tensor", violation="resident", actual=start, limit=extent)
        size = element_bytes(region.dtype)
        numbers = (resident.address, *resident.strides)
        if any(v % size for v in numbers) or any(not -FAR < v < FAR for v in numbers):
            raise ProgramError(f"{what} is not aligned", violation="alignment", actual=str(numbers), limit=size)


def _within(values: Any, least: int, limit: Any, message: str, violation: str, commands: Any = None) -> None:
    refuse_first((values < least) | (values >= limit), commands, message, violation, values, limit)
