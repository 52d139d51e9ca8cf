"""Products of an element type that no array of the chip multiplies, left to the host (IMPORT-7, IMPORT-9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compiler.frontend.lowering_errors import not_strict
from compiler.ir.graph import HOST, Graph, HostNode, Op, leave_ops_to_host
from compiler.ops import call_of, definition
from compiler.ops.host_form import host_node_of, standard_node_of
from compiler.profile.schema import Profile

# Kinds whose attributes are those of the ONNX operator of the same name.
_STANDARD: Final = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveProductsToHost:
    """Pass: products become the host's where the profile has no array for their element type.

    `strict` makes that an error, as of any op of the host (IMPORT-6).
    """

    name: str = "products-to-host"
    profile: Profile
    strict: bool = False

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced; raises ModelError under `strict` if there are any."""
        arrays = self.profile.matrix.arrays
        nodes = {}
        for index, op in enumerate(graph.ops):
            dtype = _multiplied_in(graph, op)
            if dtype is not None and dtype not in arrays:
                reason = (
                    f"the profile has no matrix array for element type {dtype} (it has {', '.join(sorted(arrays))})"
                )
                nodes[index] = _host_node(graph, op, reason)
        if not nodes:
            return graph
        changed = leave_ops_to_host(graph, nodes)
        if self.strict:
            raise not_strict(changed)
        return changed


def _host_node(graph: Graph, op: Op, reason: str) -> HostNode:
    """A product as the ONNX node that the host runs, at any extents; of other kinds by their definition."""
    if op.kind not in _STANDARD:
        return host_node_of(graph, op, reason)
    return standard_node_of(graph, op, dict(op.attributes), reason)


def _multiplied_in(graph: Graph, op: Op) -> str | None:
    """The element type in which the matrix unit multiplies for an op; None for what it does not work on."""
    if op.kind == HOST:
        return None
    kind, call = definition(op), call_of(graph, op)
    return None if kind.matrix(call) is None else kind.array_type(call)
