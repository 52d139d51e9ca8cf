"""Poolings: a window, or all spatial positions, reduce to one value."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from math import prod

import numpy as np

from compiler.ir.box import WHOLE, same
from compiler.ir.graph import Attribute
from compiler.ops.base import FLOATS, Access, Array, Call, Inferred, OpClass, OpKind, Window, Work, spatial_axes
from compiler.ops.compute_types import Values, narrowed, widened
from compiler.ops.slab import Box
from compiler.ops.windows import (
    SPATIAL_AXES,
    dilated,
    local_pads,
    padded_extents,
    padding,
    per_axis,
    pooled_extents,
    spatial_rank,
    taps,
    taps_of,
    window_access,
    window_of,
    window_overlap,
)
from compiler.units import ceil_div, numpy_dtype


class Pool(OpKind):
    """MaxPool and AveragePool over a window. Input [N, C, spatial...]."""

    op_class = OpClass.MAIN
    is_local = True
    constraints = (SPATIAL_AXES,)

    def __init__(self, kind: str, *, dtypes: tuple[str, ...] = FLOATS) -> None:
        super().__init__(kind)
        self.dtypes = dtypes

    def infer(self, call: Call) -> Inferred:
        rank = spatial_rank(call)
        data = call.tensor(0)
        kernel = call.integers("kernel_shape")
        if kernel is None or len(kernel) != rank or any(size < 1 for size in kernel):
            call.fail(f"kernel_shape must be {rank} positive integers", actual=kernel)
        strides = per_axis(call, "strides", rank, 1)
        dilations = per_axis(call, "dilations", rank, 1)
        spans = dilated(kernel, dilations)
        pads = padding(call, strides, spans)
        extents = pooled_extents(call, strides, spans, pads, ceil=bool(call.integer("ceil_mode", 0)))
        # taps beyond the padded input read nothing and are left out
        return Inferred(
            shape=(*data.shape[:2], *extents),
            dtype=data.dtype,
            axes=spatial_axes(rank + 2),
            kind=self.kind,
            inputs=(0,),
            attributes={
                "kernel_shape": tuple(
                    max(1, min(size, ceil_div(int(padded), dilation)))
                    for size, padded, dilation in zip(kernel, padded_extents(call, pads), dilations, strict=True)
                ),
                "strides": strides,
                "dilations": dilations,
                "pads": pads,
                "count_include_pad": call.integer("count_include_pad", 0),
            },
        )

    def access(self, call: Call) -> Access:
        return ((same(0), same(1), *window_access(call)),)

    def work(self, call: Call) -> Work:
        return Work(vector_ops=Fraction(prod(call.integers("kernel_shape") or ())))

    def overlap(self, call: Call) -> tuple[int, ...]:
        return window_overlap(call)

    def window(self, call: Call) -> Window | None:
        return window_of(call)

    def padding_value(self, call: Call) -> float:
        return _lowest(np.empty(0, numpy_dtype(call.result.dtype))) if self.kind == "MaxPool" else 0

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with the padding that the box sees."""
        return {**call.attributes, "pads": local_pads(call, box, needed[0])}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, kernel = widened(arrays[0]), call.integers("kernel_shape") or ()
        extents = call.result.shape[2:]
        if call.met is None:
            fill = _lowest(data) if self.kind == "MaxPool" else 0
            met = [values for _, values in taps(data, call, kernel, extents, fill)]
        else:
            met = [widened(call.met[at]) for at in taps_of(kernel)]
        if self.kind == "MaxPool":
            return narrowed(reduce(np.maximum, met), call.result.dtype)
        return narrowed(sum(met) / self._counts(call, data, kernel, extents), call.result.dtype)

    def _counts(self, call: Call, data: Values, kernel: tuple[int, ...], extents: tuple[int, ...]) -> Values:
        """Number of elements in each average: input elements, and padding with count_include_pad."""
        ones = np.ones((1, 1, *data.shape[2:]), dtype=data.dtype)
        if not call.integer("count_include_pad", 0):
            return np.asarray(sum(values for _, values in taps(ones, call, kernel, extents, 0)))
        pads, rank = call.integers("pads") or (), len(kernel)
        padding = [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))]
        unpadded = Call(
            op_type=call.op_type,
            node=call.node,
            attributes={**call.attributes, "pads": (0,) * (2 * rank)},
            inputs=call.inputs,
            opset=call.opset,
        )
        ones = np.pad(ones, padding, constant_values=1)
        return np.asarray(sum(values for _, values in taps(ones, unpadded, kernel, extents, 0)))


def _lowest(data: Values) -> float:
    """The lowest value of the data's type."""
    return int(np.iinfo(data.dtype).min) if data.dtype.kind in "iu" else float("-inf")


class GlobalPool(OpKind):
    """GlobalAveragePool and GlobalMaxPool: all spatial positions of a channel reduce to one."""

    op_class = OpClass.MAIN
    is_local = True
    dtypes = FLOATS
    constraints = (SPATIAL_AXES,)

    def infer(self, call: Call) -> Inferred:
        rank = spatial_rank(call)
        data = call.tensor(0)
        return Inferred(
            shape=(*data.shape[:2], *(1 for _ in range(rank))),
            dtype=data.dtype,
            axes=spatial_axes(rank + 2),
            kind=self.kind,
            inputs=(0,),
        )

    def access(self, call: Call) -> Access:
        return ((same(0), same(1), *(WHOLE for _ in call.tensor(0).shape[2:])),)

    def work(self, call: Call) -> Work:
        return Work(vector_ops=Fraction(prod(call.tensor(0).shape[2:])))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data = widened(arrays[0])
        function = np.max if self.kind == "GlobalMaxPool" else np.mean
        return narrowed(function(data, axis=tuple(range(2, data.ndim)), keepdims=True), call.result.dtype)
