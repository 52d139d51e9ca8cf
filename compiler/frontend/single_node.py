"""One ONNX node on ONNX Runtime: its values, its legality and the types of its results (IMPORT-7).

In: a node, its operand tensors, and their values if known. Out: an answer, or None; a failed evaluation never refuses a
model. The graph is not changed. Nodes with data in other files are not run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from compiler.frontend.constant_values import ONNX_CODES, type_of_text
from compiler.frontend.inline_functions import captured, names_files, subgraphs
from compiler.frontend.runtimes import load_model, run_model
from compiler.ir.graph import Tensor
from compiler.ops.base import Array
from compiler.units import DTYPE_NAMES, numpy_dtype

# A node with more elements in its operands and results than this is not run.
_RUN_ELEMENTS: Final = 2**20
_IR_VERSION: Final = 10


def evaluated(
    node: onnx.NodeProto, arrays: Mapping[str, Array], opsets: Mapping[str, int], *, elements_max: int
) -> list[Array] | None:
    """The values of all named outputs; None if no runtime evaluates the node, or a result is too large or host-only.

    `arrays` are its inputs by name. ONNX Runtime evaluates; onnx.reference only if ONNX Runtime has no kernel.
    """
    feeds = {name: arrays[name] for name in dict.fromkeys(node.input) if name}
    types = {
        name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    }
    model = _model(node, types, {}, opsets)
    run = run_model(model, feeds, runtimes=("onnxruntime",))
    if run.values is None and not run.is_refused:
        run = run_model(model, feeds, runtimes=("onnx.reference",))
    if run.values is None or not all(isinstance(value, np.ndarray) for value in run.values):
        return None
    fits = all(value.size <= elements_max and value.dtype.name in DTYPE_NAMES for value in run.values)
    return list(run.values) if fits else None


def is_legal(
    node: onnx.NodeProto,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Array],
    opsets: Mapping[str, int],
    result_elements: int | None,
) -> bool:
    """Whether ONNX Runtime accepts a node that a definition rejects (IMPORT-7).

    The node is run with its known values, and 0 for unknown operands. If operands and results have many elements, it is
    only loaded. Nodes with subgraphs, with operands of unknown type, or with unknown `result_elements` (None) are not
    tried: the result is False.
    """
    if names_files(node) or any(True for _ in subgraphs(node)):
        return False
    types = _types(tensors)
    if types is None or result_elements is None or not all(tensor.is_known for tensor in tensors.values()):
        return False
    model = _model(node, types, values, opsets)
    unknown = {name: tensor for name, tensor in tensors.items() if name not in values}
    total = sum(tensor.elements for tensor in tensors.values())
    are_arrays = all(tensor.dtype in DTYPE_NAMES for tensor in unknown.values())
    if total + result_elements > _RUN_ELEMENTS or not are_arrays:
        return not load_model(model).reason
    feeds = {
        name: np.zeros(tuple(map(int, tensor.shape)), dtype=numpy_dtype(tensor.dtype))
        for name, tensor in unknown.items()
    }
    return run_model(model, feeds, runtimes=("onnxruntime",)).values is not None


def result_types(
    node: onnx.NodeProto, tensors: Mapping[str, Tensor], values: Mapping[str, Array], opsets: Mapping[str, int]
) -> Mapping[str, onnx.TypeProto]:
    """The result types that ONNX Runtime infers for an operator without a schema in onnx; empty if unknown."""
    types = _types(tensors)
    if types is None or names_files(node):
        return MappingProxyType({})
    found: dict[str, onnx.TypeProto] = {}
    for name, (kind, extents) in load_model(_model(node, types, values, opsets)).outputs.items():
        proto = type_of_text(kind)
        if proto is not None and proto.HasField("tensor_type") and None not in extents:
            proto = helper.make_tensor_type_proto(proto.tensor_type.elem_type, list(extents))
        if proto is not None:
            found[name] = proto
    return MappingProxyType(found)


def _types(tensors: Mapping[str, Tensor]) -> dict[str, onnx.TypeProto] | None:
    """The operands' types in ONNX's form; None if an operand has none."""
    types: dict[str, onnx.TypeProto] = {}
    for name, tensor in tensors.items():
        code = ONNX_CODES.get(tensor.dtype)
        kind = (
            type_of_text(tensor.dtype)
            if code is None
            else helper.make_tensor_type_proto(code, [int(e) for e in tensor.shape] if tensor.is_known else None)
        )
        if kind is None:
            return None
        types[name] = kind
    return types


def _model(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    values: Mapping[str, Array],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    """A model of this node alone; `values` are initializers, the other operands are its inputs."""
    reads: Collection[str] = dict.fromkeys(name for name in [*node.input, *captured(node)] if name)
    domains = dict(opsets)
    domains.setdefault(node.domain, 1)
    return helper.make_model(
        helper.make_graph(
            [node],
            "node",
            [onnx.ValueInfoProto(name=name, type=types[name]) for name in reads if name not in values],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            initializer=[_initializer(name, values[name], types[name]) for name in reads if name in values],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in sorted(domains.items())],
        ir_version=_IR_VERSION,
    )


def _initializer(name: str, values: Array, kind: onnx.TypeProto) -> onnx.TensorProto:
    """A constant of small values in its tensor's element type; varying extents become their maxima."""
    plain: Any = values
    if values.dtype == object:
        plain = values.astype(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
    return onnx.numpy_helper.from_array(np.asarray(plain), name)
