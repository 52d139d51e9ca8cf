"""Nodes left to the host: their operands and results, and the reason (IMPORT-6, IMPORT-7).

In: nodes that lowering does not put on the chip. Out: the `HostNode`s of the graph and one op per used result.
In the value table only those results change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import onnx

from compiler.errors import LimitError, ModelError, printable
from compiler.frontend.fold import bounded
from compiler.frontend.host import HostResult, declared_results, host_macs, host_node, host_results
from compiler.frontend.inline_functions import FunctionTable, captured, names_files
from compiler.frontend.lowering_errors import data_elsewhere, unmade_value
from compiler.frontend.read import plain_domain
from compiler.frontend.signature import Signature
from compiler.frontend.single_node import is_legal, result_types
from compiler.frontend.tensor_table import ValueTable
from compiler.frontend.validate import MAX_ELEMENTS
from compiler.ir.graph import HOST, HostNode, Op, Tensor, free_key, host_op
from compiler.ops import OP_KINDS
from compiler.ops.base import Array, default_axes

# Largest number of nodes of a model that ONNX Runtime checks, at a few milliseconds each. If it accepts all of them,
# further nodes count as accepted.
_ASKED_MAX: Final = 256
# What ONNX Runtime writes when it saves a model optimised at its highest level.
_BLOCKED_LAYOUT: Final = "com.microsoft.nchwc"
# The operator set of views on the host: Reshape has its shape as an input.
_RESHAPE_OPSET: Final = 13


class HostNodes:
    """The host nodes of one model so far, by their key in the graph; lives as long as lowering."""

    def __init__(self, table: ValueTable, functions: FunctionTable) -> None:
        self.nodes: dict[str, HostNode] = {}
        self._table = table
        self._functions = functions
        self._asked = 0

    def leave(
        self,
        node: onnx.NodeProto,
        name: str,
        opsets: Mapping[str, int],
        reason: str,
        results: Sequence[HostResult],
        used: Collection[str],
    ) -> list[Op]:
        """Leaves the node to the host; returns one op per result in `used`.

        Raises ModelError for a value that no node makes, and for data in other files.
        """
        if names_files(node):
            raise data_elsewhere("the node", name, "a node on the host", node.op_type)
        values = [*node.input, *captured(node)]
        reads = tuple(self._table.resolved(value) if value else "" for value in values)
        for value, source in zip(values, reads, strict=True):
            if value and source not in self._table.tensors:
                raise unmade_value(node, name, value)
        macs = host_macs(node, [self._table.tensors.get(value) for value in reads[: len(node.input)]])
        key = self._add(host_node(node, name, reason, reads, opsets, self._functions, macs))
        ops = []
        for position, (output, result) in enumerate(zip(node.output, results, strict=True)):
            if output and output in used:
                self._table.forget(output)
                self._table.tensors[output] = _tensor(output, result, name)
                ops.append(host_op(key, reads, output, (name,), result=position))
        return ops

    def view(self, op: Op, shape: str, why: str) -> Op:
        """A Reshape of the graph as a host node; `shape` is the constant with the result's extents."""
        inputs = (op.inputs[0], shape)
        node = onnx.helper.make_node("Reshape", list(inputs), [op.output])
        key = self._add(host_node(node, op.node, why, inputs, {"": _RESHAPE_OPSET}, self._functions, 0))
        return host_op(key, inputs, op.output, op.origin)

    def foreign(self, node: onnx.NodeProto, opsets: Mapping[str, int], limit: str) -> tuple[str, list[HostResult]]:
        """Why an op of a domain outside ONNX stays on the host, and what is known of its results.

        `limit`: what keeps this form of an operator from the accelerator; "" if other forms do not run there either.
        The types come from ONNX Runtime if it knows the domain, else from the model's declarations (`value_info`).
        """
        types = result_types(node, *self._operands(node), opsets)
        reason = limit or f"domain {printable(node.domain, 80)} runs on the host"
        if node.domain == _BLOCKED_LAYOUT:
            reason += (
                ": it is ONNX Runtime's layout for one processor; save the model optimised at level EXTENDED instead"
            )
        if not types:
            types = self._table.declared
            reason = limit or (
                f"no function of the model defines op {printable(node.op_type, 80)!r} of domain"
                f" {printable(node.domain, 80)!r}, and ONNX Runtime does not know it"
            )
        return reason, declared_results(node, types, self._table.fixed_dims)

    def results(
        self, node: onnx.NodeProto, name: str, signature: Signature, opsets: Mapping[str, int]
    ) -> list[HostResult]:
        """Types and shapes of the node's outputs by ONNX's shape inference, or by ONNX Runtime if the inference fails.

        Raises ModelError if both fail, and LimitError for an extent beyond 64 bits, which the inference wraps around.
        """
        operands = self._operands(node)
        try:
            found = host_results(node, name, signature, *operands, opsets)
        except ModelError:
            types = result_types(node, *operands, opsets)
            if not types:
                raise
            found = declared_results(node, types, self._table.fixed_dims)
        found[:1] = [self._at_all_extents(node, name, opsets, first) for first in found[:1]]
        if any(min(result.shape or (), default=0) < 0 for result in found):
            raise LimitError(
                "a result has too many elements",
                code="tensor_too_large",
                stage="import",
                node=name,
                op_type=node.op_type,
                actual="an extent of more than 64 bits",
                limit=MAX_ELEMENTS,
            )
        return found

    def _at_all_extents(
        self, node: onnx.NodeProto, name: str, opsets: Mapping[str, int], first: HostResult
    ) -> HostResult:
        """The first result, whose extents vary as elements of operands do: the inference sees only their maxima."""
        kind = None if plain_domain(node.domain) else OP_KINDS.get(node.op_type)
        varies = any(self._table.resolved(value) in self._table.symbolic for value in node.input if value)
        if kind is None or first.shape is None or not varies:
            return first
        try:
            shape = kind.infer(self._table.call(node, name, opsets[""])).shape
        except ModelError:
            return first
        return replace(first, shape=shape) if shape == first.shape else first

    def is_legal(self, node: onnx.NodeProto, name: str, signature: Signature, opsets: Mapping[str, int]) -> bool:
        """Whether ONNX Runtime accepts a node that a definition rejects (IMPORT-7)."""
        self._asked += 1
        if self._asked > _ASKED_MAX:
            return True
        try:
            shapes = [result.shape for result in self.results(node, name, signature, opsets)]
        except (LimitError, ModelError):
            return False
        elements = None if None in shapes else sum(prod(map(int, shape or ())) for shape in shapes)
        return is_legal(node, *self._operands(node), opsets, elements)

    def held(self, ops: Iterable[Op], outputs: Iterable[str]) -> list[Tensor]:
        """The tensors that the host holds: operands and results of its nodes, and outputs that are constants."""
        names = dict.fromkeys(name for op in ops if op.kind == HOST for name in (*op.inputs, op.output) if name)
        tensors = [self._table.tensors[name] for name in names | dict.fromkeys(outputs)]
        return [tensor for tensor in tensors if tensor.name in names or tensor.constant is not None]

    def _add(self, node: HostNode) -> str:
        key = free_key(self.nodes, node.name)
        self.nodes[key] = node
        return key

    def _operands(self, node: onnx.NodeProto) -> tuple[dict[str, Tensor], dict[str, Array]]:
        """The tensors that the node reads and captures, by name, and the values of small constants among them."""
        tensors = {
            value: self._table.tensors[self._table.resolved(value)]
            for value in [*node.input, *captured(node)]
            if value and self._table.resolved(value) in self._table.tensors
        }
        return tensors, {v: self._table.values[t.name] for v, t in tensors.items() if t.name in self._table.values}


def _tensor(name: str, result: HostResult, node: str) -> Tensor:
    """A host node's result as a tensor; without a known shape or without elements it is unknown before the run."""
    known = result.shape is not None and min(result.shape, default=1) > 0
    shape = result.shape if known and result.shape is not None else ()
    if known:
        bounded(shape, node, f"output {name!r}")
    return Tensor(name=name, shape=shape, dtype=result.dtype, axes=default_axes(len(shape)), is_known=known)
