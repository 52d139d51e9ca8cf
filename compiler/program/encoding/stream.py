"""The command stream of a program as bytes: commands, how they loop, calls, bindings and waits, by queue (PROG-3).

An engine's commands come in a few kinds that take turns; commands of one kind (same shape of transfer, same unit, same
operands) are a group, and differ in addresses, which follow the loops of the tiling. So there are stored: which queue
each command is for, which group of that queue it belongs to, and the rows of each group (see rows.py). Calls, bindings
and waits are rows too, grouped by the command they belong to.

What follows from the rest is stored as the difference from it: the number of a command's call, where a call's
bindings begin, and a wait as how many commands of its queue lie between. How many runs a command has its space says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.encoding.cursor import Cursor, Integers, Unsigned, encode_counts
from compiler.program.encoding.repeats import decode_sequence, encode_sequence
from compiler.program.encoding.rows import Groups, decode_rows, encode_rows, groups_of
from compiler.program.loops.loops import MAX_COUNTERS, RING, RUN, SPACE, STATEMENT, TERM, Loops
from compiler.program.program import BINDING, CALL, COMMAND, ENTRY, Rows

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
# Columns that are stored in another form, or by which rows are ordered.
_COMMAND_APART: Final = ("queue", "call")
_CALL_APART: Final = ("first",)
# What commands of one group have in common besides their queue.
_COMMAND_KIND: Final = ("opcode", "step", "source", "target", "targets")
_BINDING_KIND: Final = ("operand", "place")
_CHANGE_KIND: Final = ("field", "counter")
# What a space has for each of its counters.
_SPACE_APART: Final = ("extents", "strides")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """The arrays of a program, as `Program` has them, and how its commands loop."""

    commands: Rows
    wait_offsets: Rows
    waits: Rows
    calls: Rows
    bindings: Rows
    loops: Loops


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedStream:
    """The stream's bytes, and how many of them each queue's commands take; the rest says whose turn it is."""

    data: bytes
    by_queue: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Arrangement:
    """The order in which rows are stored, their groups, and each group's queue."""

    order: Integers
    groups: Groups
    queues: Integers

    def spread(self, cost: Integers, count: int) -> Integers:
        """Bytes by queue of rows' bytes."""
        of_rows = np.repeat(self.queues, self.groups.sizes)
        return np.bincount(of_rows, weights=cost, minlength=count).astype(np.int64)


def encode_stream(stream: Stream, queues: int) -> EncodedStream:
    """The stream as bytes; its indices are in range and waits ascend (see check.py), its loops are well formed."""
    commands, calls, bindings, loops = stream.commands, stream.calls, stream.bindings, stream.loops
    queue = commands["queue"].astype(np.int64)
    waits, runs, terms, rings = (
        _sizes(offsets) for offsets in (stream.wait_offsets, loops.run_offsets, loops.term_offsets, loops.ring_offsets)
    )
    kind = _kinds(stream, waits)
    turns, _ = encode_sequence(queue)
    by_queue = np.argsort(queue, kind="stable")
    local = _numbered(queue[by_queue], kind[by_queue], commands["opcode"][by_queue])
    whole = local + queue[by_queue] * (len(commands) + 1)
    ids, spent = encode_sequence(whole, literals=local)
    cost = np.bincount(queue[by_queue], weights=spent, minlength=queues + 1).astype(np.int64)
    number = np.empty(len(commands), dtype=np.int64)
    number[by_queue] = local
    counts = (commands, calls, bindings, stream.waits, loops.spaces, loops.terms, loops.rings)
    parts = [encode_counts(*map(len, counts)), turns, ids, _encode_spaces(loops.spaces)]

    shape = _arrange_commands(queue, number)
    called = commands["call"].astype(np.int64)
    columns = [*_columns(commands, _COMMAND_APART), *_call_columns(called), waits]
    columns += [*_columns(loops.statements, ()), terms, rings]
    owner = _owner_of_rows(shape, len(commands))
    call_shape, call_command = _arrange_calls(called, len(calls), queue, owner, queues)
    count = calls["count"].astype(np.int64)
    first = calls["first"].astype(np.int64) - (np.cumsum(count) - count)
    call_columns = [*_columns(calls, _CALL_APART), first]
    binding_shape = _arrange_bindings(calls, len(bindings), call_command, queue, owner, queues)
    wait_shape, waiting = _arrange_parts(waits, queue, owner)
    tables: tuple[tuple[list[Integers], _Arrangement], ...] = (
        (columns, shape),
        (call_columns, call_shape),
        (_columns(bindings, ()), binding_shape),
        (_wait_columns(stream, waiting, queue, queues), wait_shape),
        *(
            (_columns(rows, ()), _arrange_parts(sizes, queue, owner)[0])
            for rows, sizes in ((loops.runs, runs), (loops.terms, terms), (loops.rings, rings))
        ),
    )
    for table, arrangement in tables:
        data, spent = encode_rows([_ordered(column, arrangement.order) for column in table], arrangement.groups)
        cost += arrangement.spread(spent, queues + 1)
        parts.append(data)
    return EncodedStream(data=b"".join(parts), by_queue=tuple(cost[:queues].tolist()))


