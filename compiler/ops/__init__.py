"""The op kinds: one definition each. To add an op, write its definition and list it here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from compiler.ir.graph import Graph, Op
from compiler.ops.attention import FusedAttention
from compiler.ops.base import FLOATS, Call, KindDescription, OpKind
from compiler.ops.contraction import Product
from compiler.ops.convolution import Conv, ConvTranspose
from compiler.ops.elementwise import Elementwise, elementwise_kinds
from compiler.ops.matmul import Gemm, MatMul
from compiler.ops.movement import (
    Concat,
    Expand,
    Pad,
    Slice,
    Tile,
    Transpose,
)
from compiler.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from compiler.ops.packed import MatMulNBits
from compiler.ops.pooling import GlobalPool, Pool
from compiler.ops.quantise import DequantizeLinear, QuantizeLinear
from compiler.ops.quantised import QuantisedOp, QuantisedProduct, base_kind
from compiler.ops.rearrange import DepthToSpace, Gather, SpaceToDepth
from compiler.ops.reductions import ArgExtreme, CumSum, Reduce, Softmax
from compiler.ops.resize import Resize, Upsample
from compiler.ops.views import Dropout, Flatten, Identity, Reshape, Squeeze, Unsqueeze

_REDUCTIONS: Final = "Mean Sum Max Min Prod L1 L2 SumSquare LogSum LogSumExp"

_NATIVE: Final[tuple[OpKind, ...]] = (
    Conv("Conv"),
    ConvTranspose("ConvTranspose"),
    Gemm("Gemm"),
    MatMul("MatMul"),
    Pool("MaxPool", dtypes=(*FLOATS, "int8", "uint8")),
    Pool("AveragePool"),
    GlobalPool("GlobalAveragePool"),
    GlobalPool("GlobalMaxPool"),
    BatchNormalization("BatchNormalization"),
    LRN("LRN"),
    LayerNormalization("LayerNormalization"),
    RMSNormalization("RMSNormalization"),
    InstanceNormalization("InstanceNormalization"),
    GroupNormalization("GroupNormalization"),
    Softmax("Softmax"),
    Softmax("LogSoftmax"),
    *(Reduce(f"Reduce{name}") for name in _REDUCTIONS.split()),
    ArgExtreme("ArgMax"),
    ArgExtreme("ArgMin"),
    CumSum("CumSum"),
    QuantizeLinear("QuantizeLinear"),
    DequantizeLinear("DequantizeLinear"),
    Reshape("Reshape"),
    Flatten("Flatten"),
    Squeeze("Squeeze"),
    Unsqueeze("Unsqueeze"),
    Identity("Identity"),
    Dropout("Dropout"),
    Transpose("Transpose"),
    Concat("Concat"),
    Slice("Slice"),
    Pad("Pad"),
    Expand("Expand"),
    Tile("Tile"),
    Gather("Gather"),
    DepthToSpace("DepthToSpace"),
    SpaceToDepth("SpaceToDepth"),
    Resize("Resize"),
    Upsample("Upsample"),
    *elementwise_kinds(),
)

# Products, with the axis of their result that output channels lie on, and the other kinds with a quantised form.
_CHANNEL_AXES: Final[Mapping[str, int]] = MappingProxyType({"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1})
_ALSO_QUANTISED: Final = (
    *(Elementwise, Pool, GlobalPool, Reduce, CumSum, Softmax, LayerNormalization, InstanceNormalization),
    *(GroupNormalization, BatchNormalization, LRN, Concat, Resize, Pad, Transpose),
)
# Cast gives another type by itself; the IR form of Upsample is Resize.
_NOT_QUANTISED: Final = frozenset({"Cast", "Upsample"})


def _quantised_kinds() -> Iterator[OpKind]:
    for kind in _NATIVE:
        if isinstance(kind, Product):
            yield QuantisedProduct(kind, _CHANNEL_AXES[kind.kind])
        elif isinstance(kind, _ALSO_QUANTISED) and kind.kind not in _NOT_QUANTISED:
            yield QuantisedOp(kind)


# What a pass makes of the ops of an attention.
FUSED_ATTENTION: Final = "FusedAttention"

# The kinds that models name, and with them the forms that only passes make.
OP_KINDS: Final[Mapping[str, OpKind]] = MappingProxyType({kind.kind: kind for kind in _NATIVE})
# Kinds of operators that ONNX Runtime adds to the standard, in the domain com.microsoft.
CONTRIBUTED_DOMAIN: Final = "com.microsoft"
CONTRIBUTED_KINDS: Final[Mapping[str, OpKind]] = MappingProxyType(
    {
        "MatMulNBits": MatMulNBits("MatMulNBits"),
        **{kind: OP_KINDS[kind] for kind in ("QuantizeLinear", "DequantizeLinear")},
    }
)
ALL_KINDS: Final[Mapping[str, OpKind]] = MappingProxyType(
    {
        **OP_KINDS,
        **CONTRIBUTED_KINDS,
        **{kind.kind: kind for kind in _quantised_kinds()},
        FUSED_ATTENTION: FusedAttention(FUSED_ATTENTION),
    }
)


def definition(op: Op) -> OpKind:
    """The definition of an op of the IR."""
    return ALL_KINDS[op.kind]


def channel_axes(op: Op, call: Call) -> tuple[int, int] | None:
    """The axes of a product's weight and result that output channels lie on; None if no axis follows them alone."""
    channels, rank = _CHANNEL_AXES.get(base_kind(op.kind)), len(call.result.shape)
    if channels is None or not rank:
        return None
    weight = definition(op).access(call)[1] or ()
    along = [axis for axis, one in enumerate(weight) if one.is_identity and one.axis == channels % rank]
    return (along[0], channels % rank) if len(along) == 1 else None


def describe_kinds() -> tuple[KindDescription, ...]:
    """Every native op type with its limits, by name (IMPORT-5: the documentation is generated from this)."""
    return tuple(OP_KINDS[name].describe() for name in sorted(OP_KINDS))


def call_of(graph: Graph, op: Op) -> Call:
    """The op as a Call of its definition, with the output set."""
    return Call(
        op_type=op.kind,
        node=op.node,
        attributes=dict(op.attributes),
        inputs=tuple(graph.tensors[name] if name else None for name in op.inputs),
        opset=graph.opset,
        output=graph.tensors[op.output],
    )
