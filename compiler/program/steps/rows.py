"""Actions and statements as rows of a program: commands, calls, bindings (PROG-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import BINDING, CALL, COMMAND, Rows
from compiler.program.steps.action import Call, Copy, Numbers
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


def rows_of(kinds: Sequence[Copy | Call], kind_of: Ints, numbers: Sequence[Numbers], entry_of: EntryOf) -> CommandRows:
    """The rows of what has these numbers, and of these keys the one of that number."""
    present, local = np.unique(kind_of, return_inverse=True)
    keys = [kinds[number] for number in present.tolist()]
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
    for row, key in zip(rows, keys, strict=True):
        row["opcode"], row["queue"], row["step"] = key.opcode, key.queue, key.step
        row["source"] = row["target"] = -1
        if isinstance(key, Copy):
            row["source"], row["target"], row["targets"] = key.source, key.target, key.targets
            row["run_bytes"], row["counts"], row["source_strides"], row["target_strides"] = key.runs
            row["call"] = -1
    return rows


def _calls(keys: Sequence[Copy | Call]) -> tuple[Rows, Rows, list[Rows]]:
    """Calls and bindings of each key that is a call, and which field of which binding each of its numbers is."""
    calls = np.zeros(len(keys), dtype=CALL)
    bindings: list[tuple[object, ...]] = []
    places: list[Rows] = [np.zeros(0, dtype=np.int64)] * len(keys)
    for number, key in enumerate(keys):
        if isinstance(key, Call):
            calls[number] = key.table, 0, len(bindings), len(key.bound)
            for operand, place, lengths, strides in key.bound:
                rest = (0,) * (MAX_AXES - len(lengths))
                bindings.append((operand, place, 0, (0,) * MAX_AXES, (*lengths, *rest), (*strides, *rest)))
            fields = [
                b * (1 + MAX_AXES) + f for b, bound in enumerate(key.bound) for f in range(1 + len(bound.lengths))
            ]
            places[number] = np.array(fields, dtype=np.int64)
    return calls, np.array(bindings, dtype=BINDING), places
