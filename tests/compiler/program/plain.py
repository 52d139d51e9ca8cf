"""A second reader of sections `commands` and `tables`, written from docs/executable.md alone, one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MASK = (1 << 64) - 1


def _wrapped(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


class PlainReader:
    """Reads numbers, sequences, sparse columns and rows from the beginning of a section."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """One number."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def numbers(self, count: int) -> list[int]:
        """So many numbers."""
        return [self.number() for _ in range(count)]

    def signed(self) -> int:
        """One signed number."""
        value = self.number()
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def sequence(self) -> list[int]:
        """Literals and copies."""
        pieces = self.number()
        counts, lengths, distances = self.numbers(pieces), self.numbers(pieces), self.numbers(pieces)
        made: list[int] = []
        literals = iter(self.numbers(sum(counts)))
        for count, length, distance in zip(counts, lengths, distances, strict=True):
            made.extend(next(literals) for _ in range(count))
            for _ in range(length):
                made.append(made[-distance])
        return made

    def sparse(self, count: int) -> list[int]:
        """A column of which most is 0."""
        stored = self.number()
        column, at = [0] * count, -1
        gaps = self.numbers(stored)
        for gap in gaps:
            at += gap + 1
            column[at] = self.signed()
        return column

    def rows(self, width: int, keys: Sequence[Any], anew: Sequence[Any]) -> list[list[int]]:
        """Rows in their stored order; equal neighbouring keys are a group, a change of `anew` begins anew."""
        if not keys:
            return []
        starts = [n for n in range(len(keys)) if n == 0 or keys[n] != keys[n - 1]]
        ends = [*starts[1:], len(keys)]
        fresh = [n == 0 or anew[n] != anew[n - 1] for n in starts]
        lags = [self._summed(fresh) for _ in range(self.number())]
        columns = []
        for _ in range(width):
            first, column = self._summed(fresh), self.sparse(len(keys))
            for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
                for lag in (one[group] for one in reversed(lags)):
                    for k in range(lag + 1, end - start) if lag else ():
                        column[start + k] += column[start + k - lag]
                column[start] = first[group]
                for row in range(start + 1, end):
                    column[row] += column[row - 1]
            columns.append([_wrapped(value) for value in column])
        return [list(row) for row in zip(*columns, strict=True)]

    def _summed(self, fresh: list[bool]) -> list[int]:
        values = self.sparse(len(fresh))
        for group, begins in enumerate(fresh):
            if not begins:
                values[group] = _wrapped(values[group] + values[group - 1])
        return values

    def tables(self, count: int) -> list[list[list[int]]]:
        """The entries of so many tables."""
        sizes = self.numbers(count)
        owners = [table for table, size in enumerate(sizes) for _ in range(size)]
        rows = self.rows(20, owners, owners)
        assert self._at == len(self._data)
        return [[row for row, owner in zip(rows, owners, strict=True) if owner == table] for table in range(count)]

    def commands(self, queues: int) -> dict[str, list[Any]]:
        """Commands, calls, bindings, spaces and statements as rows of numbers; per command its waits and loops."""
        count, calls, bindings, _, spaces, _, _ = self.numbers(7)
        queue = self.sequence()
        by_queue = sorted(range(count), key=lambda n: queue[n])
        group = [0] * count
        for command, number in zip(by_queue, self.sequence(), strict=True):
            group[command] = number
        space_rows = self._spaces(spaces)
        of = [(queue[n], 0, group[n], n) for n in range(count)]
        commands = self._placed(27, of)
        number = 0
        waits, call_of, statements, terms, rings = [], [], [], [], []
        for command, row in enumerate(commands):
            has_call, call, waiting, space, stage, changes, ringed = row[20:]
            call_of.append(call + number if has_call else -1)
            number += has_call
            waits.append(waiting)
            statements.append([space, stage])
            terms.append(changes)
            rings.append(ringed)
            commands[command] = [row[0], queue[command], *row[1:20], call_of[-1]]
        makers = {call: n for n, call in reversed(list(enumerate(call_of))) if call >= 0}
        nobody = (queues, 0, -1)

        def of_command(command: int | None, slot: int) -> tuple[int, int, int]:
            return nobody if command is None else (queue[command], slot, group[command])

        call_rows = self._placed(4, [(*of_command(makers.get(n), 0), n) for n in range(calls)])
        begin = 0
        for row in call_rows:
            row[2:] = [row[3] + begin, row[2]]
            begin += row[3]
        keys: list[tuple[int, int, int, int]] = []
        for binding in range(bindings):
            before = [(row[2], n) for n, row in enumerate(call_rows) if row[2] <= binding]
            first, call = max(before, default=(0, -1))
            mine = call >= 0 and binding - first < call_rows[call][3]
            keys.append((*of_command(makers.get(call) if mine else None, binding - first), binding))
        found: dict[str, list[Any]] = {
            "commands": commands,
            "calls": call_rows,
            "bindings": self._placed(27, keys),
            "spaces": space_rows,
            "statements": statements,
            "waits": self._waits(queue, group, waits),
        }
        runs = [space_rows[space][1] for space, _ in statements]
        for name, width, sizes in (("runs", 3, runs), ("terms", 3, terms), ("rings", 12, rings)):
            found[name] = self._parts(width, queue, group, sizes)
        assert self._at == len(self._data)
        return found

    def _spaces(self, count: int) -> list[list[int]]:
        heads = self.rows(3, [0] * count, [0] * count)
        axes = sum(row[1] for row in heads)
        sides = iter(self.rows(2, [0] * axes, [0] * axes))
        found = []
        for nest, counters, base in heads:
            mine = [next(sides) for _ in range(counters)]
            extents = [mine[axis][0] if axis < counters else 1 for axis in range(8)]
            found.append([nest, counters, base, *extents, *(row[1] for row in mine), *[0] * (8 - counters)])
        return found

    def _waits(self, queue: list[int], group: list[int], waits: list[int]) -> list[list[tuple[int, int]]]:
        found = []
        for command, its in enumerate(self._parts(3, queue, group, waits)):
            pairs = []
            for of, back, distance in its:
                mine = [n for n, other in enumerate(queue) if other == of]
                pairs.append((mine[sum(n < command for n in mine) - 1 - back], distance))
            found.append(sorted(pairs))
        return found

    def _parts(self, width: int, queue: list[int], group: list[int], sizes: list[int]) -> list[list[list[int]]]:
        """Rows of which each command has so many, by command."""
        keys: list[tuple[int, int, int, int]] = []
        owners = []
        for command, size in enumerate(sizes):
            for slot in range(size):
                keys.append((queue[command], slot, group[command], len(keys)))
                owners.append(command)
        found: list[list[list[int]]] = [[] for _ in sizes]
        for owner, row in zip(owners, self._placed(width, keys), strict=True):
            found[owner].append(row)
        return found

    def _placed(self, width: int, keys: list[tuple[int, int, int, int]]) -> list[list[int]]:
        """Rows that are stored in the order of their keys (queue, slot, group, number), by number."""
        order = sorted(keys)
        stored = self.rows(width, [key[:3] for key in order], [key[0] for key in order])
        placed: list[list[int]] = [[] for _ in keys]
        for key, row in zip(order, stored, strict=True):
            placed[key[3]] = row
        return placed
