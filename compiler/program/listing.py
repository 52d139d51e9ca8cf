"""The listing of a program: its disassembly as text, for people (PROG-3, UI-1).

One line per thing; every name from a model goes through `printable`. Addresses are in hexadecimal, sizes in bytes.

Statements are listed (PROG-5). One that loops is shown as the command that it is at its first tile, then for which
tiles it holds and how it changes: `+64 per i` is from one value of counter i that is listed to the next; `+32 x (j mod
2)` is a ring, which comes on top. `after 3 - 1` waits for statement 3 of the iteration before; one of stage 1 runs one
iteration before its tile's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from compiler.errors import RequestError, printable
from compiler.profile.schema import Profile
from compiler.program.encoding.sizes import program_sizes
from compiler.program.loops.instances import Instances
from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    COUNTER_NAMES,
    ENTRY_START,
    ENTRY_SUM,
    SOURCE_ADDRESS,
    TARGET_ADDRESS,
    Loops,
)
from compiler.program.program import ADDRESSES, OUTPUT, Level, Opcode, OperandType, Place, Program, Unit
from compiler.program.strided import Ints

# Longer names are cut.
_NAME_CHARACTERS: Final = 80
_IDENTIFIER_CHARACTERS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingOptions:
    """What is listed: statements of these groups (None: of all), and of those the first and last so many (None: all).

    `summary` lists commands by opcode and bytes by route in place of the statements.
    """

    groups: tuple[str, ...] | None = None
    head: int | None = None
    tail: int | None = None
    summary: bool = False


def listing(
    program: Program,
    *,
    profile: Profile | None = None,
    peaks: Mapping[int, int] | None = None,
    options: ListingOptions | None = None,
) -> Iterator[str]:
    """The lines of a program's listing, without line ends.

    `peaks` are the bytes in use at most, by place. Raises RequestError for a group that the program does not have.
    """
    chosen = options or ListingOptions()
    rows = _chosen(program, chosen)
    return _lines(program, profile, peaks or {}, chosen, rows)


def _lines(
    program: Program,
    profile: Profile | None,
    peaks: Mapping[int, int],
    options: ListingOptions,
    rows: Sequence[int | None],
) -> Iterator[str]:
    counts = Instances(program).counts
    yield from _header(program, profile)
    yield from _memories(program, peaks)
    yield from _regions(program)
    yield from _units(program)
    yield from _address_tables(program)
    if options.summary:
        yield from _summary(program, counts)
        return
    yield from _spaces(program.loops)
    yield ""
    yield f"statements: {len(program.commands)}, for {counts.sum()} commands"
    yield from _statements(program, rows)


def _header(program: Program, profile: Profile | None) -> Iterator[str]:
    sizes = program_sizes(program)
    name = f" for profile {_name(profile.name)}" if profile is not None else ""
    yield f"program {_name(program.name)}{name}"
    yield (
        f"  program {sizes.program_bytes} B ({len(program.commands)} statements, {len(program.calls)} calls, "
        f"{len(program.bindings)} bindings, {len(program.waits)} waits), tables {sizes.table_bytes} B, "
        f"units {sum(sizes.unit_bytes)} B"
    )


def _memories(program: Program, peaks: Mapping[int, int]) -> Iterator[str]:
    yield ""
    yield f"places: {len(program.places)}"
    for number, place in enumerate(program.places):
        used = f", {peaks[number]} B used at most" if number in peaks else ""
        yield f"  {_place(place)}: {place.capacity_bytes} B{used}"


def _regions(program: Program) -> Iterator[str]:
    yield ""
    yield f"regions: {len(program.regions)}"
    for number, region in enumerate(program.regions):
        shape = "x".join(map(str, region.shape)) or "scalar"
        order = ",".join(map(str, region.order))
        strides = ",".join(map(str, region.strides))
        yield (
            f"  r{number} {region.role.value} {_name(region.name)}: {_name(region.dtype)}[{shape}] at "
            f"{_hex(region.address)}, {region.size_bytes} B, order ({order}), strides ({strides})"
        )
    if program.residents:
        yield ""
        yield f"residents: {len(program.residents)}"
    for resident in program.residents:
        box = _box(resident.starts, resident.lengths)
        strides = ",".join(map(str, resident.strides))
        yield (
            f"  {_place(program.places[resident.place])}+{_hex(resident.address)}: r{resident.region} {box}, "
            f"strides ({strides})"
        )


def _units(program: Program) -> Iterator[str]:
    yield ""
    yield f"units: {len(program.units)}"
    for number, unit in enumerate(program.units):
        yield f"  u{number} {_unit(unit)}"
    yield ""
    yield f"tables: {len(program.tables)}"
    for number, table in enumerate(program.tables):
        operands = " ".join("x".join(map(str, shape)) or "scalar" for shape in table.operand_shapes)
        shape = "x".join(map(str, table.shape)) or "scalar"
        yield f"  t{number} u{table.unit}: {operands or 'nothing'} -> {shape}, {len(table.entries)} entries"


def _address_tables(program: Program) -> Iterator[str]:
    """Address tables: the region of each, the positions of its block, the window's taps (ADDR-5)."""
    if not program.addresses:
        return
    yield ""
    yield f"address tables: {len(program.addresses)}"
    for number, addresses in enumerate(program.addresses):
        table = addresses.table
        positions, taps = ("x".join(map(str, counts)) for counts in (table.positions, table.taps))
        yield (
            f"  a{number} r{addresses.region}: positions {positions}, taps {taps}, {table.element_bytes} B each, "
            f"{table.size_bytes} B"
        )