def decode_stream(cursor: Cursor, queues: int) -> Stream:
    """The stream from its bytes; raises ExecutableError or LimitError. What rows name is checked in check.py."""
    # four offsets of 4 bytes: of waits, runs, terms and rings
    count = cursor.count("commands", COMMAND.itemsize + STATEMENT.itemsize + 16)
    calls = np.zeros(cursor.count("calls", CALL.itemsize), dtype=CALL)
    bindings = np.zeros(cursor.count("bindings", BINDING.itemsize), dtype=BINDING)
    total_waits = cursor.count("waits", 4 + 8)
    spaces = np.zeros(cursor.count("spaces", SPACE.itemsize), dtype=SPACE)
    total_terms = cursor.count("terms", TERM.itemsize)
    total_rings = cursor.count("rings", RING.itemsize)
    queue = decode_sequence(cursor, count)
    if count and int(queue.max()) >= queues:
        cursor.fail("a command is for a queue that is not there", actual=int(queue.max()), limit=queues - 1)
    by_queue = np.argsort(queue, kind="stable")
    number = np.empty(count, dtype=np.int64)
    number[by_queue] = decode_sequence(cursor, count)
    _decode_spaces(cursor, spaces)

    shape = _arrange_commands(queue, number)
    commands, statements = np.zeros(count, dtype=COMMAND), np.zeros(count, dtype=STATEMENT)
    width = _width(COMMAND, _COMMAND_APART)
    columns = _decode(cursor, shape, width + 3 + _width(STATEMENT, ()) + 2)
    has_call, call, waits, *its, terms, rings = columns[width:]
    _fill(cursor, commands, columns[:width], _COMMAND_APART)
    _fill(cursor, statements, its, ())
    commands["queue"] = queue
    called = _called(cursor, has_call, call, len(calls))
    commands["call"] = called
    owner = _owner_of_rows(shape, count)
    call_shape, call_command = _arrange_calls(called, len(calls), queue, owner, queues)
    *columns, first = _decode(cursor, call_shape, _width(CALL, _CALL_APART) + 1)
    _fill(cursor, calls, columns, _CALL_APART)
    binding_count = calls["count"].astype(np.int64)
    first = first + (np.cumsum(binding_count) - binding_count)
    outside = (first < 0) | (binding_count < 0) | (first > len(bindings)) | (binding_count > len(bindings) - first)
    if outside.any():
        cursor.fail("a call's bindings are not there", actual=int(first[outside][0]), limit=len(bindings))
    calls["first"] = first
    binding_shape = _arrange_bindings(calls, len(bindings), call_command, queue, owner, queues)
    _fill(cursor, bindings, _decode(cursor, binding_shape, _width(BINDING, ())), ())
    offsets = _offsets(cursor, "waits", waits, total_waits)
    wait_shape, waiting = _arrange_parts(waits, queue, owner)
    named, distances = _waited(cursor, _decode(cursor, wait_shape, 3), waiting, queue, queues)
    outside = (statements["space"] < 0) | (statements["space"] >= len(spaces))
    if outside.any():
        cursor.fail(
            "a command's space is not there", actual=int(statements["space"][outside][0]), limit=len(spaces) - 1
        )
    runs = spaces["counters"][statements["space"]].astype(np.int64)
    total_runs = int(runs.sum())
    cursor.budget.take(total_runs * RUN.itemsize, f"{cursor.section}: {total_runs} runs")
    parts = []
    for dtype, name, sizes, total in (
        (RUN, "runs", runs, total_runs),
        (TERM, "terms", terms, total_terms),
        (RING, "rings", rings, total_rings),
    ):
        rows = np.zeros(total, dtype=dtype)
        parts += [_offsets(cursor, name, sizes, total), rows]
        arrangement, _ = _arrange_parts(sizes, queue, owner)
        _fill(cursor, rows, _decode(cursor, arrangement, _width(dtype, ())), ())
    loops = Loops(
        spaces=spaces,
        statements=statements,
        run_offsets=parts[0],
        runs=parts[1],
        term_offsets=parts[2],
        terms=parts[3],
        ring_offsets=parts[4],
        rings=parts[5],
        distances=distances,
    )
    return Stream(commands=commands, wait_offsets=offsets, waits=named, calls=calls, bindings=bindings, loops=loops)


