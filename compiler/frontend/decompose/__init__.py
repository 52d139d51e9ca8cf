"""Decompositions: replace ops without a definition by ops that have one, before definitions are asked.

An op is here if ONNX states no function for it, or a function that does more than the accelerator needs. Each
replacement is a few nodes of the same operator set that end in exactly the same outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.attention import ATTENTION
from compiler.frontend.decompose.batch_statistics import BATCH_STATISTICS
from compiler.frontend.decompose.cubic_resize import CUBIC_RESIZE
from compiler.frontend.decompose.einsum import EINSUM
from compiler.frontend.decompose.fourier import FOURIER
from compiler.frontend.decompose.index_masks import EYE_LIKE, HARDMAX, ONE_HOT, TRILU
from compiler.frontend.decompose.indexed import INDEXED
from compiler.frontend.decompose.lp_normalization import LP_NORMALIZATION
from compiler.frontend.decompose.lp_pool import LP_POOL
from compiler.frontend.decompose.node_builder import Decomposition, Fresh, NodeList
from compiler.frontend.decompose.quantised_products import CONV_INTEGER, MATMUL_INTEGER, QLINEAR_CONV, QLINEAR_MATMUL
from compiler.frontend.decompose.recurrent import RECURRENT
from compiler.frontend.decompose.reverse_sequence import REVERSE_SEQUENCE
from compiler.frontend.decompose.rotary import ROTARY_EMBEDDING
from compiler.frontend.decompose.sampling import SAMPLING
from compiler.frontend.decompose.table_rows import TABLE_ROWS
from compiler.frontend.decompose.top_k import TOP_K
from compiler.ops.base import Call, Refusal

DECOMPOSITIONS: Final[Mapping[str, Decomposition]] = MappingProxyType(
    {
        rule.op_type: rule
        for rule in (
            ATTENTION,
            BATCH_STATISTICS,
            CONV_INTEGER,
            EINSUM,
            EYE_LIKE,
            *FOURIER,
            HARDMAX,
            *INDEXED,
            LP_NORMALIZATION,
            *LP_POOL,
            MATMUL_INTEGER,
            ONE_HOT,
            QLINEAR_CONV,
            QLINEAR_MATMUL,
            *RECURRENT,
            REVERSE_SEQUENCE,
            ROTARY_EMBEDDING,
            *SAMPLING,
            TOP_K,
            TRILU,
        )
    }
)
DECOMPOSED: Final = tuple(DECOMPOSITIONS)
# Forms of native ops that other ops serve better; all other forms stay what they are.
_FORMS: Final = MappingProxyType({rule.op_type: rule for rule in (CUBIC_RESIZE, TABLE_ROWS)})


def decompose(node: onnx.NodeProto, call: Call, fresh: Fresh) -> NodeList | None:
    """The nodes that replace `node`, in order; None if it stays as it is (IMPORT-5).

    `call` gives the inputs' types and known values; `fresh` makes unused value names. Raises ModelError if the node
    is illegal.
    """
    rule = DECOMPOSITIONS.get(node.op_type, _FORMS.get(node.op_type))
    if rule is None or rule.unsupported(node, call) is not None:
        return None
    nodes = NodeList(call=call, fresh=fresh)
    rule.replace(node, call, nodes)
    return nodes


def why_not_decomposed(node: onnx.NodeProto, call: Call) -> Refusal | None:
    """The limit that keeps an op of this package from being decomposed; None for other ops, and for other forms.

    The first limit of a form says whether the node has it.
    """
    rule = DECOMPOSITIONS.get(node.op_type)
    form = _FORMS.get(node.op_type)
    if form is not None and form.limits[0].check(node, call) is None:
        rule = form
    return None if rule is None else rule.unsupported(node, call)
