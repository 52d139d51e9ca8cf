"""Ops that read rows of a table by index, left to the host where no engine of the chip brings rows to a core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.errors import ModelError
from compiler.frontend.lowering_errors import not_strict
from compiler.ir.constant import Constant, Literal
from compiler.ir.graph import HOST, Graph, HostNode, Op, Tensor, leave_ops_to_host
from compiler.ops import call_of, definition
from compiler.ops.base import default_axes
from compiler.ops.host_form import standard_node_of
from compiler.profile.schema import Profile

_REASON: Final = "the profile has no engine (iodma) that brings rows of a table from DRAM to a core"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRowsToHost:
    """Pass: on a profile without IODMA every op that reads rows of a table by index becomes the host's.

    `strict` makes that an error, as of any op of the host (IMPORT-6). `minima`: the smallest extents of dynamic
    dimensions; a table that is read whole for a large result is read by rows for a small one.
    """

    name: str = "rows-to-host"
    profile: Profile
    strict: bool = False
    minima: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced; raises ModelError under `strict` if there are any."""
        if self.profile.engines.iodma is not None:
            return graph
        found = {index for index, op in enumerate(graph.ops) if op.kind != HOST and self._reads_rows(graph, op)}
        if not found:
            return graph
        tensors, nodes = dict(graph.tensors), {}
        for index in sorted(found):
            op = graph.ops[index]
            if len(op.inputs) == 1:
                indices = _indices(graph, op)
                tensors[indices.name] = indices
                op = replace(op, inputs=(*op.inputs, indices.name))
            nodes[index] = _host_node(graph, op)
        changed = replace(leave_ops_to_host(graph, nodes), tensors=MappingProxyType(tensors))
        if self.strict:
            raise not_strict(changed)
        return changed

    def _reads_rows(self, graph: Graph, op: Op) -> bool:
        """Whether an op reads a table by rows at some extents: one of more elements than its result has."""
        tables = definition(op).gathered(call_of(graph, op))
        output = graph.tensors[op.output]
        least = {axis: expression.value(self.minima) for axis, expression in output.symbols if self.minima}
        elements = prod(least.get(axis, extent) for axis, extent in enumerate(output.shape))
        return any(graph.tensors[op.inputs[position]].elements > elements for position in tables)


def _indices(graph: Graph, op: Op) -> Tensor:
    """The indices of a Gather that holds them as a progression, as a constant."""
    if op.symbols or graph.tensors[op.output].symbols:
        raise ModelError(
            "the host is to read rows of a table at positions that depend on a dynamic dimension",
            code="known_at_maxima_only",
            stage="partition",
            node=op.node,
            op_type=op.kind,
            hint="Give the dimension a fixed extent, or use a profile with iodma",
        )
    attributes, shape = dict(op.attributes), graph.tensors[op.output].shape
    axis, begin, step = (attributes.get(name, default) for name, default in (("axis", 0), ("begin", 0), ("step", 1)))
    assert isinstance(axis, int)
    assert isinstance(begin, int)
    assert isinstance(step, int)
    extents = shape[axis : axis + 1] if len(shape) == len(graph.tensors[op.inputs[0]].shape) else ()
    values = begin + step * np.arange(extents[0] if extents else 1, dtype=np.int64)
    name = f"{op.output}:indices"
    while name in graph.tensors:
        name += "'"
    data = Literal(data=values.tobytes())
    constant = Constant(shape=extents, dtype="int64", data=data)
    return Tensor(name=name, shape=extents, dtype="int64", axes=default_axes(len(extents)), constant=constant)


def _host_node(graph: Graph, op: Op) -> HostNode:
    """The op as the ONNX node that the host runs."""
    return standard_node_of(graph, op, {"axis": dict(op.attributes).get("axis", 0)}, _REASON)
