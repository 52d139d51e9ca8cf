"""Data movement ops: permute, join, cut, pad, repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import WHOLE, AxisMap, same, shifted
from compiler.ir.graph import Attribute
from compiler.ir.symbol import Dim, greater, lesser, ties_of
from compiler.ops.base import (
    Access,
    Array,
    Call,
    Constraint,
    Inferred,
    OpClass,
    OpKind,
    default_axes,
    from_front,
)
from compiler.ops.broadcasting import agreed, broadcast_access, repeated
from compiler.ops.compute_types import taken
from compiler.ops.slab import Box


class Transpose(OpKind):
    """Permutation of axes; attribute `perm`."""

    op_class = OpClass.MOVEMENT
    is_local = True

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        rank = len(data.shape)
        permutation = call.integers("perm") or tuple(reversed(range(rank)))
        if sorted(permutation) != list(range(rank)):
            call.fail("perm is not a permutation of the axes", actual=permutation, limit=f"0 to {rank - 1}")
        return Inferred(
            shape=tuple(data.shape[axis] for axis in permutation),
            dtype=data.dtype,
            axes=tuple(data.axes[axis] for axis in permutation),
            kind=self.kind,
            inputs=(0,),
            attributes={"perm": permutation},
            source=0 if permutation == tuple(range(rank)) else None,
        )

    def access(self, call: Call) -> Access:
        permutation = call.integers("perm") or ()
        return (tuple(same(permutation.index(axis)) for axis in range(len(permutation))),)

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        return arrays[0].transpose(call.integers("perm") or ())


class Concat(OpKind):
    """Concatenation along `axis`."""

    op_class = OpClass.MOVEMENT
    is_local = True

    def infer(self, call: Call) -> Inferred:
        tensors = [call.tensor(index) for index in range(len(call.inputs))]
        if not tensors:
            call.fail("at least one input is needed")
        first = tensors[0]
        axis = call.axis("axis", 1, len(first.shape))
        total, others = 0, first.shape
        for tensor in tensors:
            rest = tensor.shape[:axis] + tensor.shape[axis + 1 :]
            if len(tensor.shape) != len(first.shape) or rest != first.shape[:axis] + first.shape[axis + 1 :]:
                off = zip(first.shape, tensor.shape, strict=False) if len(tensor.shape) == len(first.shape) else ()
                ties = tuple(tie for i, (a, b) in enumerate(off) if i != axis and a != b for tie in ties_of(a, b))
                call.fail("inputs differ off the concatenated axis", actual=tensor.shape, limit=first.shape, ties=ties)
            if tensor.dtype != first.dtype:
                call.fail("inputs have different element types", actual=tensor.dtype, limit=first.dtype)
            total += tensor.shape[axis]
            others = tuple(map(agreed, others, tensor.shape))
        lead = next((t for t in tensors if t.constant is None), first)
        return Inferred(
            shape=(*others[:axis], total, *others[axis + 1 :]),
            dtype=first.dtype,
            axes=lead.axes,
            kind=self.kind,
            inputs=tuple(range(len(tensors))),
            attributes={"axis": axis},
            source=0 if len(tensors) == 1 else None,
        )

    def access(self, call: Call) -> Access:
        axis = call.integer("axis", 0)
        maps = []
        offset = 0
        for tensor in call.inputs:
            if tensor is None:
                continue
            maps.append(tuple(shifted(i, -offset) if i == axis else same(i) for i in range(len(tensor.shape))))
            offset += tensor.shape[axis]
        return tuple(maps)

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        return np.concatenate(arrays, axis=call.integer("axis", 0))


class Slice(OpKind):
    """A box of the input, with steps; Split becomes one Slice per output.

    Attributes of the IR op: `begin` and `step` per axis; the output's shape gives the counts.
    """

    op_class = OpClass.MOVEMENT
    is_local = True
    constant_inputs = MappingProxyType({1: "starts", 2: "ends", 3: "axes", 4: "steps"})

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        rank = len(data.shape)
        starts, ends, axes, steps = self._bounds(call)
        begin, step, shape = [0] * rank, [1] * rank, list(data.shape)
        for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
            index = call.within(axis, rank, "axes")
            if stride == 0:
                call.fail("a slice cannot have the step 0", actual=steps)
            extent = data.shape[index]
            # a backward slice begins at the last position or before it, and may end before the first
            highest, lowest_end = (extent, 0) if stride > 0 else (extent - 1, -1)
            first = lesser(greater(from_front(start, extent), 0), highest)
            last = lesser(greater(from_front(end, extent), lowest_end), highest)
            begin[index], step[index] = first, stride
            shape[index] = greater(0, -((first - last) // stride))
        whole = tuple(shape) == data.shape and all(stride == 1 for stride in step)
        return Inferred(
            shape=tuple(shape),
            dtype=data.dtype,
            axes=data.axes,
            kind="Slice",
            inputs=(0,),
            attributes={"begin": tuple(begin), "step": tuple(step)},
            source=0 if whole else None,
        )

    def _bounds(self, call: Call) -> tuple[tuple[int, ...], ...]:
        def given(index: int, name: str) -> tuple[int, ...] | None:
            return call.constant_integers(index, name) if call.has(index) else call.integers(name)

        starts, ends = given(1, "starts"), given(2, "ends")
        if starts is None or ends is None or len(starts) != len(ends):
            call.fail("starts and ends must be given and of equal length", actual=f"{starts}, {ends}")
        axes = given(3, "axes") or tuple(range(len(starts)))
        steps = given(4, "steps") or (1,) * len(starts)
        if not len(axes) == len(steps) == len(starts):
            call.fail("axes and steps must be as long as starts", actual=f"{axes}, {steps}")
        return starts, ends, axes, steps

    def access(self, call: Call) -> Access:
        begin, step = call.integers("begin") or (), call.integers("step") or ()
        return (
            tuple(
                AxisMap(axis=i, scale=s, low=b, high=b) if s > 0 else WHOLE
                for i, (b, s) in enumerate(zip(begin, step, strict=True))
            ),
        )

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with `begin` relative to the data's box."""
        begins, steps = call.integers("begin") or (), call.integers("step") or ()
        local = (b + s * r[0] - n[0] for b, s, r, n in zip(begins, steps, box, needed[0] or (), strict=True))
        return {**call.attributes, "begin": tuple(local)}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        index = []
        for begin, step, extent in zip(
            call.integers("begin") or (), call.integers("step") or (), call.result.shape, strict=True
        ):
            stop = begin + step * extent
            index.append(slice(begin, None if stop < 0 else stop, step) if extent else slice(0))
        return arrays[0][tuple(index)]


