"""The simple table: identical units, answered at once (SHAPE-6).

Calls of one unit form a grid, so that each part of their cost is a product of sums per axis: how many pieces there are,
and the sums of their factors. All units, tail modes and call orders are compared together by these sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import RequestError
from compiler.shapes.core_time import MAX_CALLS, on_cores
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.table import RUN, Runs, ShapeTable
from compiler.shapes.tails import TailMode, ranged_mode
from compiler.shapes.units import UnitSet, checked_shape

# How a tail may be worked on, in the order in which ties are settled; a range is full-range or tail-range by the unit.
_RANGED, _DISCARD = range(2)
_WAYS: Final = 2
# Rows of an axis' sums: one for axes that a part of the cost does not depend on, pieces, tails of given length,
# computed factors; then one row per operand.
_ONE, _PIECES, _VARIABLE, _COMPUTE, _OPERANDS = range(5)
# Amounts that are work; the others are moves.
_WORK: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pieces:
    """One axis of a shape cut into pieces by each unit: what a grid's cost is multiplied from.

    `sums`: per part of the cost, way and unit the sum over the pieces. `barred`: infinity for ways that cannot be,
    [way, unit]; None where all can. `boxes`: per operand and unit the factor of the first piece, 1 without the axis.
    """

    length: int
    sums: Floats
    barred: Floats | None
    boxes: Floats


@dataclass(slots=True, kw_only=True, eq=False)
class _Axis:
    """One axis of all units: factors by length, row by row, and at the units' own extents.

    `last`: the pieces of the length that was asked for last. Most axes of a model have one length at all shapes.
    """

    extents: NDArray[np.int64]
    lows: NDArray[np.int64]
    factors: Floats
    whole: Floats
    boxes: Floats
    rows: NDArray[np.int64]
    last: _Pieces | None = None

    def pieces(self, length: int) -> _Pieces:
        """An axis of this length; any thread may ask."""
        found = self.last
        if found is None or found.length != length:
            found = self.last = self._cut(length)
        return found

    def _cut(self, length: int) -> _Pieces:
        count, tail = np.divmod(length, self.extents)
        has_tail = tail > 0
        sums = np.empty((_COMPUTE + len(self.factors), _WAYS, len(count)))
        sums[_ONE] = 1.0
        sums[_PIECES] = count + has_tail
        sums[_VARIABLE] = 0.0
        sums[_VARIABLE, _RANGED] = has_tail
        sums[_COMPUTE:] = self.factors[:, None, tail]
        sums[_COMPUTE, _DISCARD] = self.whole[0] * has_tail
        sums[_COMPUTE:] += (self.whole * count)[:, None]
        refused = has_tail & (tail < self.lows)
        barred: Floats | None = None
        if refused.any():
            barred = np.zeros((_WAYS, len(count)))
            barred[_RANGED, refused] = np.inf
        return _Pieces(
            length=length,
            sums=sums[self.rows],
            barred=barred,
            boxes=self.boxes[:, np.minimum(self.extents, length)],
        )

    def demanded(self, pieces: _Pieces, mode: TailMode) -> Floats:
        """Infinity for ways that cannot be or are not the demanded one, [way, unit]."""
        barred = np.zeros((_WAYS, len(self.extents))) if pieces.barred is None else pieces.barred.copy()
        barred[:, (pieces.length % self.extents == 0) != (mode is TailMode.EXACT)] = np.inf
        if mode is not TailMode.EXACT:
            barred[_DISCARD if mode.is_ranged else _RANGED] = np.inf
            if mode.is_ranged:
                barred[:, (self.lows == 0) != (mode is TailMode.FULL_RANGE)] = np.inf
        return barred


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimpleChooser:
    """What all simple tables of a signature have in common; made once, then asked for shapes."""

    units: UnitSet
    orders: tuple[tuple[int, ...], ...]
    shares: Floats
    move_weights: Floats
    work_shares: Floats
    work_weights: Floats
    box_weights: tuple[float, Floats]
    cost: CallCost
    axes: tuple[_Axis, ...]
    cores: int | None = None
    loaders: int = 1

    @classmethod
    def build(cls, units: UnitSet, cost: CallCost, cores: int | None = None, loaders: int = 1) -> SimpleChooser:
        """`cores`: how many share the calls; `loaders`: how often what all calls read is read from DRAM for them.

        Without `cores`, tables are priced by the sum of their calls and transfers. Raises RequestError if costs are not
        known for the units' axes and extents.
        """
        check_costs(units, cost)
        # orders in which the same is moved equally often cost the same: the first of them stands for all
        distinct: dict[tuple[tuple[tuple[int, ...], int], ...], tuple[int, ...]] = {}
        for order in permutations(range(units.rank)):
            distinct.setdefault(tuple(_terms(cost, order)), order)
        orders = tuple(distinct.values())
        terms: dict[tuple[int, ...], int] = {}
        entries = [
            (number, terms.setdefault(rows, len(terms)), amount)
            for number, parts in enumerate(distinct)
            for rows, amount in parts
        ]
        amounts = _amounts(cost)
        shares = np.zeros((len(orders), len(terms), len(amounts)))
        for number, term, amount in entries:
            shares[number, term, amount] += 1.0
        # how often units are called and what they compute does not depend on the order
        work_shares, shares = shares[0, :, :_WORK], shares[:, :, _WORK:]
        rows = np.array(list(terms), dtype=np.int64)
        return cls(
            units=units,
            orders=orders,
            shares=shares,
            move_weights=(shares @ amounts[_WORK:])[:, :, None],
            work_shares=work_shares,
            work_weights=(work_shares @ amounts[:_WORK])[:, None],
            box_weights=_box_weights(cost),
            cost=cost,
            axes=tuple(_axis(units, cost, axis, rows[:, axis]) for axis in range(units.rank)),
            cores=cores,
            loaders=loaders,
        )

    def with_amounts(self, cost: CallCost) -> SimpleChooser:
        """The same for costs of other amounts: of calls that work on other extents of whole axes."""
        amounts = _amounts(cost)
        return replace(
            self,
            move_weights=(self.shares @ amounts[_WORK:])[:, :, None],
            work_weights=(self.work_shares @ amounts[:_WORK])[:, None],
            box_weights=_box_weights(cost),
            cost=cost,
        )

    def table(self, shape: tuple[int, ...], modes: tuple[TailMode | None, ...] | None = None) -> ShapeTable:
        """The cheapest table of identical units; `modes` demands a tail mode along some axes.

        Raises RequestError for a shape of other axes, and for a demanded mode that no unit can serve.
        """
        checked_shape(self.units, shape)
        if 0 in shape:
            return self._table(shape, np.zeros(0, dtype=RUN), 0.0)
        costs = self._costs(shape, modes)
        best = int(costs.argmin())
        cycles = float(costs.flat[best])
        if cycles == np.inf:
            raise RequestError(
                "no unit can work on the shape's tail as demanded",
                code="tail_refused",
                stage="shapes",
                op_type=self.units.signature,
                actual=str(shape),
                limit=", ".join("any" if mode is None else mode.text for mode in modes or ()) or None,
            )
        return self._grid_table(shape, costs, best)

    def tables(self, shape: tuple[int, ...], count: int) -> list[ShapeTable]:
        """The tables of at most `count` units, each the cheapest of its unit; the most promising units first."""
        if 0 in checked_shape(self.units, shape):
            return [self.table(shape)]
        costs = self._costs(shape, None)
        by_unit = costs.reshape(-1, costs.shape[-1])
        least = by_unit.min(axis=0)
        ranked = [unit for unit in np.argsort(least, kind="stable")[:count].tolist() if least[unit] < np.inf]
        ways = by_unit.argmin(axis=0)
        return [self._grid_table(shape, costs, int(ways[unit]) * costs.shape[-1] + unit) for unit in ranked]

    def grid_costs(self, shape: tuple[int, ...]) -> Floats:
        """The estimated cycles of covering a shape by a grid of one unit, [call order, unit]: with the best tails."""
        return _by_grid(self._costs(checked_shape(self.units, shape), None))

    def table_and_grid(self, shape: tuple[int, ...], grids: Sequence[tuple[int, int]]) -> tuple[ShapeTable, int]:
        """The simple table of a shape that has elements, and which of some grids, (call order, unit), suits it best."""
        costs = self._costs(checked_shape(self.units, shape), None)
        by_grid = _by_grid(costs)
        best = min(range(len(grids)), key=lambda number: by_grid[grids[number]])
        return self._grid_table(shape, costs, int(costs.argmin())), best

    def grid(self, shape: tuple[int, ...], order: int, unit: int) -> ShapeTable:
        """The table of one unit and call order; tails are given their length where the unit accepts it."""
        lengths = np.array(checked_shape(self.units, shape)) % self.units.extents[unit]
        ways = np.where(lengths >= self.units.lows[unit], _RANGED, _DISCARD)
        return self._table(shape, _grid(self.units, unit, shape, self.orders[order], tuple(ways.tolist())), 0.0)

    def unit_costs(self, shape: tuple[int, ...]) -> Floats:
        """Per unit the estimated cycles of covering a shape with it alone."""
        costs = self._costs(checked_shape(self.units, shape), None)
        least: Floats = costs.reshape(-1, costs.shape[-1]).min(axis=0)
        return least

    def _grid_table(self, shape: tuple[int, ...], costs: Floats, number: int) -> ShapeTable:
        """The table behind one of the costs."""
        cycles = costs.item(number)
        number, unit = divmod(number, costs.shape[-1])
        order, way = divmod(number, _WAYS ** len(shape))
        ways = tuple(way >> axis & 1 for axis in reversed(range(len(shape))))
        runs = _grid(self.units, unit, shape, self.orders[order], ways)
        return self.priced(self._table(shape, runs, cycles))

    def priced(self, table: ShapeTable) -> ShapeTable:
        """A table with the time that it takes on the cores."""
        # with more calls, what cores wait is little: the estimate has to do
        if self.cores is None or table.calls > MAX_CALLS:
            return table
        return on_cores(table, self.units, self.cost, self.cores, self.loaders)

    def _table(self, shape: tuple[int, ...], runs: Runs, cycles: float) -> ShapeTable:
        return ShapeTable(
            signature=self.units.signature,
            dtype=self.units.dtype,
            shape=shape,
            units=self.units.ids,
            runs=runs,
            cost_cycles=cycles,
            kind="simple",
        )

    def _costs(self, shape: tuple[int, ...], modes: tuple[TailMode | None, ...] | None) -> Floats:
        """Cycles by call order, by way of the tail along each axis, and by unit; infinite where it cannot be.

        With cores they are an estimate: of rounds of equal calls, in which transfers and work hide behind each other.
        """
        cut = [axis.pieces(length) for axis, length in zip(self.axes, shape, strict=True)]
        amounts, boxes = cut[0].sums, cut[0].boxes
        for pieces in cut[1:]:
            amounts = amounts[..., None, :] * pieces.sums.reshape(len(amounts), *(1,) * (amounts.ndim - 2), _WAYS, -1)
            boxes = boxes * pieces.boxes
        flat, by_way = amounts.reshape(len(amounts), -1), amounts.shape[1:]
        moves: Floats = (self.move_weights * flat).sum(axis=1).reshape(len(self.orders), *by_way)
        work: Floats = (self.work_weights * flat).sum(axis=0).reshape(by_way)
        if self.cores is None:
            costs: Floats = moves + work + self.cost.once_cycles
        else:
            calls = flat[0, -len(self.units) :]  # the first term is the product of all pieces, the same in every way
            starts, weights = self.box_weights
            bare = self.cores * ((weights * boxes).sum(axis=0) + starts)
            bare += self.cost.once_cycles * np.minimum(calls, self.loaders)
            costs = np.maximum(moves, work)
            costs *= idle_factor(calls, self.cores)
            costs += bare
        for number, (axis, pieces) in enumerate(zip(self.axes, cut, strict=True)):
            mode = None if modes is None else modes[number]
            barred = pieces.barred if mode is None else axis.demanded(pieces, mode)
            if barred is not None:
                costs += barred.reshape(_WAYS, *(1,) * (len(cut) - 1 - number), -1)
        return costs


def _by_grid(costs: Floats) -> Floats:
    """The least of costs over the ways of the tails: [call order, unit]."""
    least: Floats = costs.reshape(len(costs), -1, costs.shape[-1]).min(axis=1)
    return least


def idle_factor(calls: Any, cores: int) -> Any:
    """By how much the time of so many equal calls, on all cores, exceeds their work: in the last round cores wait."""
    return -(-calls // cores) * cores / calls


def simple_table(
    units: UnitSet, cost: CallCost, shape: tuple[int, ...], modes: tuple[TailMode | None, ...] | None = None
) -> ShapeTable:
    """The cheapest table of identical units; who asks for many shapes keeps a `SimpleChooser`."""
    return SimpleChooser.build(units, cost).table(shape, modes)


def check_costs(units: UnitSet, cost: CallCost) -> None:
    """Raise RequestError unless costs are known for all lengths that calls of the units have."""
    extents = units.extents.max(axis=0)
    if cost.rank != units.rank or any(np.array(cost.maxima) < extents):
        raise RequestError(
            "costs are not known for the units' extents",
            code="invalid_request",
            stage="shapes",
            op_type=units.signature,
            actual=str(extents.tolist()),
            limit=str(list(cost.maxima)),
        )


def _axis(units: UnitSet, cost: CallCost, axis: int, rows: NDArray[np.int64]) -> _Axis:
    extents = units.extents[:, axis].copy()
    longest = int(extents.max()) + 1
    tables = [cost.compute[axis], *(operand.factors[axis] for operand in cost.operands)]
    factors = np.zeros((len(tables), longest))
    for row, table in enumerate(tables):
        if table is not None:
            factors[row] = table[:longest]
    factors[:, 0] = 0.0
    boxes = factors[1:].copy()
    boxes[[operand.factors[axis] is None for operand in cost.operands]] = 1.0
    return _Axis(
        extents=extents,
        lows=units.lows[:, axis].copy(),
        factors=factors,
        whole=factors[:, extents],
        boxes=boxes,
        rows=rows,
    )


def _box_weights(cost: CallCost) -> tuple[float, Floats]:
    """What a core's first boxes cost: starts in all, and cycles by operand that its factors multiply, [operand, 1]."""
    starts = sum(operand.start_cycles for operand in cost.operands if operand.axes)
    weights = [operand.move_cycles if operand.axes else 0.0 for operand in cost.operands]
    return starts, np.array(weights).reshape(-1, 1)