def encode_entries(tables: Sequence[Rows]) -> tuple[bytes, tuple[int, ...]]:
    """The entries of parameter tables as bytes, and how many of them each table takes (SHAPE-2)."""
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    groups = _groups_of_tables(sizes)
    entries = np.concatenate(tables) if tables else np.zeros(0, dtype=ENTRY)
    data, cost = encode_rows(_columns(entries, ()), groups)
    ends = np.cumsum(sizes)
    spent = np.append(0, np.cumsum(cost))
    by_table = spent[ends] - spent[ends - sizes]
    return encode_counts(*sizes.tolist()) + data, tuple(by_table.tolist())


def decode_entries(cursor: Cursor, count: int) -> list[Rows]:
    """The entries of so many parameter tables; raises ExecutableError or LimitError."""
    sizes = np.array([cursor.count("entries", ENTRY.itemsize) for _ in range(count)], dtype=np.int64)
    entries = np.zeros(int(sizes.sum()), dtype=ENTRY)
    _fill(cursor, entries, decode_rows(cursor, _width(ENTRY, ()), _groups_of_tables(sizes)), ())
    return np.split(entries, np.cumsum(sizes)[:-1]) if count else []


def _encode_spaces(spaces: Rows) -> bytes:
    """Nest, number of counters and base of each space; then extent and stride of each of its counters."""
    used = np.arange(MAX_COUNTERS) < spaces["counters"][:, None]
    heads, _ = encode_rows(_columns(spaces, _SPACE_APART), _one_group(len(spaces)))
    sides, _ = encode_rows([spaces[name][used] for name in _SPACE_APART], _one_group(int(used.sum())))
    return heads + sides


def _decode_spaces(cursor: Cursor, spaces: Rows) -> None:
    heads = decode_rows(cursor, _width(SPACE, _SPACE_APART), _one_group(len(spaces)))
    _fill(cursor, spaces, heads, _SPACE_APART)
    counters = spaces["counters"]
    if len(spaces) and (int(counters.min()) < 0 or int(counters.max()) > MAX_COUNTERS):
        cursor.fail("a space has too many counters", actual=int(counters.max()), limit=MAX_COUNTERS)
    used = np.arange(MAX_COUNTERS) < counters[:, None]
    sides = decode_rows(cursor, len(_SPACE_APART), _one_group(int(used.sum())))
    spaces["extents"] = 1
    for name, column in zip(_SPACE_APART, sides, strict=True):
        spaces[name][used] = column


