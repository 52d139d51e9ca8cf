"""Whether an op compiles as a segment of its own; what passes make of ops that do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.op_facts import graph_facts
from compiler.partition.made import Made
from compiler.partition.partition import CandidateFactory, Refused

_Found = TypeVar("_Found")


def replace_refused(
    graph: Graph,
    candidates: CandidateFactory,
    look: Callable[[Graph, Op], _Found],
    parts: Callable[[Made, Op, _Found], list[Op]],
    is_slow: Callable[[Graph, Op], bool] | None = None,
) -> Graph:
    """The graph with `parts` in place of the ops that do not compile alone and in which `look` finds something.

    Also in place of those that `is_slow` says compile alone, but in tiles that do the work many times over.
    """
    made = Made(graph.tensors)
    ops: list[Op] = []
    for op in graph.ops:
        found = look(graph, op)
        is_slower = is_slow is not None and is_slow(graph, op)
        is_kept = not found or not (is_slower or refused_alone(candidates, graph.tensors, op, graph))
        ops += [op] if is_kept else parts(made, op, found)
    return made.graph(graph, ops)


def refused_alone(candidates: CandidateFactory, tensors: Mapping[str, Tensor], op: Op, graph: Graph) -> Refused | None:
    """Why an op over some of the tensors does not compile alone, as part of a graph; None if it does."""
    return candidates(graph_facts(only(graph, tensors, (op,)))).refusal((0,))


def only(graph: Graph, tensors: Mapping[str, Tensor], ops: tuple[Op, ...]) -> Graph:
    """The graph of some ops, in execution order, over some of the tensors; the last one makes its output."""
    reads = dict.fromkeys(name for op in ops for name in op.inputs if name)
    made = {op.output for op in ops}
    return Graph(
        name=ops[-1].output,
        ops=ops,
        tensors=MappingProxyType({name: tensors[name] for name in (*reads, *made)}),
        inputs=tuple(name for name in reads if tensors[name].constant is None and name not in made),
        outputs=(ops[-1].output,),
        opset=graph.opset,
        layout=graph.layout,
    )
