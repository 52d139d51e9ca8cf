"""The pieces of memory that calls touch: each operand's box, put together from bindings (SHAPE-3, PROG-4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ops.base import OpClass
from compiler.program.calls import CallBook, TableGeometry, volume
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits, is_call, refuse_first
from compiler.program.program import ADDRESSES, Opcode, Program
from compiler.program.strided import FAR, Flags, Ints, Spans, spans


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """One row per command and binding whose box the command needs some of, in the order of commands.

    `bound`: the binding's number among those of its call. `starts`, `stops`: the part of the tensor that is touched, in
    as many axes as any tensor has; `addresses` of its first position; `strides` in bytes; `element_bytes` in memory. Of
    partial sums these are the sums', `scales` times the result's; `bases` are where the bindings begin. `hulls` are the
    bytes from first to last. `gathered`: of a table, rows that indices name. `in_place`: an operand that lies, position
    by position, where the result comes to lie.
    """

    commands: Ints
    bound: Ints
    slots: Ints
    tables: Ints
    entries: Ints
    places: Ints
    starts: Ints
    stops: Ints
    bases: Ints
    addresses: Ints
    strides: Ints
    element_bytes: Ints
    scales: Ints
    hulls: Spans
    gathered: Flags
    in_place: Flags


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tables:
    """The geometry of all tables a program calls, as one list of (table, slot, entry) rows."""

    base: Ints
    entry_counts: Ints
    slot_counts: Ints
    starts: Ints
    stops: Ints
    element_bytes: Ints
    first_slot: Ints
    shapes: Ints
    ranks: Ints
    given: Flags
    may_overwrite: Flags
    gathers: Ints
    scales: Ints
    first_entry: Ints
    partial: Flags


def _stack(found: dict[int, TableGeometry], count: int) -> _Tables:
    """The tables' rows one after another; tables that nothing calls have none."""
    base, first_slot, first_entry = (np.zeros(count, dtype=np.int64) for _ in range(3))
    entry_counts, slot_counts, gathers = (np.zeros(count, dtype=np.int64) for _ in range(3))
    scales = np.ones(count, dtype=np.int64)
    rows = slots = entries = 0
    for table, geometry in found.items():
        base[table], first_slot[table], first_entry[table] = rows, slots, entries
        slot_counts[table], entry_counts[table] = geometry.starts.shape[:2]
        gathers[table], scales[table] = geometry.unit.gathers, geometry.scale
        rows += geometry.starts.shape[0] * geometry.starts.shape[1]
        slots += geometry.starts.shape[0]
        entries += geometry.starts.shape[1]
    given = list(found.values())
    ranks = np.concatenate([g.ranks for g in given])
    # axes that no tensor has are left out
    width = max(1, int(ranks.max()))
    return _Tables(
        base=base,
        entry_counts=entry_counts,
        slot_counts=slot_counts,
        starts=np.concatenate([g.starts[:, :, :width].reshape(-1, width) for g in given]),
        stops=np.concatenate([g.stops[:, :, :width].reshape(-1, width) for g in given]),
        element_bytes=np.concatenate([g.element_bytes.reshape(-1) for g in given]),
        first_slot=first_slot,
        shapes=np.concatenate([g.shapes[:, :width] for g in given]),
        ranks=ranks,
        given=np.concatenate([g.given for g in given]),
        may_overwrite=np.concatenate([g.identity & g.kind.in_place for g in given]),
        gathers=gathers,
        scales=scales,
        first_entry=first_entry,
        partial=np.concatenate([g.partial for g in given]),
    )


