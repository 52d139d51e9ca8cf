"""RotaryEmbedding: rotates the halves (or the even and odd elements) of each head by the angle of their position."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, NodeList
from compiler.ops.base import FLOATS, Call


def _rotary_embedding(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """RotaryEmbedding (operator set 23) without moving the heads: the angles broadcast over them."""
    data = call.tensor(0)
    rank = len(data.shape)
    if rank not in (3, 4):
        call.fail("input must have 3 or 4 axes", actual=data.shape)
    heads = call.integer("num_heads", 0)
    if rank == 3 and (heads < 1 or data.shape[2] % heads):
        call.fail("num_heads must divide the hidden size", actual=heads, limit=f"a divisor of {data.shape[2]}")
    size = data.shape[2] // heads if rank == 3 else data.shape[3]
    turned = call.integer("rotary_embedding_dim", 0) or int(size)
    if turned % 2 or not 0 < turned <= size:
        call.fail("rotary_embedding_dim must be even and within the head", actual=turned, limit=f"2 to {size}")
    for position in (1, 2):
        if call.tensor(position).shape[-1] != turned // 2:
            call.fail(
                f"input {position} must have one angle per pair",
                actual=call.tensor(position).shape,
                limit=f"{turned // 2} at the end",
            )
    value = nodes.reshape(node.input[0], (0, 0, heads, -1)) if rank == 3 else node.input[0]
    head_axis = 2 if rank == 3 else 1
    cosine, sine = (_angles(node, call, nodes, position, head_axis) for position in (1, 2))
    part = value if turned == size else nodes.slice(value, 3, 0, turned)
    result = _turn(nodes, part, cosine, sine, turned, interleaved=bool(call.integer("interleaved", 0)))
    if turned != size:
        result = nodes.add("Concat", result, nodes.slice(value, 3, turned, int(size)), axis=3)
    if rank == 3:
        nodes.reshape(result, (0, 0, -1), out=node.output[0])
    else:
        nodes.add("Identity", result, out=node.output[0])


def _angles(node: onnx.NodeProto, call: Call, nodes: NodeList, position: int, head_axis: int) -> str:
    """The cache values of each token, [batch, 1, tokens, pairs] or [batch, tokens, 1, pairs]."""
    table = node.input[position]
    if call.has(3):
        table = nodes.add("Gather", table, node.input[3], axis=0)
    return nodes.unsqueeze(table, head_axis)


def _turn(nodes: NodeList, value: str, cosine: str, sine: str, size: int, *, interleaved: bool) -> str:
    half = size // 2
    if interleaved:
        first, second = nodes.slice(value, 3, 0, size, 2), nodes.slice(value, 3, 1, size, 2)
    else:
        first, second = nodes.slice(value, 3, 0, half), nodes.slice(value, 3, half, size)
    real = nodes.add("Sub", nodes.add("Mul", cosine, first), nodes.add("Mul", sine, second))
    imaginary = nodes.add("Add", nodes.add("Mul", sine, first), nodes.add("Mul", cosine, second))
    if not interleaved:
        return nodes.add("Concat", real, imaginary, axis=3)
    pairs = nodes.add("Concat", nodes.unsqueeze(real, 4), nodes.unsqueeze(imaginary, 4), axis=4)
    return nodes.reshape(pairs, (0, 0, 0, size))


ROTARY_EMBEDDING: Final = Decomposition(
    op_type="RotaryEmbedding",
    replace=_rotary_embedding,
    dtypes=MappingProxyType({**dict.fromkeys(range(3), FLOATS), 3: ("int64",)}),
)
