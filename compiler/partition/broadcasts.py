"""Element-wise ops by a constant of which no slice of channels fits a core (TILE-2).

A mask of attention scores has rows and columns and is the same for every head. Weights are taken slice by slice along
the channels, of which such a constant has none. Seen with images and channels as one axis, its rows are what lies
there. Of a constant as large as the scores a channel may be too much; its rows, as channels, are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from compiler.frontend.constant_values import derive
from compiler.ir.graph import HOST, MAX_AXES, Graph, Op, Tensor
from compiler.ops import definition
from compiler.ops.elementwise import Elementwise
from compiler.partition.alone import refused_alone, replace_refused
from compiler.partition.made import Groups, Made, regrouped, reshape
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile

_CHANNELS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldChannels:
    """Pass: such ops that fit no core see their operands with the axes that the constants lack as one.

    Where that is not enough, all axes but the last are seen as channels, or the first axis alone. Last comes a constant
    that is written out along all axes: its rows, as channels, are small, but its bytes are multiplied.
    """

    name: str = "fold-channels"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops between reshapes."""
        seen = partial(self._seen, graph)
        return replace_refused(graph, self.candidates, self._forms, seen)

    def _forms(self, graph: Graph, op: Op) -> list[Groups]:
        """The ways in which axes of the result may be seen as one; none if no constant is large."""
        if op.kind == HOST or not isinstance(definition(op), Elementwise) or "axis" in dict(op.attributes):
            return []
        large = [t for t in graph.weights(op) if 4 * t.size_bytes > self.profile.nram.capacity_bytes]
        if not large:
            return []
        output = graph.tensors[op.output]
        rank = len(output.shape)
        shared = min(rank - len(_own(tensor)) for tensor in large)
        forms: list[Groups] = []
        if shared > _CHANNELS:
            forms.append((tuple(range(shared)), *((axis,) for axis in range(shared, rank))))
        if shared + 1 < rank:
            forms.append((tuple(range(shared)), tuple(range(shared, rank - 1)), (), (rank - 1,)))
        if shared == 0 and 1 < rank < MAX_AXES:
            forms.append(((), *((axis,) for axis in range(rank))))
        operands = [graph.tensors[name] for name in op.inputs if name]
        found = [groups for groups in forms if all(_is_view(output, operands, group) for group in groups)]
        rows: Groups = ((), tuple(range(rank - 1)), (), (rank - 1,))
        others = [tensor for tensor in operands if tensor not in large]
        if rows not in found and not output.symbols and all(_is_view(output, others, group) for group in rows):
            found.append(rows)
        return found

    def _seen(self, graph: Graph, made: Made, op: Op, forms: list[Groups]) -> list[Op]:
        """What stands in place of an op, by the first way in which it fits; itself if there is none."""
        for groups in forms:
            tried = Made(made.tensors)
            parts = _regrouped(tried, op, groups)
            if refused_alone(self.candidates, tried.tensors, parts[-2], graph) is None:
                made.accept(tried)
                return parts
        return [op]


def _own(tensor: Tensor) -> tuple[int, ...]:
    """The shape from the first axis that has more than one position."""
    first = next((axis for axis, extent in enumerate(tensor.shape) if extent > 1), len(tensor.shape))
    return tensor.shape[first:]


def _is_view(output: Tensor, operands: list[Tensor], group: tuple[int, ...]) -> bool:
    """Whether axes of a result may be seen as one: every operand has all of their positions or one of each."""
    if sum(axis in group for axis, _ in output.symbols) > 1:
        return False
    whole, ones = [output.shape[axis] for axis in group], [1] * len(group)
    shapes = [(*(1,) * (len(output.shape) - len(tensor.shape)), *tensor.shape) for tensor in operands]
    return all([shape[axis] for axis in group] in (whole, ones) for shape in shapes)


def _regrouped(made: Made, op: Op, groups: Groups) -> list[Op]:
    """The op with axes of its result as one, between what reshapes its operands and its result."""
    output = made.tensors[op.output]
    rank = len(output.shape)
    ops: list[Op] = []
    seen = {name: name for name in op.inputs if not name or not made.tensors[name].shape}
    for name in op.inputs:
        if name not in seen:
            tensor = made.tensors[name]
            if tensor.constant is not None and not all(_is_view(output, [tensor], group) for group in groups):
                seen[name] = made.add(_written_out(tensor, output, groups))
            else:
                seen[name] = made.view(ops, op, name, regrouped(tensor, rank, groups))
    result = made.add(regrouped(output, rank, groups))
    return [
        *ops,
        replace(op, inputs=tuple(seen[name] for name in op.inputs), output=result),
        reshape(op, result, output),
    ]


def _written_out(tensor: Tensor, output: Tensor, groups: Groups) -> Tensor:
    """A constant with all positions of a result that it is broadcast to, seen with axes as one."""
    assert tensor.constant is not None
    whole = replace(tensor, shape=output.shape, axes=output.axes)
    view = regrouped(whole, len(output.shape), groups)
    expanded = derive("Expand", (tensor.constant,), output.shape)
    return replace(view, constant=derive("Reshape", (expanded,), view.shape))
