"""Ops that move data without computing, and views that do not even move it."""

from __future__ import annotations

from math import prod

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same, shifted
from compiler.ops.base import Access, Array, Call, Inferred, OpClass, OpKind, default_axes


class Reshape(OpKind):
    """A view of the same elements in the same order; the IR form of Reshape, Flatten, Squeeze and Unsqueeze."""

    op_class = OpClass.VIEW
    in_place = True

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        shape = self._target(call)
        if any(extent < 1 for extent in shape) or prod(shape) != data.elements:
            call.fail("the new shape holds another number of elements", actual=shape, limit=data.shape)
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes if len(shape) == len(data.shape) else default_axes(len(shape)),
            kind="Reshape",
            inputs=(0,),
            attributes={"shape": shape},
            source=0 if shape == data.shape else None,
        )

    def _target(self, call: Call) -> tuple[int, ...]:
        data = call.tensor(0)
        given = call.integers("shape")
        if given is None:
            given = tuple(int(v) for v in np.asarray(call.value(1, "shape")).reshape(-1))
        shape = list(given)
        if not call.integer("allowzero", 0):
            for index, extent in enumerate(shape):
                if extent == 0:
                    if index >= len(data.shape):
                        call.fail("a 0 in the new shape copies an axis that the input lacks", actual=given)
                    shape[index] = data.shape[index]
        if shape.count(-1) > 1 or any(extent < -1 for extent in shape):
            call.fail("the new shape may have one −1 and nothing below", actual=given)
        if -1 in shape:
            rest = prod(extent for extent in shape if extent != -1)
            if rest == 0 or data.elements % rest:
                call.fail("the −1 in the new shape has no whole value", actual=given, limit=data.shape)
            shape[shape.index(-1)] = data.elements // rest
        return tuple(shape)

    def access(self, call: Call) -> Access:
        return (reshape_access(call.tensor(0).shape, call.output.shape if call.output else ()),)

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        return arrays[0].reshape(call.output.shape) if arrays[0] is not None and call.output else None


class Flatten(Reshape):
    """Flatten into a matrix at `axis`."""

    def _target(self, call: Call) -> tuple[int, ...]:
        shape = call.tensor(0).shape
        axis = call.integer("axis", 1)
        if axis != len(shape):
            axis = call.within(axis, len(shape) or 1)
        return (prod(shape[:axis]), prod(shape[axis:]))


class Squeeze(Reshape):
    """Remove axes of extent 1."""

    def _target(self, call: Call) -> tuple[int, ...]:
        shape = call.tensor(0).shape
        given = _axes(call)
        axes = (
            {i for i, extent in enumerate(shape) if extent == 1}
            if given is None
            else {call.within(axis, len(shape), "axes") for axis in given}
        )
        if any(shape[axis] != 1 for axis in axes):
            call.fail("an axis to remove has an extent other than 1", actual=shape)
        return tuple(extent for i, extent in enumerate(shape) if i not in axes)


class Unsqueeze(Reshape):
    """Insert axes of extent 1."""

    def _target(self, call: Call) -> tuple[int, ...]:
        shape = list(call.tensor(0).shape)
        given = _axes(call)
        if given is None:
            call.fail("axes are missing")
        rank = len(shape) + len(given)
        axes = {call.within(axis, rank, "axes") for axis in given}
        if len(axes) != len(given):
            call.fail("an axis is given twice", actual=given)
        for axis in sorted(axes):
            shape.insert(axis, 1)
        return tuple(shape)


def _axes(call: Call) -> tuple[int, ...] | None:
    given = call.integers("axes")
    if given is None and call.has(1):
        given = tuple(int(v) for v in np.asarray(call.value(1, "axes")).reshape(-1))
    return given