_PAD_MODES: Final = ("constant", "edge", "reflect", "wrap")


class Pad(OpKind):
    """Padding with a constant, the edge, or the mirrored or repeated input; negative amounts crop.

    Attributes of the IR op: `pads` (begins, then ends), `mode`, and for a constant `value`; for another mode `varying`
    says the axes whose pads vary with extents, if there are any.
    """

    op_class = OpClass.MOVEMENT
    is_local = True
    constant_inputs = MappingProxyType({1: "pads", 2: "constant_value", 3: "axes"})
    constraints = (Constraint("mode wrap crops nothing (pads are at least 0)", lambda call: Pad.cropped(call)),)

    @staticmethod
    def cropped(call: Call) -> tuple[int, ...] | None:
        """The pads if mode wrap would crop, else None; runtimes differ on which elements then repeat."""
        pads = Pad.pads_of(call)
        return pads if call.text("mode", "constant") == "wrap" and min(pads, default=0) < 0 else None

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        mode = call.text("mode", "constant")
        if mode not in _PAD_MODES:
            call.fail("unknown mode", actual=mode, limit=", ".join(_PAD_MODES))
        pads, rank = self.pads_of(call), len(data.shape)
        shape = tuple(extent + pads[i] + pads[rank + i] for i, extent in enumerate(data.shape))
        if any(extent < 1 for extent in shape):
            call.fail("the result would be empty", actual=shape)
        value = call.number("value", 0.0)
        if call.has(2):
            if call.value(2, "constant_value").size != 1:
                call.fail("constant_value must have one element", actual=call.tensor(2).shape)
            value = call.value(2, "constant_value").reshape(()).item()
            value = value if isinstance(value, int) else float(value)
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"pads": pads, "mode": mode, "value": value, **_varying_axes(pads, mode)},
            source=0 if not any(pads) else None,
        )

    @staticmethod
    def pads_of(call: Call) -> tuple[int, ...]:
        """Begins then ends, for every axis."""
        rank = len(call.tensor(0).shape)
        pads = call.integers("pads") or call.integers("paddings")
        if pads is None:
            pads = call.constant_integers(1, "pads")
        if call.has(3):
            axes = [call.within(axis, rank, "axes") for axis in call.constant_integers(3, "axes")]
            if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
                call.fail(f"pads must be {2 * len(axes)} integers, for different axes", actual=pads)
            begin, end = dict(zip(axes, pads, strict=False)), dict(zip(axes, pads[len(axes) :], strict=False))
            pads = (*(begin.get(i, 0) for i in range(rank)), *(end.get(i, 0) for i in range(rank)))
        if len(pads) != 2 * rank:
            call.fail(f"pads must be {2 * rank} integers", actual=pads)
        return pads

    def access(self, call: Call) -> Access:
        pads, rank = call.integers("pads") or (), len(call.tensor(0).shape)
        constant, varying = call.text("mode", "constant") == "constant", call.integers("varying") or ()
        # units have room for what is needed at any extent: where pads vary, the axis whole
        is_whole = [not constant and (i in varying or max(pads[i], pads[rank + i]) > 0) for i in range(rank)]
        return (tuple(WHOLE if is_whole[i] else shifted(i, -pads[i]) for i in range(rank)),)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with begins relative to the data's box (ends follow from the extents)."""
        pads = call.integers("pads") or ()
        begins = (pad - r[0] + n[0] for pad, r, n in zip(pads, box, needed[0] or (), strict=False))
        return {**call.attributes, "pads": (*begins, *pads[len(box) :])}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data = arrays[0]
        mode, pads = call.text("mode", "constant"), call.integers("pads") or ()
        if mode == "constant":
            return _surrounded(data, call.result.shape, pads, call.attributes.get("value", 0))
        positions = (np.arange(extent) - pads[axis] for axis, extent in enumerate(call.result.shape))
        return taken(data, [_source(p, extent, mode) for p, extent in zip(positions, data.shape, strict=True)])


