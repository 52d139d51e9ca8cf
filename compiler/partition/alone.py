"""Whether an op compiles as a segment of its own, asked of ops that a pass is about to make."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.op_facts import graph_facts
from compiler.partition.partition import CandidateFactory, Refused


def refused_alone(candidates: CandidateFactory, tensors: Mapping[str, Tensor], op: Op, opset: int) -> Refused | None:
    """Why an op over some of the tensors does not compile alone; None if it does."""
    reads = [name for name in op.inputs if name]
    alone = Graph(
        name=op.output,
        ops=(op,),
        tensors=MappingProxyType({name: tensors[name] for name in (*reads, op.output)}),
        inputs=tuple(name for name in dict.fromkeys(reads) if tensors[name].constant is None),
        outputs=(op.output,),
        opset=opset,
    )
    return candidates(graph_facts(alone)).refusal((0,))
