"""Normalisations, softmax and reductions: ops that need some axes whole."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod

import numpy as np

from compiler.ir.box import WHOLE, same
from compiler.ir.graph import Attribute
from compiler.ops.base import Access, Array, Call, Inferred, OpClass, OpKind, Work, default_axes


class BatchNormalization(OpKind):
    """Inference-mode batch normalisation: per channel (axis 1) a scale and a shift."""

    op_class = OpClass.VECTOR
    in_place = True

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        if len(data.shape) < 2:
            call.fail("input must have a channel axis", actual=data.shape)
        if call.integer("training_mode", 0):
            call.fail("training mode is not supported", code="unsupported_op")
        for index in range(1, 5):
            if call.tensor(index).shape != (data.shape[1],):
                call.fail(
                    f"input {index} must have one element per channel",
                    actual=call.tensor(index).shape,
                    limit=(data.shape[1],),
                )
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


class LRN(OpKind):
    """Local response normalisation over `size` channels."""

    op_class = OpClass.VECTOR

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
        # a running sum of squares, then bias + alpha·sum to the power beta, then the product
        del call
        return Work(vector_ops=Fraction(2 + 2 + 8 + 1))


class Softmax(OpKind):
    """Softmax and LogSoftmax along one axis; up to opset 12 along all axes from `axis` on."""

    op_class = OpClass.VECTOR

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        rank = len(data.shape)
        if rank == 0:
            call.fail("input must have at least one axis")
        flattening = call.opset < 13
        axis = call.axis("axis", 1 if flattening and rank > 1 else -1, rank)
        axes = tuple(range(axis, rank)) if flattening else (axis,)
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"axes": axes},
        )

    def access(self, call: Call) -> Access:
        axes = call.integers("axes") or ()
        return (tuple(WHOLE if axis in axes else same(axis) for axis in range(len(call.tensor(0).shape))),)

    def work(self, call: Call) -> Work:
        # a maximum, a difference, an exponential of four operations, a sum, a quotient
        del call
        return Work(vector_ops=Fraction(8))


class LayerNormalization(OpKind):
    """Layer normalisation over the axes from `axis` on, with scale and optional bias."""

    op_class = OpClass.VECTOR

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        axis = call.axis("axis", -1, len(data.shape))
        if call.tensor(1).shape != data.shape[axis:]:
            call.fail("the scale's shape differs from the normalised axes", actual=call.tensor(1).shape)
        if call.has(2) and call.tensor(2).shape != data.shape[axis:]:
            call.fail("the bias's shape differs from the normalised axes", actual=call.tensor(2).shape)
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0, 1, 2) if call.has(2) else (0, 1),
            attributes={"axis": axis, "epsilon": call.number("epsilon", 1e-5)},
        )

    def access(self, call: Call) -> Access:
        axis, rank = call.integer("axis", 0), len(call.tensor(0).shape)
        data = tuple(same(i) if i < axis else WHOLE for i in range(rank))
        return (data, *(tuple(WHOLE for _ in range(rank - axis)) for _ in call.inputs[1:]))

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(8))


class InstanceNormalization(OpKind):
    """Normalisation over the spatial axes of each image and channel."""

    op_class = OpClass.VECTOR

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        if len(data.shape) < 3:
            call.fail("input must have spatial axes", actual=data.shape)
        for index in (1, 2):
            if call.tensor(index).shape != (data.shape[1],):
                call.fail(f"input {index} must have one element per channel", actual=call.tensor(index).shape)
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

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(8))


class Reduce(OpKind):
    """Reductions over given axes: ReduceMean, ReduceSum, ReduceMax, ReduceMin, ReduceProd, ReduceL2..."""

    op_class = OpClass.VECTOR

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        rank = len(data.shape)
        given = call.integers("axes")
        if given is None and call.has(1):
            given = tuple(int(v) for v in np.asarray(call.value(1, "axes")).reshape(-1))
        if not given:
            if call.integer("noop_with_empty_axes", 0):
                call.fail("a reduction over no axes is not supported", code="unsupported_op")
            given = tuple(range(rank))
        axes = tuple(sorted({call.within(axis, rank, "axes") for axis in given}))
        keep = bool(call.integer("keepdims", 1))
        shape = tuple(1 if i in axes else extent for i, extent in enumerate(data.shape) if keep or i not in axes)
        names = data.axes if keep else tuple(n for i, n in enumerate(data.axes) if i not in axes)
        attributes: dict[str, Attribute] = {"axes": axes, "keepdims": int(keep)}
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=names if keep or len(names) > 2 else default_axes(len(shape)),
            kind=self.kind,
            inputs=(0,),
            attributes=attributes,
        )

    def access(self, call: Call) -> Access:
        axes, keep = call.integers("axes") or (), call.integer("keepdims", 1)
        maps = []
        position = 0
        for index in range(len(call.tensor(0).shape)):
            if index in axes:
                maps.append(WHOLE)
                position += keep
            else:
                maps.append(same(position))
                position += 1
        return (tuple(maps),)

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        functions: dict[str, Callable[..., object]] = {
            "ReduceProd": np.prod,
            "ReduceSum": np.sum,
            "ReduceMax": np.max,
            "ReduceMin": np.min,
        }
        function = functions.get(self.kind)
        if function is None or arrays[0] is None:
            return None
        axes, keep = call.integers("axes") or (), bool(call.integer("keepdims", 1))
        return np.asarray(function(arrays[0], axis=axes, keepdims=keep)).astype(arrays[0].dtype)

    def work(self, call: Call) -> Work:
        axes = call.integers("axes") or ()
        return Work(vector_ops=Fraction(prod(call.tensor(0).shape[axis] for axis in axes)))