def _one_group(count: int) -> Groups:
    return _groups_of_tables(np.array([count], dtype=np.int64))


def _sizes(offsets: Rows) -> Integers:
    """How many rows each command has in a list that offsets cut into parts."""
    wide = offsets.astype(np.int64)
    result: Integers = wide[1:] - wide[:-1]
    return result


def _offsets(cursor: Cursor, what: str, sizes: Integers, total: int) -> Rows:
    """What `_sizes` was given, if the commands' parts are as many as the list."""
    if int(sizes.min(initial=0)) < 0 or int(sizes.max(initial=0)) > total or int(sizes.sum()) != total:
        cursor.fail(f"the commands' {what} are not as many as the stream's", limit=total)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum(sizes)
    return offsets


def _groups_of_tables(sizes: Integers) -> Groups:
    filled = sizes[sizes > 0]
    return Groups(filled, np.ones(len(filled), dtype=np.bool_))


def _fields(rows: Rows, apart: Sequence[str]) -> list[tuple[str, NDArray[Any]]]:
    """The rows' fields, arrays number by number; `apart` are left out."""
    found: list[tuple[str, NDArray[Any]]] = []
    for name in rows.dtype.names or ():
        field: NDArray[Any] = rows[name]
        if name not in apart:
            found.extend((name, part) for part in ([field] if field.ndim == 1 else field.T))
    return found


def _columns(rows: Rows, apart: Sequence[str]) -> list[Integers]:
    return [field.astype(np.int64) for _, field in _fields(rows, apart)]


def _width(dtype: np.dtype[Any], apart: Sequence[str]) -> int:
    return len(_fields(np.zeros(0, dtype=dtype), apart))


def _fill(cursor: Cursor, rows: Rows, columns: Sequence[Integers], apart: Sequence[str]) -> None:
    """Put columns into the rows' fields."""
    for (name, field), column in zip(_fields(rows, apart), columns, strict=True):
        limits = np.iinfo(field.dtype)
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if low < limits.min or high > limits.max:
            cursor.fail(f"field {name} cannot hold its value", actual=low if low < limits.min else high)
        field[...] = column


def _decode(cursor: Cursor, arrangement: _Arrangement, count: int) -> list[Integers]:
    """Columns in the order of the program."""
    columns = decode_rows(cursor, count, arrangement.groups)
    result = []
    for column in columns:
        placed = np.empty(len(column), dtype=np.int64)
        placed[arrangement.order] = column
        result.append(placed)
    return result


def _ordered(column: Integers, order: Integers) -> Integers:
    """The column in another order; most columns are the same everywhere, and are left alone."""
    return column[order] if len(column) and (column != column[0]).any() else column


def _kinds(stream: Stream, waits: Integers) -> Unsigned:
    """A number per command that commands of one group share; it may deceive, groups are then worse, not wrong."""
    kind = _mixed(stream.commands, _COMMAND_KIND)
    bound = np.append(np.uint64(0), np.cumsum(_mixed(stream.bindings, _BINDING_KIND)))
    first, count = stream.calls["first"].astype(np.int64), stream.calls["count"].astype(np.int64)
    of_call = _mixed(stream.calls, ("table", "count")) * _MULTIPLIER + (bound[first + count] - bound[first])
    called = stream.commands["call"].astype(np.int64)
    parts = [waits.view(np.uint64), np.where(called >= 0, np.append(of_call, np.uint64(0))[called], np.uint64(0))]
    for rows, offsets in (
        (stream.loops.terms, stream.loops.term_offsets),
        (stream.loops.rings, stream.loops.ring_offsets),
    ):
        changed = np.append(np.uint64(0), np.cumsum(_mixed(rows, _CHANGE_KIND)))
        parts.append(changed[offsets[1:]] - changed[offsets[:-1]])
    for part in parts:
        kind = _with(kind, part)
    return kind


