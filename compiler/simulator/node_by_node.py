"""Judges the definitions of a quantised network op by op, each from ONNX Runtime's own values (IMPORT-9, SIM-1).

Where ONNX Runtime rounds the floats of a product, and we the integers, a result next to a tie differs by a step. Deep
networks make more of it: one such difference may change an output by many steps, and no limit on outputs can tell that
from a wrong program. So every op is computed from what ONNX Runtime has for its operands, and compared with what it has
for the result, a step apart at most. That the program computes what the definitions do is shown apart, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.host_bound import HostBound
from compiler.ir.graph import HOST, Graph, Op
from compiler.simulator.compare import LEAST_FEW, Comparison, compare, limits_of
from compiler.simulator.host import random_tensors
from compiler.simulator.reference import evaluated, run_reference

# This part of a tensor's elements may be a step off besides few: what lies next to a tie, and what fused kernels
# approximate.
_FEW: Final = 2.0**-8
# Limit on the tensors that ONNX Runtime returns for it.
_LARGEST_BYTES: Final = 2**30


def nodes_compared(
    graph: Graph, source: ModelSource, inputs: Mapping[str, Any], bound: HostBound
) -> Mapping[str, Comparison]:
    """Results of ops by tensor, each from ONNX Runtime's values before it; empty where these take too much memory.

    What an op rounds to integers may be a step off in a few elements; conversions alone, which both compute alike, may
    not. Raises what the reference raises.
    """
    made = {name for node in ReadModel().run(source).proto.graph.node for name in node.output if name}
    wanted = [op.output for op in graph.ops if op.kind != HOST and op.output in made - random_tensors(graph)]
    if not wanted or sum(graph.tensors[name].size_bytes for name in wanted) > _LARGEST_BYTES:
        return {}
    unread = {tensor.name: tensor.shape for tensor in graph.unread if tensor.is_known}
    reference = run_reference(
        source, inputs, wanted=wanted, zeros_for_missing=True, missing_shapes=unread, bound=bound
    ).values
    limits, found = limits_of(graph), dict[str, Comparison]()

    def theirs(op: Op, value: Any, steps: object) -> Any:
        name = op.output
        if name not in reference:
            return value
        step = 0.0 if steps is None else 1.0
        one = compare(name, value, reference[name], limit=limits.get(name), step=step)
        few = LEAST_FEW + _FEW * graph.tensors[name].elements
        found[name] = replace(one, holds=one.holds and (step == 0.0 or one.differing <= few))
        return reference[name]

    for _ in evaluated(graph, source, inputs, disturb=theirs):
        pass
    return found