def reshape_access(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[AxisMap, ...]:
    """Access of a reshape: axes whose strides survive map, the rest of each regrouped run is needed whole.

    Runs of axes with equal products are matched from the front. One to one: the same axis. One to many: the input
    axis follows the outermost output axis in blocks. Many to one: the outermost input axis follows in blocks, the
    inner ones are whole.
    """
    maps: list[AxisMap] = []
    i = j = 0
    while i < len(source):
        i_end, j_end = i + 1, j + 1
        left = source[i]
        right = target[j] if j < len(target) else 1
        while left != right:
            if left < right:
                left *= source[i_end]
                i_end += 1
            else:
                right *= target[j_end]
                j_end += 1
        inputs = [a for a in range(i, i_end) if source[a] != 1]
        outputs = [a for a in range(j, min(j_end, len(target))) if target[a] != 1]
        run = dict.fromkeys(range(i, i_end), WHOLE)
        if inputs and outputs:
            outer_in, outer_out = inputs[0], outputs[0]
            inner_in = prod(source[a] for a in inputs[1:])
            inner_out = prod(target[a] for a in outputs[1:])
            if inner_in == inner_out:
                run[outer_in] = same(outer_out)
            elif inner_out % inner_in == 0:
                run[outer_in] = AxisMap(axis=outer_out, block=inner_out // inner_in)
            elif inner_in % inner_out == 0:
                run[outer_in] = AxisMap(axis=outer_out, divisor=inner_in // inner_out)
            if len(inputs) == len(outputs) and all(
                source[a] == target[b] for a, b in zip(inputs, outputs, strict=True)
            ):
                run.update({a: same(b) for a, b in zip(inputs, outputs, strict=True)})
        maps.extend(run[a] for a in range(i, i_end))
        i, j = i_end, j_end
    return tuple(maps)


class Identity(OpKind):
    """Identity and Dropout at inference: the input unchanged."""

    op_class = OpClass.VIEW

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        return Inferred(shape=data.shape, dtype=data.dtype, axes=data.axes, kind="Identity", inputs=(0,), source=0)

    def access(self, call: Call) -> Access:
        return (tuple(same(axis) for axis in range(len(call.tensor(0).shape))),)


class Transpose(OpKind):
    """Permutation of axes."""

    op_class = OpClass.MOVEMENT

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

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        return arrays[0].transpose(call.integers("perm") or ()) if arrays[0] is not None else None


class Concat(OpKind):
    """Concatenation along one axis."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        tensors = [call.tensor(index) for index in range(len(call.inputs))]
        if not tensors:
            call.fail("at least one input is needed")
        first = tensors[0]
        axis = call.axis("axis", 1, len(first.shape))
        total = 0
        for tensor in tensors:
            rest = tensor.shape[:axis] + tensor.shape[axis + 1 :]
            if len(tensor.shape) != len(first.shape) or rest != first.shape[:axis] + first.shape[axis + 1 :]:
                call.fail("inputs differ off the concatenated axis", actual=tensor.shape, limit=first.shape)
            if tensor.dtype != first.dtype:
                call.fail("inputs have different element types", actual=tensor.dtype, limit=first.dtype)
            total += tensor.shape[axis]
        lead = next((t for t in tensors if t.constant is None), first)
        return Inferred(
            shape=(*first.shape[:axis], total, *first.shape[axis + 1 :]),
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

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        return np.concatenate([a for a in arrays if a is not None], axis=call.integer("axis", 0))


class Slice(OpKind):
    """A box of the input with positive steps; Split is lowered to one Slice per output."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        rank = len(data.shape)
        starts, ends, axes, steps = self._bounds(call)
        begin, stop, step = [0] * rank, list(data.shape), [1] * rank
        for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
            index = call.within(axis, rank, "axes")
            extent = data.shape[index]
            if stride < 1:
                call.fail("a slice with a step below 1 is not supported", code="unsupported_op", actual=stride)
            begin[index] = min(max(start + extent if start < 0 else start, 0), extent)
            stop[index] = min(max(end + extent if end < 0 else end, 0), extent)
            step[index] = stride
        shape = tuple(max(0, -(-(e - b) // s)) for b, e, s in zip(begin, stop, step, strict=True))
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes,
            kind="Slice",
            inputs=(0,),
            attributes={"begin": tuple(begin), "step": tuple(step)},
            source=0 if shape == data.shape else None,
        )

    def _bounds(self, call: Call) -> tuple[tuple[int, ...], ...]:
        def given(index: int, name: str) -> tuple[int, ...] | None:
            if call.has(index):
                return tuple(int(v) for v in np.asarray(call.value(index, name)).reshape(-1))
            return call.integers(name)

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
            tuple(AxisMap(axis=i, scale=s, low=b, high=b) for i, (b, s) in enumerate(zip(begin, step, strict=True))),
        )

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        if arrays[0] is None or call.output is None:
            return None
        index = tuple(
            slice(b, b + s * extent, s)
            for b, s, extent in zip(
                call.integers("begin") or (), call.integers("step") or (), call.output.shape, strict=True
            )
        )
        return arrays[0][index]


class Pad(OpKind):
    """Padding with a constant; negative amounts crop."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        rank = len(data.shape)
        if call.text("mode", "constant") != "constant":
            call.fail("only constant padding is supported", code="unsupported_op", actual=call.text("mode", ""))
        pads = call.integers("pads")
        if pads is None:
            pads = tuple(int(v) for v in np.asarray(call.value(1, "pads")).reshape(-1))
        if call.has(3):
            axes = [call.within(int(v), rank, "axes") for v in np.asarray(call.value(3, "axes")).reshape(-1)]
            begin, end = dict(zip(axes, pads, strict=False)), dict(zip(axes, pads[len(axes) :], strict=False))
            pads = (*(begin.get(i, 0) for i in range(rank)), *(end.get(i, 0) for i in range(rank)))
        if len(pads) != 2 * rank:
            call.fail(f"pads must be {2 * rank} integers", actual=pads)
        shape = tuple(extent + pads[i] + pads[rank + i] for i, extent in enumerate(data.shape))
        if any(extent < 1 for extent in shape):
            call.fail("the result would be empty", actual=shape)
        value = float(call.value(2, "value").reshape(())) if call.has(2) else call.number("value", 0.0)
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"pads": pads, "value": value},
            source=0 if not any(pads) else None,
        )

    def access(self, call: Call) -> Access:
        pads = call.integers("pads") or ()
        return (tuple(shifted(i, -pads[i]) for i in range(len(call.tensor(0).shape))),)


class DepthToSpace(OpKind):
    """Channels become `blocksize` × `blocksize` spatial positions."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        data, block = call.tensor(0), call.integer("blocksize", 0)
        if len(data.shape) != 4 or block < 1 or data.shape[1] % (block * block):
            call.fail("input must be [N, C, H, W] with blocksize² dividing C", actual=f"{data.shape}, {block}")
        n, c, h, w = data.shape
        return Inferred(
            shape=(n, c // (block * block), h * block, w * block),
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"blocksize": block, "mode": call.text("mode", "DCR")},
        )

    def access(self, call: Call) -> Access:
        block = call.integer("blocksize", 1)
        return ((same(0), WHOLE, AxisMap(axis=2, divisor=block), AxisMap(axis=3, divisor=block)),)


class SpaceToDepth(OpKind):
    """Spatial blocks become channels."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        data, block = call.tensor(0), call.integer("blocksize", 0)
        if len(data.shape) != 4 or block < 1 or data.shape[2] % block or data.shape[3] % block:
            call.fail("input must be [N, C, H, W] with blocksize dividing H and W", actual=f"{data.shape}, {block}")
        n, c, h, w = data.shape
        return Inferred(
            shape=(n, c * block * block, h // block, w // block),
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"blocksize": block},
        )

    def access(self, call: Call) -> Access:
        block = call.integer("blocksize", 1)
        return ((same(0), WHOLE, AxisMap(axis=2, block=block), AxisMap(axis=3, block=block)),)


class Resize(OpKind):
    """Nearest-neighbour resizing by whole factors; the IR form of Resize and Upsample."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        mode = call.text("mode", "nearest")
        if mode != "nearest":
            call.fail("only nearest resizing is supported in this version", code="unsupported_op", actual=mode)
        self._check_rounding(call)
        shape = self._target(call)
        if len(shape) != len(data.shape):
            call.fail("sizes or scales must cover every axis", actual=shape, limit=data.shape)
        factors = []
        for extent, target in zip(data.shape, shape, strict=True):
            if target % extent:
                call.fail(
                    "only whole factors are supported in this version",
                    code="unsupported_op",
                    actual=shape,
                    limit=data.shape,
                )
            factors.append(target // extent)
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes,
            kind="Resize",
            inputs=(0,),
            attributes={"factors": tuple(factors)},
            source=0 if shape == data.shape else None,
        )

    def _check_rounding(self, call: Call) -> None:
        """Whole factors give input position floor(output / factor) under these modes only (before opset 11: always)."""
        if call.op_type == "Upsample" or call.opset < 11:
            return
        coordinates = call.text("coordinate_transformation_mode", "half_pixel")
        rounding = call.text("nearest_mode", "round_prefer_floor")
        centred = coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
        if (centred and rounding.startswith("round_prefer")) or (coordinates, rounding) == ("asymmetric", "floor"):
            return
        call.fail(
            "this combination of coordinate transformation and rounding is not supported in this version",
            code="unsupported_op",
            actual=f"{coordinates}, {rounding}",
            limit="half_pixel with round_prefer_floor or _ceil; asymmetric with floor",
        )

    def _target(self, call: Call) -> tuple[int, ...]:
        data = call.tensor(0)
        if call.has(3):
            return tuple(int(v) for v in np.asarray(call.value(3, "sizes")).reshape(-1))
        index = 1 if call.op_type == "Upsample" or not call.has(2) else 2
        given: object = call.attributes.get("scales", ())
        if call.has(index):
            given = tuple(float(v) for v in np.asarray(call.value(index, "scales")).reshape(-1))
        if not isinstance(given, tuple) or len(given) != len(data.shape):
            call.fail("scales must cover every axis", actual=given)
        return tuple(int(extent * scale) for extent, scale in zip(data.shape, map(float, given), strict=True))

    def access(self, call: Call) -> Access:
        factors = call.integers("factors") or ()
        return (tuple(AxisMap(axis=i, divisor=factor) for i, factor in enumerate(factors)),)


class Expand(OpKind):
    """Broadcast to a larger shape."""

    op_class = OpClass.MOVEMENT

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        wanted = tuple(int(v) for v in np.asarray(call.value(1, "shape")).reshape(-1))
        rank = max(len(wanted), len(data.shape))
        a = (1,) * (rank - len(data.shape)) + data.shape
        b = (1,) * (rank - len(wanted)) + wanted
        if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)) or any(y < 1 for y in b):
            call.fail("the input does not broadcast to the shape", actual=data.shape, limit=wanted)
        shape = tuple(max(x, y) for x, y in zip(a, b, strict=True))
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes if rank == len(data.shape) else default_axes(rank),
            kind=self.kind,
            inputs=(0,),
            source=0 if shape == data.shape else None,
        )

    def access(self, call: Call) -> Access:
        shape, output = call.tensor(0).shape, call.output.shape if call.output else ()
        lead = len(output) - len(shape)
        return (tuple(WHOLE if extent == 1 else same(lead + i) for i, extent in enumerate(shape)),)

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        return np.broadcast_to(arrays[0], call.output.shape) if arrays[0] is not None and call.output else None
