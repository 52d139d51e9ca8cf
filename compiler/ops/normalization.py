"""Normalisations by given statistics, or by statistics over axes that are then needed whole."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.graph import Attribute
from compiler.ops.base import (
    FLOATS,
    Access,
    Array,
    Call,
    Constraint,
    Inferred,
    OpClass,
    OpKind,
    Work,
)
from compiler.ops.broadcasting import broadcast_access, check_broadcasts
from compiler.ops.compute_types import Values, narrowed, widened
from compiler.ops.slab import Box, aligned, whole_along


def _by_channel(values: Values, rank: int) -> Values:
    """One value per channel, shaped to broadcast over [N, C, spatial...]."""
    return values.reshape(-1, *(1,) * (rank - 2))


def _standardised(data: Values, axes: tuple[int, ...], epsilon: float) -> Values:
    """(x − mean) / √(variance + epsilon) over `axes`."""
    centred = data - data.mean(axis=axes, keepdims=True)
    variance = np.square(centred).mean(axis=axes, keepdims=True)
    result: Values = centred / np.sqrt(variance + data.dtype.type(epsilon))
    return result


def _check_channels(call: Call, positions: range, channels: int) -> None:
    for index in positions:
        if call.tensor(index).shape != (channels,):
            call.fail(
                f"input {index} must have one element per channel", actual=call.tensor(index).shape, limit=(channels,)
            )


def _training(call: Call) -> object | None:
    if call.opset < 7:
        return None if call.integer("is_test", 0) else "is_test 0"
    return "training_mode 1" if call.integer("training_mode", 0) else None


def _spatial(call: Call) -> object | None:
    return "spatial 0" if call.opset < 9 and not call.integer("spatial", 1) else None


class BatchNormalization(OpKind):
    """Inference-mode batch normalisation: per channel (axis 1) a scale and a shift."""

    op_class = OpClass.VECTOR
    in_place = True
    is_local = True
    dtypes = FLOATS
    constraints = (
        Constraint(
            "statistics are given (training_mode is 0, or 1 from opset 14 on by means; is_test is 1 up to opset 6)",
            _training,
        ),
        Constraint("statistics are per channel (spatial is 1)", _spatial),
    )

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        if len(data.shape) < 2:
            call.fail("input must have a channel axis", actual=data.shape)
        _check_channels(call, range(1, 5), data.shape[1])
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0, 1, 2, 3, 4),
            attributes={"epsilon": call.number("epsilon", 1e-5)},
        )

    def access(self, call: Call) -> Access:
        rank = len(call.tensor(0).shape)
        return (tuple(same(axis) for axis in range(rank)), (same(1),), (same(1),), (same(1),), (same(1),))

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(2))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        given = [widened(array) for array in arrays]
        data = given[0]
        scale, shift, mean, variance = (_by_channel(part, data.ndim) for part in given[1:])
        factor = scale / np.sqrt(variance + variance.dtype.type(call.number("epsilon", 1e-5)))
        return narrowed((data - mean) * factor + shift, call.result.dtype)


class LRN(OpKind):
    """Local response normalisation over `size` channels."""

    op_class = OpClass.VECTOR
    is_local = True
    dtypes = FLOATS

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        size = call.integer("size", 0)
        if size < 1 or len(data.shape) < 2:
            call.fail("size must be at least 1 and the input must have a channel axis", actual=size)
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={
                "size": size,
                "alpha": call.number("alpha", 0.0001),
                "beta": call.number("beta", 0.75),
                "bias": call.number("bias", 1.0),
            },
        )

    def access(self, call: Call) -> Access:
        rank = len(call.tensor(0).shape)
        return (tuple(WHOLE if axis == 1 else same(axis) for axis in range(rank)),)

    def work(self, call: Call) -> Work:
        # running sum of squares (2), bias + alpha·sum (2), power beta (8), product (1)
        del call
        return Work(vector_ops=Fraction(2 + 2 + 8 + 1))

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with `channel`: the position in the data's channels where the box starts."""
        del needed
        return {**call.attributes, "channel": box[1][0]}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, size = widened(arrays[0]), call.integer("size", 1)
        below, above, channels = (size - 1) // 2, size // 2, data.shape[1]
        first = call.integer("channel", 0)
        last = first + call.result.shape[1]
        squares = np.zeros(call.result.shape, dtype=data.dtype)
        for offset in range(-below, above + 1):
            begin, end = max(first, -offset), min(last, channels - offset)
            if begin < end:
                squares[:, begin - first : end - first] += np.square(data[:, begin + offset : end + offset])
        data = data[:, first:last]
        alpha, beta, bias = call.number("alpha", 0.0001), call.number("beta", 0.75), call.number("bias", 1.0)
        return narrowed(data / np.power(bias + alpha / size * squares, beta), call.result.dtype)


