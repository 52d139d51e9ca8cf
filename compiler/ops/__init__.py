"""The op kinds: one definition each. To add an op, write its definition and list it here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from compiler.ir.graph import Graph, Op
from compiler.ops.base import FLOATS, Call, KindDescription, OpKind
from compiler.ops.convolution import Conv, ConvTranspose
from compiler.ops.elementwise import elementwise_kinds
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
from compiler.ops.pooling import GlobalPool, Pool
from compiler.ops.quantise import DequantizeLinear, QuantizeLinear
from compiler.ops.rearrange import DepthToSpace, Gather, SpaceToDepth
from compiler.ops.reductions import ArgExtreme, CumSum, Reduce, Softmax
from compiler.ops.resize import Resize, Upsample
from compiler.ops.views import Dropout, Flatten, Identity, Reshape, Squeeze, Unsqueeze

_REDUCTIONS: Final = "Mean Sum Max Min Prod L1 L2 SumSquare LogSum LogSumExp"

_KINDS: Final[tuple[OpKind, ...]] = (
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

OP_KINDS: Final[Mapping[str, OpKind]] = MappingProxyType({kind.kind: kind for kind in _KINDS})


def definition(op: Op) -> OpKind:
    """The definition of an op of the IR."""
    return OP_KINDS[op.kind]


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
