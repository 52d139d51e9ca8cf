"""Convolution and transposed convolution."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.graph import Attribute, Tensor
from compiler.ops.base import FLOATS, Access, Array, Call, Inferred, MatrixShape, OpClass, OpKind, Work, spatial_axes
from compiler.ops.numeric import Values, narrowed, widened
from compiler.ops.windows import (
    SPATIAL_AXES,
    dilated,
    padding,
    per_axis,
    spatial_rank,
    taps,
    window_access,
    window_extents,
    window_overlap,
)
from compiler.units import ceil_div


def _check_bias(call: Call, channels: int) -> tuple[int, ...]:
    if not call.has(2):
        return (0, 1)
    if call.tensor(2).shape != (channels,):
        call.fail("the bias must have one element per output channel", actual=call.tensor(2).shape, limit=channels)
    return (0, 1, 2)


def _kernel(call: Call, weight: Tensor) -> tuple[int, ...]:
    """The kernel's extents by the weight; raises ModelError if that is empty or the attribute says otherwise."""
    kernel = weight.shape[2:]
    if min(weight.shape) < 1:
        call.fail("the weight is empty", code="invalid_shape", actual=weight.shape, limit="extents of at least 1")
    if (call.integers("kernel_shape") or kernel) != kernel:
        call.fail("kernel_shape disagrees with the weight", actual=call.integers("kernel_shape"), limit=kernel)
    return kernel


