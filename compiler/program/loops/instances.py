"""The commands that the statements of a program stand for, in program order, window by window (PROG-5).

A window is so many neighbouring commands of one nest. What lists, computes or draws all commands goes through windows
and so takes memory by statements and window, not by iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, is_call
from compiler.program.loops.form import owners_of, slots_of
from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    ENTRY_START,
    ENTRY_SUM,
    SOURCE_ADDRESS,
    TARGET_ADDRESS,
)
from compiler.program.program import CALL, ENTRY, Program, Rows
from compiler.program.strided import Ints

# A counter of one value leads nowhere, however many tiles a loop has.
_APART: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Neighbouring commands in program order: of each its statement, its iteration, and its places in the runs.

    `first` is how many commands of the program come before. `places`: (commands, counters). Iterations are counted in
    each nest.
    """

    first: int
    statements: Ints
    iterations: Ints
    places: Ints

    def __len__(self) -> int:
        return len(self.statements)


class Instances:
    """All commands of a program whose loops are well formed (see form.py).

    By statement, `counts`: how many commands it stands for; `nests`: its nest; `firsts`, `lasts`: its first and last
    iteration; `origins`: the iteration of the tile at which all counters are 0. By statement and counter `tile_counts`:
    how many places the run has, 1 where its space has fewer counters; `leaps`: how many iterations lie between two.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        loops = program.loops
        spaces, of = loops.spaces, loops.statements["space"]
        self.nests: Ints = spaces["nest"].astype(np.int64)[of]
        self._loops = (spaces["counters"] > 0)[of]
        self.origins: Ints = spaces["base"][of] - loops.statements["stage"]
        # as many counters as any space has: programs without loops have none
        width = int(spaces["counters"].max(initial=0))
        owners, slots = owners_of(loops.run_offsets), slots_of(loops.run_offsets)
        self._first: Ints = np.zeros((len(of), width), dtype=np.int64)
        self._step, self.tile_counts = np.ones_like(self._first), np.ones_like(self._first)
        for name, target in (("first", self._first), ("step", self._step), ("count", self.tile_counts)):
            target[owners, slots] = loops.runs[name]
        self._strides: Ints = spaces["strides"][:, :width][of]
        self.leaps: Ints = self._step * self._strides
        self._moduli: Ints = np.where(spaces["extents"][:, :width][of] > 1, self._strides, _APART)
        # how many tiles the inner counters have for each value of a counter
        inner = np.cumprod(self.tile_counts[:, ::-1], axis=1)[:, ::-1]
        self._weights: Ints = inner // self.tile_counts
        self.counts: Ints = inner[:, 0] if width else np.ones(len(of), dtype=np.int64)
        self.firsts: Ints = self.origins + (self._first * self._strides).sum(axis=1)
        self.lasts: Ints = self.firsts + ((self.tile_counts - 1) * self.leaps).sum(axis=1)
        tables = program.tables
        sizes = np.array([len(table.entries) for table in tables], dtype=np.int64)
        self._entries = np.concatenate([table.entries for table in tables]) if tables else np.zeros(0, dtype=ENTRY)
        self._first_entry: Ints = np.cumsum(sizes) - sizes

    @property
    def total(self) -> int:
        """How many commands there are."""
        return int(self.counts.sum())

    def windows(self, most: int) -> Iterator[Window]:
        """All commands in program order, at most so many at a time."""
        kept: list[Window] = []
        for window in self._parts_of_nests(most):
            # many nests are small: each by itself would cost what a whole window does
            if sum(map(len, kept)) + len(window) > most:
                yield _together(kept)
                kept = []
            kept.append(window)
        if kept:
            yield _together(kept)

    def _parts_of_nests(self, most: int) -> Iterator[Window]:
        first = 0
        for nest in np.unique(self.nests).tolist():
            begin, stop = np.searchsorted(self.nests, [nest, nest + 1]).tolist()
            for window in self._windows_of(slice(begin, stop), most, first):
                yield window
                first = window.first + len(window)

    def _windows_of(self, of: slice, most: int, first: int) -> Iterator[Window]:
        at, last = int(self.firsts[of].min()), int(self.lasts[of].max())
        before, total = np.zeros(of.stop - of.start, dtype=np.int64), int(self.counts[of].sum())
        step = min(last + 1 - at, max(1, (last + 1 - at) * most // total))
        while at <= last:
            past = self._ranks(of, at + step)
            while step > 1 and int((past - before).sum()) > most:
                step = max(1, step // 2)
                past = self._ranks(of, at + step)
            taken = past - before
            made = int(taken.sum())
            if made:
                window = self._window(of.start, before, taken, first)
                for begin in range(0, made, most):
                    yield _part(window, begin, min(made, begin + most))
            first, at, before = first + made, at + step, past
            if made * 2 <= most:
                step *= 2

    def _ranks(self, of: slice, iteration: int) -> Ints:
        """By statement of a nest how many of its commands lie before an iteration."""
        left = iteration - self.origins[of]
        found, is_at = np.zeros(len(left), dtype=np.int64), np.ones(len(left), dtype=np.bool_)
        for counter in range(self._strides.shape[1]):
            value, left = np.divmod(left, self._moduli[of, counter])
            place, rest = np.divmod(value - self._first[of, counter], self._step[of, counter])
            count = self.tile_counts[of, counter]
            less = np.clip(place + (rest > 0), 0, count)
            found += np.where(is_at, less * self._weights[of, counter], 0)
            is_at &= (rest == 0) & (place >= 0) & (place < count)
        return found + (is_at & (left > 0))

    def _window(self, start: int, before: Ints, taken: Ints, first: int) -> Window:
        """The commands after those of each statement that lie before, so many of each."""
        owners = np.repeat(np.arange(start, start + len(taken)), taken)
        numbers = np.arange(len(owners)) - np.repeat(np.cumsum(taken) - taken - before, taken)
        places = np.empty((len(owners), self._strides.shape[1]), dtype=np.int64)
        iterations = self.firsts[owners]
        for counter in range(places.shape[1]):
            places[:, counter], numbers = np.divmod(numbers, self._weights[owners, counter])
            iterations += places[:, counter] * self.leaps[owners, counter]
        order = np.argsort(iterations, kind="stable")
        return Window(first=first, statements=owners[order], iterations=iterations[order], places=places[order])

    def places(self, statements: Ints, iterations: Ints) -> Ints:
        """The places in their runs of commands of statements in iterations of their nests; (commands, counters)."""
        left = iterations - self.origins[statements]
        found = np.empty((len(left), self._strides.shape[1]), dtype=np.int64)
        for counter in range(found.shape[1]):
            value, left = np.divmod(left, self._moduli[statements, counter])
            found[:, counter] = (value - self._first[statements, counter]) // self._step[statements, counter]
        return found

    def counters(self, window: Window) -> Ints:
        """The counters of each command's tile; 0 where its space has fewer."""
        of = window.statements
        found: Ints = self._first[of] + self._step[of] * window.places
        return found

    def expanded(self, window: Window, limits: ProgramLimits = DEFAULT_LIMITS) -> Program:
        """The commands of a window as a program without waits; entries of its tables are those it calls, in order.

        Raises ProgramError where they bind or change more than the limit of bindings.
        """
        program, of = self.program, window.statements
        owners, fields, changes = self._changes(window, limits)
        commands = program.commands[of]
        for field, name in ((SOURCE_ADDRESS, "source_address"), (TARGET_ADDRESS, "target_address")):
            rows = np.flatnonzero(fields == field)
            np.add.at(commands[name], owners[rows], changes[rows])
        calls_unit = is_call(commands["opcode"]) & (commands["call"] >= 0)
        calling = np.flatnonzero(calls_unit)
        called = program.calls[commands["call"][calling]]
        number = np.cumsum(calls_unit) - 1
        calls = np.zeros(len(calling), dtype=CALL)
        sizes = called["count"].astype(np.int64)
        _refuse_many("calls bind too much", sizes, limits)
        calls["table"], calls["count"], calls["first"] = called["table"], sizes, np.cumsum(sizes) - sizes
        entries = self._entries[self._first_entry[called["table"]] + called["entry"]]
        rows = np.flatnonzero((fields >= ENTRY_START) & (fields < ENTRY_SUM))
        np.add.at(entries["starts"], (number[owners[rows]], fields[rows] - ENTRY_START), changes[rows])
        rows = np.flatnonzero(fields == ENTRY_SUM)
        for name in ("sum_start", "sum_stop"):
            np.add.at(entries[name], number[owners[rows]], changes[rows])
        bound = np.repeat(called["first"] - calls["first"], sizes) + np.arange(int(sizes.sum()))
        bindings = program.bindings[bound]
        rows = np.flatnonzero(fields >= BINDING_ADDRESS)
        operand, part = np.divmod(fields[rows] - BINDING_ADDRESS, BINDING_FIELDS)
        its = calls["first"][number[owners[rows]]] + operand
        is_address = part == 0
        np.add.at(bindings["address"], its[is_address], changes[rows[is_address]])
        starts = ~is_address
        np.add.at(bindings["starts"], (its[starts], part[starts] - 1), changes[rows[starts]])
        commands["call"] = np.where(calls_unit, number, -1)
        tables = []
        for table, rest in enumerate(program.tables):
            rows = np.flatnonzero(calls["table"] == table)
            calls["entry"][rows] = np.arange(len(rows))
            tables.append(replace(rest, entries=entries[rows]))
        changed = replace(program, calls=calls, bindings=bindings, tables=tuple(tables))
        return changed.once(commands, np.zeros(len(commands) + 1, dtype=np.int32), np.zeros(0, dtype=np.int32))

    def _changes(self, window: Window, limits: ProgramLimits) -> tuple[Ints, Ints, Ints]:
        """By what fields of commands differ from their statements' rows: command, field and difference."""
        loops, of = self.program.loops, window.statements
        for offsets in (loops.term_offsets, loops.ring_offsets):
            _refuse_many("commands change too many fields", np.diff(offsets)[of], limits)
        owners, rows = _parts(loops.term_offsets, of)
        terms = loops.terms[rows]
        by_term = window.places[owners, terms["counter"]] * terms["coefficient"]
        ringed, rows = _parts(loops.ring_offsets, of)
        rings = loops.rings[rows]
        width = window.places.shape[1]
        turns = rings["base"] + (self.counters(window)[ringed] * rings["coefficients"][:, :width]).sum(axis=1)
        by_ring = rings["size"] * (turns % rings["modulus"])
        fields = np.concatenate([terms["field"], rings["field"]]).astype(np.int64)
        return np.concatenate([owners, ringed]), fields, np.concatenate([by_term, by_ring])

    def at(self, error: ProgramError, window: Window) -> ProgramError:
        """An error about a command of a window, as one that names statement and tile."""
        if error.command is None:
            return error
        statement = int(window.statements[error.command])
        space = self.program.loops.spaces[self.program.loops.statements["space"][statement]]
        tile = self.counters(window)[error.command, : int(space["counters"])].tolist()
        return error.moved(statement, tuple(tile))


