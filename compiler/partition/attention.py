"""Attention as one op of the chip, so that its scores leave no core (SCHED-4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from compiler.frontend.patterns.graph_queries import Lookup
from compiler.frontend.precision import with_values
from compiler.frontend.source import ModelSource, opened
from compiler.ir.graph import Attribute, Graph, Op
from compiler.ir.pattern import Pattern
from compiler.ops import FUSED_ATTENTION
from compiler.ops.attention import ScoreStep
from compiler.ops.base import FLOATS
from compiler.ops.op_facts import graph_facts
from compiler.partition.alone import only
from compiler.partition.made import Made
from compiler.partition.partition import CandidateFactory

# One op is worth while from this part of the price on that its ops have in groups. Its channels are not shared out, so
# its groups can be cut in fewer ways: where the prices were within 2 %, networks became up to 1.35 times as slow
# (whisper-encoder on cluster4x4).
_WORTH: Final = 0.98

_NUMBER_STEPS: Final = MappingProxyType({"Mul": ScoreStep.TIMES, "Div": ScoreStep.OVER, "Max": ScoreStep.LEAST})


class _Step(NamedTuple):
    """What one op does with scores: the step, its number, its tensor if it has one, and the scores that it reads."""

    step: str
    scores: str
    number: float = 0.0
    tensor: str = ""


class _After(NamedTuple):
    """The ops from the softmax to the product with the values, whether NaN becomes 0, and which choose 0 by row."""

    passed: tuple[int, ...]
    nan_as_zero: bool
    by_row: tuple[int, ...]


class _Fused(NamedTuple):
    """The ops that stand for an attention, and those that they replace."""

    ops: tuple[Op, ...]
    replaced: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseAttention:
    """Pass: the ops of a recognised attention become one, from the product of queries and keys to that with values.

    Scores of all keys would have to be held for a row of queries, or be written and read again. One op takes keys and
    values part by part, and what it holds does not grow with their number. An attention stays as it is where one op
    costs no less, and where something is done with its scores that the op has no step for. `source` is the model
    file, from which constants of one element are read.
    """

    name: str = "fuse-attention"
    source: ModelSource
    candidates: CandidateFactory

    def run(self, graph: Graph) -> Graph:
        """The graph with one op for each attention that is better off so."""
        lookup, made = Lookup(with_values(graph), opened(graph.source, self.source)), Made(graph.tensors)
        worth: dict[object, bool] = {}
        begun: dict[int, tuple[Op, ...]] = {}
        gone: set[int] = set()
        patterns: list[Pattern] = []
        for pattern in graph.patterns:
            found = _fused(lookup, pattern, made) if pattern.kind == "attention" else None
            if found is None or not self._is_worth(graph, found, made, worth):
                patterns.append(pattern)
                continue
            begun[max(found.replaced)] = found.ops
            gone |= found.replaced
            names = {op.output for index, op in enumerate(graph.ops) if index not in found.replaced}
            left = tuple(name for name in pattern.ops if name in names)
            patterns.append(replace(pattern, ops=(*left, *(op.output for op in found.ops))))
        if not begun:
            return graph
        ops: list[Op] = []
        for index, op in enumerate(graph.ops):
            ops += begun.get(index, () if index in gone else (op,))
        names = {name for op in ops for name in (*op.inputs, op.output)} | {*graph.inputs, *graph.outputs}
        kept = MappingProxyType({name: tensor for name, tensor in made.tensors.items() if name in names})
        return replace(graph, ops=tuple(ops), tensors=kept, patterns=tuple(patterns))

    def _is_worth(self, graph: Graph, found: _Fused, made: Made, worth: dict[object, bool]) -> bool:
        """Whether one op costs less than its ops in groups; equal attentions are asked about once."""
        whole, apart = found.ops[:1], tuple(graph.ops[index] for index in sorted(found.replaced))
        facts = [graph_facts(only(graph, made.tensors, ops)) for ops in (whole, apart)]
        key = tuple(op.signature for of in facts for op in of.ops)
        if key not in worth:
            mine = self.candidates(facts[0]).price([(0,)])
            others = [] if mine is None else map(self.candidates(facts[1]).price, _groupings(apart))
            worth[key] = mine is not None and all(other is None or mine <= _WORTH * other for other in others)
        return worth[key]


def _groupings(ops: tuple[Op, ...]) -> list[list[tuple[int, ...]]]:
    """How the ops of an attention may be grouped: all together, and cut before the softmax, behind it, or both."""
    softmax = next(number for number, op in enumerate(ops) if op.kind == "Softmax")
    first, last = range(softmax), range(softmax + 1, len(ops))
    return [
        [(*first, softmax, *last)],
        [(*first,), (softmax, *last)],
        [(*first, softmax), (*last,)],
        [(*first,), (softmax,), (*last,)],
    ]


def _fused(lookup: Lookup, pattern: Pattern, made: Made) -> _Fused | None:
    """What can stand for an attention; None if nothing can."""
    graph = lookup.graph
    members = {graph.producer[name] for name in pattern.ops if name in graph.producer}
    softmax = [index for index in members if graph.ops[index].kind == "Softmax"]
    if len(members) < len(pattern.ops) or len(softmax) != 1:
        return None
    before = _before(lookup, members, graph.ops[softmax[0]].inputs[0])
    after = _after(lookup, members, softmax[0])
    if before is None or after is None:
        return None
    product, steps = before
    first, last = graph.ops[product], graph.ops[after.passed[-1]]
    (query, key), value = first.inputs, last.inputs[1]
    inputs = (query, *(step.tensor for step in steps.values() if step.tensor), key, value)
    tensors = [made.tensors[name] for name in inputs]
    scores, result = graph.tensors[first.output], graph.tensors[last.output]
    replaced = frozenset({product, *steps, softmax[0], *after.passed})
    if scores.shape[:-1] != result.shape[:-1] or not min((*scores.shape, *result.shape), default=0):
        return None
    if len({tensors[0].dtype, tensors[-2].dtype, tensors[-1].dtype, result.dtype}) > 1:
        return None
    if any(graph.tensors[graph.ops[index].output].dtype != result.dtype for index in after.by_row):
        return None
    if any(graph.producer.get(name) in replaced for name in inputs):
        return None
    if any(tensor.stored_dtype != tensor.dtype for tensor in tensors) or not lookup.is_closed(replaced):
        return None
    attributes: dict[str, Attribute] = {
        "nan_as_zero": int(after.nan_as_zero),
        "numbers": tuple(step.number for step in steps.values()),
        "steps": tuple(step.step for step in steps.values()),
    }
    origin = tuple(
        dict.fromkeys(node for index in sorted(replaced - {*after.by_row}) for node in graph.ops[index].origin)
    )
    ops = [Op(kind=FUSED_ATTENTION, inputs=inputs, output="", origin=origin, attributes=tuple(attributes.items()))]
    for index in after.by_row:
        # rows of weights that become 0 make rows of results that are 0
        chosen = graph.ops[index]
        name = made.add(replace(result, name=f"{result.name}/rows"))
        ops[-1] = replace(ops[-1], output=name)
        data = 2 if lookup.scalar(chosen.inputs[1]) == 0 else 1
        ops.append(replace(chosen, inputs=tuple(name if n == data else own for n, own in enumerate(chosen.inputs))))
    ops[-1] = replace(ops[-1], output=last.output)
    return _Fused(tuple(ops), replaced)


def _before(lookup: Lookup, members: set[int], name: str) -> tuple[int, dict[int, _Step]] | None:
    """The product of queries and keys behind the scores `name`, and the steps on the way, in execution order."""
    steps: dict[int, _Step] = {}
    while (maker := lookup.maker(name)) in members and maker is not None:
        op = lookup.graph.ops[maker]
        if op.kind == "MatMul":
            return maker, dict(reversed(steps.items()))
        step = _step(lookup, members, op)
        if step is None or lookup.tensor(step.scores).shape != lookup.tensor(op.output).shape:
            return None
        steps[maker] = step
        name = step.scores
    return None


def _step(lookup: Lookup, members: set[int], op: Op) -> _Step | None:
    """What an op does with scores; None for what there is no step for."""
    match op.kind:
        case "Mul" | "Div" | "Max":
            scores, number = lookup.split(op) or ("", 0.0)
            if op.kind == "Div" and scores != op.inputs[0]:
                return None
            found = _Step(_NUMBER_STEPS[op.kind], scores, number)
        case "Tanh":
            found = _Step(ScoreStep.TANH, op.inputs[0])
        case "Cast" if lookup.tensor(op.output).dtype in FLOATS:
            found = _Step(f"{ScoreStep.ROUNDED} to {lookup.tensor(op.output).dtype}", op.inputs[0])
        case "Add":
            scores = next((name for name in op.inputs if lookup.maker(name) in members), "")
            found = _Step(ScoreStep.PLUS, scores, tensor=op.inputs[op.inputs[0] == scores])
        case "Where":
            condition, *choices = op.inputs
            numbers = [lookup.scalar(name) for name in choices]
            scores = choices[numbers[0] is not None]
            kind = ScoreStep.UNLESS if numbers[0] is not None else ScoreStep.WHERE
            found = _Step(kind, scores, number=next((n for n in numbers if n is not None), 0.0), tensor=condition)
        case _:
            return None
    return found if found.scores and lookup.maker(found.scores) in members else None


def _is_by_row(lookup: Lookup, op: Op) -> bool:
    """True for a Where that keeps or makes 0 whole rows."""
    condition, *choices = op.inputs
    return lookup.tensor(condition).shape[-1:] == (1,) and 0 in map(lookup.scalar, choices)


def _after(lookup: Lookup, members: set[int], softmax: int) -> _After | None:
    """What happens to the softmax's result up to the product with the values; None if that cannot be told."""
    passed: list[int] = []
    by_row: list[int] = []
    name, nan_as_zero = lookup.graph.ops[softmax].output, False
    while readers := [index for index in lookup.readers(name) if index in members]:
        passed += readers
        last = lookup.graph.ops[readers[-1]]
        match [lookup.graph.ops[index].kind for index in readers]:
            case ["MatMul"]:
                return _After(tuple(passed), nan_as_zero, tuple(by_row))
            case ["IsNaN", "Where"] if lookup.scalar(last.inputs[1]) == 0:
                nan_as_zero = True
            case ["Where"] if _is_by_row(lookup, last):
                by_row.append(readers[0])
            case ["Cast"] if lookup.tensor(last.output).dtype in FLOATS:
                pass
            case _:
                return None
        name = last.output
    return None