def _amounts(cost: CallCost) -> Floats:
    """What sums over pieces are multiplied with: of calls, computation and given lengths, then of operands."""
    moved = [cycles for one in cost.operands for cycles in (one.start_cycles, one.move_cycles)]
    return np.array([cost.call_cycles, cost.compute_cycles, cost.variable_cycles, *moved])


def _terms(cost: CallCost, order: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    """The parts of a grid's cost under a call order: which row of each axis' sums they multiply, and which amount."""
    rank = len(order)
    terms = [((_PIECES,) * rank, 0), ((_COMPUTE,) * rank, 1)]
    terms += [(tuple(_VARIABLE if other == axis else _PIECES for other in range(rank)), 2) for axis in range(rank)]
    for number, operand in enumerate(cost.operands):
        if operand.axes:
            # moved once per turn of the loops down to its deepest axis
            loops = order[: 1 + max(order.index(axis) for axis in operand.axes)]
            starts = tuple(_PIECES if axis in loops else _ONE for axis in range(rank))
            moves = tuple(_OPERANDS + number if axis in operand.axes else starts[axis] for axis in range(rank))
            terms += [(starts, 3 + 2 * number), (moves, 4 + 2 * number)]
    return terms


def _grid(units: UnitSet, unit: int, shape: tuple[int, ...], order: tuple[int, ...], ways: tuple[int, ...]) -> Runs:
    """The runs of one unit over a shape: the full pieces along each axis, and its tail."""
    extents, lows = units.extents[unit].tolist(), units.lows[unit].tolist()
    parts = [_parts(axis, extents[axis], lows[axis], shape[axis], ways[axis]) for axis in order]
    loops = (*order, *range(len(order), 4))
    rows = []
    last: tuple[_Part, ...] | None = None
    for chosen in product(*parts):
        shared = 0
        while last is not None and chosen[shared] is last[shared]:
            shared += 1
        by_axis = [*sorted(chosen), *((len(loops), *_UNUSED) for _ in range(4 - len(order)))]
        _, modes, starts, lengths, strides, counts, lows, highs = zip(*by_axis, strict=True)
        rows.append((unit, shared, loops, modes, starts, lengths, strides, counts, lows, highs))
        last = chosen
    return np.array(rows, dtype=RUN)


# Axis, mode, start, length, stride, count, low, high.
_Part = tuple[int, int, int, int, int, int, int, int]
_UNUSED: Final = (0, 0, 1, 0, 1, 1, 1)


def _parts(axis: int, extent: int, low: int, length: int, way: int) -> list[_Part]:
    count, tail = divmod(length, extent)
    parts: list[_Part] = []
    if count:
        parts.append((axis, TailMode.EXACT, 0, extent, extent, count, low, extent))
    if tail:
        mode = TailMode.DISCARD if way == _DISCARD else ranged_mode(low)
        parts.append((axis, mode, count * extent, tail, tail, 1, low, extent))
    return parts