def _surrounded(data: Array, shape: tuple[int, ...], begins: tuple[int, ...], value: object) -> Array:
    """The data at `begins` (negative: cropped) in an array of `shape` filled with `value`."""
    result = np.full(shape, value, dtype=data.dtype)
    ends = [begin + extent for begin, extent in zip(begins, data.shape, strict=False)]
    target = tuple(slice(max(0, b), max(0, b, min(e, n))) for b, e, n in zip(begins, ends, shape, strict=False))
    source = tuple(slice(t.start - b, t.stop - b) for t, b in zip(target, begins, strict=False))
    result[target] = data[source]
    return result


def _source(positions: NDArray[np.int64], extent: int, mode: str) -> NDArray[np.int64]:
    """The input position that each output position of one axis reads."""
    if mode == "wrap":
        return np.asarray(positions % extent)
    if mode == "reflect" and extent > 1:
        period = 2 * (extent - 1)
        folded = positions % period
        return np.minimum(folded, period - folded)
    return np.clip(positions, 0, extent - 1)


def _varying_axes(pads: tuple[int, ...], mode: str) -> dict[str, Attribute]:
    rank = len(pads) // 2
    found = tuple(i for i in range(rank) if isinstance(pads[i], Dim) or isinstance(pads[rank + i], Dim))
    return {"varying": found} if found and mode != "constant" else {}


