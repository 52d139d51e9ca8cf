"""Ops put in other terms before definitions are asked: what has no definition, but is made of ops that have one.

An op is here if ONNX states no function for it, or one that is more than the accelerator needs to do. Each replacement
is a few nodes of the same operator set that end in the very same outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.attention import attention
from compiler.frontend.decompose.build import Fresh, NodeList
from compiler.frontend.decompose.einsum import einsum
from compiler.frontend.decompose.indices import one_hot, trilu
from compiler.frontend.decompose.integers import conv_integer, matmul_integer, qlinear_conv, qlinear_matmul
from compiler.frontend.decompose.rotary import rotary_embedding
from compiler.ops.base import NATIVE_DTYPES, Call

# Each says whether it replaced the node; if not, what it has made is dropped.
_RULES: Final[Mapping[str, Callable[[onnx.NodeProto, Call, NodeList], bool]]] = MappingProxyType(
    {
        "Attention": attention,
        "ConvInteger": conv_integer,
        "Einsum": einsum,
        "MatMulInteger": matmul_integer,
        "OneHot": one_hot,
        "QLinearConv": qlinear_conv,
        "QLinearMatMul": qlinear_matmul,
        "RotaryEmbedding": rotary_embedding,
        "Trilu": trilu,
    }
)
DECOMPOSED: Final = tuple(_RULES)


def decompose(node: onnx.NodeProto, call: Call, fresh: Fresh) -> tuple[onnx.NodeProto, ...] | None:
    """The nodes that take the place of `node`, in order; None if it is to be taken as it is (IMPORT-5).

    `call` gives the inputs' types and known values; `fresh` makes value names that nobody has. Raises ModelError
    where the node is not legal.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or not all(t is None or t.constant is not None or t.dtype in NATIVE_DTYPES for t in call.inputs):
        return None
    nodes = NodeList(call=call, fresh=fresh)
    return tuple(nodes.nodes) if rule(node, call, nodes) else None
