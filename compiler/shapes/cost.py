"""What one call of a unit costs, as products of one factor per axis (SHAPE-6).

    cycles = call + variable · (axes whose length is given with the call) + compute · Π factor[axis][computed length]
           + Σ operands moved for this call: start + move · Π factor[axis][moved length], over the operand's own axes

A table of such factors answers any number of calls without asking the cost model again, and sums over grids of calls
are products of sums per axis. An operand that does not depend on the innermost axes of the call order is moved once for
all calls along them: it lies in the core until its box changes. The result depends on every axis: each call stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from compiler.errors import RequestError

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OperandCost:
    """Moving one operand's box: cycles that start the transfer, and cycles by the box's lengths.

    `factors` has one table per axis, indexed by length; None where the operand does not have the axis.
    """

    start_cycles: float
    move_cycles: float
    factors: tuple[Floats | None, ...]
    axes: tuple[int, ...] = field(init=False)
    """The axes that the box depends on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(axis for axis, one in enumerate(self.factors) if one is not None))

    def cycles(self, moved: Sequence[int]) -> float:
        """Cycles of one transfer of a box of these lengths."""
        amount = self.move_cycles
        for factor, length in zip(self.factors, moved, strict=True):
            if factor is not None:
                amount *= factor.item(length)
        return self.start_cycles + amount


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandTraffic:
    """What `CallCost.tabulate` is told of an operand: its axes, its start-up, and cycles by the lengths of all axes."""

    axes: tuple[int, ...]
    start_cycles: float
    cycles: Callable[[tuple[int, ...]], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallCost:
    """The modelled cycles of one call; `compute` and each operand's factors are indexed by axis, then by length."""

    call_cycles: float
    variable_cycles: float
    compute_cycles: float
    compute: tuple[Floats, ...]
    operands: tuple[OperandCost, ...]

    @classmethod
    def tabulate(
        cls,
        *,
        call_cycles: float,
        variable_cycles: float,
        compute_cycles: Callable[[tuple[int, ...]], float],
        operands: Sequence[OperandTraffic],
        maxima: Sequence[int],
        reference: Sequence[int],
    ) -> CallCost:
        """Ask the cost model with one axis varied at a time from `reference`, for lengths 1 to `maxima`.

        Separable costs come out exactly. Of others, what two axes have in common beyond the reference (ceilings of
        their product, mostly) is neglected.
        """
        every = range(len(maxima))
        scale, compute = _factors(compute_cycles, every, maxima, reference)
        moved = []
        for operand in operands:
            amount, factors = _factors(operand.cycles, operand.axes, maxima, reference)
            by_axis = dict(zip(operand.axes, factors, strict=True))
            moved.append(
                OperandCost(
                    start_cycles=operand.start_cycles,
                    move_cycles=amount,
                    factors=tuple(by_axis.get(axis) for axis in every),
                )
            )
        return cls(
            call_cycles=call_cycles,
            variable_cycles=variable_cycles,
            compute_cycles=scale,
            compute=tuple(compute),
            operands=tuple(moved),
        )

    @property
    def rank(self) -> int:
        """How many axes a call's box has."""
        return len(self.compute)

    @property
    def maxima(self) -> tuple[int, ...]:
        """The greatest length known along each axis."""
        return tuple(len(factor) - 1 for factor in self.compute)

    @property
    def once_cycles(self) -> float:
        """Cycles of the operands whose box is the same for all calls: they are moved once."""
        return sum(operand.start_cycles + operand.move_cycles for operand in self.operands if not operand.axes)

    def work_cycles(self, computed: Sequence[int], variable_axes: int) -> float:
        """The call itself, transfers apart, on a box of the computed lengths."""
        amount = self.compute_cycles
        for factor, length in zip(self.compute, computed, strict=True):
            amount *= factor.item(length)
        return self.call_cycles + self.variable_cycles * variable_axes + amount

    def at(self, whole: Mapping[int, int]) -> CallCost:
        """The cost over the other axes, where every call works on all of some axes, whose lengths are given."""
        for axis, length in whole.items():
            if not 0 <= axis < self.rank or not 0 <= length <= self.maxima[axis]:
                raise RequestError(
                    "a whole axis is longer than its costs are known",
                    code="invalid_request",
                    stage="shapes",
                    actual=f"axis {axis}, length {length}",
                    limit=", ".join(map(str, self.maxima)),
                )
        kept = [axis for axis in range(self.rank) if axis not in whole]
        scale = self.compute_cycles
        for axis, length in sorted(whole.items()):
            scale *= float(self.compute[axis][length])
        return CallCost(
            call_cycles=self.call_cycles,
            variable_cycles=self.variable_cycles,
            compute_cycles=scale,
            compute=tuple(self.compute[axis] for axis in kept),
            operands=tuple(_folded(operand, whole, kept) for operand in self.operands),
        )


def _folded(operand: OperandCost, whole: Mapping[int, int], kept: Sequence[int]) -> OperandCost:
    amount = operand.move_cycles
    for axis, length in sorted(whole.items()):
        factor = operand.factors[axis]
        if factor is not None:
            amount *= float(factor[length])
    return OperandCost(
        start_cycles=operand.start_cycles,
        move_cycles=amount,
        factors=tuple(operand.factors[axis] for axis in kept),
    )


def _factors(
    asked: Callable[[tuple[int, ...]], float], axes: Sequence[int], maxima: Sequence[int], reference: Sequence[int]
) -> tuple[float, list[Floats]]:
    """The amount at the reference, and per axis the amount over it by length; a length of 0 costs nothing."""
    base = tuple(reference)
    scale = float(asked(base))
    tables = []
    for axis in axes:
        lengths = range(1, maxima[axis] + 1)
        amounts = [float(asked((*base[:axis], length, *base[axis + 1 :]))) for length in lengths]
        table = np.array([0.0, *(amount / scale if scale else 0.0 for amount in amounts)])
        table.flags.writeable = False
        tables.append(table)
    return scale, tables
