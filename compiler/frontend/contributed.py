"""Operators that ONNX Runtime adds to the standard, and constants of 4 bits, as far as the accelerator has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import onnx

from compiler.errors import ModelError
from compiler.frontend.constant_values import FOUR_BITS, in_eight_bits
from compiler.frontend.decompose.contributed_fused import FUSED_FORMS, fused_nodes
from compiler.frontend.decompose.contributed_quantised import contributed_nodes
from compiler.frontend.decompose.node_builder import Fresh, NodeList
from compiler.frontend.fold import Folded
from compiler.frontend.lowering_errors import malformed, unless
from compiler.frontend.read import plain_domain
from compiler.frontend.tensor_table import ValueTable
from compiler.ir.graph import Tensor
from compiler.ops import CONTRIBUTED_DOMAIN, CONTRIBUTED_KINDS
from compiler.ops.base import Call, Inferred, Refusal

# The bias of a MatMulNBits.
_BIAS: Final = 5
# The attributes that are read, of operators that newer releases extend by attributes.
_ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "GatherBlockQuantized": ("bits", "block_size", "gather_axis", "quantize_axis"),
        "GroupQueryAttention": (
            "causal",
            "do_rotary",
            "kv_num_heads",
            "local_window_size",
            "num_heads",
            "qk_norm_epsilon",
            "rotary_interleaved",
            "scale",
            "sliding_window_cache",
            "smooth_softmax",
            "softcap",
        ),
        "MatMulNBits": ("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked"),
        "QAttention": (
            "do_rotary",
            "mask_filter_value",
            "num_heads",
            "past_present_share_buffer",
            "scale",
            "unidirectional",
        ),
    }
)
# Type, integer and text of attributes that ask for nothing.
_OFF: Final = ((onnx.AttributeProto.INT, 0, b""), (onnx.AttributeProto.STRING, 0, b"NONE"))


def contributed(
    node: onnx.NodeProto, name: str, table: ValueTable, fresh: Fresh, opset: int
) -> tuple[Inferred, Call] | list[onnx.NodeProto] | str:
    """The op of such a node with its call, or the nodes that replace it; why it is the host's, "" if that is unknown.

    The host also says what is wrong with a node. `opset`: the operator set of the standard.
    """
    is_fused = node.op_type in FUSED_FORMS
    if plain_domain(node.domain) != CONTRIBUTED_DOMAIN or (any(node.output[1:]) and not is_fused):
        return ""
    kind = CONTRIBUTED_KINDS.get(node.op_type)
    try:
        foreign = _foreign_attribute(node)
        if foreign is not None:
            return unless(foreign)
        call = dequantised_in_eight_bits(table.call(node, name, opset), fresh)
        if is_fused:
            found = fused_nodes(node, call, fresh)
        elif kind is None:
            found = contributed_nodes(_named_in_bytes(node, call, table, fresh), call, fresh, opset)
        elif node.op_type == "MatMulNBits" and call.has(_BIAS):
            return _with_sum(node, call, fresh)
        else:
            limit = kind.unsupported(call)
            return unless(limit) if limit else (kind.infer(call), call)
        return unless(found) if isinstance(found, Refusal) else found or ""
    except ModelError as error:
        return f"the compiler does not handle this form of the op: {error.message}"
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        return f"the compiler does not handle this form of the op: {malformed(node, name, error).message}"


def _foreign_attribute(node: onnx.NodeProto) -> Refusal | None:
    """An attribute that the operator's definition here does not read, unless it is off."""
    known = _ATTRIBUTES.get(node.op_type)
    for item in node.attribute:
        is_off = (item.type, item.i, item.s) in _OFF
        if known is not None and item.name not in known and not is_off:
            return Refusal(reason=f"its attributes are among {', '.join(known)}", actual=item.name)
    return None


def _with_sum(node: onnx.NodeProto, call: Call, fresh: Fresh) -> list[onnx.NodeProto]:
    """A MatMulNBits with a bias as one without it, and a sum."""
    bias, columns = call.tensor(_BIAS).shape, call.integer("N", 0)
    if bias != (columns,):
        call.fail("the bias has another shape than (N)", actual=bias, limit=(columns,))
    nodes = NodeList(call=call, fresh=fresh)
    product = nodes.add("MatMulNBits", *node.input[:_BIAS], domain=node.domain)
    nodes.nodes[-1].attribute.extend(node.attribute)
    nodes.add("Add", product, node.input[_BIAS], out=node.output[0])
    return nodes.nodes


def _named_in_bytes(node: onnx.NodeProto, call: Call, table: ValueTable, fresh: Fresh) -> onnx.NodeProto:
    """The node, reading constants of 4 bits as constants of 8 bits, which other nodes can read too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for index, tensor in enumerate(call.inputs):
        found = _in_eight_bits(tensor, fresh)
        if found is not None and found is not tensor and found.constant is not None:
            table.set_constant(found.name, Folded(constant=found.constant))
            copy.input[index] = found.name
    return copy


def dequantised_in_eight_bits(call: Call, fresh: Fresh) -> Call:
    """A DequantizeLinear of constants of 4 bits as one of 8 bits, which has the same values; `fresh` names these."""
    if call.op_type != "DequantizeLinear":
        return call
    return replace(call, inputs=tuple(_in_eight_bits(tensor, fresh) for tensor in call.inputs))


def _in_eight_bits(tensor: Tensor | None, fresh: Fresh) -> Tensor | None:
    if tensor is None or tensor.constant is None or tensor.dtype not in FOUR_BITS:
        return tensor
    constant = in_eight_bits(tensor.constant)
    return replace(tensor, name=fresh(tensor.name), dtype=constant.dtype, constant=constant)
