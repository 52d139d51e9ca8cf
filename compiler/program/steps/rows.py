"""Actions and statements as rows of a program: commands, calls, bindings (PROG-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import Rows
from compiler.program.steps.action import Numbers
from compiler.program.steps.commands import Lists, spread
from compiler.program.steps.key_rows import KeyRows
from compiler.program.timing.ticks import Ints

# The number of an entry of a table: of a table, a box, and the rest of the entry.
EntryOf = Callable[[int, tuple[tuple[int, int], ...], Numbers], int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommandRows:
    """Rows of COMMAND, CALL and BINDING."""

    commands: Rows
    calls: Rows
    bindings: Rows


def joined(parts: Sequence[CommandRows], order: Ints | None = None) -> CommandRows:
    """The rows of commands that come one after another, or in another order, which has each of them once.

    Bindings take the most bytes: beside those of the parts they are made once.
    """
    commands, calls = (np.concatenate([getattr(part, name) for part in parts]) for name in ("commands", "calls"))
    calling = commands["call"] >= 0
    commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
    firsts = np.cumsum(calls["count"], dtype=np.int64) - calls["count"]
    if order is not None:
        commands, calling = commands[order], calling[order]
        calls, firsts = calls[commands["call"][calling]], firsts[commands["call"][calling]]
        commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
    calls["first"] = np.cumsum(calls["count"], dtype=np.int64) - calls["count"]
    owners, ranks = spread(calls["count"].astype(np.int64))
    places = np.empty(len(owners), dtype=np.int64)
    places[firsts[owners] + ranks] = np.arange(len(owners))
    bindings, begin = np.empty(len(places), dtype=parts[0].bindings.dtype), 0
    for part in parts:
        end = begin + len(part.bindings)
        bindings[places[begin:end]] = part.bindings
        begin = end
    return CommandRows(commands=commands, calls=calls, bindings=bindings)


def rows_of(keys: KeyRows, kind_of: Ints, numbers: Lists, entry_of: EntryOf) -> CommandRows:
    """The rows of what has these numbers, and is of these kinds: indices of `keys`."""
    commands = keys.commands[kind_of]
    calling = commands["call"] >= 0
    commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
    moves, firsts = ~calling, numbers.offsets[:-1]
    commands["source_address"][moves] = numbers.rows[firsts[moves]]
    commands["target_address"][moves] = numbers.rows[firsts[moves] + 1]
    of_calls = kind_of[calling]
    calls = keys.calls[of_calls]
    entries: list[int] = []
    values = numbers.rows.tolist()
    for table, kind, first in zip(calls["table"].tolist(), of_calls.tolist(), firsts[calling].tolist(), strict=True):
        its = keys.entries[kind]
        assert its is not None
        sides, (length, *rest) = its
        end = first + len(sides)
        box = tuple([(start, start + side) for start, side in zip(values[first:end], sides, strict=True)])
        begin = values[end]
        entries.append(entry_of(table, box, (begin, begin + length, *rest)))
    calls["entry"] = entries
    ends = np.cumsum(calls["count"], dtype=np.int64)
    first_rows = calls["first"].astype(np.int64)
    calls["first"] = ends - calls["count"]
    owners, ranks = spread(calls["count"].astype(np.int64))
    rows = keys.bindings[first_rows[owners] + ranks]
    fields = np.zeros((len(rows), 1 + MAX_AXES), dtype=np.int64)
    # all numbers of all bindings in a row, and which field each is
    which = keys.fields.ordered(of_calls)
    owners, ranks = spread(np.diff(which.offsets))
    bound = numbers.rows[(firsts[calling] + keys.own[of_calls])[owners] + ranks]
    fields[calls["first"][owners] + which.rows // (1 + MAX_AXES), which.rows % (1 + MAX_AXES)] = bound
    rows["address"], rows["starts"] = fields[:, 0], fields[:, 1:]
    return CommandRows(commands=commands, calls=calls, bindings=rows)
