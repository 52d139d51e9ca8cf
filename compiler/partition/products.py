"""Matrix products whose first operand is a constant that no core holds, as convolutions (TILE-2, PART-3).

Weights are taken slice by slice along the channels of the result, its last axis in a product; a constant in front lies
along the axis before. A convolution with a kernel of one position does the same, and has its channels there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import FLOATS, spatial_axes
from compiler.partition.alone import replace_refused
from compiler.partition.made import Made, regrouped, reshape
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile

_MATRIX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProducts:
    """Pass: products by such a constant that fit no core, or whose weights do not, become convolutions."""

    name: str = "turn-products"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such products replaced."""
        return replace_refused(graph, self.candidates, self._is_large, lambda made, op, _: _turned(made, op))

    def _is_large(self, graph: Graph, op: Op) -> bool:
        """Whether it is a product by one matrix, of much of a core's memory, from the left."""
        if op.kind != "MatMul":
            return False
        weight, data = (graph.tensors[name] for name in op.inputs)
        if weight.constant is None or data.constant is not None or data.dtype not in FLOATS:
            return False
        if len(weight.shape) != _MATRIX or len(data.shape) < _MATRIX or weight.symbols:
            return False
        varying = [axis for axis, _ in data.symbols if axis < len(data.shape) - _MATRIX]
        return len(varying) <= 1 and 4 * weight.size_bytes > self.profile.nram.capacity_bytes


def _turned(made: Made, op: Op) -> list[Op]:
    """A product as a convolution over its columns, between what reshapes its operand and its result."""
    weight, data, output = (made.tensors[name] for name in (*op.inputs, op.output))
    ops: list[Op] = []
    rows, columns = weight.shape
    kernel = replace(weight, name=f"{weight.name}/kernel", shape=(rows, columns, 1), axes=spatial_axes(3))
    inputs = (
        made.view(ops, op, op.inputs[1], _images(data)),
        made.view(ops, op, op.inputs[0], kernel),
    )
    result = made.add(_images(output))
    attributes = (("kernel_shape", (1,)), ("strides", (1,)), ("dilations", (1,)), ("pads", (0, 0)), ("group", 1))
    ops.append(Op(kind="Conv", inputs=inputs, output=result, origin=op.origin, attributes=attributes))
    return [*ops, reshape(op, result, output)]


def _images(tensor: Tensor) -> Tensor:
    """Matrices as images of one row: the rows of each are the channels."""
    rank = len(tensor.shape)
    groups = (tuple(range(rank - _MATRIX)), (rank - 2,), (rank - 1,))
    return replace(regrouped(tensor, rank, groups), axes=spatial_axes(3))
