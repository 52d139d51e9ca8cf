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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from compiler.errors import TesseraError
from compiler.frontend.runtimes import Value
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op
from compiler.ops import call_of
from compiler.ops.compute_types import Values
from compiler.ops.quantised import rounded
from compiler.simulator.compare import Comparison, absolute_rounding_of, compare, limits_of, rounding_of
from compiler.simulator.reference import evaluated

# The largest of many elements varies little between samples, seldom by a factor of four.
_ROOM: Final = 4.0
# A limit of a tenth of the root mean square cannot tell right from wrong.
_UNDECIDED: Final = 0.1
_SEED: Final = 17
# How far a result lies from where it was before it was rounded to integers, in steps. Two implementations differ by
# much less, so that few elements, or none of a small tensor, come to lie on the other side; by this some of any do.
_BETWEEN_STEPS: Final = 2.0**-8
# Of the elements of a tensor so many may lie next to a tie.
_FEW: Final = 2.0**-10
# The element types of quantised tensors, and how many steps they have.
_STEPS: Final[Mapping[str, int]] = MappingProxyType({"int8": 2**8, "uint8": 2**8, "int16": 2**16, "uint16": 2**16})
# Errors that definitions raise when a disturbed value leaves an op's domain.
_OUT_OF_DOMAIN: Final = (TesseraError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)


class Verdict(StrEnum):
    """How a tensor was judged.

    By its plain limit, by one that includes the model's own spread, with all ops of the model, or not at all.
    """

    PLAIN = "plain"
    WIDENED = "widened"
    BY_NODE = "node by node"
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
        return _amplified(graph, source, inputs, got, missed)
    except _OUT_OF_DOMAIN:
        return Amplified(outputs={name: Judged(comparison=c) for name, c in missed.items()}, between=None, undecided=())


def _amplified(
    graph: Graph,
    source: ModelSource,
    inputs: Mapping[str, Value],
    got: Mapping[str, Value],
    missed: Mapping[str, Comparison],
) -> Amplified:
    """Judges the outputs, and each tensor in `got` from the program's own earlier values."""
    limits = limits_of(graph)
    # a tensor that no op makes has no rounding
    outputs = {name: Judged(comparison=comparison) for name, comparison in missed.items()}
    worst: Comparison | None = None
    undecided: list[str] = []
    given = {**inputs, **got}
    own = _Own(graph=graph, source=source, got=got, values=dict(inputs))
    for name, plain, noisy in _pairs(graph, source, inputs):
        if name in missed:
            outputs[name] = _judged(missed[name], plain, _always(noisy))
        expected = own.result(name, plain)
        if name not in got:
            continue
        comparison = compare(name, got[name], expected, limit=limits.get(name))
        if isinstance(expected, np.ndarray) and expected.dtype.name in _STEPS:
            found = Judged(comparison=_from_equal_operands(comparison, expected.size))
        else:
            found = _judged(comparison, expected, partial(_noisy, graph, source, given, name))
        if found.verdict is Verdict.UNDECIDED:
            undecided.append(name)
        elif worst is None or _rank(found.comparison) > _rank(worst):
            worst = found.comparison
    return Amplified(outputs=outputs, between=worst, undecided=tuple(undecided))


@dataclass(slots=True, kw_only=True)
class _Own:
    """What the definitions make of the program's own values, op by op beside a plain evaluation.

    Where an op reads the same as in the plain evaluation its result is that one's. `values`: what later ops read, the
    program's own where `got` has it; `differing`: those that are not those of the plain evaluation.
    """

    graph: Graph
    source: ModelSource
    got: Mapping[str, Value]
    values: dict[str, Value]
    differing: set[str] = field(default_factory=set)

    def result(self, name: str, plain: Value) -> Value:
        """The result that an op has from the program's own values; `plain`: the one of the plain evaluation."""
        index = self.graph.producer[name]
        result = plain
        if not self.differing.isdisjoint(self.graph.ops[index].inputs):
            ((_, result),) = evaluated(self.graph, self.source, self.values, ops=(index,))
        self.values[name] = self.got.get(name, result)
        if not _is_same(self.values[name], plain):
            self.differing.add(name)
        for read in self.graph.ops[index].inputs:
            if max(self.graph.consumers.get(read, (index,))) <= index:
                self.values.pop(read, None)
        return result


def _always(value: Value) -> Callable[[], Value]:
    return lambda: value


