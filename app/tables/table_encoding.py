"""The stored form of a table: a few dozen bytes per run, and a digest against damage and foreign data (SHAPE-7)."""

from __future__ import annotations

import hashlib
from math import inf, prod
from typing import Final, Literal

import msgspec
import numpy as np

from compiler.shapes.table import MAX_RUNS, RUN, ShapeTable
from compiler.shapes.tails import TailMode
from compiler.shapes.units import MAX_TILED_AXES, UnitSet

Kind = Literal["simple", "optimised"]

# The version of this form; another form has other keys.
FORM: Final = "T1"
_PREFIX: Final = FORM.encode()
_MARKS: Final[dict[Kind, bytes]] = {"simple": b"s", "optimised": b"o"}
_MODES: Final = frozenset(TailMode)
_DIGEST_BYTES: Final = 12
_HEAD_BYTES: Final = len(_PREFIX) + 1 + _DIGEST_BYTES


class StoredAxis(msgspec.Struct, frozen=True, array_like=True):
    """Pieces along one axis: start, length and count, and the tail mode of a unit that is longer than a piece."""

    start: int
    length: int
    count: int
    mode: int


class StoredRun(msgspec.Struct, frozen=True, array_like=True):
    """A run of equal calls: number of the unit, outer loops shared with the run before, axes from the outermost in."""

    unit: int
    shared: int
    order: tuple[int, ...]
    axes: tuple[StoredAxis, ...]


class StoredTable(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A table and its cost, and the costs of the simple and the optimised table as far as known.

    `clipped_cycles`: the cost of a bucket's table that was clipped to the shape; None for a table of the shape's own.
    `settled` is True once the table is final: it is the optimised table, or the search for it is too large.
    """

    kind: Kind
    settled: bool
    simple_cycles: float
    optimised_cycles: float | None
    shape: tuple[int, ...]
    runs: tuple[StoredRun, ...]
    clipped_cycles: float | None = None

    @property
    def cycles(self) -> float:
        """The cost of the table."""
        if self.clipped_cycles is not None:
            return self.clipped_cycles
        return self.simple_cycles if self.kind == "simple" or self.optimised_cycles is None else self.optimised_cycles

    @property
    def calls(self) -> int:
        """The number of calls in all runs."""
        return sum(prod(axis.count for axis in run.axes) for run in self.runs)


def stored_runs(table: ShapeTable) -> tuple[StoredRun, ...]:
    """The runs of a table without the data that its units already contain."""
    rank = len(table.shape)
    columns = zip(
        *(table.runs[name].tolist() for name in ("unit", "shared", "order", "start", "length", "count", "mode")),
        strict=True,
    )
    return tuple(
        StoredRun(
            unit=unit,
            shared=shared,
            order=tuple(order[:rank]),
            axes=tuple(
                StoredAxis(start=start[axis], length=length[axis], count=count[axis], mode=mode[axis])
                for axis in range(rank)
            ),
        )
        for unit, shared, order, start, length, count, mode in columns
    )


def one_call(cycles: float) -> StoredTable:
    """The table of a routine that has only one call, which cannot be improved."""
    return StoredTable(
        kind="optimised",
        settled=True,
        simple_cycles=cycles,
        optimised_cycles=cycles,
        shape=(),
        runs=(StoredRun(unit=0, shared=0, order=(), axes=()),),
    )


def prepared(table: ShapeTable | None, simple_cycles: float) -> StoredTable:
    """A table made beforehand, which is final."""
    if table is None:
        return one_call(simple_cycles)
    return StoredTable(
        kind=table.kind,
        settled=True,
        simple_cycles=simple_cycles,
        optimised_cycles=table.cost_cycles if table.kind == "optimised" else None,
        shape=table.shape,
        runs=stored_runs(table),
    )


def is_of(table: StoredTable, units: UnitSet, shape: tuple[int, ...]) -> bool:
    """Whether a table calls known units, for pieces inside a shape over the tiled axes.

    It does not prove that the pieces cover the shape, which would take longer than making a table.
    """
    costs = (table.simple_cycles, table.cycles)
    if table.shape != shape or len(table.runs) > MAX_RUNS or not all(0 <= cycles < inf for cycles in costs):
        return False
    axes = range(len(shape))
    for run in table.runs:
        if not (0 <= run.unit < len(units) and 0 <= run.shared < max(1, len(shape)) and len(run.axes) == len(shape)):
            return False
        if sorted(run.order) != list(axes):
            return False
        for one, extent in zip(run.axes, shape, strict=True):
            inside = one.start >= 0 and one.length >= 1 and one.count >= 1
            if not inside or one.start + one.length * one.count > extent or one.mode not in _MODES:
                return False
    return True


def restored(stored: StoredTable, units: UnitSet) -> ShapeTable:
    """The table that was stored, over the units of its routine."""
    rank = len(stored.shape)
    runs = np.zeros(len(stored.runs), dtype=RUN)
    for row, run in enumerate(stored.runs):
        low, high = units.lows[run.unit], units.extents[run.unit]
        by_axis = [(a.mode, a.start, a.length, a.length, a.count, low[n], high[n]) for n, a in enumerate(run.axes)]
        by_axis += [(int(TailMode.EXACT), 0, 1, 0, 1, 1, 1)] * (MAX_TILED_AXES - rank)
        order = (*run.order, *range(rank, MAX_TILED_AXES))
        runs[row] = (run.unit, run.shared, order, *zip(*by_axis, strict=True))
    return ShapeTable(
        signature=units.signature,
        dtype=units.dtype,
        shape=stored.shape,
        units=units.ids,
        runs=runs,
        cost_cycles=stored.cycles,
        kind=stored.kind,
    )


def encoded(key: str, table: StoredTable) -> bytes:
    """The value to store for a key."""
    body = msgspec.msgpack.encode(table)
    return _PREFIX + _MARKS[table.kind] + _digest(key, body) + body


def decoded(key: str, value: bytes | None) -> StoredTable | None:
    """The table in a value; None if it is damaged or belongs to another key."""
    if value is None or value[: len(_PREFIX)] != _PREFIX:
        return None
    body = value[_HEAD_BYTES:]
    if value[len(_PREFIX) + 1 : _HEAD_BYTES] != _digest(key, body):
        return None
    try:
        table = msgspec.msgpack.decode(body, type=StoredTable)
    except (msgspec.DecodeError, RecursionError):
        return None
    return table if value[len(_PREFIX) : len(_PREFIX) + 1] == _MARKS[table.kind] else None


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + body).digest()[:_DIGEST_BYTES]