class Expand(OpKind):
    """Broadcast to a larger shape."""

    op_class = OpClass.MOVEMENT
    is_local = True
    constant_inputs = MappingProxyType({1: "shape"})

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        wanted = call.constant_integers(1, "shape")
        rank = max(len(wanted), len(data.shape))
        a = (1,) * (rank - len(data.shape)) + data.shape
        b = (1,) * (rank - len(wanted)) + wanted
        unequal = [(x, y) for x, y in zip(a, b, strict=True) if x != y and 1 not in (x, y)]
        if unequal or any(y < 1 for y in b):
            ties = tuple(tie for x, y in unequal for tie in ties_of(x, y))
            call.fail("the input does not broadcast to the shape", actual=data.shape, limit=wanted, ties=ties)
        shape = tuple(repeated(x, y) for x, y in zip(a, b, strict=True))
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes if rank == len(data.shape) else default_axes(rank),
            kind=self.kind,
            inputs=(0,),
            source=0 if shape == data.shape else None,
        )

    def access(self, call: Call) -> Access:
        return (broadcast_access(call.tensor(0).shape, call.result.shape),)

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        return np.broadcast_to(arrays[0], call.result.shape)


class Tile(OpKind):
    """The input repeated along its axes; attribute `repeats`."""

    op_class = OpClass.MOVEMENT
    is_local = True
    constant_inputs = MappingProxyType({1: "repeats", 2: "axis"})

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        repeats = call.constant_integers(1, "repeats")
        if call.opset < 6:  # inputs are one axis and its number of repeats
            axis = call.within(call.constant_integers(2, "axis")[0], len(data.shape))
            repeats = tuple(repeats[0] if i == axis else 1 for i in range(len(data.shape)))
        if len(repeats) != len(data.shape) or any(count < 0 for count in repeats):
            call.fail(f"repeats must be {len(data.shape)} integers of at least 0", actual=repeats)
        return Inferred(
            shape=tuple(extent * count for extent, count in zip(data.shape, repeats, strict=True)),
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"repeats": repeats},
            source=0 if all(count == 1 for count in repeats) else None,
        )

    def access(self, call: Call) -> Access:
        return (tuple(same(i) if count == 1 else WHOLE for i, count in enumerate(call.integers("repeats") or ())),)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with `begin`: per axis, the position of the data where the box starts."""
        return {**call.attributes, "begin": tuple(r[0] - n[0] for r, n in zip(box, needed[0] or (), strict=True))}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, shape = arrays[0], call.result.shape
        begins = call.integers("begin", (0,) * len(shape)) or ()
        positions = [
            (begin + np.arange(extent)) % data.shape[i]
            for i, (begin, extent) in enumerate(zip(begins, shape, strict=True))
        ]
        return taken(data, positions)


def slices_of_split(call: Call, parts: int) -> tuple[Inferred, ...] | None:
    """A Split into `parts` outputs as one Slice each; None if their sizes are unknown at compile time.

    Raises ModelError naming the node if the sizes do not add up to the axis.
    """
    data = call.tensor(0)
    axis = call.axis("axis", 0, len(data.shape))
    extent = data.shape[axis]
    sizes = call.integers("split")
    if sizes is None and call.has(1):
        if 1 not in call.values:
            return None
        sizes = call.constant_integers(1, "the sizes")
    if sizes is None:
        part = -(-extent // parts)
        sizes = tuple([part] * (parts - 1) + [extent - (parts - 1) * part])
    if len(sizes) != parts or sum(sizes) != extent or any(size < 0 for size in sizes):
        call.fail("split sizes do not add up to the axis", actual=tuple(map(int, sizes)), limit=int(extent))
    begins = accumulate(sizes[:-1], initial=0)
    return tuple(
        Inferred(
            shape=tuple(size if i == axis else e for i, e in enumerate(data.shape)),
            dtype=data.dtype,
            axes=data.axes,
            kind="Slice",
            inputs=(0,),
            attributes={
                "begin": tuple(begin if i == axis else 0 for i in range(len(data.shape))),
                "step": (1,) * len(data.shape),
            },
            source=0 if parts == 1 else None,
        )
        for begin, size in zip(begins, sizes, strict=True)
    )


def without_empty(call: Call) -> Call:
    """A Concat without its empty parts."""
    filled = [index for index, t in enumerate(call.inputs) if t is None or t.elements or len(t.shape) > 1]
    if len(filled) == len(call.inputs) or not filled:
        return call
    return replace(
        call,
        inputs=tuple(call.inputs[index] for index in filled),
        values={new: call.values[old] for new, old in enumerate(filled) if old in call.values},
    )
