"""Pads that mirror or repeat more than a core holds, one axis at a time, or as a Concat with their margins (TILE-2).

Where a pad takes what is on the other side of an edge, any tile needs all of the axis; of two axes a whole image.
Of an axis that is too long itself (audio) the margins are parts of it, and any tile of a Concat needs what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler.ir.graph import Graph, Op, Tensor
from compiler.partition.alone import refused_alone, replace_refused
from compiler.partition.made import Made
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPads:
    """Pass: such pads that fit no core become one for each axis, and those of too long an axis a Concat."""

    name: str = "split-pads"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such pads replaced."""

        def parts(made: Made, op: Op, axes: list[int]) -> list[Op]:
            singles = _axis_by_axis(made, op, axes)
            return [part for single in singles for part in self._joined(made, single, graph)]

        return replace_refused(graph, self.candidates, self._padded, parts)

    def _joined(self, made: Made, op: Op, graph: Graph) -> list[Op]:
        """A pad along one axis; as the margins and the data in a Concat, where that fits and the pad does not."""
        if refused_alone(self.candidates, made.tensors, op, graph) is None:
            return [op]
        tried = Made(made.tensors)
        parts = _with_margins(tried, op)
        fits = all(refused_alone(self.candidates, tried.tensors, part, graph) is None for part in parts)
        if not parts or not fits:
            return [op]
        made.accept(tried)
        return parts

    def _padded(self, graph: Graph, op: Op) -> list[int]:
        """The axes that a large pad changes; none of one whose positions are the constant or the data's own."""
        if op.kind != "Pad" or dict(op.attributes)["mode"] == "constant":
            return []
        data = graph.tensors[op.inputs[0]]
        if 4 * data.size_bytes < self.profile.nram.capacity_bytes:
            return []
        rank = len(data.shape)
        varying = {position % rank for _, position, _ in op.symbols}
        return [axis for axis in range(rank) if axis in varying or any(_pads(op, rank, axis))]


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
        if "varying" in attributes:
            attributes["varying"] = (axis,) if axis in tuple(attributes["varying"]) else ()  # type: ignore[arg-type]
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


def _with_margins(made: Made, op: Op) -> list[Op]:
    """A Concat of the data and what a pad puts around it along one axis; [] if it varies, crops or goes round twice."""
    if op.symbols:
        return []
    data, output = made.tensors[op.inputs[0]], made.tensors[op.output]
    rank, mode = len(data.shape), str(dict(op.attributes)["mode"])
    axis = next(axis for axis in range(rank) if any(_pads(op, rank, axis)))
    front, behind = _pads(op, rank, axis)
    extent = data.shape[axis]
    most = {"reflect": extent - 1, "wrap": extent, "edge": max(front, behind)}[mode]
    varies = any(own == axis for own, _ in data.symbols)
    if varies or min(front, behind) < 0 or max(front, behind) > most:
        return []
    # where the positions that a margin shows begin: a mirrored one leaves out the edge itself
    begins = {"reflect": (1, extent - 1 - behind), "wrap": (extent - front, 0), "edge": (0, extent - 1)}[mode]
    ops: list[Op] = []

    def add(kind: str, source: str, size: int, begin: int = 0, step: int = 1) -> str:
        shape = (*data.shape[:axis], size, *data.shape[axis + 1 :])
        name = made.add(replace(data, name=f"{output.name}/margin", shape=shape, constant=None))
        along = (("begin", _at(rank, axis, begin, 0)), ("step", _at(rank, axis, step, 1))) if kind == "Slice" else ()
        ops.append(Op(kind=kind, inputs=(source,), output=name, origin=op.origin, attributes=along))
        return name

    parts = [data.name]
    for at, begin, size in ((0, begins[0], front), (2, begins[1], behind)):
        if size:
            shown = add("Slice", data.name, 1 if mode == "edge" else size, begin)
            if mode == "reflect":
                shown = add("Slice", shown, size, size - 1, -1)
            elif mode == "edge":
                shown = add("Expand", shown, size)
            parts.insert(at, shown)
    attributes = (("axis", axis),)
    return [*ops, Op(kind="Concat", inputs=tuple(parts), output=op.output, origin=op.origin, attributes=attributes)]


def _at(rank: int, axis: int, value: int, others: int) -> tuple[int, ...]:
    return (*[others] * axis, value, *[others] * (rank - axis - 1))