def _unit(unit: Unit) -> str:
    identifier = _name(unit.identifier[:_IDENTIFIER_CHARACTERS]) or "unnamed"
    operands = ", ".join("-" if one is None else _operand(one) for one in unit.operands)
    attributes = "".join(f", {_name(key)} {printable(str(value), _NAME_CHARACTERS)}" for key, value in unit.attributes)
    extents = "x".join(map(str, unit.extents)) or "scalar"
    gathers = f", gathers operand {unit.gathers}" if unit.gathers >= 0 else ""
    sums = f", sums in {_name(unit.accumulator_dtype)}" if unit.accumulator_dtype else ""
    return (
        f"{identifier} {_name(unit.kind)}-{unit.opset}({operands}) -> {_operand(unit.output)} up to {extents}"
        f"{attributes}{gathers}{sums}"
    )


def _operand(operand: OperandType) -> str:
    stored = "" if operand.stored_dtype == operand.dtype else f" stored as {_name(operand.stored_dtype)}"
    weight = "weight " if operand.constant else ""
    return f"{weight}{_name(operand.dtype)}[{','.join(_name(axis) for axis in operand.axes)}]{stored}"


def _summary(program: Program, counts: Ints) -> Iterator[str]:
    """Commands by opcode, and bytes by route from level to level; `counts`: by statement how many commands it is."""
    commands = program.commands
    yield ""
    yield f"commands by opcode: {counts.sum()}"
    for opcode in Opcode:
        count = int(counts[commands["opcode"] == opcode].sum())
        if count:
            yield f"  {opcode.name.lower()}: {count}"
    yield ""
    yield "bytes by route"
    levels = sorted({place.level for place in program.places})
    level = np.array([levels.index(place.level) for place in program.places], dtype=np.int64)
    moves = np.flatnonzero((commands["call"] < 0) & (commands["source"] >= 0) & (commands["target"] >= 0))
    moved, times = commands[moves], counts[moves]
    route = level[moved["source"]] * len(levels) + level[moved["target"]]
    size = moved["run_bytes"] * moved["counts"].prod(axis=1) * times
    for number in np.unique(route).tolist():
        chosen = route == number
        read_bytes, copies = size[chosen], np.maximum(1, moved["targets"][chosen])
        name = f"{levels[number // len(levels)].value} -> {levels[number % len(levels)].value}"
        yield (
            f"  {name}: {int(times[chosen].sum())} transfers, {int(read_bytes.sum())} B read, "
            f"{int((read_bytes * copies).sum())} B written"
        )


def _chosen(program: Program, options: ListingOptions) -> list[int | None]:
    """The numbers of the statements to list; None stands for those left out between head and tail."""
    rows = np.arange(len(program.commands))
    if options.groups is not None:
        known = {step.group for step in program.steps}
        unknown = sorted(set(options.groups) - known)
        if unknown:
            raise RequestError(
                f"the program has no group {_name(unknown[0])}",
                code="unknown_group",
                stage="listing",
                actual=_name(unknown[0]),
                hint=f"Groups: {', '.join(_name(name) for name in sorted(known)[:20])}",
            )
        wanted = _steps_of(program, options.groups)
        rows = rows[np.isin(program.commands["step"], wanted)]
    found: list[int | None] = list(rows.tolist())
    head = max(0, options.head) if options.head is not None else None
    tail = max(0, options.tail) if options.tail is not None else None
    if (head is None and tail is None) or (head or 0) + (tail or 0) >= len(found):
        return found
    first = found[: head or 0]
    last = found[len(found) - (tail or 0) :]
    return [*first, None, *last]


