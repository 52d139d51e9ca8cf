"""Measures how a model amplifies rounding, and decides which tensors can still be judged (SIM-1).

Two correct implementations sum in different orders, so each result differs by a few unit roundoffs. A model may amplify
that without bound: a softmax of two logits near 1e19 is one-hot or even depending on one roundoff, and an average of
values that cancel keeps no correct digit. Then no fixed limit on the difference between two implementations is right.

The amplification is measured as in Monte Carlo arithmetic (D. S. Parker, 1997). The graph is evaluated twice by the
definitions of its ops: once as they are, and once with every element of every result multiplied by 1 + δ. δ is normal,
with the deviation of rounding in this op (an op that computes next to 1 adds δ roundoffs of 1). The largest difference
between the two, by the measure of `compare`, is the *spread* of a tensor.

A large spread of an output does not prove that the program is right. So each tensor that the program passes from group
to group is judged where it is made. It is compared with the definitions applied to the *program's own* values of the
earlier tensors, so that at most one group amplifies between the two. A group that amplifies beyond `_UNDECIDED` cannot
be judged, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from typing import Any, Final

import numpy as np

from compiler.errors import TesseraError
from compiler.frontend.runtimes import Value
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op
from compiler.simulator.compare import Comparison, absolute_rounding_of, compare, limits_of, rounding_of
from compiler.simulator.reference import evaluated

# The largest of many elements varies little between samples, seldom by a factor of four.
_ROOM: Final = 4.0
# A limit of a tenth of the root mean square cannot tell right from wrong.
_UNDECIDED: Final = 0.1
_SEED: Final = 17
# Errors that definitions raise when a disturbed value leaves an op's domain.
_OUT_OF_DOMAIN: Final = (TesseraError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)


class Verdict(StrEnum):
    """How a tensor was judged: by its plain limit, by one that includes the model's own spread, or not at all."""

    PLAIN = "plain"
    WIDENED = "widened"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A comparison, how it was judged, and the spread if it was measured (infinite if values became non-finite)."""

    comparison: Comparison
    verdict: Verdict = Verdict.PLAIN
    spread: float | None = None

    @property
    def holds(self) -> bool:
        """False if the error exceeds the limit that applies."""
        return self.comparison.holds or self.verdict is Verdict.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplified:
    """The result for a program whose outputs miss their plain limits: `outputs` by tensor, and tensors in between.

    `between` is the worst of the tensors that could be judged where they are made; `undecided` lists the others.
    """

    outputs: Mapping[str, Judged]
    between: Comparison | None
    undecided: tuple[str, ...]


def judge_again(
    graph: Graph,
    source: ModelSource,
    inputs: Mapping[str, Value],
    got: Mapping[str, Value],
    missed: Mapping[str, Comparison],
) -> Amplified:
    """Judges outputs that missed their limits again, with the model's own spread, and all tensors in `got`.

    `got` holds the tensors that the program returns or passes from group to group. If the model cannot be evaluated
    with disturbed values, the outputs are judged by their plain limits.
    """
    try:
        found = _pairs(graph, source, inputs, {})
        outputs = {name: _judged(missed[name], values, noisy) for name, values, noisy in found if name in missed}
        between, undecided = _between(graph, source, inputs, got)
    except _OUT_OF_DOMAIN:
        return Amplified(outputs={name: Judged(comparison=c) for name, c in missed.items()}, between=None, undecided=())
    # a tensor that no op makes has no rounding
    plain = {name: Judged(comparison=comparison) for name, comparison in missed.items()}
    return Amplified(outputs=plain | outputs, between=between, undecided=undecided)


def _between(
    graph: Graph, source: ModelSource, inputs: Mapping[str, Value], got: Mapping[str, Value]
) -> tuple[Comparison | None, tuple[str, ...]]:
    """The worst of the program's tensors, each judged from the program's own earlier values, and the undecided ones."""
    limits = limits_of(graph)
    worst: Comparison | None = None
    undecided: list[str] = []
    for name, values, noisy in _pairs(graph, source, inputs, got):
        if name not in got:
            continue
        found = _judged(compare(name, got[name], values, limit=limits.get(name)), values, noisy)
        if found.verdict is Verdict.UNDECIDED:
            undecided.append(name)
        elif worst is None or _rank(found.comparison) > _rank(worst):
            worst = found.comparison
    return worst, tuple(undecided)


def _pairs(
    graph: Graph, source: ModelSource, inputs: Mapping[str, Value], anchors: Mapping[str, Value]
) -> Iterator[tuple[str, Value, Value]]:
    """Every tensor that an op makes, plain and disturbed; later ops read the values of `anchors` in its place."""
    plain, noisy = (_Watch(graph=graph, anchors=anchors, disturbs=disturbs) for disturbs in (False, True))
    pairs = zip(
        evaluated(graph, source, inputs, disturb=plain), evaluated(graph, source, inputs, disturb=noisy), strict=True
    )
    for (name, _), _ in pairs:
        yield name, plain.made.pop(name), noisy.made.pop(name)


def _judged(comparison: Comparison, values: Value, noisy: Value) -> Judged:
    """Judges a comparison with the spread of its tensor."""
    if comparison.holds:
        return Judged(comparison=comparison)
    spread = compare(comparison.tensor, noisy, values).max_error
    if not isinstance(values, np.ndarray) or isinstance(comparison.got, str) or spread == 0.0:
        # another kind, type or shape, or a tensor without rounding
        return Judged(comparison=comparison, spread=spread)
    is_exact = values.dtype.kind in "biuSUO"
    if not isfinite(spread) or _ROOM * spread >= _UNDECIDED or is_exact:
        return Judged(comparison=comparison, verdict=Verdict.UNDECIDED, spread=spread)
    limit = max(comparison.limit, _ROOM * spread)
    widened = replace(comparison, limit=limit, holds=comparison.max_error <= limit)
    return Judged(comparison=widened, verdict=Verdict.WIDENED, spread=spread)


def _rank(comparison: Comparison) -> tuple[bool, float]:
    share = comparison.max_error / comparison.limit if comparison.limit else comparison.max_error
    return not comparison.holds, share


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Watches an evaluation and replaces results for later ops: by an anchor, or by the disturbed result."""

    graph: Graph
    anchors: Mapping[str, Value]
    disturbs: bool
    made: dict[str, Value] = field(default_factory=dict)

    def __call__(self, op: Op, value: Value) -> Value:
        found = _disturbed(self.graph, op, value) if self.disturbs else value
        self.made[op.output] = found
        return self.anchors.get(op.output, found)


def _disturbed(graph: Graph, op: Op, value: Value) -> Value:
    """A result with every element changed by the rounding of its op; the same for the same graph."""
    deviation, absolute = rounding_of(graph, op), absolute_rounding_of(graph, op)
    if deviation + absolute == 0.0 or not isinstance(value, np.ndarray):
        return value
    random = np.random.default_rng([_SEED, *op.output.encode()])
    noise: Any = random.standard_normal(value.shape, dtype=np.float32)
    with np.errstate(all="ignore"):
        # float64 throughout: a narrower type would lose factors close to 1
        disturbed = value.astype(np.float64) * (1.0 + deviation * noise) + absolute * noise
        return np.asarray(disturbed.astype(value.dtype))
