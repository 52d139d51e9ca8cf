"""Units and costs for tests: written out, and drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from compiler.shapes.cost import CallCost, Floats, OperandCost
from compiler.shapes.units import UnitSet


def units_of(extents: Sequence[Sequence[int]], lows: Sequence[Sequence[int]] | None = None, **more: bool) -> UnitSet:
    """Units numbered u0, u1...; lengths are fixed without `lows`."""
    ids = tuple(f"u{number}" for number in range(len(extents)))
    return UnitSet.of(signature="Test", dtype="float32", ids=ids, extents=extents, lows=lows, **more)


def linear(longest: int) -> Floats:
    """A factor that is the length."""
    return np.arange(longest + 1, dtype=np.float64)


def product_cost(
    longest: Sequence[int],
    operands: Sequence[tuple[int, ...]] = (),
    *,
    call: float = 10.0,
    variable: float = 3.0,
    start: float = 5.0,
    move: float = 2.0,
) -> CallCost:
    """One cycle per element, a result of one cycle per element, and operands of `move` per element of their axes."""
    factors = tuple(linear(length) for length in longest)
    every = tuple(range(len(longest)))
    return CallCost(
        call_cycles=call,
        variable_cycles=variable,
        compute_cycles=1.0,
        compute=factors,
        operands=tuple(
            OperandCost(
                start_cycles=start,
                move_cycles=1.0 if axes == every else move,
                factors=tuple(factor if axis in axes else None for axis, factor in enumerate(factors)),
            )
            for axes in (*operands, every)
        ),
    )


@st.composite
def unit_sets(draw: st.DrawFn, rank: int, *, longest: int = 7, most: int = 4) -> UnitSet:
    """Random units; some accept any length, some lengths near their own, some only theirs."""
    extents = draw(st.lists(st.tuples(*[st.integers(1, longest)] * rank), min_size=1, max_size=most, unique=True))
    lows = [tuple(draw(st.sampled_from((0, extent, max(1, extent - 1)))) for extent in unit) for unit in extents]
    return units_of(extents, lows)


@st.composite
def call_costs(draw: st.DrawFn, rank: int, *, longest: int = 7) -> CallCost:
    """Random costs that mostly grow with lengths; operands have any of the axes."""
    falls = draw(st.integers(0, 3)) == 0
    amount = st.integers(0, 20).map(float)
    steps = st.lists(st.integers(0, 5), min_size=longest, max_size=longest)

    def factor() -> Floats:
        amounts = np.array([0, *draw(steps)], dtype=np.float64)
        return amounts if falls else np.cumsum(amounts)

    operands = [
        OperandCost(
            start_cycles=draw(amount),
            move_cycles=draw(amount),
            factors=tuple(factor() if axis in axes else None for axis in range(rank)),
        )
        for axes in draw(st.lists(st.sets(st.integers(0, rank - 1)), max_size=3))
    ]
    return CallCost(
        call_cycles=draw(amount),
        variable_cycles=draw(amount),
        compute_cycles=draw(amount),
        compute=tuple(factor() for _ in range(rank)),
        operands=tuple(operands),
    )


@st.composite
def problems(
    draw: st.DrawFn, *, ranks: tuple[int, ...] = (1, 2, 3), longest: int = 7, most: int = 4, lengths: int = 20
) -> tuple[UnitSet, CallCost, tuple[int, ...]]:
    """Units, costs and a shape that go together."""
    rank = draw(st.sampled_from(ranks))
    shape = tuple(draw(st.integers(0 if rank < 3 else 1, lengths if rank < 3 else 9)) for _ in range(rank))
    return draw(unit_sets(rank, longest=longest, most=most)), draw(call_costs(rank, longest=longest)), shape
