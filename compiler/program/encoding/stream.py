"""The command stream of a program as bytes: commands, calls, bindings and waits, queue by queue (PROG-3).

An engine's commands come in a few kinds that take turns; commands of one kind (same shape of transfer, same unit, same
operands) are a group, and differ in addresses, which follow the loops of the tiling. So there are stored: which queue
each command is for, which group of that queue it belongs to, and the rows of each group (see rows.py). Calls, bindings
and waits are rows too, grouped by the command they belong to.

What follows from the rest is stored as the difference from it: the number of a command's call, where a call's
bindings begin, and a wait as how many commands of its queue lie between.
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
from compiler.program.program import BINDING, CALL, COMMAND, ENTRY, Rows

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
# Columns that are stored in another form, or by which rows are ordered.
_COMMAND_APART: Final = ("queue", "call")
_CALL_APART: Final = ("first",)
# What commands of one group have in common besides their queue.
_COMMAND_KIND: Final = ("opcode", "step", "source", "target", "targets")
_BINDING_KIND: Final = ("operand", "place")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """The arrays of a program, as `Program` has them."""

    commands: Rows
    wait_offsets: Rows
    waits: Rows
    calls: Rows
    bindings: Rows


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
    """The stream as bytes; its indices are in range and waits ascend (see check.py)."""
    commands, calls, bindings = stream.commands, stream.calls, stream.bindings
    queue = commands["queue"].astype(np.int64)
    offsets = stream.wait_offsets.astype(np.int64)
    waits: Integers = offsets[1:] - offsets[:-1]
    kind = _kinds(stream, waits)
    turns, _ = encode_sequence(queue)
    by_queue = np.argsort(queue, kind="stable")
    local = _numbered(queue[by_queue], kind[by_queue], commands["opcode"][by_queue])
    whole = local + queue[by_queue] * (len(commands) + 1)
    ids, spent = encode_sequence(whole, literals=local)
    cost = np.bincount(queue[by_queue], weights=spent, minlength=queues + 1).astype(np.int64)
    number = np.empty(len(commands), dtype=np.int64)
    number[by_queue] = local
    parts = [encode_counts(len(commands), len(calls), len(bindings), len(stream.waits)), turns, ids]

    shape = _arrange_commands(queue, number)
    called = commands["call"].astype(np.int64)
    columns = [*_columns(commands, _COMMAND_APART), *_call_columns(called), waits]
    owner = _owner_of_rows(shape, len(commands))
    call_shape, call_command = _arrange_calls(called, len(calls), queue, owner, queues)
    count = calls["count"].astype(np.int64)
    first = calls["first"].astype(np.int64) - (np.cumsum(count) - count)
    call_columns = [*_columns(calls, _CALL_APART), first]
    binding_shape = _arrange_bindings(calls, len(bindings), call_command, queue, owner, queues)
    wait_shape, waiting = _arrange_waits(waits, queue, owner)
    tables: tuple[tuple[list[Integers], _Arrangement], ...] = (
        (columns, shape),
        (call_columns, call_shape),
        (_columns(bindings, ()), binding_shape),
        (_wait_columns(stream.waits.astype(np.int64), waiting, queue, queues), wait_shape),
    )
    for table, arrangement in tables:
        data, spent = encode_rows([_ordered(column, arrangement.order) for column in table], arrangement.groups)
        cost += arrangement.spread(spent, queues + 1)
        parts.append(data)
    return EncodedStream(data=b"".join(parts), by_queue=tuple(cost[:queues].tolist()))


def decode_stream(cursor: Cursor, queues: int) -> Stream:
    """The stream from its bytes; raises ExecutableError or LimitError. What rows name is checked in check.py."""
    count = cursor.count("commands", COMMAND.itemsize + 4)
    calls = np.zeros(cursor.count("calls", CALL.itemsize), dtype=CALL)
    bindings = np.zeros(cursor.count("bindings", BINDING.itemsize), dtype=BINDING)
    total_waits = cursor.count("waits", 4)
    queue = decode_sequence(cursor, count)
    if count and int(queue.max()) >= queues:
        cursor.fail("a command is for a queue that is not there", actual=int(queue.max()), limit=queues - 1)
    by_queue = np.argsort(queue, kind="stable")
    number = np.empty(count, dtype=np.int64)
    number[by_queue] = decode_sequence(cursor, count)

    shape = _arrange_commands(queue, number)
    commands = np.zeros(count, dtype=COMMAND)
    *columns, has_call, call, waits = _decode(cursor, shape, _width(COMMAND, _COMMAND_APART) + 3)
    _fill(cursor, commands, columns, _COMMAND_APART)
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
    if count and (int(waits.min()) < 0 or int(waits.max()) > total_waits or int(waits.sum()) != total_waits):
        cursor.fail("the commands' waits are not as many as the stream's", limit=total_waits)
    wait_shape, waiting = _arrange_waits(waits, queue, owner)
    offsets = np.zeros(count + 1, dtype=np.int32)
    offsets[1:] = np.cumsum(waits)
    return Stream(
        commands=commands,
        wait_offsets=offsets,
        waits=_waited(cursor, _decode(cursor, wait_shape, 2), waiting, queue, queues),
        calls=calls,
        bindings=bindings,
    )


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
    kind = kind * _MULTIPLIER + waits.view(np.uint64)
    kind[called >= 0] += of_call[called[called >= 0]] * _MULTIPLIER
    return kind


def _mixed(rows: Rows, names: Sequence[str]) -> Unsigned:
    mixed = np.full(len(rows), 1, dtype=np.uint64)
    for column in _columns(rows, tuple(name for name in rows.dtype.names or () if name not in names)):
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER + column.view(np.uint64)
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


def _arrange_waits(waits: Integers, queue: Integers, owner: Integers) -> tuple[_Arrangement, Integers]:
    """Waits by the command that waits; that command too."""
    waiting = np.repeat(np.arange(len(waits)), waits)
    slot = np.arange(len(waiting)) - np.repeat(np.cumsum(waits) - waits, waits)
    return _arrange(queue[waiting], slot, owner[waiting]), waiting


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


def _wait_columns(waits: Integers, waiting: Integers, queue: Integers, queues: int) -> list[Integers]:
    """The queue of what is waited for, and how many commands of that queue lie between; a command's by queue."""
    turns = _Turns(queue, queues)
    order = np.lexsort((waits, queue[waits], waiting))
    waits, waiting = waits[order], waiting[order]
    return [queue[waits], turns.before(queue[waits], waiting) - 1 - turns.place[waits]]


def _waited(cursor: Cursor, columns: Sequence[Integers], waiting: Integers, queue: Integers, queues: int) -> Rows:
    """The numbers of the commands waited for, ascending for each that waits."""
    of, back = columns
    if len(of) == 0:
        return np.zeros(0, dtype=np.int32)
    if int(of.min()) < 0 or int(of.max()) >= queues:
        cursor.fail("a wait is for a queue that is not there", actual=int(of.max()), limit=queues - 1)
    turns = _Turns(queue, queues)
    place = turns.before(of, waiting) - 1 - back
    if int(back.min()) < 0 or int(place.min()) < 0:
        cursor.fail("a wait is for no earlier command", actual=int(back.min()))
    waits = turns.order[turns.begins[of] + place]
    return waits[np.lexsort((waits, waiting))].astype(np.int32)
