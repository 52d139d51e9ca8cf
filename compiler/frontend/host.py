"""Nodes on the host: what is known of their results, and the node as the host will run it (IMPORT-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import onnx
from onnx import helper, shape_inference

from compiler.errors import LimitError, ModelError, printable
from compiler.frontend.constant_values import (
    MAX_COMPUTED_BYTES,
    ONNX_CODES,
    declared_extent,
    type_label,
    type_of_text,
    type_text,
)
from compiler.frontend.inline_functions import FunctionTable, all_nodes, subgraphs, with_defaults
from compiler.frontend.signature import KNOWN_DOMAINS, Signature
from compiler.ir.constant import Derived
from compiler.ir.graph import HostNode, Tensor
from compiler.ir.symbol import Dim, Expression
from compiler.ops.base import Array
from compiler.units import DTYPE_NAMES, element_bytes

# Bytes that the host may hold whole during a run: an input, an output, an operand or result of a host node.
MAX_HOST_BYTES: Final = 2**34
# Shape inference gets the values of constants of up to this many elements.
_SHOWN_ELEMENTS: Final = 4096
_RECURRENT: Final = frozenset(("RNN", "GRU", "LSTM"))
# Other ops that multiply matrices, if they stay on the host.
_PRODUCTS: Final = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "Gemm",
        "MatMul",
        "Einsum",
        "Attention",
        "QLinearConv",
        "QLinearMatMul",
        "ConvInteger",
        "MatMulInteger",
        "Det",
        "DFT",
        "STFT",
        "LinearAttention",
        "CausalConvWithState",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostResult:
    """One result's element type (or other ONNX type, as text) and shape; None if known only at run time."""

    dtype: str
    shape: tuple[int, ...] | None


def host_node(
    node: onnx.NodeProto,
    name: str,
    reason: str,
    inputs: Sequence[str],
    opsets: Mapping[str, int],
    functions: FunctionTable,
    macs: int | None,
) -> HostNode:
    """The node in its graph form; `inputs` are its inputs, then the values it captures, as tensors of the graph."""
    return HostNode(
        name=name,
        op_type=node.op_type,
        domain=node.domain,
        reason=reason,
        node=node.SerializeToString(deterministic=True),
        inputs=tuple(inputs),
        outputs=tuple(node.output),
        opsets=tuple(sorted(opsets.items())),
        functions=functions.called_in(node),
        macs=macs,
    )


def host_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor in the host's memory; a lower bound for types that only the host supports."""
    return tensor.elements * (element_bytes(tensor.dtype) if tensor.dtype in DTYPE_NAMES else 1)


def check_held(tensor: Tensor, node: str | None) -> None:
    """Raises LimitError naming `node`, which makes the tensor, if the tensor is too large for the host (IMPORT-4)."""
    is_computed = tensor.constant is not None and isinstance(tensor.constant.data, Derived)
    limit = MAX_COMPUTED_BYTES if is_computed else MAX_HOST_BYTES
    if tensor.is_known and host_bytes(tensor) > limit:
        raise LimitError(
            f"tensor {printable(tensor.name, 120)!r} is too large for the host",
            code="tensor_too_large",
            stage="import",
            node=node,
            actual=f"{host_bytes(tensor)} bytes in {tuple(map(int, tensor.shape))}",
            limit=f"{limit} bytes",
        )


def host_macs(node: onnx.NodeProto, tensors: Sequence[Tensor | None]) -> int | None:
    """Multiply-accumulates of a host node: those of the matrices in recurrent nodes, 0 for ops without products.

    None for control flow and for unknown shapes.
    """
    if any(True for _ in subgraphs(node)):
        return None
    if node.op_type in _RECURRENT:
        data, weight, recurrence = tensors[:3]
        if data is None or weight is None or recurrence is None or not data.is_known:
            return None
        return int(data.shape[0] * data.shape[1] * (prod(weight.shape) + prod(recurrence.shape)))
    if node.op_type in _PRODUCTS:
        return None
    return 0