def _is_same(one: Value, other: Value) -> bool:
    """True for one object, and for arrays of equal bytes."""
    if one is other:
        return True
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return False
    alike = one.shape == other.shape and one.dtype == other.dtype and one.dtype.kind != "O"
    return alike and one.tobytes() == other.tobytes()


def _noisy(graph: Graph, source: ModelSource, given: Mapping[str, Value], name: str) -> Value:
    """A tensor disturbed by all roundings since the values that are `given`."""
    waiting, behind = [graph.producer[name]], set[int]()
    while waiting:
        index = waiting.pop()
        if index not in behind:
            behind.add(index)
            reads = (read for read in graph.ops[index].inputs if read not in given)
            waiting += [graph.producer[read] for read in reads if read in graph.producer]
    known = {read: given[read] for index in behind for read in graph.ops[index].inputs if read in given}
    noise = partial(_disturbed, graph)
    return dict(evaluated(graph, source, known, disturb=noise, ops=sorted(behind)))[name]


def _pairs(graph: Graph, source: ModelSource, inputs: Mapping[str, Value]) -> Iterator[tuple[str, Value, Value]]:
    """Every tensor that an op makes, plain and disturbed."""
    noise = partial(_disturbed, graph)
    pairs = zip(evaluated(graph, source, inputs), evaluated(graph, source, inputs, disturb=noise), strict=True)
    for (name, plain), (_, noisy) in pairs:
        yield name, plain, noisy


def _judged(comparison: Comparison, values: Value, noisy: Callable[[], Value]) -> Judged:
    """Judges a comparison with the spread of its tensor, for which the disturbed values are asked if they matter."""
    if comparison.holds:
        return Judged(comparison=comparison)
    other = compare(comparison.tensor, noisy(), values)
    spread = other.max_error
    if not isinstance(values, np.ndarray) or isinstance(comparison.got, str) or spread == 0.0:
        # another kind, type or shape, or a tensor without rounding
        return Judged(comparison=comparison, spread=spread)
    steps = _STEPS.get(values.dtype.name, 0)
    if _ROOM * spread <= steps * _UNDECIDED and _ROOM * other.differing <= values.size * _UNDECIDED:
        limit = max(1.0, _ROOM * spread)
        holds = comparison.max_error <= limit and comparison.differing <= max(1.0, _ROOM * other.differing)
        widened = replace(comparison, limit=limit, holds=holds)
        return Judged(comparison=widened, verdict=Verdict.WIDENED, spread=spread)
    is_exact = values.dtype.kind in "biuSUO"
    if not isfinite(spread) or _ROOM * spread >= _UNDECIDED or is_exact:
        return Judged(comparison=comparison, verdict=Verdict.UNDECIDED, spread=spread)
    limit = max(comparison.limit, _ROOM * spread)
    widened = replace(comparison, limit=limit, holds=comparison.max_error <= limit)
    return Judged(comparison=widened, verdict=Verdict.WIDENED, spread=spread)


def _from_equal_operands(comparison: Comparison, elements: int) -> Comparison:
    """A quantised tensor of a program beside what the definitions make of the same operands.

    Sums of integers are equal. Where an op sums floats in boxes, few elements may lie next to a tie.
    """
    holds = comparison.max_error <= 1.0 and comparison.differing <= max(1.0, _FEW * elements)
    return comparison if comparison.holds else replace(comparison, limit=1.0, holds=holds)


def _rank(comparison: Comparison) -> tuple[bool, float]:
    share = comparison.max_error / comparison.limit if comparison.limit else comparison.max_error
    return not comparison.holds, share


def _disturbed(graph: Graph, op: Op, value: Value, steps: Callable[[], Values] | None) -> Value:
    """A result with every element changed by the rounding of its op; the same for the same graph."""
    if steps is not None:
        noise: Any = np.random.default_rng([_SEED, *op.output.encode()]).standard_normal(np.shape(value))
        return rounded(call_of(graph, op), steps() + _BETWEEN_STEPS * noise)
    deviation, absolute = rounding_of(graph, op), absolute_rounding_of(graph, op)
    if deviation + absolute == 0.0 or not isinstance(value, np.ndarray):
        return value
    random = np.random.default_rng([_SEED, *op.output.encode()])
    noise = random.standard_normal(value.shape, dtype=np.float32)
    with np.errstate(all="ignore"):
        # float64 throughout: a narrower type would lose factors close to 1
        disturbed = value.astype(np.float64) * (1.0 + deviation * noise) + absolute * noise
        return np.asarray(disturbed.astype(value.dtype))
