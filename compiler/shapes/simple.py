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
class _Axis:
    """One axis of all units: factors by length, row by row, and at the units' own extents."""

    extents: NDArray[np.int64]
    lows: NDArray[np.int64]
    factors: Floats
    whole: Floats
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimpleChooser:
    """What all simple tables of a signature have in common; made once, then asked for shapes."""

    units: UnitSet
    orders: tuple[tuple[int, ...], ...]
    shares: Floats
    move_weights: Floats
    work_shares: Floats
    work_weights: Floats
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
        orders = tuple(permutations(range(units.rank)))
        terms: dict[tuple[int, ...], int] = {}
        entries = [
            (number, terms.setdefault(rows, len(terms)), amount)
            for number, order in enumerate(orders)
            for rows, amount in _terms(cost, order)
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
        order, *ways, unit = np.unravel_index(number, costs.shape)
        runs = _grid(self.units, int(unit), shape, self.orders[int(order)], tuple(map(int, ways)))
        return self.priced(self._table(shape, runs, float(costs.flat[number])))

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
        rank, refused = len(shape), None
        amounts: Floats | None = None
        for axis, length in enumerate(shape):
            sums, barred = self._sums(axis, length)
            mode = None if modes is None else modes[axis]
            if mode is not None:
                self._demand(barred, axis, mode, length)
            at = (slice(None), *(slice(None) if other == axis else None for other in range(rank)), slice(None))
            amounts = sums[at] if amounts is None else amounts * sums[at]
            refused = barred[at[1:]] if refused is None else refused + barred[at[1:]]
        assert amounts is not None
        assert refused is not None
        flat, by_way = amounts.reshape(len(amounts), -1), amounts.shape[1:]
        moves: Floats = (self.move_weights * flat).sum(axis=1).reshape(len(self.orders), *by_way)
        work: Floats = (self.work_weights * flat).sum(axis=0).reshape(by_way)
        if self.cores is None:
            return moves + work + (refused + self.cost.once_cycles)
        calls = (-(-np.array(shape) // self.units.extents)).prod(axis=1)
        rounds = np.maximum(moves, work) * idle_factor(calls, self.cores)
        bare = self.cores * self._tile_moves(shape) + self.cost.once_cycles * np.minimum(calls, self.loaders)
        costs: Floats = rounds + (refused + bare)
        return costs

    def _tile_moves(self, shape: tuple[int, ...]) -> Floats:
        """Per unit the cycles in which a core brings what its first call reads and stores what its last one made."""
        total = np.zeros(len(self.units))
        tiles = np.minimum(self.units.extents, shape)
        for operand in self.cost.operands:
            cycles: Any = operand.move_cycles
            for axis, factor in enumerate(operand.factors):
                if factor is not None:
                    cycles = cycles * factor[tiles[:, axis]]
            if operand.axes:
                total += cycles + operand.start_cycles
        return total

    def _sums(self, axis: int, length: int) -> tuple[Floats, Floats]:
        """Per part of the cost, way and unit the sum over an axis' pieces; and infinity for ways that cannot be."""
        own = self.axes[axis]
        count, tail = np.divmod(length, own.extents)
        has_tail = tail > 0
        sums = np.empty((_COMPUTE + len(own.factors), _WAYS, len(count)))
        sums[_ONE] = 1.0
        sums[_PIECES] = count + has_tail
        sums[_VARIABLE] = 0.0
        sums[_VARIABLE, _RANGED] = has_tail
        clipped = own.factors[:, tail]
        sums[_COMPUTE:, _RANGED] = clipped
        sums[_COMPUTE:, _DISCARD] = clipped
        sums[_COMPUTE, _DISCARD] = own.whole[0] * has_tail
        sums[_COMPUTE:] += (own.whole * count)[:, None]
        barred = np.zeros((_WAYS, len(count)))
        barred[_RANGED, has_tail & (tail < own.lows)] = np.inf
        return sums[own.rows], barred

    def _demand(self, barred: Floats, axis: int, mode: TailMode, length: int) -> None:
        """Bar what is not the demanded way."""
        own = self.axes[axis]
        barred[:, (length % own.extents == 0) != (mode is TailMode.EXACT)] = np.inf
        if mode is TailMode.EXACT:
            return
        barred[_DISCARD if mode.is_ranged else _RANGED] = np.inf
        if mode.is_ranged:
            barred[:, (own.lows == 0) != (mode is TailMode.FULL_RANGE)] = np.inf


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
    return _Axis(
        extents=extents, lows=units.lows[:, axis].copy(), factors=factors, whole=factors[:, extents], rows=rows
    )


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
    parts = [
        _parts(axis, int(units.extents[unit, axis]), int(units.lows[unit, axis]), shape[axis], ways[axis])
        for axis in order
    ]
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