def host_results(
    node: onnx.NodeProto,
    name: str,
    signature: Signature,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Array],
    opsets: Mapping[str, int],
) -> list[HostResult]:
    """Type and shape of each output, as far as ONNX's shape inference finds them.

    `tensors` are the tensors that the node reads and captures. Raises ModelError if the inference rejects the node.
    """
    symbols = _Symbols()
    types = {value: symbols.type_of(tensor) for value, tensor in tensors.items()}
    known = {value: kind for value, kind in types.items() if kind is not None}
    if any(True for _ in subgraphs(node)):
        has_functions = any(inner.domain not in KNOWN_DOMAINS for inner in all_nodes([node]))
        found = _of_control_flow(node, name, has_functions or len(known) < len(types), known, opsets)
    else:
        shown = {
            value: onnx.numpy_helper.from_array(array, value)
            for value, array in values.items()
            if array.size <= _SHOWN_ELEMENTS and value in known
        }
        try:
            found = shape_inference.infer_node_outputs(
                signature.schema,
                with_defaults(node, signature.schema),
                known,
                input_data=shown,
                opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
            )
        except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            if len(known) == len(types):
                raise _disagrees(node, name, error) from None
            found = {}
        except (RuntimeError, ValueError, TypeError, KeyError):
            found = {}
    return [symbols.result(found.get(output)) for output in node.output]


def declared_results(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], dims: Mapping[str, int]
) -> list[HostResult]:
    """Types and shapes of the node's outputs from the declared `types`; `dims` are the dynamic dimensions' extents."""
    return [_declared(types.get(output), dims) for output in node.output]


def _declared(kind: onnx.TypeProto | None, dims: Mapping[str, int]) -> HostResult:
    if kind is None or not kind.HasField("tensor_type"):
        return HostResult(dtype="" if kind is None else type_text(kind), shape=None)
    tensor = kind.tensor_type
    given = [(declared_extent(dim), dim.dim_param) for dim in tensor.shape.dim]
    extents = [dims.get(name) if extent is None else extent for extent, name in given]
    shape = tuple(extent for extent in extents if extent is not None)
    is_whole = tensor.HasField("shape") and len(shape) == len(extents)
    return HostResult(dtype=type_label(tensor.elem_type) or "", shape=shape if is_whole else None)


def _of_control_flow(
    node: onnx.NodeProto, name: str, lenient: bool, known: Mapping[str, onnx.TypeProto], opsets: Mapping[str, int]
) -> Mapping[str, onnx.TypeProto]:
    """Infers types on a model of this one node: only then does the inference see captured values."""
    graph = helper.make_graph(
        [node],
        "host",
        [helper.make_value_info(value, kind) for value, kind in known.items()],
        [helper.make_empty_tensor_value_info(output) for output in node.output if output],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    )
    try:
        # strict mode would fail on operators and types that the inference does not know
        inferred = shape_inference.infer_shapes(model, strict_mode=not lenient)
    except shape_inference.InferenceError as error:
        raise _disagrees(node, name, error) from None
    except (RuntimeError, ValueError):
        return {}
    return {value.name: value.type for value in inferred.graph.output}


def _disagrees(node: onnx.NodeProto, name: str, error: Exception) -> ModelError:
    return ModelError(
        "the node's inputs and attributes contradict each other",
        code="invalid_model",
        stage="import",
        node=name,
        op_type=node.op_type,
        actual=" ".join(str(error).split())[-200:],
    )


class _Symbols:
    """Varying extents under names that the inference passes on; the name leads back to the extent."""

    def __init__(self) -> None:
        self._names: dict[tuple[Expression, int], str] = {}
        self._by_name: dict[str, Dim] = {}

    def type_of(self, tensor: Tensor) -> onnx.TypeProto | None:
        """The value's type for the inference; None unless it is a tensor, a sequence or an optional."""
        code = ONNX_CODES.get(tensor.dtype)
        if code is None:
            return type_of_text(tensor.dtype)
        shape = [self._extent(extent) for extent in tensor.shape] if tensor.is_known else None
        return helper.make_tensor_type_proto(code, shape)

    def _extent(self, extent: int) -> int | str:
        if not isinstance(extent, Dim):
            return extent
        name = self._names.setdefault((extent.expression, int(extent)), f"extent {len(self._names)}")
        self._by_name[name] = extent
        return name

    def result(self, kind: onnx.TypeProto | None) -> HostResult:
        """The inference's result for an output."""
        if kind is None:
            return HostResult(dtype="", shape=None)
        if not kind.HasField("tensor_type"):
            return HostResult(dtype=type_text(kind), shape=None)
        tensor = kind.tensor_type
        dtype = type_label(tensor.elem_type) or ""
        extents = [
            int(dim.dim_value) if dim.HasField("dim_value") else self._by_name.get(dim.dim_param)
            for dim in tensor.shape.dim
        ]
        shape = tuple(extent for extent in extents if extent is not None)
        if not tensor.HasField("shape") or len(shape) < len(extents):
            return HostResult(dtype=dtype, shape=None)
        return HostResult(dtype=dtype, shape=shape)
