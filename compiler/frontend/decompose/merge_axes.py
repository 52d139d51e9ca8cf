"""Ops on tensors with more axes than accelerator commands support: the same op on merged axes, between two views.

Neighbouring axes merge if the op treats them alike: a Transpose keeps them adjacent, a reduction sums or keeps both, a
broadcast stretches both or neither. A view moves no data, so the op costs the same. Adjacent views become one
(`lower.py`), so no tensor with too many axes remains between two such ops.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Final

import onnx
from onnx import helper

from compiler.frontend.decompose.node_builder import Fresh, NodeList
from compiler.ir.graph import MAX_AXES
from compiler.ir.symbol import Dim
from compiler.ops import OP_KINDS
from compiler.ops.base import Call
from compiler.ops.elementwise import Elementwise
from compiler.ops.movement import Pad

# Axes of one tensor that merge into one.
Groups = tuple[tuple[int, ...], ...]
# Neighbours with equal keys merge; None, for an extent of 1, merges with any.
Key = Hashable | None
Shape = Sequence[int]
_REDUCES: Final = tuple(kind for kind in OP_KINDS if kind.startswith("Reduce"))
# Number of axes that each of several transpositions moves to the front: (MAX_AXES - 2) // 2.
_BROUGHT: Final = 3
# From this opset on a softmax is along one axis; before, along all axes from its axis on.
_SOFTMAX_ALONG: Final = 13
# From this opset on the parameters of Slice are inputs.
_SLICE_BY_INPUTS: Final = 10
# From this opset on an element-wise op broadcasts as numpy does.
_BROADCASTS: Final = 7


class NarrowNodes(NodeList):
    """Nodes between views."""

    def view(self, value: str, shape: Shape, *, out: str | None = None) -> str:
        """The value in another shape."""
        return self.add("Reshape", value, self.shape(shape), out=out)


def too_wide(call: Call) -> int | None:
    """The largest number of axes of an input if it exceeds that of accelerator commands (PROG-1), else None."""
    most = max((len(tensor.shape) for tensor in call.inputs if tensor is not None), default=0)
    return most if most > MAX_AXES else None


def narrow(node: onnx.NodeProto, call: Call, fresh: Fresh) -> NarrowNodes | None:
    """Equivalent nodes on at most MAX_AXES axes; None if no tensor has more, or if the axes do not merge."""
    kind = OP_KINDS.get(node.op_type)
    rule = _elementwise if isinstance(kind, Elementwise) else _RULES.get(node.op_type)
    if rule is None or max(_rank(call), too_wide(call) or 0) <= MAX_AXES:
        return None
    if any(tensor is not None and 0 in tensor.shape for tensor in call.inputs):
        return None
    if kind is not None and kind.unsupported(call) is not None:
        return None
    nodes = NarrowNodes(call=call, fresh=fresh)
    return nodes if rule(node, call, nodes) and all(len(s) <= MAX_AXES for s in _inner(nodes, node)) else None


def _rank(call: Call) -> int:
    """Number of axes of the result, for ops whose result may have more than their inputs; 0 for others."""
    if call.op_type == "Expand":
        return len(call.constant_integers(1, "shape")) if 1 in call.values else 0
    if call.op_type == "Gather":
        return len(call.tensor(0).shape) + len(call.tensor(1).shape) - 1
    return 0


def _inner(nodes: NarrowNodes, node: onnx.NodeProto) -> list[tuple[int, ...]]:
    """The shapes of all views except those that make the node's own outputs."""
    own = {made.input[1] for made in nodes.nodes if made.op_type == "Reshape" and made.output[0] in node.output}
    return [shape for name, shape in nodes.shapes.items() if name not in own]


def _merged(keys: Sequence[Key]) -> Groups:
    """Groups of neighbouring axes with equal keys."""
    groups: list[list[int]] = []
    last: Key = None
    for axis, key in enumerate(keys):
        if groups and (key is None or last is None or key == last):
            groups[-1].append(axis)
            last = last if key is None else key
        else:
            groups.append([axis])
            last = key
    return tuple(map(tuple, groups))


def _extents(shape: Shape, groups: Groups) -> tuple[int, ...]:
    return tuple(prod(shape[axis] for axis in group) for group in groups)


def _is_one(extent: int) -> bool:
    return extent == 1 and not isinstance(extent, Dim)


def _kept(node: onnx.NodeProto, *without: str) -> dict[str, Any]:
    """The node's attributes except `without`."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name not in without}


def _around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """The product of the extents before an axis, its own extent, and the product behind it."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


# The rules: each appends nodes and returns True, or returns False if the axes do not merge ----------------------------

Rule = Callable[[onnx.NodeProto, Call, NarrowNodes], bool]


