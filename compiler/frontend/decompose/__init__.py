"""Ops put in other terms before definitions are asked: what has no definition, but is made of ops that have one.

An op is here if ONNX states no function for it, or one that is more than the accelerator needs to do. Each replacement
is a few nodes of the same operator set that end in the very same outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.attention import ATTENTION
from compiler.frontend.decompose.build import Decomposition, Fresh, NodeList
from compiler.frontend.decompose.einsum import EINSUM
from compiler.frontend.decompose.indices import ONE_HOT, TRILU
from compiler.frontend.decompose.integers import CONV_INTEGER, MATMUL_INTEGER, QLINEAR_CONV, QLINEAR_MATMUL
from compiler.frontend.decompose.rotary import ROTARY_EMBEDDING
from compiler.frontend.decompose.statistics import BATCH_STATISTICS
from compiler.ops.base import Call, Refusal

DECOMPOSITIONS: Final[Mapping[str, Decomposition]] = MappingProxyType(
    {
        rule.op_type: rule
        for rule in (
            ATTENTION,
            BATCH_STATISTICS,
            CONV_INTEGER,
            EINSUM,
            MATMUL_INTEGER,
            ONE_HOT,
            QLINEAR_CONV,
            QLINEAR_MATMUL,
            ROTARY_EMBEDDING,
            TRILU,
        )
    }
)
DECOMPOSED: Final = tuple(DECOMPOSITIONS)


def decompose(node: onnx.NodeProto, call: Call, fresh: Fresh) -> tuple[onnx.NodeProto, ...] | None:
    """The nodes that take the place of `node`, in order; None if it is to be taken as it is (IMPORT-5).

    `call` gives the inputs' types and known values; `fresh` makes value names that nobody has. Raises ModelError
    where the node is not legal.
    """
    rule = DECOMPOSITIONS.get(node.op_type)
    if rule is None or rule.unsupported(node, call) is not None:
        return None
    nodes = NodeList(call=call, fresh=fresh)
    rule.replace(node, call, nodes)
    return tuple(nodes.nodes)


def why_not_decomposed(node: onnx.NodeProto, call: Call) -> Refusal | None:
    """The limit that keeps an op of this package from being replaced; None for all others."""
    rule = DECOMPOSITIONS.get(node.op_type)
    return None if rule is None else rule.unsupported(node, call)
