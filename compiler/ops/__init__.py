"""The op kinds: one definition each. To add an op, write its definition and list it here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from compiler.ir.graph import Graph, Op
from compiler.ops.base import Call, OpKind
from compiler.ops.elementwise import elementwise_kinds
from compiler.ops.matmul import Gemm, MatMul
from compiler.ops.movement import (
    Concat,
    DepthToSpace,
    Expand,
    Flatten,
    Identity,
    Pad,
    Reshape,
    Resize,
    Slice,
    SpaceToDepth,
    Squeeze,
    Transpose,
    Unsqueeze,
)
from compiler.ops.normalization import (
    LRN,
    BatchNormalization,
    InstanceNormalization,
    LayerNormalization,
    Reduce,
    Softmax,
)
from compiler.ops.windowed import Conv, ConvTranspose, GlobalPool, Pool

_KINDS: Final[tuple[OpKind, ...]] = (
    Conv("Conv"),
    ConvTranspose("ConvTranspose"),
    Gemm("Gemm"),
    MatMul("MatMul"),
    Pool("MaxPool"),
    Pool("AveragePool"),
    GlobalPool("GlobalAveragePool"),
    GlobalPool("GlobalMaxPool"),
    BatchNormalization("BatchNormalization"),
    LRN("LRN"),
    Softmax("Softmax"),
    Softmax("LogSoftmax"),
    LayerNormalization("LayerNormalization"),
    InstanceNormalization("InstanceNormalization"),
    *(Reduce(f"Reduce{name}") for name in ("Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare")),
    Reshape("Reshape"),
    Flatten("Flatten"),
    Squeeze("Squeeze"),
    Unsqueeze("Unsqueeze"),
    Identity("Identity"),
    Identity("Dropout"),
    Transpose("Transpose"),
    Concat("Concat"),
    Slice("Slice"),
    Pad("Pad"),
    DepthToSpace("DepthToSpace"),
    SpaceToDepth("SpaceToDepth"),
    Resize("Resize"),
    Resize("Upsample"),
    Expand("Expand"),
    *elementwise_kinds(),
)

OP_KINDS: Final[Mapping[str, OpKind]] = MappingProxyType({kind.kind: kind for kind in _KINDS})


def definition(op: Op) -> OpKind:
    """The definition of an op of the IR."""
    return OP_KINDS[op.kind]


def call_of(graph: Graph, op: Op) -> Call:
    """The op as its definition wants to see it, output included."""
    return Call(
        op_type=op.kind,
        node=op.node,
        attributes=dict(op.attributes),
        inputs=tuple(graph.tensors[name] if name else None for name in op.inputs),
        opset=graph.opset,
        output=graph.tensors[op.output],
    )