def _refuse_many(message: str, sizes: Ints, limits: ProgramLimits) -> None:
    total = int(sizes.sum(dtype=np.int64))
    if total > limits.bindings:
        raise ProgramError(message, violation="size", actual=total, limit=limits.bindings)


def _together(windows: Sequence[Window]) -> Window:
    """Windows that follow one another as one."""
    if len(windows) == 1:
        return windows[0]
    return Window(
        first=windows[0].first,
        statements=np.concatenate([window.statements for window in windows]),
        iterations=np.concatenate([window.iterations for window in windows]),
        places=np.concatenate([window.places for window in windows]),
    )


def _part(window: Window, begin: int, stop: int) -> Window:
    its = slice(begin, stop)
    return replace(
        window,
        first=window.first + begin,
        statements=window.statements[its],
        iterations=window.iterations[its],
        places=window.places[its],
    )


def _parts(offsets: Rows, of: Ints) -> tuple[Ints, Any]:
    """The rows that offsets give some statements, and the place in `of` of each row."""
    begins = offsets.astype(np.int64)
    sizes = np.diff(begins)[of]
    owners = np.repeat(np.arange(len(of)), sizes)
    rows = np.arange(len(owners)) + np.repeat(begins[of] - (np.cumsum(sizes) - sizes), sizes)
    return owners, rows
