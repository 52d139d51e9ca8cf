"""What a model itself makes of rounding: its values with every result disturbed by as much as rounding does (SIM-1).

Two correct implementations sum up in different orders, so each result differs by some unit roundoffs. A model may make
any amount of that: a softmax of two logits near 1e19 is one-hot or even by one roundoff, an average of values that
cancel keeps none of their digits. Then no limit on the difference between two implementations can be a fixed one. What
the model makes of rounding is measured as Monte Carlo arithmetic does (D. S. Parker, 1997): the graph is evaluated by
the definitions of its ops, once as they are and once with every element of every result multiplied by 1 + δ, δ normal
with the deviation that rounding in this op has. The largest difference between the two, by the measure of `compare`,
is the *spread* of a tensor, and what is within a few spreads of the reference is as right as the reference.

Both evaluations are by the same definitions, so a wrong definition has no spread, and no part in either has the
program that is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op
from compiler.simulator.compare import Comparison, compare, limits_of, rounding_of
from compiler.simulator.reference import evaluated
from compiler.simulator.runtimes import Value

# The largest of many elements of one sample lies about as far out as that of another, seldom four times as far.
_ROOM: Final = 4.0
_SEED: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A tensor by the definitions of its ops, and how far rounding carries it, relative to its root mean square."""

    tensor: str
    values: Value
    spread: float


def spreads(
    graph: Graph, source: ModelSource, inputs: Mapping[str, Value], tensors: Collection[str]
) -> Iterator[Spread]:
    """The spread of each of the tensors that an op makes, in the ops' order; raises what evaluating the graph does."""
    plain = evaluated(graph, source, inputs)
    noisy = evaluated(graph, source, inputs, disturb=_Disturbance(graph))
    for (name, values), (_, others) in zip(plain, noisy, strict=True):
        if name in tensors:
            yield Spread(tensor=name, values=values, spread=compare(name, others, values).max_error)


def allowing(comparison: Comparison, spread: float) -> Comparison:
    """The comparison with room for what the model makes of rounding."""
    limit = max(comparison.limit, _ROOM * spread)
    return replace(comparison, limit=limit, holds=comparison.max_error <= limit)


def judged(
    graph: Graph, source: ModelSource, inputs: Mapping[str, Value], got: Mapping[str, Value], outputs: Collection[str]
) -> tuple[dict[str, float], Comparison | None]:
    """The spreads of the tensors `outputs`, and the comparison that is worst of the tensors `got` on the way to them.

    What a program hands from group to group is compared with the graph's own values, each within its limit or its
    spread: where a model amplifies, faults show before they and rounding are amplified alike.
    """
    limits = limits_of(graph)
    found: dict[str, float] = {}
    worst: Comparison | None = None
    for item in spreads(graph, source, inputs, {*got, *outputs}):
        if item.tensor in outputs:
            found[item.tensor] = item.spread
        if item.tensor not in got:
            continue
        comparison = compare(item.tensor, got[item.tensor], item.values, limit=limits.get(item.tensor))
        comparison = allowing(comparison, item.spread)
        if worst is None or _rank(comparison) > _rank(worst):
            worst = comparison
    return found, worst


def _rank(comparison: Comparison) -> tuple[bool, float]:
    share = comparison.max_error / comparison.limit if comparison.limit else comparison.max_error
    return not comparison.holds, share


class _Disturbance:
    """Results with every element off by as much as rounding in their op; the same for the same graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, op: Op, value: Value) -> Value:
        deviation = rounding_of(self._graph, op)
        if deviation == 0.0 or not isinstance(value, np.ndarray):
            return value
        random = np.random.default_rng([_SEED, *op.output.encode()])
        noise: Any = random.standard_normal(value.shape, dtype=np.float32)
        with np.errstate(all="ignore"):
            # float64 throughout: a factor nearer to 1 than the type can say would be lost
            return np.asarray((value.astype(np.float64) * (1.0 + deviation * noise)).astype(value.dtype))
