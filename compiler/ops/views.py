"""Views: ops that keep the order of the elements and move no data."""

from __future__ import annotations

from math import prod
from types import MappingProxyType

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.symbol import Dim, bounds_of, ties_of, unknown_extent
from compiler.ops.base import FLOATS, Access, Array, Call, Constraint, Inferred, OpClass, OpKind, default_axes
from compiler.ops.slab import Box, aligned


class Reshape(OpKind):
    """A view of the same elements in the same order; the IR form of Reshape, Flatten, Squeeze and Unsqueeze."""

    op_class = OpClass.VIEW
    in_place = True
    constant_inputs = MappingProxyType({1: "shape"})

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        shape = self._target(call)
        if prod(shape) != data.elements:
            ties = ties_of(prod(shape), prod(data.shape))
            call.fail("the new shape holds another number of elements", actual=shape, limit=data.shape, ties=ties)
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
            given = call.constant_integers(1, "shape")
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
        # a varying extent that may be 0 or -1 has no known expression
        return tuple(
            unknown_extent(int(extent)) if isinstance(wanted, Dim) and bounds_of(wanted)[0] < 1 else extent
            for extent, wanted in zip(shape, given, strict=True)
        )

    def access(self, call: Call) -> Access:
        return (reshape_access(call.tensor(0).shape, call.result.shape),)

    def enclosing(self, call: Call, box: Box) -> Box:
        """All output positions that the input's box covers: blocks of each run's outermost axis, inner axes whole."""
        maps = reshape_access(call.tensor(0).shape, call.result.shape)
        followed = {axis_map.axis: axis_map for axis_map in maps}
        return tuple(
            aligned(found, followed[axis].divisor) if axis in followed else (0, extent)
            for axis, (found, extent) in enumerate(zip(box, call.result.shape, strict=True))
        )

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        return arrays[0].reshape(call.result.shape)


class Flatten(Reshape):
    """Flatten into a matrix at `axis`."""

    constant_inputs = MappingProxyType({})

    def _target(self, call: Call) -> tuple[int, ...]:
        shape = call.tensor(0).shape
        axis = call.integer("axis", 1)
        if axis != len(shape):
            axis = call.within(axis, len(shape) or 1)
        return (prod(shape[:axis]), prod(shape[axis:]))


class Squeeze(Reshape):
    """Remove axes of extent 1."""

    constant_inputs = MappingProxyType({1: "axes"})

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
        kept = tuple(extent for i, extent in enumerate(shape) if i not in axes)
        if given is None:  # an axis whose extent may become 1 would be removed then
            kept = tuple(unknown_extent(extent) if bounds_of(extent)[0] <= 1 < extent else extent for extent in kept)
        return kept


class Unsqueeze(Reshape):
    """Insert axes of extent 1."""

    constant_inputs = MappingProxyType({1: "axes"})

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
        given = call.constant_integers(1, "axes")
    return given


def reshape_access(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[AxisMap, ...]:
    """Access of a reshape: axes with unchanged strides map, the others are needed whole.

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
    """The input unchanged; it becomes no op in the IR."""

    op_class = OpClass.VIEW
    is_local = True

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        return Inferred(shape=data.shape, dtype=data.dtype, axes=data.axes, kind="Identity", inputs=(0,), source=0)

    def access(self, call: Call) -> Access:
        return (tuple(same(axis) for axis in range(len(call.tensor(0).shape))),)

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        del call
        return arrays[0]


class Dropout(Identity):
    """Dropout at inference: the input unchanged."""

    input_dtypes = MappingProxyType({1: (*FLOATS, "float64")})
    constant_inputs = MappingProxyType({2: "training_mode"})
    constraints = (
        Constraint(
            "training_mode is false",
            lambda call: True if call.has(2) and bool(call.value(2, "training_mode").reshape(-1)[:1].any()) else None,
        ),
    )
