"""Actions and statements as rows of a program: commands, calls, bindings (PROG-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import BINDING, CALL, COMMAND, Rows
from compiler.program.steps.action import Call, Copy, Numbers
from compiler.program.steps.commands import Kinds
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


def rows_of(kinds: Kinds, kind_of: Ints, numbers: Sequence[Numbers], entry_of: EntryOf) -> CommandRows:
    """The rows of what has these numbers, and is of these kinds."""
    present, local = np.unique(kind_of, return_inverse=True)
    keys = [kinds.first[number][0] for number in present.tolist()]
    commands = _commands(keys)[local]
    calling = commands["call"] >= 0
    commands["call"] = np.where(calling, np.cumsum(calling) - 1, -1)
    moves = np.flatnonzero(~calling)
    if len(moves):
        found = np.array([numbers[i] for i in moves.tolist()], dtype=np.int64)
        commands["source_address"][moves], commands["target_address"][moves] = found.T
    entries: list[int] = []
    bound: list[int] = []
    of_calls = local[calling].tolist()
    for i, kind in zip(np.flatnonzero(calling).tolist(), of_calls, strict=True):
        key, its = keys[kind], numbers[i]
        assert isinstance(key, Call)
        box = tuple([(start, start + length) for start, length in zip(its, key.lengths, strict=False)])
        entries.append(entry_of(key.table, box, key.rest))
        bound += its[len(key.lengths) :]
    calls, bindings, places = _calls(keys)
    calls = calls[of_calls]
    calls["entry"] = entries
    ends = np.cumsum(calls["count"], dtype=np.int64)
    first = calls["first"].astype(np.int64)
    calls["first"] = ends - calls["count"]
    rows = bindings[np.arange(int(ends[-1]) if of_calls else 0) + np.repeat(first - calls["first"], calls["count"])]
    values = np.zeros((len(rows), 1 + MAX_AXES), dtype=np.int64)
    if of_calls:
        # all numbers of all bindings in a row, and which field each is
        which = np.concatenate([places[kind] for kind in of_calls])
        owners = np.repeat(calls["first"].astype(np.int64), [len(places[kind]) for kind in of_calls])
        values[owners + which // (1 + MAX_AXES), which % (1 + MAX_AXES)] = bound
    rows["address"], rows["starts"] = values[:, 0], values[:, 1:]
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


def _calls(keys: Sequence[Copy | Call]) -> tuple[Rows, Rows, list[Rows]]:
    """Calls and bindings of each key that is a call, and which field of which binding each of its numbers is."""
    calls: list[tuple[int, ...]] = []
    bindings: list[tuple[object, ...]] = []
    none = np.zeros(0, dtype=np.int64)
    places: list[Rows] = []
    # there are few different ones
    known: dict[tuple[int, ...], Rows] = {}
    for key in keys:
        if not isinstance(key, Call):
            calls.append((0, 0, 0, 0))
            places.append(none)
            continue
        calls.append((key.table, 0, len(bindings), len(key.bound)))
        for operand, place, lengths, strides, _ in key.bound:
            rest = (0,) * (MAX_AXES - len(lengths))
            bindings.append((operand, place, 0, (0,) * MAX_AXES, (*lengths, *rest), (*strides, *rest)))
        ranks = tuple([len(bound.lengths) for bound in key.bound])
        if ranks not in known:
            fields = [b * (1 + MAX_AXES) + f for b, rank in enumerate(ranks) for f in range(1 + rank)]
            known[ranks] = np.array(fields, dtype=np.int64)
        places.append(known[ranks])
    return np.array(calls, dtype=CALL), np.array(bindings, dtype=BINDING), places
