"""Reductions, softmax, ArgMax, ArgMin and running sums: ops that need their axes whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ops.base import (
    FLOATS,
    NATIVE_DTYPES,
    NUMBERS,
    Access,
    Array,
    Call,
    Inferred,
    OpClass,
    OpKind,
    Work,
    default_axes,
)
from compiler.ops.compute_types import Values, narrowed, widened
from compiler.ops.elementwise_functions import divide
from compiler.ops.slab import Box, whole_along


class Softmax(OpKind):
    """Softmax and LogSoftmax along one axis; up to opset 12 along all axes from `axis` on."""

    op_class = OpClass.VECTOR
    dtypes = FLOATS

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

    def enclosing(self, call: Call, box: Box) -> Box:
        return whole_along(box, call.result.shape, call.integers("axes") or ())

    def work(self, call: Call) -> Work:
        # maximum, difference, exponential (four operations), sum, quotient
        del call
        return Work(vector_ops=Fraction(8))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, axes = widened(arrays[0]), call.integers("axes") or ()
        shifted = data - data.max(axis=axes, keepdims=True)
        total = np.exp(shifted).sum(axis=axes, keepdims=True)
        result = shifted - np.log(total) if self.kind == "LogSoftmax" else np.exp(shifted) / total
        return narrowed(result, call.result.dtype)


Reduction = Callable[[Values, tuple[int, ...]], Any]


def _mean(data: Values, axes: tuple[int, ...]) -> Values:
    total = np.sum(data, axis=axes, keepdims=True)  # small integers sum in int64
    # of nothing the mean is undefined; ONNX Runtime says 0
    return divide(total, np.asarray(max(1, prod(data.shape[axis] for axis in axes)), dtype=total.dtype))


def _bounds(data: Values) -> tuple[Any, Any]:
    """The lowest and the highest value of the data's type: the extremes of an empty set."""
    if data.dtype.kind == "f":
        return float("-inf"), float("inf")
    if data.dtype.kind == "b":
        return False, True
    return np.iinfo(data.dtype).min, np.iinfo(data.dtype).max


def _largest(data: Values, axes: tuple[int, ...]) -> Values:
    return np.asarray(np.max(data, axis=axes, keepdims=True, initial=_bounds(data)[0]))


def _smallest(data: Values, axes: tuple[int, ...]) -> Values:
    return np.asarray(np.min(data, axis=axes, keepdims=True, initial=_bounds(data)[1]))


def _log_sum_exp(data: Values, axes: tuple[int, ...]) -> Values:
    largest = _largest(data, axes)
    offset = np.where(np.isfinite(largest), largest, 0).astype(data.dtype)
    return np.asarray(np.log(np.sum(np.exp(data - offset), axis=axes, keepdims=True)) + offset)


# The computation of each reduction, and its work per element of the input.
_REDUCTIONS: Final[Mapping[str, tuple[Reduction, int]]] = MappingProxyType(
    {
        "ReduceSum": (lambda x, axes: np.sum(x, axis=axes, keepdims=True), 1),
        "ReduceMean": (_mean, 1),
        "ReduceMax": (_largest, 1),
        "ReduceMin": (_smallest, 1),
        "ReduceProd": (lambda x, axes: np.prod(x, axis=axes, keepdims=True), 1),
        "ReduceL1": (lambda x, axes: np.sum(np.abs(x), axis=axes, keepdims=True), 2),
        "ReduceL2": (lambda x, axes: np.sqrt(np.sum(np.square(x), axis=axes, keepdims=True)), 2),
        "ReduceSumSquare": (lambda x, axes: np.sum(np.square(x), axis=axes, keepdims=True), 2),
        "ReduceLogSum": (lambda x, axes: np.log(np.sum(x, axis=axes, keepdims=True)), 1),
        "ReduceLogSumExp": (_log_sum_exp, 6),
    }
)
# With no axes these ops return their input; the others still take its magnitude, square or logarithm.
_SELECTING: Final = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"})


