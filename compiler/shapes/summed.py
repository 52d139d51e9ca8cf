"""What calls cost by dynamic dimensions that the shape of their result does not show: those they sum over (SHAPE-6).

A product of sequence × sequence matrices has a tile of the result for every call, whatever the sequence; what the call
reads and computes grows with it. Costs are known at the maxima. Here they get one factor more per such dimension, from
the graph at a few of its extents, between which they are all but linear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from compiler.errors import RequestError
from compiler.ops.op_facts import GraphFacts
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.extents import Range
from compiler.shapes.modelled import CallModel
from compiler.shapes.routine import RoutineGeometry

# From the maximum down each sample is this part of the last one, as long as there are no more than so many.
_PART: Final = 4
_SAMPLES: Final = 5
# Of longer dimensions costs stay those of the maximum: a factor for each extent would take too much memory.
MAX_EXTENT: Final = 1 << 20

# The facts of the graph with one dimension lower than its maximum; raises RequestError where the model is none.
FactsAt = Callable[[str, int], GraphFacts]


class SummedDims:
    """The dimensions of a graph at some extents each, the others at their maxima; graphs are made when asked for."""

    def __init__(self, ranges: Mapping[str, Range], facts_at: FactsAt) -> None:
        self._ranges = ranges
        self._facts_at = facts_at
        self._known: dict[str, tuple[tuple[int, GraphFacts], ...]] = {}

    def costs(
        self, cost: CallCost, model: CallModel, best: Sequence[int], model_of: Callable[[RoutineGeometry], CallModel]
    ) -> tuple[CallCost, tuple[str, ...]]:
        """Costs over the axes of the result and the dimensions that are returned beside, each with its own factors.

        `best` is a tile whose calls are compared at smaller extents, by `model_of` a routine there.
        """
        names = []
        for name in sorted(_candidates(model.geometry) & set(self._ranges)):
            if self._ranges[name].high > MAX_EXTENT:
                continue
            found = self._with_dim(cost, model, best, model_of, name)
            if found is not None:
                cost = found
                names.append(name)
        return cost, tuple(names)

    def _with_dim(
        self,
        cost: CallCost,
        model: CallModel,
        best: Sequence[int],
        model_of: Callable[[RoutineGeometry], CallModel],
        name: str,
    ) -> CallCost | None:
        """Costs with factors for one dimension more; None where it changes none."""
        high = self._ranges[name].high
        extents, compute = [high], [1.0]
        moved: list[list[float]] = [[1.0] for _ in model.moved]
        for extent, facts in self._samples(name):
            other = model_of(RoutineGeometry(facts, [op.index for op in model.geometry.ops]))
            if other.moved != model.moved:
                continue  # rows of a table, which is read whole at the maximum: no call reads the same there
            tile = tuple(map(min, best, other.geometry.shape))
            extents.append(extent)
            compute.append(_ratio(other.compute_cycles(tile), model.compute_cycles(tile)))
            for ratios, tensor in zip(moved, model.moved, strict=True):
                ratios.append(_ratio(other.move_cycles(tensor, tile), model.move_cycles(tensor, tile)))
        if all(ratio == 1.0 for ratios in (compute, *moved) for ratio in ratios):
            return None
        return replace(
            cost,
            compute=(*cost.compute, _table(extents, compute)),
            operands=tuple(
                replace(one, factors=(*one.factors, _table(extents, ratios) if set(ratios) != {1.0} else None))
                for one, ratios in zip(cost.operands, moved, strict=True)
            ),
        )

    def _samples(self, name: str) -> tuple[tuple[int, GraphFacts], ...]:
        """Extents of a dimension below its maximum at which the model is one, and the graph there."""
        if name not in self._known:
            found: list[tuple[int, GraphFacts]] = []
            for extent in sampled_extents(self._ranges[name]):
                try:
                    found.append((extent, self._facts_at(name, extent)))
                except RequestError:  # between the extents of a range some may be none of the model's
                    continue
            self._known[name] = tuple(found)
        return self._known[name]


def sampled_extents(one: Range) -> list[int]:
    """Extents of a range below its maximum, at most five, the lowest among them."""
    found: list[int] = []
    extent = one.high // _PART
    while extent > one.low and len(found) < _SAMPLES - 1:
        found.append(one.low + (extent - one.low) // one.step * one.step)
        extent //= _PART
    if one.low < one.high:
        found.append(one.low)
    return list(dict.fromkeys(found))


def _candidates(geometry: RoutineGeometry) -> set[str]:
    """The dimensions of extents that calls read or make all of, wherever their box of the result lies."""
    found: set[str] = set()
    tensors = geometry.facts.graph.tensors
    for name in (*geometry.inputs, *geometry.weights, *geometry.made):
        if name not in tensors:
            continue  # rows that a gather takes of a table: as many as its result has
        whole = geometry.whole_axes(name)
        for axis, expression in tensors[name].symbols:
            if axis in whole:
                found |= expression.symbols
    return found


def _ratio(amount: float, most: float) -> float:
    return amount / most if most else 1.0


def _table(extents: Sequence[int], ratios: Sequence[float]) -> Floats:
    """Factors by extent, straight lines between the samples; an extent of 0 costs nothing."""
    order = np.argsort(extents)
    table: Floats = np.interp(np.arange(max(extents) + 1), np.array(extents)[order], np.array(ratios)[order])
    table[0] = 0.0
    table.flags.writeable = False
    return table