def _broadcast(
    node: onnx.NodeProto, call: Call, nodes: NarrowNodes, result: Shape, keys: Sequence[Key], shapes: Sequence[Shape]
) -> bool:
    """The node on merged axes; `shapes` are the operands' shapes with leading 1s, as many axes as the result."""
    groups = _merged(keys)
    inputs = []
    for value, tensor, shape in zip(node.input, call.inputs, shapes, strict=True):
        is_scalar = tensor is None or not tensor.shape
        inputs.append(value if is_scalar else nodes.view(value, _extents(shape, groups)))
    made = nodes.add(node.op_type, *inputs, **_kept(node))
    nodes.view(made, result, out=node.output[0])
    return True


def _aligned(call: Call) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """The operands' shapes with leading 1s, and their broadcast."""
    given = [() if tensor is None else tensor.shape for tensor in call.inputs]
    rank = max(map(len, given))
    shapes = [(*(1,) * (rank - len(shape)), *shape) for shape in given]
    result = tuple(next((e for e in extents if not _is_one(e)), 1) for extents in zip(*shapes, strict=True))
    return shapes, result


def _stretched(shapes: Sequence[Shape], result: Shape) -> list[Key]:
    """Per axis, which operands have extent 1 there and are stretched."""
    keys = zip(*shapes, strict=True)
    return [None if _is_one(e) else tuple(map(_is_one, key)) for key, e in zip(keys, result, strict=True)]