def pieces_of(program: Program, book: CallBook, limits: ProgramLimits) -> Pieces | None:
    """What every call touches, after checking that bindings make sense and hold what the calls need; None: no calls.

    Raises ProgramError where a binding is no box of its tensor, is not aligned to its elements, or where an operand's
    box is not covered, or the result's not exactly once.
    """
    calling = np.flatnonzero(is_call(program.commands["opcode"]))
    if not len(calling):
        return None
    calls = program.calls[program.commands["call"][calling]]
    counts = calls["count"].astype(np.int64)
    if counts.sum() > limits.bindings:
        raise ProgramError("calls bind too much", violation="size", actual=int(counts.sum()), limit=limits.bindings)
    found = {table: book.geometry(table) for table in np.unique(calls["table"]).tolist()}
    _check_opcodes(program, calling, calls, found)
    tables = _stack(found, len(program.tables))
    owners = np.repeat(np.arange(len(calling)), counts)
    ends = np.cumsum(counts)
    numbers = calls["first"].astype(np.int64)[owners] + np.arange(len(owners)) - (ends - counts)[owners]
    bindings = program.bindings
    # address tables are looked at apart (`addressed.py`)
    operands = np.flatnonzero(bindings["operand"][numbers] > ADDRESSES)
    owners, numbers = owners[operands], numbers[operands]
    commands, table, entry = (
        calling[owners],
        calls["table"].astype(np.int64)[owners],
        calls["entry"].astype(np.int64)[owners],
    )
    slots, based = bindings["operand"][numbers].astype(np.int64) + 1, bindings["address"][numbers]
    bad = (slots < 0) | (slots >= tables.slot_counts[table])
    refuse_first(bad, commands, "binds an operand that the unit does not have", "binding", slots - 1)
    of_slot = tables.first_slot[table] + slots
    refuse_first(~tables.given[of_slot], commands, "binds an operand that the op omits", "binding", slots - 1)
    starts, lengths, strides = _boxes(commands, bindings, numbers, tables.ranks[of_slot], tables.shapes[of_slot])
    row = tables.base[table] + slots * tables.entry_counts[table] + entry
    sizes = tables.element_bytes[row].copy()
    partial = tables.partial[tables.first_entry[table] + entry]
    sums = partial & (slots == 0)
    scales = np.where(sums, tables.scales[table], 1)
    _check_alignment(commands, based, strides, sizes, scales)
    need_starts, need_stops = tables.starts[row], tables.stops[row]
    begin, end = np.maximum(starts, need_starts), np.minimum(starts + lengths, need_stops)
    is_touched = (end > begin).all(axis=1)
    widths = tables.slot_counts[calls["table"]].astype(np.int64)
    if widths.sum() > limits.bindings:
        raise ProgramError(
            "calls have too many operands", violation="size", actual=int(widths.sum()), limit=limits.bindings
        )
    _check_cover(calling, calls, tables, owners, slots, begin, end, is_touched)
    keep = np.flatnonzero(is_touched)
    commands, slots, begin, end, sizes = commands[keep], slots[keep], begin[keep], end[keep], (sizes * scales)[keep]
    steps = strides[keep] * scales[keep][:, None]
    addresses = based[keep] + _offset(commands, begin - starts[keep], steps)
    hulls = spans(addresses, end - begin, steps, sizes)
    refuse_first(hulls.is_far, commands, "an operand's strides are beyond reason", "overflow")
    is_gather = program.commands["opcode"][commands] == Opcode.GATHER
    places = bindings["place"][numbers[keep]].astype(np.int64)
    gathered = is_gather & (slots == tables.gathers[table[keep]] + 1)
    may_overwrite = tables.may_overwrite[of_slot[keep]] & ~partial[keep]
    in_place = _in_place(commands, slots, places, addresses, begin, end, steps, sizes, may_overwrite)
    return Pieces(
        commands=commands,
        bound=(numbers - calls["first"][owners])[keep],
        slots=slots,
        tables=table[keep],
        entries=entry[keep],
        places=places,
        starts=begin,
        stops=end,
        bases=based[keep],
        addresses=addresses,
        strides=steps,
        element_bytes=sizes,
        scales=scales[keep],
        hulls=hulls,
        gathered=gathered,
        in_place=in_place,
    )


def _check_opcodes(program: Program, calling: Ints, calls: np.ndarray, found: dict[int, TableGeometry]) -> None:
    """Cores call any unit; a transfer engine only those that read rows that indices name."""
    can = np.zeros(len(program.tables), dtype=np.bool_)
    for table, geometry in found.items():
        is_movement = geometry.kind.op_class is OpClass.MOVEMENT
        can[table] = geometry.unit.gathers >= 0 and is_movement and not geometry.partial.any()
    bad = (program.commands["opcode"][calling] == Opcode.GATHER) & ~can[calls["table"]]
    refuse_first(bad, calling, "a transfer engine calls a unit that gathers nothing", "opcode")


def _boxes(commands: Ints, bindings: np.ndarray, numbers: Ints, ranks: Ints, shapes: Ints) -> tuple[Ints, Ints, Ints]:
    """Boxes and strides of some bindings, as many axes as `shapes` has; those that the tensor lacks as [0, 1)."""
    width = shapes.shape[1]
    is_axis = ranks[:, None] > np.arange(width)
    # column by column: whole rows are several times what is used of them
    starts = np.where(is_axis, bindings["starts"][:, :width][numbers], 0)
    lengths = np.where(is_axis, bindings["lengths"][:, :width][numbers], 1)
    strides = np.where(is_axis & (lengths > 1), bindings["strides"][:, :width][numbers], 0)
    bad = (starts + lengths > shapes).any(axis=1)
    refuse_first(bad, commands, "a binding's box leaves its tensor", "binding", starts + lengths, shapes)
    far = ((strides < -FAR) | (strides > FAR)).any(axis=1)
    refuse_first(far, commands, "an operand's strides are beyond reason", "overflow", strides, FAR)
    return starts, lengths, strides


def _check_alignment(commands: Ints, addresses: Ints, strides: Ints, sizes: Ints, scales: Ints) -> None:
    bad = (strides % sizes[:, None] != 0).any(axis=1) | (addresses % (sizes * scales) != 0)
    refuse_first(bad, commands, "a binding is not aligned to its elements", "alignment", addresses, sizes)


def _offset(commands: Ints, positions: Ints, strides: Ints) -> Ints:
    """Bytes from a binding's first position to that of the part that is touched."""
    reach = (positions.astype(np.float64) * np.abs(strides.astype(np.float64))).sum(axis=1)
    refuse_first(~(reach < FAR), commands, "an operand's strides are beyond reason", "overflow")
    found: Ints = (positions * strides).sum(axis=1)
    return found