class LayerNormalization(OpKind):
    """Layer normalisation over the axes from `axis` on; scale and optional bias broadcast to the input."""

    op_class = OpClass.VECTOR
    dtypes = FLOATS

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        axis = call.axis("axis", -1, len(data.shape))
        kept = (0, 1, 2) if call.has(2) else (0, 1)
        for index in kept[1:]:
            check_broadcasts(call, index, data.shape, f"input {index} does not broadcast to the input")
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=kept,
            attributes={"axis": axis, "epsilon": call.number("epsilon", 1e-5)},
        )

    def access(self, call: Call) -> Access:
        axis, shape = call.integer("axis", 0), call.tensor(0).shape
        data = tuple(same(i) if i < axis else WHOLE for i in range(len(shape)))
        return (data, *(broadcast_access(t.shape, shape) for t in call.inputs[1:] if t is not None))

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(8))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        given = [widened(array) for array in arrays]
        axes = tuple(range(call.integer("axis", 0), given[0].ndim))
        result = self._normalised(given[0], axes, call.number("epsilon", 1e-5)) * given[1]
        return narrowed(result + given[2] if len(given) > 2 else result, call.result.dtype)

    def enclosing(self, call: Call, box: Box) -> Box:
        return whole_along(box, call.result.shape, range(call.integer("axis", 0), len(box)))

    def _normalised(self, data: Values, axes: tuple[int, ...], epsilon: float) -> Values:
        return _standardised(data, axes, epsilon)


class RMSNormalization(LayerNormalization):
    """Division by the root of the mean square over the axes from `axis` on, with scale."""

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(5))

    def _normalised(self, data: Values, axes: tuple[int, ...], epsilon: float) -> Values:
        mean = np.square(data).mean(axis=axes, keepdims=True)
        return np.asarray(data / np.sqrt(mean + data.dtype.type(epsilon)))


class InstanceNormalization(OpKind):
    """Normalisation over the spatial axes of each image and channel."""

    op_class = OpClass.VECTOR
    dtypes = FLOATS

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        if len(data.shape) < 3:
            call.fail("input must have spatial axes", actual=data.shape)
        _check_channels(call, range(1, 3), data.shape[1])
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0, 1, 2),
            attributes={"epsilon": call.number("epsilon", 1e-5)},
        )

    def access(self, call: Call) -> Access:
        rank = len(call.tensor(0).shape)
        data = (same(0), same(1), *(WHOLE for _ in range(rank - 2)))
        return (data, (same(1),), (same(1),))

    def enclosing(self, call: Call, box: Box) -> Box:
        return whole_along(box, call.result.shape, range(2, len(box)))

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(8))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        given = [widened(array) for array in arrays]
        data, rank = given[0], given[0].ndim
        normal = _standardised(data, tuple(range(2, rank)), call.number("epsilon", 1e-5))
        return narrowed(normal * _by_channel(given[1], rank) + _by_channel(given[2], rank), call.result.dtype)


class GroupNormalization(OpKind):
    """Normalisation over the spatial axes and the channels of each of `num_groups` groups, per image.

    Scale and bias have one element per channel, up to opset 20 one per group. Attribute `per_channel` of the IR op
    says which, for every opset.
    """

    op_class = OpClass.VECTOR
    dtypes = FLOATS

    def infer(self, call: Call) -> Inferred:
        data, groups = call.tensor(0), call.integer("num_groups", 0)
        if len(data.shape) < 2:
            call.fail("input must have a channel axis", actual=data.shape)
        if groups < 1 or data.shape[1] % groups:
            call.fail("num_groups must divide the channels", actual=groups, limit=f"a divisor of {data.shape[1]}")
        per_channel = call.integer("per_channel", int(call.opset >= 21))
        expected = data.shape[1] if per_channel else groups
        for index in (1, 2):
            if call.tensor(index).shape != (expected,):
                what = "channel" if per_channel else "group"
                call.fail(
                    f"input {index} must have one element per {what}",
                    actual=call.tensor(index).shape,
                    limit=(expected,),
                )
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0, 1, 2),
            attributes={"num_groups": groups, "epsilon": call.number("epsilon", 1e-5), "per_channel": per_channel},
        )

    def access(self, call: Call) -> Access:
        shape = call.tensor(0).shape
        width = shape[1] // call.integer("num_groups", 1)
        data = (same(0), AxisMap(axis=1, divisor=width, block=width), *(WHOLE for _ in shape[2:]))
        channel = same(1) if call.tensor(1).shape[0] == shape[1] else AxisMap(axis=1, divisor=width)
        return (data, (channel,), (channel,))

    def enclosing(self, call: Call, box: Box) -> Box:
        width = call.result.shape[1] // call.integer("num_groups", 1)
        groups = (box[0], aligned(box[1], width), *box[2:])
        return whole_along(groups, call.result.shape, range(2, len(box)))

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with the number of groups in the box."""
        del needed
        width = call.result.shape[1] // call.integer("num_groups", 1)
        return {**call.attributes, "num_groups": (box[1][1] - box[1][0]) // width}

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(8))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        given = [widened(array) for array in arrays]
        data, groups = given[0], call.integer("num_groups", 1)
        grouped = data.reshape(data.shape[0], groups, -1)
        normal = _standardised(grouped, (2,), call.number("epsilon", 1e-5)).reshape(data.shape)
        scale, shift = (np.repeat(part, data.shape[1] // part.shape[0]) for part in given[1:])
        return narrowed(normal * _by_channel(scale, data.ndim) + _by_channel(shift, data.ndim), call.result.dtype)
