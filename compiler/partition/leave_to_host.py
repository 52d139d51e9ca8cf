"""Ops that the compiler failed on, left to the host (IMPORT-7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from compiler.degraded import Degradations
from compiler.ir.graph import HOST, Graph, leave_ops_to_host
from compiler.ops.host_form import host_node_of

_REASON: Final = "the compiler failed on the op (see degraded)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveToHost:
    """Pass: the ops that `degradations` names become host nodes; all others stay as they are."""

    name: str = "leave-to-host"
    degradations: Degradations = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced; the same object if there are none."""
        nodes = {
            index: host_node_of(graph, op, _REASON)
            for index, op in enumerate(graph.ops)
            if op.output in self.degradations.host and op.kind != HOST
        }
        return leave_ops_to_host(graph, nodes) if nodes else graph