def _elementwise(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shapes, result = _aligned(call)
    if call.opset < _BROADCASTS and any(tuple(shape) != result for shape in shapes):
        return False
    return _broadcast(node, call, nodes, result, _stretched(shapes, result), shapes)


def _matmul(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    if any(len(call.tensor(operand).shape) < 2 for operand in (0, 1)):
        return False
    shapes, stretched = _aligned(call)
    result = (*stretched[:-2], shapes[0][-2], shapes[1][-1])
    return _broadcast(node, call, nodes, result, [*_stretched(shapes, stretched)[:-2], "row", "column"], shapes)


def _transpose(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    """One transposition of merged axes, or several if too many axes move.

    Moving three axes to the front splits the others into at most four runs. The axes moved earlier stay together as
    one, which makes at most eight.
    """
    shape = call.tensor(0).shape
    wanted = list(call.integers("perm") or reversed(range(len(shape))))
    moving = [axis for axis in wanted if not _is_one(shape[axis])]
    now, made, front = sorted(moving), node.input[0], 0
    while len(_blocks(now, moving)) > MAX_AXES:
        front += _BROUGHT
        step = [*moving[:front], *(axis for axis in now if axis not in moving[:front])]
        made, now = _transposed(nodes, made, shape, now, step), step
    made = _transposed(nodes, made, shape, now, moving)
    nodes.view(made, [shape[axis] for axis in wanted], out=node.output[0])
    return True


def _transposed(nodes: NarrowNodes, value: str, shape: Shape, now: list[int], wanted: list[int]) -> str:
    """A value with its axes moved from the order `now` to the order `wanted`."""
    blocks = _blocks(now, wanted)
    before = sorted(blocks, key=lambda block: now.index(block[0]))
    data = nodes.view(value, _extents(shape, tuple(before)))
    return nodes.transpose(data, [before.index(block) for block in blocks])


def _blocks(now: list[int], wanted: list[int]) -> Groups:
    """Groups of axes that are adjacent in both orders, in the order `wanted`."""
    place = {axis: number for number, axis in enumerate(now)}
    blocks: list[list[int]] = []
    for axis in wanted:
        if blocks and place[axis] == place[blocks[-1][-1]] + 1:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    return tuple(map(tuple, blocks))


def _softmax(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shape = call.tensor(0).shape
    axis = call.axis("axis", -1 if call.opset >= _SOFTMAX_ALONG else 1, len(shape))
    form = _around(shape, axis) if call.opset >= _SOFTMAX_ALONG else (prod(shape[:axis]), prod(shape[axis:]))
    made = nodes.add(node.op_type, nodes.view(node.input[0], form), axis=1)
    nodes.view(made, shape, out=node.output[0])
    return True


def _cumsum(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shape = call.tensor(0).shape
    axis = call.within(int(call.value(1, "axis").reshape(-1)[0]), len(shape))
    data = nodes.view(node.input[0], _around(shape, axis))
    nodes.view(nodes.add("CumSum", data, nodes.number(1, "int64"), **_kept(node)), shape, out=node.output[0])
    return True


def _extreme(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shape = call.tensor(0).shape
    axis, keep = call.axis("axis", 0, len(shape)), call.integer("keepdims", 1)
    data = nodes.view(node.input[0], _around(shape, axis))
    made = nodes.add(node.op_type, data, axis=1, keepdims=0, **_kept(node, "axis", "keepdims"))
    nodes.view(made, [*shape[:axis], *(1,) * bool(keep), *shape[axis + 1 :]], out=node.output[0])
    return True


def _reduce(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    """Merges neighbours that are both reduced or both kept."""
    shape = call.tensor(0).shape
    given = call.constant_integers(1, "axes") if call.has(1) else call.integers("axes")
    if not given and call.integer("noop_with_empty_axes", 0):
        return False
    axes = {call.within(axis, len(shape), "axes") for axis in given} if given else set(range(len(shape)))
    groups = _merged([None if _is_one(extent) else axis in axes for axis, extent in enumerate(shape)])
    # a group whose extents are all 1 gives the same result reduced or kept
    reduced = [number for number, group in enumerate(groups) if any(a in axes and not _is_one(shape[a]) for a in group)]
    data = nodes.view(node.input[0], _extents(shape, groups))
    if not reduced:
        reduced = [len(groups)]
        data = nodes.view(node.input[0], (*_extents(shape, groups), 1))
    if call.has(1):
        made = nodes.add(node.op_type, data, nodes.integers(reduced), keepdims=0)
    else:
        made = nodes.add(node.op_type, data, axes=reduced, keepdims=0)
    keep = bool(call.integer("keepdims", 1))
    kept = [1 if axis in axes else extent for axis, extent in enumerate(shape) if keep or axis not in axes]
    nodes.view(made, kept, out=node.output[0])
    return True


def _concat(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shapes = [call.tensor(number).shape for number in range(len(call.inputs))]
    axis = call.axis("axis", 0 if "axis" in call.attributes else 1, len(shapes[0]))
    parts = [nodes.view(value, _around(shape, axis)) for value, shape in zip(node.input, shapes, strict=True)]
    along = sum(shape[axis] for shape in shapes)
    made = nodes.add("Concat", *parts, axis=1)
    nodes.view(made, [*shapes[0][:axis], along, *shapes[0][axis + 1 :]], out=node.output[0])
    return True


def _slices(call: Call) -> tuple[list[int], list[int], list[int], list[int]]:
    """Begins, ends, axes and steps of a Slice."""
    rank = len(call.tensor(0).shape)
    if call.opset < _SLICE_BY_INPUTS:
        starts, ends = call.integers("starts") or (), call.integers("ends") or ()
        axes, steps = call.integers("axes") or tuple(range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = call.constant_integers(1, "starts"), call.constant_integers(2, "ends")
        axes = call.constant_integers(3, "axes") if call.has(3) else tuple(range(len(starts)))
        steps = call.constant_integers(4, "steps") if call.has(4) else (1,) * len(starts)
    return list(starts), list(ends), [call.within(axis, rank, "axes") for axis in axes], list(steps)


def _slice(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    """Merges axes that are not cut."""
    starts, ends, axes, steps = _slices(call)
    if any(isinstance(extent, Dim) for extent in (*starts, *ends)):
        return False
    result = OP_KINDS["Slice"].infer(call).shape
    shape = call.tensor(0).shape
    groups = _merged([("cut", axis) if axis in axes else "whole" for axis in range(len(shape))])
    places = [groups.index((axis,)) for axis in axes]
    data = nodes.view(node.input[0], _extents(shape, groups))
    if call.opset < _SLICE_BY_INPUTS:
        made = nodes.add("Slice", data, starts=starts, ends=ends, axes=places)
    else:
        made = nodes.add("Slice", data, *map(nodes.integers, (starts, ends, places, steps)))
    nodes.view(made, result, out=node.output[0])
    return True


def _pad(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    """Merges axes without pads."""
    pads, shape = Pad.pads_of(call), call.tensor(0).shape
    rank = len(shape)
    if any(isinstance(pad, Dim) for pad in pads):
        return False
    ends = [(pads[axis], pads[rank + axis]) for axis in range(rank)]
    groups = _merged([("padded", axis) if any(ends[axis]) else "whole" for axis in range(rank)])
    merged = [ends[group[0]][side] for side in (0, 1) for group in groups]
    data = nodes.view(node.input[0], _extents(shape, groups))
    if len(node.input) > 1:
        made = nodes.add("Pad", data, nodes.integers(merged), *node.input[2:3], **_kept(node))
    else:
        name = "pads" if "pads" in call.attributes else "paddings"
        made = nodes.add("Pad", data, **{**_kept(node), name: merged})
    nodes.view(made, [low + e + high for e, (low, high) in zip(shape, ends, strict=True)], out=node.output[0])
    return True


def _split(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shape = call.tensor(0).shape
    axis = call.axis("axis", 0, len(shape))
    if call.has(1) and 1 not in call.values:
        return False
    sizes = call.constant_integers(1, "split") if call.has(1) else call.integers("split")
    if sizes is None:
        part = -(-shape[axis] // len(node.output))
        sizes = (*[part] * (len(node.output) - 1), shape[axis] - part * (len(node.output) - 1))
    data = nodes.view(node.input[0], _around(shape, axis))
    parts = [nodes.fresh(f"{nodes.stem}/part") if output else "" for output in node.output]
    nodes.nodes.append(helper.make_node("Split", [data, *node.input[1:]], parts, **{**_kept(node), "axis": 1}))
    for part_name, output, size in zip(parts, node.output, sizes, strict=True):
        if output:
            nodes.view(part_name, [*shape[:axis], size, *shape[axis + 1 :]], out=output)
    return True


def _gather(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shape, indices = call.tensor(0).shape, call.tensor(1).shape
    axis = call.axis("axis", 0, len(shape))
    flat = nodes.view(node.input[1], (prod(indices),))
    made = nodes.add("Gather", nodes.view(node.input[0], _around(shape, axis)), flat, axis=1)
    nodes.view(made, [*shape[:axis], *indices, *shape[axis + 1 :]], out=node.output[0])
    return True


def _expand(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    result = OP_KINDS["Expand"].infer(call).shape
    data = call.tensor(0).shape
    shape = (*(1,) * (len(result) - len(data)), *data)
    groups = _merged([None if _is_one(end) else _is_one(begin) for begin, end in zip(shape, result, strict=True)])
    before, after = _extents(shape, groups), _extents(result, groups)
    # unchanged extents come from the data: a target of 1 leaves them alone
    target = nodes.shape([end if _is_one(begin) else 1 for begin, end in zip(before, after, strict=True)])
    made = nodes.add("Expand", nodes.view(node.input[0], before), target)
    nodes.view(made, result, out=node.output[0])
    return True


def _tile(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    shape, repeats = call.tensor(0).shape, call.constant_integers(1, "repeats")
    if len(repeats) != len(shape) or any(isinstance(times, Dim) for times in repeats):
        return False
    groups = _merged(["whole" if times == 1 else ("repeated", axis) for axis, times in enumerate(repeats)])
    times = nodes.integers([prod(repeats[axis] for axis in group) for group in groups])
    made = nodes.add("Tile", nodes.view(node.input[0], _extents(shape, groups)), times)
    nodes.view(made, [e * n for e, n in zip(shape, repeats, strict=True)], out=node.output[0])
    return True


def _layer_norm(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    """Merges the normalised axes; scale and shift have one element per normalised position."""
    shape = call.tensor(0).shape
    axis = call.axis("axis", -1, len(shape))
    rest = [call.tensor(number).shape for number in range(1, len(call.inputs)) if call.has(number)]
    if any(node.output[1:]) or any(tuple(given) != tuple(shape[axis:]) for given in rest):
        return False
    data = nodes.view(node.input[0], (prod(shape[:axis]), prod(shape[axis:])))
    weights = [nodes.view(value, (prod(shape[axis:]),)) if value else "" for value in node.input[1:]]
    made = nodes.add(node.op_type, data, *weights, **{**_kept(node), "axis": 1})
    nodes.view(made, shape, out=node.output[0])
    return True


def _quantise(node: onnx.NodeProto, call: Call, nodes: NarrowNodes) -> bool:
    """Scales per tensor or per channel; blocked scales are left to the host."""
    shape, scale = call.tensor(0).shape, call.tensor(1).shape
    if len(scale) > 1 or call.integer("block_size", 0):
        return False
    per_channel = len(scale) == 1 and scale != (1,)
    axis = call.axis("axis", 1, len(shape)) if per_channel else 0
    form = _around(shape, axis) if per_channel else (prod(shape),)
    attributes = {**_kept(node, "axis"), **({"axis": 1} if per_channel else {})}
    made = nodes.add(node.op_type, nodes.view(node.input[0], form), *node.input[1:], **attributes)
    nodes.view(made, shape, out=node.output[0])
    return True


_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "ArgMax": _extreme,
        "ArgMin": _extreme,
        "Concat": _concat,
        "CumSum": _cumsum,
        "DequantizeLinear": _quantise,
        "Expand": _expand,
        "Gather": _gather,
        "LayerNormalization": _layer_norm,
        "LogSoftmax": _softmax,
        "MatMul": _matmul,
        "Pad": _pad,
        "QuantizeLinear": _quantise,
        "RMSNormalization": _layer_norm,
        "Slice": _slice,
        "Softmax": _softmax,
        "Split": _split,
        "Tile": _tile,
        "Transpose": _transpose,
        **dict.fromkeys(_REDUCES, _reduce),
    }
)