class Conv(OpKind):
    """Convolution, 1-D to 3-D, any group, stride, dilation and padding.

    Input [N, C, spatial...], weight [K, C / group, kernel...], bias [K]; output [N, K, spatial...].
    """

    op_class = OpClass.MAIN
    dtypes = FLOATS
    constraints = (SPATIAL_AXES,)

    def infer(self, call: Call) -> Inferred:
        rank = spatial_rank(call)
        data, weight = call.tensor(0), call.tensor(1)
        if len(weight.shape) != rank + 2:
            call.fail("the weight's rank differs from the input's", actual=len(weight.shape), limit=rank + 2)
        group = call.integer("group", 1)
        channels, filters = data.shape[1], weight.shape[0]
        if group < 1 or weight.shape[1] * group != channels or filters % group:
            call.fail(
                "channels, filters and groups disagree with the weight",
                actual=f"input channels {channels}, weight {weight.shape}, group {group}",
                limit="input channels = weight[1] × group, and group divides weight[0]",
            )
        kernel = _kernel(call, weight)
        strides = per_axis(call, "strides", rank, 1)
        dilations = per_axis(call, "dilations", rank, 1)
        spans = dilated(kernel, dilations)
        pads = padding(call, strides, spans)
        extents = window_extents(call, strides, spans, pads, ceil=False)
        attributes: dict[str, Attribute] = {
            "kernel_shape": kernel,
            "strides": strides,
            "dilations": dilations,
            "pads": pads,
            "group": group,
        }
        return Inferred(
            shape=(data.shape[0], filters, *extents),
            dtype=data.dtype,
            axes=spatial_axes(rank + 2),
            kind=self.kind,
            inputs=_check_bias(call, filters),
            attributes=attributes,
        )

    def access(self, call: Call) -> Access:
        group = call.integer("group", 1)
        channels, weight = call.tensor(0).shape[1], call.tensor(1)
        per_group = weight.shape[0] // group
        channel = WHOLE if group == 1 else AxisMap(axis=1, divisor=per_group, block=channels // group)
        maps: list[tuple[AxisMap, ...] | None] = [
            (same(0), channel, *window_access(call)),
            (same(1), *(WHOLE for _ in weight.shape[1:])),
        ]
        if call.has(2):
            maps.append((same(1),))
        return tuple(maps)

    def work(self, call: Call) -> Work:
        return Work(macs=Fraction(prod(call.tensor(1).shape[1:])))

    def matrix(self, call: Call) -> MatrixShape:
        group = call.integer("group", 1)
        weight = call.tensor(1).shape
        return MatrixShape(groups=group, out_channels=weight[0] // group, in_channels=weight[1], taps=prod(weight[2:]))

    def overlap(self, call: Call) -> tuple[int, ...]:
        return window_overlap(call)

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, weight = widened(arrays[0]), widened(arrays[1])
        (batch, filters, *extents), group, kernel = call.result.shape, call.integer("group", 1), weight.shape[2:]
        result = np.zeros((batch, group, filters // group, prod(extents)), dtype=data.dtype)
        for tap, met in taps(data, call, kernel, tuple(extents), 0):
            at: tuple[Any, ...] = (slice(None), slice(None), *tap)
            factors = weight[at].reshape(group, filters // group, -1)
            result += np.matmul(factors, met.reshape(batch, group, weight.shape[1], -1))
        return narrowed(_biased(result.reshape(call.result.shape), arrays), call.result.dtype)


def _biased(result: Values, arrays: tuple[Array, ...]) -> Values:
    return result + widened(arrays[2]).reshape(-1, *(1,) * (result.ndim - 2)) if len(arrays) > 2 else result


class ConvTranspose(OpKind):
    """Transposed convolution. Input [N, C, spatial...], weight [C, K / group, kernel...], bias [K]."""

    op_class = OpClass.MAIN
    dtypes = FLOATS
    constraints = (SPATIAL_AXES,)

    def infer(self, call: Call) -> Inferred:
        rank = spatial_rank(call)
        data, weight = call.tensor(0), call.tensor(1)
        if len(weight.shape) != rank + 2:
            call.fail("the weight's rank differs from the input's", actual=len(weight.shape), limit=rank + 2)
        group = call.integer("group", 1)
        if group < 1 or weight.shape[0] != data.shape[1] or data.shape[1] % group:
            call.fail(
                "channels and groups disagree with the weight",
                actual=f"input channels {data.shape[1]}, weight {weight.shape}, group {group}",
            )
        kernel = _kernel(call, weight)
        strides = per_axis(call, "strides", rank, 1)
        dilations = per_axis(call, "dilations", rank, 1)
        spans = dilated(kernel, dilations)
        extra = call.integers("output_padding", (0,) * rank) or (0,) * rank
        bounds = tuple(max(stride, dilation) for stride, dilation in zip(strides, dilations, strict=True))
        if len(extra) != rank or any(not 0 <= more < bound for more, bound in zip(extra, bounds, strict=False)):
            call.fail(f"output_padding must be {rank} integers below stride or dilation", actual=extra)
        pads, extents = self._placement(call, strides, spans, extra)
        if any(extent < 1 for extent in extents):
            call.fail("the output would be empty", actual=extents)
        filters = weight.shape[1] * group
        return Inferred(
            shape=(data.shape[0], filters, *extents),
            dtype=data.dtype,
            axes=spatial_axes(rank + 2),
            kind=self.kind,
            inputs=_check_bias(call, filters),
            attributes={
                "kernel_shape": kernel,
                "strides": strides,
                "dilations": dilations,
                "pads": pads,
                "group": group,
            },
        )

    def _placement(
        self, call: Call, strides: tuple[int, ...], spans: tuple[int, ...], extra: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Begin and end paddings, and output extents."""
        rank = len(spans)
        inputs = call.tensor(0).shape[2:]
        full = [
            stride * (extent - 1) + span + more
            for stride, extent, span, more in zip(strides, inputs, spans, extra, strict=True)
        ]
        wanted = call.integers("output_shape")
        auto = call.text("auto_pad", "NOTSET")
        if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
            wanted = tuple(extent * stride for extent, stride in zip(inputs, strides, strict=True))
        if wanted is None:
            pads = (0,) * (2 * rank) if auto == "VALID" else call.integers("pads", (0,) * (2 * rank)) or ()
            if len(pads) != 2 * rank or any(pad < 0 for pad in pads):
                call.fail(f"pads must be {2 * rank} integers of at least 0", actual=pads)
            return pads, tuple(full[i] - pads[i] - pads[rank + i] for i in range(rank))
        if len(wanted) != rank:
            call.fail(f"output_shape must have {rank} extents", actual=wanted)
        total = [max(0, size - extent) for size, extent in zip(full, wanted, strict=True)]
        small = [amount // 2 for amount in total]
        large = [amount - half for amount, half in zip(total, small, strict=True)]
        begin, end = (small, large) if auto == "SAME_UPPER" else (large, small)
        return (*begin, *end), wanted

    def access(self, call: Call) -> Access:
        group = call.integer("group", 1)
        data, weight = call.tensor(0), call.tensor(1)
        per_group = weight.shape[1]
        kernel = call.integers("kernel_shape") or ()
        strides = call.integers("strides") or ()
        dilations = call.integers("dilations") or ()
        pads = call.integers("pads") or ()
        spatial = tuple(
            # output position o is reached from inputs i with i·stride − pad + tap·dilation = o
            AxisMap(
                axis=2 + i,
                low=pads[i] - dilations[i] * (kernel[i] - 1) + strides[i] - 1,
                high=pads[i],
                divisor=strides[i],
            )
            for i in range(len(kernel))
        )
        channel = WHOLE if group == 1 else AxisMap(axis=1, divisor=per_group, block=data.shape[1] // group)
        weight_channels = same(1) if group == 1 else WHOLE
        maps: list[tuple[AxisMap, ...] | None] = [
            (same(0), channel, *spatial),
            (channel, weight_channels, *(WHOLE for _ in kernel)),
        ]
        if call.has(2):
            maps.append((same(1),))
        return tuple(maps)

    def work(self, call: Call) -> Work:
        data, weight = call.tensor(0), call.tensor(1)
        total = data.elements * prod(weight.shape[1:])
        return Work(macs=Fraction(total, call.result.elements))

    def matrix(self, call: Call) -> MatrixShape:
        group = call.integer("group", 1)
        weight = call.tensor(1).shape
        taps = ceil_div(prod(weight[2:]), prod(call.integers("strides") or ()))
        return MatrixShape(groups=group, out_channels=weight[1], in_channels=weight[0] // group, taps=taps)

    def overlap(self, call: Call) -> tuple[int, ...]:
        return tuple(0 for _ in call.integers("kernel_shape") or ())

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, weight = widened(arrays[0]), widened(arrays[1])
        strides, dilations = call.integers("strides") or (), call.integers("dilations") or ()
        group, pads, rank = call.integer("group", 1), call.integers("pads") or (), data.ndim - 2
        (batch, filters, *extents), inputs, kernel = call.result.shape, data.shape[2:], weight.shape[2:]
        grouped = data.reshape(batch, group, data.shape[1] // group, prod(inputs))
        reach = [strides[i] * (inputs[i] - 1) + dilations[i] * (kernel[i] - 1) + 1 for i in range(rank)]
        full = [max(reach[i], pads[i] + extents[i]) for i in range(rank)]
        result = np.zeros((batch, filters, *full), dtype=data.dtype)
        for tap in product(*map(range, kernel)):
            at: tuple[Any, ...] = (slice(None), slice(None), *tap)
            factors = weight[at].reshape(group, -1, filters // group)
            spread = np.matmul(factors.transpose(0, 2, 1), grouped).reshape(batch, filters, *inputs)
            begins = [tap[i] * dilations[i] for i in range(rank)]
            place = tuple(
                slice(begins[i], begins[i] + strides[i] * (inputs[i] - 1) + 1, strides[i]) for i in range(rank)
            )
            result[(slice(None), slice(None), *place)] += spread
        inside = tuple(slice(pads[i], pads[i] + extents[i]) for i in range(rank))
        return narrowed(_biased(result[(slice(None), slice(None), *inside)], arrays), call.result.dtype)
