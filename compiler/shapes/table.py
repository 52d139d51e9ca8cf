"""The parameter table of one data shape: runs of equal calls in call order, and the proof that they cover it (SHAPE-2).

A *run* is a grid of equal calls: per axis a first start, a length inside the tensor, a stride and a count. `order` says
which axis is its outermost loop. A run whose `shared` is k turns its k outermost loops together with the run before it:
a strip of calls of two units is two runs that share the loop over strips. So a table has as many runs as there are
kinds of pieces, whatever the shape.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError, TesseraError
from compiler.shapes.tails import TailMode
from compiler.shapes.units import MAX_TILED_AXES

# Per axis: mode, and the lengths that the unit accepts there; high is the unit's own extent.
RUN: Final = np.dtype(
    [
        ("unit", "<i4"),
        ("shared", "u1"),
        ("order", "u1", (MAX_TILED_AXES,)),
        ("mode", "i1", (MAX_TILED_AXES,)),
        ("start", "<i8", (MAX_TILED_AXES,)),
        ("length", "<i8", (MAX_TILED_AXES,)),
        ("stride", "<i8", (MAX_TILED_AXES,)),
        ("count", "<i8", (MAX_TILED_AXES,)),
        ("low", "<i8", (MAX_TILED_AXES,)),
        ("high", "<i8", (MAX_TILED_AXES,)),
    ]
)
# More than any cover of ours has; a table from elsewhere is refused.
MAX_RUNS: Final = 4096
# Interval by set of runs that the proof of a cover looks at, at most.
_MAX_STEPS: Final = 200_000
# The longest axis whose positions, and sums of them, are proven with 64 bits.
MAX_EXTENT: Final = 2**31
# Calls of one expanded table.
MAX_CALLS: Final = 50_000_000

Runs: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
Kind: TypeAlias = Literal["simple", "optimised"]


class TableError(TesseraError):
    """A parameter table that does not cover its shape, or asks of a unit what it does not accept."""

    default_code: ClassVar[str] = "invalid_table"
    default_hint = "Make the table again: it is damaged, or of another version"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShapeTable:
    """The calls that cover one data shape, over the tiled axes of a signature's result.

    `units` are the ids that runs number; `cost_cycles` is modelled; `kind` says which algorithm made the table.
    """

    signature: str
    dtype: str
    shape: tuple[int, ...]
    units: tuple[str, ...]
    runs: Runs
    cost_cycles: float
    kind: Kind

    @property
    def calls(self) -> int:
        """How many calls the runs stand for."""
        return sum(prod(counts) for counts in self.runs["count"].tolist())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """All calls in call order: unit; per axis start, length inside the tensor, mode; and which loop moved on.

    `runs`: the run each comes from. `orders[n]`: axes from the outermost loop; `fresh[n]`: the outermost loop whose
    piece is new with this call. An operand is moved if its deepest axis stands in the order at `fresh` or after it.
    """

    runs: Ints
    units: Ints
    starts: Ints
    lengths: Ints
    modes: NDArray[np.int8]
    orders: NDArray[np.uint8]
    fresh: Ints


def call_order(table: ShapeTable) -> tuple[Ints, Ints]:
    """All calls in call order: the run that each comes from, and the outermost loop that moves on with it.

    Raises LimitError for more than `MAX_CALLS`, TableError where runs share loops that are not the same.
    """
    if table.calls > MAX_CALLS:
        raise LimitError(
            "too many calls to list", stage="shapes", op_type=table.signature, actual=table.calls, limit=MAX_CALLS
        )
    found = np.array(_CallOrder.of(table).codes(0, len(table.runs), 0), dtype=np.int64)
    runs = found // len(table.shape)
    return runs, found - runs * len(table.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _CallOrder:
    """Calls as numbers: run times rank, plus loop. Arrays are repeated and joined, not their elements one by one."""

    table: ShapeTable
    shared: Sequence[int]
    turns: Sequence[Sequence[int]]

    @classmethod
    def of(cls, table: ShapeTable) -> _CallOrder:
        runs, rank = table.runs, len(table.shape)
        orders, counts = runs["order"].tolist(), runs["count"].tolist()
        turns = [[count[axis] for axis in order[:rank]] for order, count in zip(orders, counts, strict=True)]
        return cls(table=table, shared=runs["shared"].tolist(), turns=turns)

    def codes(self, begin: int, end: int, loop: int) -> array[int]:
        """The calls of the runs from `begin` to `end` in one turn of the loops outside `loop`, which they share."""
        rank = len(self.table.shape)
        found = array("q")
        while begin < end:
            count, after = self.turns[begin][loop], begin + 1
            while after < end and self.shared[after] > loop:
                if self.turns[after][loop] != count:
                    raise _wrong(self.table, "a run shares loops that are not the same", count, "equal loops", after)
                after += 1
            inner = self.codes(begin, after, loop + 1) if loop + 1 < rank else array("q", (0,))
            inner[0] = begin * rank + loop
            found += inner * count
            begin = after
        return found


def expand(table: ShapeTable) -> Entries:
    """The calls one by one; raises as `call_order`."""
    runs, rank = table.runs, len(table.shape)
    owner, fresh = call_order(table)
    counts = np.bincount(owner, minlength=len(runs))
    # the calls of one run are turns of its own loops, one after another, whatever stands between them
    place = np.empty_like(owner)
    place[np.argsort(owner, kind="stable")] = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = runs["order"][:, :rank].astype(np.int64)
    by_loop = np.take_along_axis(runs["count"][:, :rank], order, axis=1)
    along = np.empty((len(owner), rank), dtype=np.int64)
    calls = np.arange(len(owner))
    for loop in reversed(range(rank)):
        place, turn = np.divmod(place, by_loop[owner, loop])
        along[calls, order[owner, loop]] = turn
    return Entries(
        runs=owner,
        units=runs["unit"][owner].astype(np.int64),
        starts=runs["start"][owner, :rank] + along * runs["stride"][owner, :rank],
        lengths=runs["length"][owner, :rank],
        modes=runs["mode"][owner, :rank],
        orders=runs["order"][owner, :rank],
        fresh=fresh,
    )


def check_cover(table: ShapeTable) -> None:
    """Prove that every element is covered exactly once (SHAPE-2).

    Also that all lies inside the tensor and that units accept their lengths. Works on runs, not on calls or elements.
    Raises TableError that says which run and what is wrong, LimitError where the proof would take too long.
    """
    runs, rank = table.runs, len(table.shape)
    if not 1 <= rank <= MAX_TILED_AXES or runs.dtype != RUN:
        raise _wrong(table, "the table's form is none", f"{rank} axes", f"1 to {MAX_TILED_AXES}")
    if not all(0 <= length <= MAX_EXTENT for length in table.shape):
        raise _wrong(table, "the shape is none", table.shape, f"lengths of 0 to {MAX_EXTENT}")
    if len(runs) > MAX_RUNS:
        raise LimitError("too many runs", stage="shapes", op_type=table.signature, actual=len(runs), limit=MAX_RUNS)
    _check_loops(table)
    _check_lengths(table)
    starts = runs["start"][:, :rank]
    stops = starts + runs["stride"][:, :rank] * (runs["count"][:, :rank] - 1) + runs["length"][:, :rank]
    outside = ((starts < 0) | (stops > np.array(table.shape))).any(axis=1)
    if outside.any():
        run = int(outside.argmax())
        raise _wrong(table, "calls leave the tensor", stops[run].tolist(), table.shape, run)
    if 0 not in table.shape:
        _Cover(table, starts, stops).check()


def _check_loops(table: ShapeTable) -> None:
    """Orders are permutations, shared loops are the same ones, and calls along an axis abut."""
    runs, rank = table.runs, len(table.shape)
    order = runs["order"][:, :rank].astype(np.int64)
    _refuse(table, (np.sort(order, axis=1) != np.arange(rank)).any(axis=1), "the call order is none", "a permutation")
    positive = (runs["count"] < 1) | (runs["length"] < 1)
    _refuse(table, positive.any(axis=1), "a run has no calls or empty ones", "counts and lengths of at least 1")
    rest = (runs["count"][:, rank:] != 1) | (runs["start"][:, rank:] != 0) | (runs["length"][:, rank:] != 1)
    _refuse(table, rest.any(axis=1), "a run has an axis that the tensor has not", f"{rank} axes")
    gaps = (runs["count"] > 1) & (runs["stride"] != runs["length"])
    _refuse(table, gaps.any(axis=1), "the calls of a run do not abut", "a stride of the length")
    # counts are bounded by the tensor, so that sums of starts and lengths cannot overflow
    shape = np.array(table.shape)
    far = (runs["count"][:, :rank] > shape) | (runs["length"][:, :rank] > shape) | (runs["start"][:, :rank] > shape)
    _refuse(table, far.any(axis=1), "calls leave the tensor", str(table.shape))
    shared = runs["shared"].astype(np.int64)
    wrong = shared >= rank
    if len(runs):
        wrong[0] |= shared[0] != 0
    for loop in range(rank):
        for name in ("start", "length", "stride", "count"):
            values = np.take_along_axis(runs[name][:, :rank], order, axis=1)[:, loop]
            wrong[1:] |= (shared[1:] > loop) & ((values[1:] != values[:-1]) | (order[1:, loop] != order[:-1, loop]))
    _refuse(table, wrong, "a run shares loops that are not the same", "equal loops")


def _check_lengths(table: ShapeTable) -> None:
    """Units are numbered in the table, and each accepts what its mode gives it."""
    runs, rank = table.runs, len(table.shape)
    _refuse(table, (runs["unit"] < 0) | (runs["unit"] >= len(table.units)), "no such unit", str(len(table.units)))
    mode, length = runs["mode"][:, :rank], runs["length"][:, :rank]
    low, high = runs["low"][:, :rank], runs["high"][:, :rank]
    fixed = mode == TailMode.EXACT
    ranged = (mode == TailMode.FULL_RANGE) | (mode == TailMode.TAIL_RANGE)
    discards = mode == TailMode.DISCARD
    wrong = ~(fixed | ranged | discards) | (low < 0) | (low > high)
    wrong |= (fixed & (length != high)) | (ranged & ((length < low) | (length > high))) | (discards & (length > high))
    wrong |= (mode == TailMode.FULL_RANGE) & (low != 0)
    _refuse(table, wrong.any(axis=1), "a unit does not accept its length", "the range of its mode")
    several = (mode != TailMode.EXACT) & (runs["count"][:, :rank] > 1)
    _refuse(table, several.any(axis=1), "there are several tails along an axis", "one")


class _Cover:
    """Boxes of runs against the tensor, axis by axis between breakpoints; equal sets of boxes are looked at once."""

    def __init__(self, table: ShapeTable, starts: Ints, stops: Ints) -> None:
        self._table = table
        self._starts = starts
        self._stops = stops
        self._seen: set[tuple[int, bytes]] = set()

    def check(self) -> None:
        """Raise TableError where an element is missed, or covered again."""
        self._check(0, np.arange(len(self._starts)))

    def _check(self, axis: int, active: Ints) -> None:
        if axis == len(self._table.shape):
            if not len(active):
                raise _wrong(self._table, "part of the tensor is not covered", 0, "one call")
            if len(active) > 1:
                again = int(active[1])
                raise _wrong(self._table, "part of the tensor is covered again", len(active), "one call", again)
            return
        starts, stops = self._starts[active, axis], self._stops[active, axis]
        breaks = np.unique(np.concatenate([starts, stops, [0, self._table.shape[axis]]]))
        for begin, end in zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True):
            inside = active[(starts <= begin) & (stops >= end)]
            key = (axis, inside.tobytes())
            if key in self._seen:
                continue
            self._seen.add(key)
            if len(self._seen) > _MAX_STEPS:
                raise LimitError(
                    "the cover of a table takes too long to prove",
                    stage="shapes",
                    op_type=self._table.signature,
                    actual=len(self._seen),
                    limit=_MAX_STEPS,
                )
            self._check(axis + 1, inside)


def table_text(table: ShapeTable) -> str:
    """One line per run, in call order, for listings."""
    rank = len(table.shape)
    shape = "x".join(map(str, table.shape))
    lines = [
        f"table {table.signature} {table.dtype} {shape} {table.kind}: {table.calls} calls, {table.cost_cycles:.6g}"
    ]
    for number, run in enumerate(table.runs):
        axes = []
        for axis in run["order"][:rank].tolist():
            start, length, count = (int(run[name][axis]) for name in ("start", "length", "count"))
            mode = TailMode(int(run["mode"][axis]))
            tail = "" if mode is TailMode.EXACT else f" {mode.text} {int(run['low'][axis])}..{int(run['high'][axis])}"
            times = f" x{count}" if count > 1 else ""
            axes.append(f"{axis}: {start}+{length}{times}{tail}")
        unit = table.units[int(run["unit"])]
        lines.append(f"  run {number} shared {int(run['shared'])} unit {unit}  {'; '.join(axes)}")
    return "\n".join(lines) + "\n"


def _refuse(table: ShapeTable, wrong: Any, message: str, limit: str) -> None:
    if wrong.any():
        run = int(wrong.argmax())
        raise _wrong(table, message, f"run {run}", limit, run)


def _wrong(table: ShapeTable, message: str, actual: object, limit: object, run: int | None = None) -> TableError:
    where = message if run is None else f"run {run}: {message}"
    return TableError(where, stage="shapes", op_type=table.signature, actual=actual, limit=limit)
