"""Attention, embeddings and rotations that ONNX Runtime's optimiser fuses, as the operators that it fused (IMPORT-8).

Operand lists are those of the operators' documentation in the domain com.microsoft. Attention itself is written as the
standard's is: masks of integers become numbers that are added to the scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import onnx
from onnx import helper

from compiler.frontend.decompose.attention import attend, why_not_attended
from compiler.frontend.decompose.contributed_quantised import integer_product, scaled
from compiler.frontend.decompose.node_builder import NodeList
from compiler.frontend.decompose.rotary import ROTARY_EMBEDDING
from compiler.ir.graph import Tensor
from compiler.ops.base import FLOATS, Call, default_axes

# The first operator set with Slice of known positions as inputs, and with Where.
_SLICES: Final = 10
_FLAT: Final = 3
_MATRIX: Final = 2
# The position of an operand that an operator does not have.
_NONE: Final = 99
# What a key that is masked has added to its score, where the node says nothing else.
_FILTER: Final = -10000.0


def _input(node: onnx.NodeProto, index: int) -> str:
    return node.input[index] if len(node.input) > index else ""


def _output(node: onnx.NodeProto, index: int) -> str:
    return node.output[index] if len(node.output) > index else ""


def attention(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """Attention: queries, keys and values by one product; a mask, a stack of past keys and values, a bias of scores."""
    data, heads = call.tensor(0), call.integer("num_heads", 0)
    refused = call.has(6) or call.integer("do_rotary", 0) or call.integer("past_present_share_buffer", 0)
    if refused or nodes.opset < _SLICES or len(data.shape) != _FLAT or heads < 1:
        return False
    product = nodes.add("MatMul", node.input[0], node.input[1])
    if _input(node, 2):
        product = nodes.add("Add", product, node.input[2])
    made = _tensor(product, (*data.shape[:2], call.tensor(1).shape[-1]), data.dtype)
    return _of_product(node, call, nodes, made, past=4, masks=(3, 5))


def quantised_attention(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """QAttention: Attention whose product is one of integers; scales, then zero points, stand among its operands."""
    data = call.tensor(0)
    refused = call.integer("do_rotary", 0) or call.integer("past_present_share_buffer", 0)
    if refused or nodes.opset < _SLICES or len(data.shape) != _FLAT or call.integer("num_heads", 0) < 1:
        call.fail("data has 3 axes, nothing is turned, and no buffer is shared", actual=data.shape, limit="3 axes")
    if data.dtype != "uint8" or call.tensor(2).dtype != "float32" or call.tensor(3).elements > 1:
        given = (data.dtype, call.tensor(2).dtype, call.tensor(3).elements)
        call.fail("data is of uint8 with one scale, and the bias of float32", actual=given, limit="uint8, float32, 1")
    sums = integer_product(nodes, node.input[0], node.input[1], (_input(node, 6), _input(node, 7)))
    made = nodes.fresh(f"{nodes.stem}/product")
    scaled(nodes, sums, (node.input[3], node.input[4]), node.input[2], made)
    product = _tensor(made, (*data.shape[:2], call.tensor(1).shape[-1]), "float32")
    return _of_product(node, call, nodes, product, past=8, masks=(5, _NONE))


def _of_product(
    node: onnx.NodeProto, call: Call, nodes: NodeList, product: Tensor, *, past: int, masks: tuple[int, int]
) -> bool:
    """Attention over the queries, keys and values that lie side by side in a product.

    `past`: operand with the stack of past keys and values; `masks`: operands with the mask of keys and the bias.
    """
    width = int(product.shape[-1])
    sizes = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
    if sum(sizes) != width:
        return False
    tensors = []
    for number, size in enumerate(sizes):
        begin = sum(sizes[:number])
        part = nodes.slice(product.name, 2, begin, begin + size)
        tensors.append(_tensor(part, (*product.shape[:2], size), product.dtype))
    pasts: list[Tensor | None] = [None, None]
    if call.has(past):
        for number in range(2):
            part = nodes.add("Gather", node.input[past], nodes.number(number, "int64"), axis=0)
            pasts[number] = _tensor(part, call.tensor(past).shape[1:], product.dtype)
    made = [nodes.fresh(f"{nodes.stem}/present") for _ in range(2)] if _output(node, 1) else ["", ""]
    if not _attended(node, call, nodes, (tensors[0], tensors[1], tensors[2]), pasts, masks, made):
        return False
    if _output(node, 1):
        nodes.add("Concat", *(nodes.unsqueeze(name, 0) for name in made), out=node.output[1], axis=0)
    return True


def multi_head_attention(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """MultiHeadAttention: queries, keys and values side by side, a bias of all three, masks, past keys and values."""
    if not (call.has(1) and call.has(2)) or call.has(8) or call.has(9) or _output(node, 3) or nodes.opset < _SLICES:
        return False
    tensors = [call.tensor(index) for index in range(3)]
    if any(len(tensor.shape) != _FLAT for tensor in tensors) or call.integer("num_heads", 0) < 1:
        return False
    if call.has(3):
        begin = 0
        for index, tensor in enumerate(tensors):
            end = begin + int(tensor.shape[2])
            name = nodes.add("Add", node.input[index], nodes.slice(node.input[3], 0, begin, end))
            tensors[index], begin = _tensor(name, tensor.shape, tensor.dtype), end
    past = [call.tensor(index) if call.has(index) else None for index in (6, 7)]
    presents = [_output(node, 1), _output(node, 2)]
    return _attended(node, call, nodes, (tensors[0], tensors[1], tensors[2]), past, (4, 5), presents)


def _tensor(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(name=name, shape=shape, dtype=dtype, axes=default_axes(len(shape)))


def _attended(
    node: onnx.NodeProto,
    call: Call,
    nodes: NodeList,
    tensors: tuple[Tensor, Tensor, Tensor],
    past: list[Tensor | None],
    masks: tuple[int, int],
    presents: list[str],
) -> bool:
    """The standard's attention over query, key and value; `masks`: operands with the mask of keys and the bias.

    False for a mask in a form that is not written.
    """
    query, key, _ = tensors
    total = key.shape[1] + (past[0].shape[2] if past[0] is not None else 0)
    bias = _added(node, call, nodes, masks, key, total, query.shape[0])
    if bias is None:
        return False
    heads = call.integer("num_heads", 0)
    attributes: dict[str, Any] = {
        "q_num_heads": heads,
        "kv_num_heads": heads,
        "is_causal": call.integer("unidirectional", 0),
    }
    if call.number("scale", 0.0):
        attributes["scale"] = call.number("scale", 0.0)
    inputs = (*tensors, bias if bias.name else None, *past)
    standard = replace(call, op_type="Attention", attributes=attributes, inputs=inputs, values={})
    names = ["" if tensor is None else tensor.name for tensor in inputs]
    written = helper.make_node("Attention", names, [node.output[0], *presents], **attributes)
    if why_not_attended(written, standard) is not None:
        return False
    attend(written, standard, nodes, is_finite=True)
    return True


def _added(
    node: onnx.NodeProto, call: Call, nodes: NodeList, masks: tuple[int, int], key: Tensor, total: int, batch: int
) -> Tensor | None:
    """What is added to the scores, [batch, heads, queries, keys] broadcast; without a name if nothing is.

    None for a form of the mask that is not written, such as one that says where keys begin, too.
    """
    found = [(node.input[masks[1]], call.tensor(masks[1]).shape)] if call.has(masks[1]) else []
    if call.has(masks[0]):
        mask, shape = node.input[masks[0]], call.tensor(masks[0]).shape
        dtype = call.tensor(masks[0]).dtype
        if shape == (batch,) and total == key.shape[1]:
            # how many keys are seen, of each image
            places = nodes.cast(nodes.positions(total, key.name, 1), dtype)
            seen, shape = nodes.add("Less", places, nodes.unsqueeze(mask, 1)), (batch, total)
        elif len(shape) in (_MATRIX, _FLAT) and shape[-1] == total:
            seen = nodes.add("Greater", mask, nodes.number(0, dtype))
        else:
            return None
        numbers = [nodes.number(value, key.dtype) for value in (0, call.number("mask_filter_value", _FILTER))]
        axes, inner = ((1, 2), (1, 1)) if len(shape) == _MATRIX else ((1,), (1, shape[1]))
        bias = nodes.unsqueeze(nodes.add("Where", seen, *numbers), *axes)
        found.append((bias, (shape[0], *inner, shape[-1])))
    if not found:
        return _tensor("", (), key.dtype)
    if len(found) == 1:
        return _tensor(*found[0], key.dtype)
    (first, one), (second, other) = found
    longest = tuple(max(pair) for pair in zip(one, other, strict=True)) if len(one) == len(other) else one
    return _tensor(nodes.add("Add", first, second), longest, key.dtype)


def embedding(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """EmbedLayerNormalization: words, positions and segments looked up, added and normalised; how long texts are."""
    ids = call.tensor(0)
    if nodes.opset < _SLICES or len(ids.shape) != _MATRIX:
        return False
    places = _input(node, 8) or nodes.positions(ids.shape[1], node.input[0], 1)
    total = nodes.add("Gather", node.input[2], node.input[0], axis=0)
    has_segments = bool(_input(node, 1) and _input(node, 4))
    has_sum = bool(_output(node, 2))
    last = node.output[2] if has_sum else None
    where = nodes.add("Gather", node.input[3], places, axis=0)
    total = nodes.add("Add", total, where, out=None if has_segments else last)
    if has_segments:
        total = nodes.add("Add", total, nodes.add("Gather", node.input[4], node.input[1], axis=0), out=last)
    operands = [total, node.input[5], node.input[6]]
    epsilon = call.number("epsilon", 1e-12)
    nodes.add("LayerNormalization", *operands, out=node.output[0], axis=-1, epsilon=epsilon)
    if _output(node, 1):
        # without a mask no word counts
        has_mask = bool(_input(node, 7))
        whole = nodes.cast(node.input[7] if has_mask else node.input[0], "int32")
        ones = nodes.add("Equal" if has_mask else "Less", whole, nodes.number(1, "int32") if has_mask else whole)
        nodes.cast(nodes.reduce_sum(nodes.cast(ones, "int32"), 1), "int32", out=node.output[1])
    return True


def rotary_embedding(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """RotaryEmbedding: the standard's, with its operands in another order."""
    data, positions, cosines = (call.tensor(index) for index in (0, 1, 2))
    if call.integer("is_packed_batching", 0) or call.number("scale", 1.0) != 1.0 or nodes.opset < _SLICES:
        return False
    if positions.shape != (data.shape[0], data.shape[-2]) or data.dtype not in FLOATS:
        return False
    turned = call.integer("rotary_embedding_dim", 0)
    heads = call.integer("num_heads", 0)
    if len(data.shape) == _FLAT and not heads:
        heads = int(data.shape[2]) // (turned or 2 * int(cosines.shape[-1]))
    attributes: dict[str, Any] = {
        "num_heads": heads,
        "rotary_embedding_dim": turned,
        "interleaved": call.integer("interleaved", 0),
    }
    order = (0, 2, 3, 1)
    inputs = tuple(call.inputs[index] for index in order)
    standard = replace(call, op_type="RotaryEmbedding", attributes=attributes, inputs=inputs)
    names = [node.input[index] for index in order]
    written = helper.make_node("RotaryEmbedding", names, list(node.output), **attributes)
    if ROTARY_EMBEDDING.unsupported(written, standard) is not None:
        return False
    ROTARY_EMBEDDING.replace(written, standard, nodes)
    return True