def _without(call: Call, axes: tuple[int, ...], *, keep: bool) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Shape and axis names of input 0 with `axes` reduced."""
    data = call.tensor(0)
    if keep:
        return tuple(1 if i in axes else extent for i, extent in enumerate(data.shape)), data.axes
    shape = tuple(extent for i, extent in enumerate(data.shape) if i not in axes)
    names = tuple(name for i, name in enumerate(data.axes) if i not in axes)
    return shape, names if len(names) > 2 else default_axes(len(shape))


def _reduced_access(call: Call, axes: tuple[int, ...]) -> tuple[AxisMap, ...]:
    keep = call.integer("keepdims", 1)
    maps = []
    position = 0
    for index in range(len(call.tensor(0).shape)):
        if index in axes:
            maps.append(WHOLE)
            position += keep
        else:
            maps.append(same(position))
            position += 1
    return tuple(maps)


class Reduce(OpKind):
    """Reductions over `axes`: ReduceMean, ReduceSum, ReduceMax, ReduceL2, ReduceLogSumExp..."""

    op_class = OpClass.VECTOR
    is_local = True
    constant_inputs = MappingProxyType({1: "axes"})

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.function, self.operations = _REDUCTIONS[kind]
        ordered = kind in ("ReduceMax", "ReduceMin")
        self.dtypes = NATIVE_DTYPES if ordered else (*FLOATS, "int32", "int64")

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        axes = self._axes(call, len(data.shape))
        keep = bool(call.integer("keepdims", 1))
        shape, names = _without(call, axes, keep=keep)
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=names,
            kind=self.kind,
            inputs=(0,),
            attributes={"axes": axes, "keepdims": int(keep)},
            source=0 if not axes and self.kind in _SELECTING else None,
        )

    def _axes(self, call: Call, rank: int) -> tuple[int, ...]:
        given = call.integers("axes")
        if given is None and call.has(1):
            given = call.constant_integers(1, "axes")
        if not given:
            return () if call.integer("noop_with_empty_axes", 0) else tuple(range(rank))
        return tuple(sorted({call.within(axis, rank, "axes") for axis in given}))

    def access(self, call: Call) -> Access:
        return (_reduced_access(call, call.integers("axes") or ()),)

    def work(self, call: Call) -> Work:
        axes = call.integers("axes") or ()
        return Work(vector_ops=Fraction(self.operations * prod(call.tensor(0).shape[axis] for axis in axes)))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        result = self.function(widened(arrays[0]), call.integers("axes") or ())
        return narrowed(np.asarray(result).reshape(call.result.shape), call.result.dtype)


class ArgExtreme(OpKind):
    """ArgMax and ArgMin along `axis`: the first (or last) position of the extreme."""

    op_class = OpClass.VECTOR
    is_local = True
    dtypes = NUMBERS

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        axis, keep = call.axis("axis", 0, len(data.shape)), bool(call.integer("keepdims", 1))
        shape, names = _without(call, (axis,), keep=keep)
        return Inferred(
            shape=shape,
            dtype="int64",
            axes=names,
            kind=self.kind,
            inputs=(0,),
            attributes={
                "axis": axis,
                "keepdims": int(keep),
                "select_last_index": call.integer("select_last_index", 0),
            },
        )

    def access(self, call: Call) -> Access:
        return (_reduced_access(call, (call.integer("axis", 0),)),)

    def work(self, call: Call) -> Work:
        # one comparison and one selection of the position
        return Work(vector_ops=Fraction(2 * call.tensor(0).shape[call.integer("axis", 0)]))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, axis = widened(arrays[0]), call.integer("axis", 0)
        function = np.argmax if self.kind == "ArgMax" else np.argmin
        if call.integer("select_last_index", 0):
            position = data.shape[axis] - 1 - function(np.flip(data, axis), axis=axis)
        else:
            position = function(data, axis=axis)
        return narrowed(np.asarray(position).reshape(call.result.shape), "int64")


class CumSum(OpKind):
    """Running sum along `axis`; `exclusive` leaves out the element itself, `reverse` runs from the end."""

    op_class = OpClass.VECTOR
    dtypes = (*FLOATS, "int32", "int64")
    constant_inputs = MappingProxyType({1: "axis"})

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        if call.tensor(1).elements != 1:
            call.fail("axis must be one number", actual=call.tensor(1).shape)
        axis = call.within(int(call.value(1, "axis").reshape(())), len(data.shape))
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={
                "axis": axis,
                "exclusive": call.integer("exclusive", 0),
                "reverse": call.integer("reverse", 0),
            },
        )

    def access(self, call: Call) -> Access:
        axis = call.integer("axis", 0)
        return (tuple(WHOLE if i == axis else same(i) for i in range(len(call.tensor(0).shape))),)

    def enclosing(self, call: Call, box: Box) -> Box:
        return whole_along(box, call.result.shape, (call.integer("axis", 0),))

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(1))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, axis = widened(arrays[0]), call.integer("axis", 0)
        if call.integer("reverse", 0):
            data = np.flip(data, axis)
        sums = np.cumsum(data, axis=axis, dtype=data.dtype)
        if call.integer("exclusive", 0):
            sums = np.roll(sums, 1, axis=axis)
            sums[tuple(slice(0, 1) if i == axis else slice(None) for i in range(data.ndim))] = 0
        return narrowed(np.flip(sums, axis) if call.integer("reverse", 0) else sums, call.result.dtype)