def _steps_of(program: Program, groups: Collection[str]) -> list[int]:
    return [number for number, step in enumerate(program.steps) if step.group in groups]


def _spaces(loops: Loops) -> Iterator[str]:
    """The spaces of loops; none of a program without loops."""
    if not len(loops.runs):
        return
    yield ""
    yield f"spaces of loops: {len(loops.spaces)}"
    for number, space in enumerate(loops.spaces):
        count = int(space["counters"])
        extents, strides = space["extents"][:count].tolist(), space["strides"][:count].tolist()
        tiles = f"{'x'.join(map(str, extents))} tiles ({', '.join(COUNTER_NAMES[:count])})" if count else "once"
        yield f"  s{number} nest {space['nest']}: {tiles} in iteration {_sum(int(space['base']), strides)}"


def _statements(program: Program, rows: Sequence[int | None]) -> Iterator[str]:
    """A headline wherever nest or step changes, then a line per statement, its loops, and one per binding of a call."""
    loops = program.loops
    head: tuple[int, int] | None = None
    digits = len(str(max(0, len(program.commands) - 1)))
    places = [_place(place) for place in program.places]
    queues = [f"{_name(queue.engine)}{queue.number}" for queue in program.queues]
    nests = loops.spaces["nest"][loops.statements["space"]].tolist()
    for row in rows:
        if row is None:
            yield "  ..."
            head = None
            continue
        command = program.commands[row]
        if (nests[row], int(command["step"])) != head:
            head = nests[row], int(command["step"])
            yield from ("", f"{f'nest {nests[row]}, ' if nests[-1] else ''}{_headline(program, head[1])}")
        changes = _changes(loops, row)
        yield f"  {row:>{digits}} {queues[command['queue']]} {_what(program, command, places)}{_waits(program, row)}"
        if loops.run_offsets[row + 1] > loops.run_offsets[row]:
            yield f"  {'':>{digits}}   {_runs(loops, row)}{_moves(program, command, changes)}"
        if command["call"] >= 0:
            yield from _bindings(program, int(command["call"]), places, digits, changes)


def _runs(loops: Loops, row: int) -> str:
    """For which tiles a statement holds."""
    found = []
    runs = loops.runs[loops.run_offsets[row] : loops.run_offsets[row + 1]].tolist()
    for name, (first, step, count) in zip(COUNTER_NAMES, runs, strict=False):
        more = f", {first + step}" if step > 1 and count > 2 else ""
        last = f"{', ' if step > 1 and count == 2 else '..'}{first + step * (count - 1)}" if count > 1 else ""
        found.append(f"{name} = {first}{more}{last}")
    statement = loops.statements[row]
    stage = f", stage {statement['stage']}" if statement["stage"] else ""
    return f"for {'; '.join(found)} of s{statement['space']}{stage}"


def _changes(loops: Loops, row: int) -> dict[int, list[str]]:
    """By field how it changes: a step per counter, and an offset of its ring."""
    found: dict[int, list[str]] = {}
    for field, counter, step in loops.terms[loops.term_offsets[row] : loops.term_offsets[row + 1]].tolist():
        found.setdefault(field, []).append(f"{step:+} per {COUNTER_NAMES[counter]}")
    for ring in loops.rings[loops.ring_offsets[row] : loops.ring_offsets[row + 1]]:
        turn = _sum(int(ring["base"]), ring["coefficients"].tolist())
        turn = turn if turn.isalnum() else f"({turn})"
        found.setdefault(int(ring["field"]), []).append(f"{ring['size']:+} x ({turn} mod {ring['modulus']})")
    return found


def _sum(base: int, factors: Sequence[int]) -> str:
    """A sum over counters."""
    named = [(factor, name) for factor, name in zip(factors, COUNTER_NAMES, strict=False) if factor]
    parts = [name if factor == 1 else f"{factor} {name}" for factor, name in named]
    return " + ".join([str(base), *parts] if base or not parts else parts)


def _moves(program: Program, command: Any, changes: Mapping[int, list[str]]) -> str:
    """How the addresses of a transfer or the box of a call change from tile to tile."""
    fields = {SOURCE_ADDRESS: "source", TARGET_ADDRESS: "target"}
    if command["call"] >= 0:
        axes = len(program.tables[program.calls[command["call"]]["table"]].shape)
        fields = {ENTRY_START + axis: f"box axis {axis}" for axis in range(axes)} | {ENTRY_SUM: "sums"}
    return "".join(f"; {name} {', '.join(changes[field])}" for field, name in fields.items() if field in changes)


