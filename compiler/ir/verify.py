"""Invariants of every graph between two passes."""

from __future__ import annotations

from compiler.errors import InternalError
from compiler.ir.graph import HOST, Graph
from compiler.ir.symbol import Dim


def verify_graph(graph: Graph) -> None:
    """Raises InternalError unless ops are in topological order, each value is made once and every name is known."""
    known = set(graph.inputs) | {name for name, t in graph.tensors.items() if t.constant is not None}
    for op in graph.ops:
        for name in op.inputs:
            if name and name not in known:
                raise InternalError(f"op reads {name!r} before it is made", stage="import", node=op.node)
        if op.output in known:
            raise InternalError(f"value {op.output!r} is made twice", stage="import", node=op.node)
        if not op.origin:
            raise InternalError(f"the op that makes {op.output!r} has no origin", stage="import")
        tensor = graph.tensors.get(op.output)
        if tensor is None or len(tensor.axes) != len(tensor.shape) or len(set(tensor.axes)) != len(tensor.axes):
            raise InternalError(f"value {op.output!r} has no proper type", stage="import", node=op.node)
        if op.kind == HOST:
            if dict(op.attributes).get("node") not in graph.host:
                raise InternalError("a host op has no host node", stage="import", node=op.node)
        elif not all(graph.tensors[name].is_known for name in (*op.inputs, op.output) if name):
            raise InternalError(
                "an op of the chip reads or makes a value of unknown shape", stage="import", node=op.node
            )
        if any(
            isinstance(v, Dim) for _, value in op.attributes for v in (value if isinstance(value, tuple) else (value,))
        ):
            raise InternalError("an attribute varies with a dynamic dimension", stage="import", node=op.node)
        known.add(op.output)
    for tensor in graph.tensors.values():
        if any(isinstance(extent, Dim) for extent in tensor.shape):
            raise InternalError(f"the shape of {tensor.name!r} is not settled", stage="import")
    for name in graph.outputs:
        if name not in known:
            raise InternalError(f"graph output {name!r} is never made", stage="import")
