"""Constants that are read along different axes, as several of equal values (PROG-2, PROF-2).

What a core holds of a weight is a range of its op's output channels. A matrix that one op multiplies by and adds, or,
where weights are stationary, one that a second op multiplies by transposed, would have to lie there in two ways.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from types import MappingProxyType

from compiler.ir.graph import HOST, Graph, Op
from compiler.ops import call_of, definition
from compiler.ops.op_facts import FACTORS, OpFacts, graph_facts
from compiler.partition.made import Made
from compiler.profile.schema import Profile
from compiler.tiling.stationary import channel_axis


@dataclass(frozen=True, slots=True, kw_only=True)
class UntieWeights:
    """Pass: of a constant that is read in several ways, each way but the first gets one of its own."""

    name: str = "untie-weights"
    profile: Profile

    def run(self, graph: Graph) -> Graph:
        """The graph with such constants as several."""
        readers = Counter(name for op in graph.ops for name in op.inputs if name)
        tied = {name for name, count in readers.items() if count > 1 and graph.tensors[name].constant is not None}
        if not tied:
            return graph
        facts, made = graph_facts(graph), Made(graph.tensors)
        ways: dict[tuple[object, ...], dict[object, str]] = {}
        copies: dict[tuple[object, ...], str] = {}
        ops: list[Op] = []
        for op, its in zip(graph.ops, facts.ops, strict=True):
            inputs = list(op.inputs)
            for position, way in _ways(graph, op, its).items():
                name = inputs[position]
                if name not in tied:
                    continue
                # where weights stream, what another op does with it does not matter
                known = ways.setdefault((name, None if self.profile.is_stationary else op.output), {})
                if way not in known and known and (name, way) not in copies:
                    copies[name, way] = made.add(replace(graph.tensors[name], name=f"{name}/again"))
                if way not in known:
                    known[way] = copies[name, way] if known else name
                inputs[position] = known[way]
            ops.append(replace(op, inputs=tuple(inputs)))
        if len(made.tensors) == len(graph.tensors):
            return graph
        return replace(graph, ops=tuple(ops), tensors=MappingProxyType(made.tensors))


def _ways(graph: Graph, op: Op, facts: OpFacts) -> dict[int, tuple[int | None, bool]]:
    """How an op reads its constants, by place: on which axis of theirs its channels lie, whether they are factors."""
    if op.kind == HOST:
        return {}
    access = definition(op).access(call_of(graph, op))
    read = [at for at, (name, maps) in enumerate(zip(op.inputs, access, strict=True)) if name and maps is not None]
    return {
        at: (channel_axis(facts, o, graph.tensors[o.tensor].shape), facts.matrix is not None and number < FACTORS)
        for number, (at, o) in enumerate(zip(read, facts.operands, strict=True))
        if o.constant
    }