def _headline(program: Program, number: int) -> str:
    if not 0 <= number < len(program.steps):
        return "of no step"
    step = program.steps[number]
    nodes = ", ".join(_name(node) for node in step.nodes)
    return f"group {_name(step.group)}, {_name(step.tensor)} of {nodes or 'no node'}"


def _what(program: Program, command: Any, places: Sequence[str]) -> str:
    name = Opcode(int(command["opcode"])).name.lower()
    if command["call"] >= 0:
        return f"{name} {_call(program, int(command['call']))}"
    if command["source"] < 0 or command["target"] < 0:
        return name
    source = f"{places[command['source']]}+{_hex(int(command['source_address']))}"
    target = f"{places[command['target']]}+{_hex(int(command['target_address']))}"
    times = "".join(
        f" x{count} ({source_stride},{target_stride})"
        for count, source_stride, target_stride in zip(
            command["counts"].tolist(),
            command["source_strides"].tolist(),
            command["target_strides"].tolist(),
            strict=True,
        )
        if count != 1
    )
    several = f" and the {command['targets'] - 1} after it" if command["targets"] > 1 else ""
    size = _transfer_bytes(command)
    return f"{name} {source} -> {target}{several}, {size} B: {command['run_bytes']}{times}"


def _call(program: Program, number: int) -> str:
    call = program.calls[number]
    table = program.tables[call["table"]]
    entry = table.entries[call["entry"]]
    axes = len(table.shape)
    box = _box(entry["starts"][:axes].tolist(), entry["lengths"][:axes].tolist())
    sums = ""
    if entry["sum_stop"] > entry["sum_start"]:
        sums = f", sums {entry['sum_start']}:{entry['sum_stop']}"
    begins = "" if entry["begins"] else ", adds to what is there"
    ends = "" if entry["ends"] else ", goes on"
    kind = _name(program.units[table.unit].kind)
    return f"u{table.unit} {kind} t{call['table']}[{call['entry']}] {box}{sums}{begins}{ends}"


def _bindings(
    program: Program, number: int, places: Sequence[str], digits: int, changes: Mapping[int, list[str]]
) -> Iterator[str]:
    call = program.calls[number]
    table = program.tables[call["table"]]
    for at, binding in enumerate(program.bindings[call["first"] : call["first"] + call["count"]]):
        operand = int(binding["operand"])
        axes = _axes(program.units[table.unit], operand, binding)
        name = "output" if operand == OUTPUT else f"input {operand}"
        if operand <= ADDRESSES:
            name = f"address table a{ADDRESSES - operand}"
        place = places[binding["place"]] if binding["place"] >= 0 else "nowhere"
        box = _box(binding["starts"][:axes].tolist(), binding["lengths"][:axes].tolist())
        strides = ",".join(map(str, binding["strides"][:axes].tolist()))
        first = BINDING_ADDRESS + at * BINDING_FIELDS
        fields = {first: "address", **{first + 1 + axis: f"box axis {axis}" for axis in range(axes)}}
        moves = "".join(f"; {text} {', '.join(changes[key])}" for key, text in fields.items() if key in changes)
        yield f"  {'':>{digits}}   {name} at {place}+{_hex(int(binding['address']))} {box} strides ({strides}){moves}"


def _axes(unit: Unit, operand: int, binding: Any) -> int:
    """How many axes the bound operand has; where the unit does not say, those that are in use."""
    kinds: Sequence[OperandType | None] = unit.operands
    kind = unit.output if operand == OUTPUT else kinds[operand] if 0 <= operand < len(kinds) else None
    if kind is not None:
        return len(kind.axes)
    used = np.flatnonzero(binding["lengths"])
    return int(used[-1]) + 1 if len(used) else 0


def _waits(program: Program, row: int) -> str:
    its = slice(*program.wait_offsets[row : row + 2].tolist())
    pairs = zip(program.waits[its].tolist(), program.loops.distances[its].tolist(), strict=True)
    waits = [f"{number} - {distance}" if distance else str(number) for number, distance in pairs]
    return f"; after {', '.join(waits)}" if waits else ""


def _transfer_bytes(command: Any) -> int:
    times: list[int] = command["counts"].tolist()
    return int(command["run_bytes"]) * prod(times)


def _box(starts: Sequence[int], lengths: Sequence[int]) -> str:
    ranges = (f"{start}:{start + length}" for start, length in zip(starts, lengths, strict=True))
    return f"[{', '.join(ranges)}]"


def _place(place: Place) -> str:
    alone = place.level is Level.DRAM and place.number == 0
    return place.level.value if alone else f"{place.level.value}{place.number}"


def _name(text: str) -> str:
    return printable(text, _NAME_CHARACTERS)


def _hex(address: int) -> str:
    return f"{address:#x}"
