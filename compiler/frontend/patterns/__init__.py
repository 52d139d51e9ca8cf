"""Recognises patterns that exporters write as many nodes (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from compiler.frontend.patterns.activations import ACTIVATIONS
from compiler.frontend.patterns.attention import find_attention
from compiler.frontend.patterns.graph_queries import Lookup, Replacement, Rewrite
from compiler.frontend.patterns.group_normalisation import GROUP_NORMALISATIONS
from compiler.frontend.patterns.normalisations import NORMALISATIONS
from compiler.frontend.patterns.softmax import SOFTMAX
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ir.pattern import Pattern
from compiler.ops import OP_KINDS
from compiler.ops.base import Call, default_axes

# Op kind where a pattern's search starts (the rarest op of the pattern) -> the rewrite. Later maps work on the result
# of earlier ones.
_REWRITES: Final[tuple[Mapping[str, Rewrite], ...]] = (
    MappingProxyType({**ACTIVATIONS, **NORMALISATIONS, **SOFTMAX}),
    GROUP_NORMALISATIONS,
)
# The operator set of the rewrites' attributes.
_OPSET: Final = 23
# Names of a replacing op's new inputs.
_ROLES: Final = ("data", "scale", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognisePatterns:
    """Pass: replaces written-out activations and normalisations by one op, records attention (IMPORT-2).

    1. The search for a pattern starts at its rarest op, so the graph is walked once and each step is bounded.
    2. Ops are replaced only if no other op reads their inner values and these are no graph outputs.
    3. Constants of the model match within the rounding error of their element type.
    4. The replacing op has the replaced nodes as origin, in execution order, and the output of the last one.
    5. Each pattern found is listed in `Graph.patterns`, in execution order.
    `source` is the model file, from which constants of one element are read.
    """

    name: str = "patterns"
    source: ModelSource

    def run(self, graph: Graph) -> Graph:
        """The graph with patterns recognised."""
        rewritten = graph
        for rewrites in _REWRITES:
            rewritten = self._rewritten(rewritten, rewrites)
        patterns = dict.fromkeys((*rewritten.patterns, *self._attention(rewritten)))
        position = rewritten.producer
        return replace(rewritten, patterns=tuple(sorted(patterns, key=lambda pattern: position[pattern.ops[-1]])))

    def _rewritten(self, graph: Graph, rewrites: Mapping[str, Rewrite]) -> Graph:
        lookup = Lookup(graph, opened(graph.source, self.source))
        tensors = dict(graph.tensors)
        replaced: dict[int, Op] = {}
        taken: set[int] = set()
        patterns: list[Pattern] = []
        for index, op in enumerate(graph.ops):
            rewrite = rewrites.get(op.kind)
            found = rewrite(lookup, index) if rewrite is not None else None
            if found is None or not taken.isdisjoint(found.ops):
                continue
            made = _replacing(graph, found, tensors)
            if made is None:
                continue
            taken.update(found.ops)
            replaced[found.ops[-1]] = made
            patterns.append(Pattern(kind=found.pattern, ops=(made.output,), nodes=made.origin))
        if not replaced:
            return graph
        ops = tuple(replaced.get(i, op) for i, op in enumerate(graph.ops) if i in replaced or i not in taken)
        names = {name for op in ops for name in (*op.inputs, op.output)} | {*graph.inputs, *graph.outputs}
        kept = {name: tensor for name, tensor in tensors.items() if name in names}
        # drop patterns whose op became part of a larger pattern
        earlier = [pattern for pattern in graph.patterns if kept.keys() >= set(pattern.ops)]
        return replace(graph, ops=ops, tensors=MappingProxyType(kept), patterns=(*earlier, *patterns))

    def _attention(self, graph: Graph) -> list[Pattern]:
        lookup = Lookup(graph, opened(graph.source, self.source))
        patterns = []
        for index, op in enumerate(graph.ops):
            found = find_attention(lookup, index) if op.kind == "Softmax" else None
            if found is not None:
                outputs = tuple(graph.ops[i].output for i in found)
                patterns.append(Pattern(kind="attention", ops=outputs, nodes=_origin(graph, found)))
        return patterns


def _replacing(graph: Graph, found: Replacement, tensors: dict[str, Tensor]) -> Op | None:
    """The replacing op; adds its new constants to `tensors`. None if the accelerator does not run it."""
    output = graph.tensors[graph.ops[found.ops[-1]].output]
    given = [
        _named(f"{output.name}/{role}", entry, tensors) if isinstance(entry, Constant) else tensors[entry]
        for role, entry in zip(_ROLES, found.inputs, strict=False)
    ]
    origin = _origin(graph, found.ops)
    call = Call(op_type=found.kind, node=origin[0], attributes=found.attributes, inputs=tuple(given), opset=_OPSET)
    kind = OP_KINDS.get(found.kind)
    if kind is None or kind.unsupported(call) is not None:
        return None
    inferred = kind.infer(call)
    if (inferred.shape, inferred.dtype) != (output.shape, output.dtype):
        raise AssertionError(found)
    tensors.update((tensor.name, tensor) for tensor in given)
    return Op(
        kind=inferred.kind,
        inputs=tuple(given[position].name for position in inferred.inputs),
        output=output.name,
        origin=origin,
        attributes=tuple(sorted(inferred.attributes.items())),
    )


def _named(name: str, constant: Constant, tensors: Mapping[str, Tensor]) -> Tensor:
    while name in tensors:
        name += "'"
    axes = default_axes(len(constant.shape))
    return Tensor(name=name, shape=constant.shape, dtype=constant.dtype, axes=axes, constant=constant)


def _origin(graph: Graph, ops: tuple[int, ...]) -> tuple[str, ...]:
    """The nodes of ops, in execution order, without repeats."""
    return tuple(dict.fromkeys(node for index in ops for node in graph.ops[index].origin))
