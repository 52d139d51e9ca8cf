"""Ops that the compiler failed on, left to the host (IMPORT-7)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from compiler.degraded import Degradations
from compiler.ir.graph import HOST, Graph, Op
from compiler.ops.host_form import host_node_of

_REASON: Final = "the compiler failed on the op (see degraded)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveToHost:
    """Pass: the ops that `degradations` names become host nodes; all others stay as they are."""

    name: str = "leave-to-host"
    degradations: Degradations = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced; the same object if there are none."""
        wanted = {i for i, op in enumerate(graph.ops) if op.output in self.degradations.host and op.kind != HOST}
        if not wanted:
            return graph
        ops, hosts = list(graph.ops), dict(graph.host)
        for index in sorted(wanted):
            op = graph.ops[index]
            key = op.node
            while key in hosts:
                key += "'"
            hosts[key] = host_node_of(graph, op, _REASON)
            ops[index] = Op(
                kind=HOST,
                inputs=op.inputs,
                output=op.output,
                origin=op.origin,
                attributes=(("node", key), ("result", 0)),
            )
        return replace(graph, ops=tuple(ops), host=MappingProxyType(hosts))