def _with(mixed: Unsigned, values: Unsigned) -> Unsigned:
    """Numbers that tell what they told, and further values."""
    result: Unsigned = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER + values
    return result


def _mixed(rows: Rows, names: Sequence[str]) -> Unsigned:
    mixed = np.full(len(rows), 1, dtype=np.uint64)
    for column in _columns(rows, tuple(name for name in rows.dtype.names or () if name not in names)):
        mixed = _with(mixed, column.view(np.uint64))
    return mixed


def _numbered(queue: Integers, kind: Unsigned, opcode: Integers) -> Integers:
    """The number of each command's kind among those of its queue; queues are together.

    Kinds are numbered by opcode, then by first appearance: a group's first row is foretold by the group before.
    """
    order = np.lexsort((kind, queue))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (kind[order][1:] != kind[order][:-1]) | (queue[order][1:] != queue[order][:-1])
    found = np.cumsum(new) - 1
    first = order[new]
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.lexsort((first, opcode[first], queue[first]))] = np.arange(len(first))
    whole = np.empty(len(order), dtype=np.int64)
    whole[order] = rank[found]
    # ranks run on from queue to queue: the kinds of the queues before are taken off
    kinds = np.bincount(queue[first], minlength=int(queue.max(initial=0)) + 1)
    result: Integers = whole - (np.cumsum(kinds) - kinds)[queue]
    return result


def _arrange(queue: Integers, slot: Integers, group: Integers) -> _Arrangement:
    """Rows by queue, then by their number under their command, then by its group, then as they stand."""
    order = np.lexsort((group, slot, queue))
    queue, slot, group = queue[order], slot[order], group[order]
    groups = groups_of([slot, group], queue)
    return _Arrangement(order, groups, queue[groups.starts])


def _arrange_commands(queue: Integers, number: Integers) -> _Arrangement:
    return _arrange(queue, np.zeros(len(queue), dtype=np.int64), number)


def _owner_of_rows(shape: _Arrangement, count: int) -> Integers:
    """The group of each command, in program order."""
    owner = np.empty(count, dtype=np.int64)
    owner[shape.order] = shape.groups.of_rows
    return owner


def _arrange_calls(
    called: Integers, count: int, queue: Integers, owner: Integers, queues: int
) -> tuple[_Arrangement, Integers]:
    """Calls by the first command that makes them; that command too, -1 for none. Calls of no command come last."""
    command = np.full(count, -1, dtype=np.int64)
    makers = np.flatnonzero(called >= 0)[::-1]
    command[called[makers]] = makers
    return _arrange(*_of_command(command, np.zeros(count, dtype=np.int64), queue, owner, queues)), command


def _arrange_bindings(
    calls: Rows, count: int, call_command: Integers, queue: Integers, owner: Integers, queues: int
) -> _Arrangement:
    """Bindings by the last call that begins at them or before, if they are its."""
    first = calls["first"].astype(np.int64)
    order = np.argsort(first, kind="stable")
    rows = np.arange(count)
    nearest = np.searchsorted(first[order], rows, side="right") - 1
    call = np.where(nearest >= 0, order[nearest], -1) if len(order) else np.full(count, -1, dtype=np.int64)
    slot = rows - np.where(call >= 0, first[call], 0) if len(order) else rows
    inside = call >= 0
    if len(order):
        inside &= slot < calls["count"].astype(np.int64)[call]
    command = np.full(count, -1, dtype=np.int64)
    command[inside] = call_command[call[inside]]
    return _arrange(*_of_command(command, np.where(inside, slot, 0), queue, owner, queues))


