"""Actions and statements as rows of a program: commands, calls, bindings (PROG-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import BINDING, CALL, COMMAND, Rows
from compiler.program.steps.action import Call, Copy, Numbers
from compiler.program.steps.commands import Lists, spread
from compiler.program.timing.ticks import Ints

# The number of an entry of a table: of a table, a box, and the rest of the entry.
EntryOf = Callable[[int, tuple[tuple[int, int], ...], Numbers], int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommandRows:
    """Rows of COMMAND, CALL and BINDING."""

    commands: Rows
    calls: Rows
    bindings: Rows

    def ordered(self, order: Ints) -> CommandRows:
        """Those of the same commands in another order."""
        commands = self.commands[order]
        calling = commands["call"] >= 0
        calls = self.calls[commands["call"][calling]]
        commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
        firsts = calls["first"].astype(np.int64)
        calls["first"] = np.cumsum(calls["count"]) - calls["count"]
        bindings = self.bindings[np.repeat(firsts - calls["first"], calls["count"]) + np.arange(calls["count"].sum())]
        return CommandRows(commands=commands, calls=calls, bindings=bindings)


def joined(parts: Sequence[CommandRows]) -> CommandRows:
    """The rows of commands that come one after another."""
    commands, calls, bindings = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("commands", "calls", "bindings")
    )
    calling = commands["call"] >= 0
    commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
    calls["first"] = np.cumsum(calls["count"]) - calls["count"]
    return CommandRows(commands=commands, calls=calls, bindings=bindings)


def rows_of(keys: Sequence[Copy | Call], kind_of: Ints, numbers: Lists, entry_of: EntryOf) -> CommandRows:
    """The rows of what has these numbers, and is of these kinds: indices of `keys`."""
    present, local = np.unique(kind_of, return_inverse=True)
    its_keys = [keys[number] for number in present.tolist()]
    commands = _commands(its_keys)[local]
    calling = commands["call"] >= 0
    commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
    moves, firsts = ~calling, numbers.offsets[:-1]
    commands["source_address"][moves] = numbers.rows[firsts[moves]]
    commands["target_address"][moves] = numbers.rows[firsts[moves] + 1]
    entries: list[int] = []
    of_calls = local[calling]
    axes = np.array([0 if isinstance(key, Copy) else key.own for key in its_keys], dtype=np.int64)[of_calls]
    values = numbers.rows.tolist()
    for kind, first in zip(of_calls.tolist(), firsts[calling].tolist(), strict=True):
        key = its_keys[kind]
        assert isinstance(key, Call)
        box = tuple(
            [
                (start, start + length)
                for start, length in zip(values[first : first + len(key.lengths)], key.lengths, strict=True)
            ]
        )
        begin, (length, *rest) = values[first + len(key.lengths)], key.part
        entries.append(entry_of(key.table, box, (begin, begin + length, *rest)))
    calls, bindings, places = _calls(its_keys)
    calls = calls[of_calls]
    calls["entry"] = entries
    ends = np.cumsum(calls["count"], dtype=np.int64)
    first_rows = calls["first"].astype(np.int64)
    calls["first"] = ends - calls["count"]
    owners, ranks = spread(calls["count"].astype(np.int64))
    rows = bindings[first_rows[owners] + ranks]
    fields = np.zeros((len(rows), 1 + MAX_AXES), dtype=np.int64)
    # all numbers of all bindings in a row, and which field each is
    which = places.ordered(of_calls)
    owners, ranks = spread(np.diff(which.offsets))
    bound = numbers.rows[(firsts[calling] + axes)[owners] + ranks]
    fields[calls["first"][owners] + which.rows // (1 + MAX_AXES), which.rows % (1 + MAX_AXES)] = bound
    rows["address"], rows["starts"] = fields[:, 0], fields[:, 1:]
    return CommandRows(commands=commands, calls=calls, bindings=rows)


def _commands(keys: Sequence[Copy | Call]) -> Rows:
    """A row for each key, addresses left out; of calls `call` is 0."""
    rows = np.zeros(len(keys), dtype=COMMAND)
    for name in ("opcode", "queue", "step"):
        rows[name] = [getattr(key, name) for key in keys]
    rows["source"] = rows["target"] = -1
    copies = {number: key for number, key in enumerate(keys) if isinstance(key, Copy)}
    if copies:
        its = list(copies)
        for name in ("source", "target", "targets"):
            rows[name][its] = [getattr(key, name) for key in copies.values()]
        columns = zip(*(key.runs for key in copies.values()), strict=True)
        for name, column in zip(("run_bytes", "counts", "source_strides", "target_strides"), columns, strict=True):
            rows[name][its] = column
        rows["call"][its] = -1
    return rows


def _calls(keys: Sequence[Copy | Call]) -> tuple[Rows, Rows, Lists]:
    """Calls and bindings of each key that is a call, and which field of which binding each of its numbers is."""
    calls: list[tuple[int, ...]] = []
    bindings: list[tuple[object, ...]] = []
    places: list[list[int]] = []
    # there are few different ones
    known: dict[tuple[int, ...], list[int]] = {(): []}
    for key in keys:
        bound = () if isinstance(key, Copy) else key.bound
        calls.append((0 if isinstance(key, Copy) else key.table, 0, len(bindings), len(bound)))
        for operand, place, lengths, strides, _ in bound:
            rest = (0,) * (MAX_AXES - len(lengths))
            bindings.append((operand, place, 0, (0,) * MAX_AXES, (*lengths, *rest), (*strides, *rest)))
        ranks = tuple([len(its.lengths) for its in bound])
        if ranks not in known:
            known[ranks] = [b * (1 + MAX_AXES) + f for b, rank in enumerate(ranks) for f in range(1 + rank)]
        places.append(known[ranks])
    return np.array(calls, dtype=CALL), np.array(bindings, dtype=BINDING), Lists.of(places)