def _check_cover(
    calling: Ints,
    calls: np.ndarray,
    tables: _Tables,
    owners: Ints,
    slots: Ints,
    begin: Ints,
    end: Ints,
    is_touched: Flags,
) -> None:
    """What each call needs of each slot is held by its bindings; the result's box by exactly one piece everywhere."""
    table, entry = calls["table"].astype(np.int64), calls["entry"].astype(np.int64)
    # a place for each slot of each call, call after call: ops may have thousands of operands
    widths = tables.slot_counts[table].astype(np.int64)
    first = np.cumsum(widths) - widths
    count = int(widths.sum())
    group = first[owners] + slots
    sizes = np.where(is_touched, volume(begin, end), 0.0)
    held = np.bincount(group, weights=sizes, minlength=count)
    pieces = np.bincount(group[is_touched], minlength=count)
    call = np.repeat(np.arange(len(calling)), widths)
    slot = np.arange(count) - first[call]
    volumes = volume(tables.starts, tables.stops)
    needed = volumes[tables.base[table[call]] + slot * tables.entry_counts[table[call]] + entry[call]]
    # several pieces of an operand may overlap, and then hold less than their sum
    several = np.flatnonzero((pieces > 1) & (needed > 0))
    order = np.argsort(group, kind="stable")
    order = order[is_touched[order]]
    ordered = group[order]
    for number in np.intersect1d(several, _overlapping(ordered, begin[order], end[order])).tolist():
        rows = order[slice(*np.searchsorted(ordered, [number, number + 1]))]
        command, is_result = int(calling[call[number]]), bool(slot[number] == 0)
        _check_several(command, is_result, number, begin[rows].tolist(), end[rows].tolist(), held, needed)
    bad = held < needed
    refuse_first(bad, calling[call], "the bindings do not hold a box that the call needs", "cover", held, needed)


def _check_several(
    command: int,
    is_result: bool,
    group: int,
    begins: list[list[int]],
    ends: list[list[int]],
    held: np.ndarray,
    needed: np.ndarray,
) -> None:
    """Set what pieces of an operand hold together that overlap: their union. Those of a result must not overlap."""
    boxes = list(zip(begins, ends, strict=True))
    if is_result:
        raise ProgramError("pieces of the result overlap", violation="cover", command=command, actual=len(boxes))
    # the box cut at every piece's edges: a grid, in which each piece fills whole cells
    edges = [
        sorted({*lows, *highs}) for lows, highs in zip(zip(*begins, strict=True), zip(*ends, strict=True), strict=True)
    ]
    if np.prod([float(len(edge)) for edge in edges]) > 1 << 20:
        raise ProgramError(
            "an operand is put together from too many pieces",
            violation="cover",
            command=command,
            actual=len(boxes),
        )
    grid = np.zeros([len(edge) - 1 for edge in edges], dtype=np.bool_)
    for low, high in boxes:
        grid[tuple(slice(e.index(a), e.index(b)) for e, a, b in zip(edges, low, high, strict=True))] = True
    cells = np.ones(())
    for edge in edges:
        cells = np.multiply.outer(cells, np.diff(edge).astype(np.float64))
    held[group] = cells[grid].sum()
    held[group] = min(held[group], needed[group])


def _overlapping(groups: Ints, begins: Ints, ends: Ints) -> Ints:
    """The groups, which are in order, with boxes that share a position."""
    first, found = np.arange(len(groups)), [groups[:0]]
    for apart in range(1, len(groups)):
        # each box and the one that is so many further in its group
        first = first[first + apart < len(groups)]
        first = first[groups[first] == groups[first + apart]]
        if not len(first):
            break
        meets = (begins[first] < ends[first + apart]) & (begins[first + apart] < ends[first])
        found.append(groups[first[meets.all(axis=1)]])
    return np.unique(np.concatenate(found))


def _in_place(
    commands: Ints,
    slots: Ints,
    places: Ints,
    addresses: Ints,
    starts: Ints,
    stops: Ints,
    strides: Ints,
    sizes: Ints,
    may_overwrite: Flags,
) -> Flags:
    """Operands' pieces that are, byte for byte and position for position, pieces of their call's result."""
    result = np.zeros(len(commands), dtype=np.bool_)
    written = np.flatnonzero(slots == 0)
    left = np.flatnonzero(may_overwrite & (slots > 0))
    # rows are in the order of commands: each operand's piece meets the pieces of its call's result one after another
    at = np.searchsorted(commands[written], commands[left])
    end = np.searchsorted(commands[written], commands[left], side="right")
    while len(left):
        is_left = at < end
        left, at, end = left[is_left], at[is_left], end[is_left]
        other = written[at]
        same = (places[left] == places[other]) & (addresses[left] == addresses[other]) & (sizes[left] == sizes[other])
        for axes in (starts, stops, strides):
            same[same] = (axes[left[same]] == axes[other[same]]).all(axis=1)
        result[left[same]] = True
        left, at, end = left[~same], at[~same] + 1, end[~same]
    return result
