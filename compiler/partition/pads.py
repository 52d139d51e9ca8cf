"""Pads that mirror or repeat along several axes of more than a core holds, one axis at a time (TILE-2).

Where a pad takes what is on the other side of an edge, any tile needs all of the axis; of two axes a whole image.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler.ir.graph import Graph, Op, Tensor
from compiler.partition.alone import refused_alone
from compiler.partition.made import Made
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPads:
    """Pass: such pads that fit no core become one for each axis."""

    name: str = "split-pads"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such pads replaced."""
        made = Made(graph.tensors)
        ops: list[Op] = []
        for op in graph.ops:
            axes = self._padded(graph, op)
            if len(axes) > 1 and refused_alone(self.candidates, graph.tensors, op, graph.opset) is not None:
                ops += _axis_by_axis(made, op, axes)
            else:
                ops.append(op)
        return made.graph(graph, ops)

    def _padded(self, graph: Graph, op: Op) -> list[int]:
        """The axes that a large pad changes; none of one whose positions are the constant or the data's own."""
        if op.kind != "Pad" or dict(op.attributes)["mode"] == "constant":
            return []
        data = graph.tensors[op.inputs[0]]
        if 4 * data.size_bytes < self.profile.nram.capacity_bytes:
            return []
        return [axis for axis in range(len(data.shape)) if any(_pads(op, len(data.shape), axis))]


def _pads(op: Op, rank: int, axis: int) -> tuple[int, int]:
    """What is added in front of an axis and behind it."""
    pads = dict(op.attributes)["pads"]
    assert isinstance(pads, tuple)
    return int(pads[axis]), int(pads[rank + axis])


def _axis_by_axis(made: Made, op: Op, axes: list[int]) -> list[Op]:
    """A pad for each axis, in their order."""
    output = made.tensors[op.output]
    rank = len(output.shape)
    ops: list[Op] = []
    name = op.inputs[0]
    for axis in axes:
        data, own = made.tensors[name], (axis, rank + axis)
        amounts = dict(zip(own, _pads(op, rank, axis), strict=True))
        attributes = {**dict(op.attributes), "pads": tuple(amounts.get(at, 0) for at in range(2 * rank))}
        result = op.output if axis == axes[-1] else made.add(_along(data, output, axis))
        ops.append(
            replace(
                op,
                inputs=(name, *op.inputs[1:]),
                output=result,
                attributes=tuple(attributes.items()),
                symbols=tuple(one for one in op.symbols if one[1] in own),
            )
        )
        name = result
    return ops


def _along(data: Tensor, output: Tensor, axis: int) -> Tensor:
    """A tensor with an axis of the result in place of its own."""
    symbols = {own: expression for own, expression in data.symbols if own != axis}
    symbols |= {own: expression for own, expression in output.symbols if own == axis}
    shape = (*data.shape[:axis], output.shape[axis], *data.shape[axis + 1 :])
    return replace(
        data, name=f"{output.name}/along{axis}", shape=shape, symbols=tuple(sorted(symbols.items())), constant=None
    )