def _of_command(
    command: Integers, slot: Integers, queue: Integers, owner: Integers, queues: int
) -> tuple[Integers, Integers, Integers]:
    """Queue, slot and group of rows that belong to commands; what belongs to none has a queue of its own."""
    owned = command >= 0
    its_queue = np.full(len(command), queues, dtype=np.int64)
    its_group = np.full(len(command), -1, dtype=np.int64)
    its_queue[owned] = queue[command[owned]]
    its_group[owned] = owner[command[owned]]
    return its_queue, np.where(owned, slot, 0), its_group


def _arrange_parts(sizes: Integers, queue: Integers, owner: Integers) -> tuple[_Arrangement, Integers]:
    """Arrangement of rows that belong to commands, such as waits, and the command of each row."""
    command = np.repeat(np.arange(len(sizes)), sizes)
    slot = np.arange(len(command)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return _arrange(queue[command], slot, owner[command]), command


def _call_columns(called: Integers) -> tuple[Integers, Integers]:
    """Whether a command calls, and its call's number less that of calling commands before it."""
    calls = (called >= 0).astype(np.int64)
    return calls, np.where(called >= 0, called - (np.cumsum(calls) - calls), 0)


def _called(cursor: Cursor, calls: Integers, number: Integers, count: int) -> Integers:
    if len(calls) and (int(calls.min()) < 0 or int(calls.max()) > 1):
        cursor.fail("a command calls neither once nor not at all", actual=int(calls.max()), limit=1)
    called = np.where(calls == 1, number + (np.cumsum(calls) - calls), -1)
    wrong = (calls == 1) & ((called < 0) | (called >= count))
    if wrong.any():
        cursor.fail("a command makes a call that is not there", actual=int(called[wrong][0]), limit=count - 1)
    return called


class _Turns:
    """Each command's place among those of its queue."""

    __slots__ = ("_keys", "_span", "begins", "order", "place")

    def __init__(self, queue: Integers, queues: int) -> None:
        self._span = len(queue) + 1
        self.order = np.argsort(queue, kind="stable")
        self._keys = queue[self.order] * self._span + self.order
        self.begins = np.searchsorted(queue[self.order], np.arange(queues))
        self.place = np.empty(len(queue), dtype=np.int64)
        self.place[self.order] = np.arange(len(queue)) - self.begins[queue[self.order]]

    def before(self, queue: Integers, command: Integers) -> Integers:
        """How many commands of a queue come before a command."""
        result: Integers = np.searchsorted(self._keys, queue * self._span + command) - self.begins[queue]
        return result


def _wait_columns(stream: Stream, waiting: Integers, queue: Integers, queues: int) -> list[Integers]:
    """The queue of what is waited for, how many commands of that queue lie between, the distance; by queue."""
    waits, distances = stream.waits.astype(np.int64), stream.loops.distances.astype(np.int64)
    turns = _Turns(queue, queues)
    order = np.lexsort((waits, queue[waits], waiting))
    waits, waiting = waits[order], waiting[order]
    return [queue[waits], turns.before(queue[waits], waiting) - 1 - turns.place[waits], distances[order]]


def _waited(
    cursor: Cursor, columns: Sequence[Integers], waiting: Integers, queue: Integers, queues: int
) -> tuple[Rows, Rows]:
    """The numbers of the commands waited for, ascending for each that waits, and the distances."""
    of, back, distances = columns
    if len(of) == 0:
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    if int(of.min()) < 0 or int(of.max()) >= queues:
        cursor.fail("a wait is for a queue that is not there", actual=int(of.max()), limit=queues - 1)
    turns = _Turns(queue, queues)
    place = turns.before(of, waiting) - 1 - back
    outside = (np.abs(back) > len(queue)) | (place < 0) | (place >= np.bincount(queue, minlength=queues)[of])
    if outside.any():
        cursor.fail("a wait is for a command that is not there", actual=int(back[outside][0]))
    waits = turns.order[turns.begins[of] + place]
    order = np.lexsort((waits, waiting))
    return waits[order].astype(np.int32), distances[order]
