"""Convolution and transposed convolution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.graph import Attribute, Tensor
from compiler.ir.symbol import greater
from compiler.ops.base import FLOATS, Access, Array, Call, Inferred, MatrixShape, OpClass, Window, Work, spatial_axes
from compiler.ops.compute_types import Values, narrowed, summable
from compiler.ops.contraction import Product
from compiler.ops.slab import Box, aligned
from compiler.ops.windows import (
    SPATIAL_AXES,
    dilated,
    local_pads,
    padding,
    per_axis,
    spatial_rank,
    window_access,
    window_extents,
    window_of,
    window_overlap,
    windows,
)
from compiler.units import ceil_div


def _check_bias(call: Call, channels: int) -> tuple[int, ...]:
    if not call.has(2):
        return (0, 1)
    if call.tensor(2).shape != (channels,):
        call.fail("the bias must have one element per output channel", actual=call.tensor(2).shape, limit=channels)
    return (0, 1, 2)


def _kernel(call: Call, weight: Tensor) -> tuple[int, ...]:
    """The kernel's extents, from the weight; raises ModelError if it is empty or contradicts the attribute."""
    kernel = weight.shape[2:]
    if min(weight.shape) < 1:
        call.fail("the weight is empty", code="invalid_shape", actual=weight.shape, limit="extents of at least 1")
    if (call.integers("kernel_shape") or kernel) != kernel:
        call.fail("kernel_shape disagrees with the weight", actual=call.integers("kernel_shape"), limit=kernel)
    return kernel


class Conv(Product):
    """Convolution, 1-D to 3-D, any group, stride, dilation and padding.

    Input [N, C, spatial...], weight [K, C / group, kernel...], bias [K]; output [N, K, spatial...].
    """

    op_class = OpClass.MAIN
    is_local = True
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
        extents = window_extents(call, strides, spans, pads)
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

    def window(self, call: Call) -> Window | None:
        return window_of(call)

    def summed(self, call: Call) -> tuple[int, int] | None:
        return (1, 1) if call.integer("group", 1) == 1 else None

    def enclosing(self, call: Call, box: Box) -> Box:
        """Whole groups of channels if the box spans several groups, else the box."""
        per_group = call.result.shape[1] // call.integer("group", 1)
        around = aligned(box[1], per_group)
        return box if around[1] - around[0] == per_group else (box[0], around, *box[2:])

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with the padding that the box sees and the number of groups in the box."""
        return {
            **call.attributes,
            "pads": local_pads(call, box, needed[0]),
            "group": _extent(needed[0], 1) // _extent(needed[1], 1),
        }

    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        data, weight = given
        factors, met, is_last = summable(weight), call.met, True
        if met is None and data.size and _is_position_by_position(call, weight):
            return _by_position(summable(data), factors)
        if met is None:
            values = summable(data)
            met, is_last = windows(values, call, weight.shape[2:], call.result.shape[2:], 0), _is_channels_last(values)
        if weight.shape[1] == 1:
            return self._by_channel(call, met, factors, is_last=is_last)
        return self._channels_last(call, met, factors) if is_last else self._channels_first(call, met, factors)

    def _channels_first(self, call: Call, met: Values, factors: Values) -> Values:
        """Sums for channels-first memory: weights × columns as a matrix product."""
        filters, (_, inner, *kernel), group = call.result.shape[1], factors.shape, call.integer("group", 1)
        factors = factors.reshape(group, filters // group, inner * prod(kernel))
        result = np.empty(call.result.shape, dtype=factors.dtype)
        for rows in _parts(call, met):
            at: tuple[Any, ...] = (..., rows, *(slice(None) for _ in kernel[1:]))
            columns = summable(met[at].reshape(result.shape[0], group, factors.shape[2], -1))
            made = np.matmul(factors, columns)
            result[:, :, rows] = made.reshape(*result.shape[:2], -1, *result.shape[3:])
        return result

    def _channels_last(self, call: Call, met: Values, factors: Values) -> Values:
        """Sums for channels-last memory: rows × weights as a matrix product; the result is channels last too."""
        (batch, filters, *extents), (_, inner, *kernel) = call.result.shape, factors.shape
        group, rank = call.integer("group", 1), len(kernel)
        # [group, kernel, channel of the group, filter of the group]
        split = factors.reshape(group, filters // group, inner, prod(kernel))
        matrix = split.transpose(0, 3, 2, 1).reshape(group, prod(kernel) * inner, filters // group)
        result = np.empty((batch, *extents, filters), dtype=factors.dtype)
        # [group, image, position, kernel, channel of the group]
        met = met.reshape(batch, group, inner, *kernel, *extents)
        met = met.transpose(1, 0, *range(3 + rank, 3 + 2 * rank), *range(3, 3 + rank), 2)
        for rows in _parts(call, met):
            made = np.matmul(summable(met[:, :, rows].reshape(group, -1, matrix.shape[1])), matrix)
            if group == 1 and made.size == result.size:
                result = made.reshape(result.shape)
                break
            into = result[:, rows]
            into[...] = made.transpose(1, 0, 2).reshape(into.shape) if group > 1 else made.reshape(into.shape)
        return np.moveaxis(result, -1, 1)

    def _by_channel(self, call: Call, met: Values, weight: Values, *, is_last: bool) -> Values:
        """Sums of a convolution with one input channel per group: element-wise products, tap by tap."""
        (batch, filters, *extents), group, rank = call.result.shape, met.shape[1], len(call.result.shape) - 2
        factors = weight.reshape(group, filters // group, *weight.shape[2:])
        if is_last:
            last = np.zeros((batch, *extents, group, filters // group), dtype=weight.dtype)
            products = np.empty_like(last)
            for tap in product(*map(range, weight.shape[2:])):
                by: tuple[Any, ...] = (slice(None), slice(None), *tap)
                np.multiply(np.moveaxis(summable(met[by]), 1, -1)[..., None], factors[by], out=products)
                last += products
            return np.moveaxis(last.reshape(batch, *extents, filters), -1, 1)
        factors = factors.reshape(*factors.shape, *(1,) * rank)
        result = np.zeros((batch, group, filters // group, *extents), dtype=weight.dtype)
        products = np.empty_like(result)
        for tap in product(*map(range, weight.shape[2:])):
            at: tuple[Any, ...] = (slice(None), slice(None), *tap)
            np.multiply(factors[at], summable(met[at])[:, :, None], out=products)
            result += products
        return result.reshape(call.result.shape)

    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        return narrowed(_biased(sums, *others[:1]), call.result.dtype)


def _is_position_by_position(call: Call, weight: Array) -> bool:
    """True for one group and a single tap with stride 1 and no padding."""
    if weight.shape[1] == 1 or call.integer("group", 1) != 1 or max(weight.shape[2:]) > 1:
        return False
    return max(call.integers("strides") or (1,)) == 1 and not any(call.integers("pads") or ())


def _by_position(data: Values, factors: Values) -> Values:
    """Sums of a one-tap convolution as a matrix product, in the memory order of the data."""
    matrix = factors.reshape(factors.shape[:2])
    batch, channels, *extents = data.shape
    if _is_channels_last(data):
        rows = data.transpose(0, *range(2, data.ndim), 1).reshape(-1, channels)
        made = np.matmul(rows, matrix.T).reshape(batch, *extents, len(factors))
        return np.asarray(made.transpose(0, data.ndim - 1, *range(1, data.ndim - 1)))
    made = np.matmul(matrix, data.reshape(batch, channels, -1))
    return np.asarray(made.reshape(batch, len(factors), *extents))


# Largest number of column elements in one matrix product of a convolution.
_LARGEST_COLUMNS: Final = 2**20


def _parts(call: Call, met: Values) -> Iterator[slice]:
    """Parts of the output along its first spatial axis, each with columns small enough for the cache."""
    rows = call.result.shape[2]
    step = max(1, _LARGEST_COLUMNS // max(1, met.size // max(1, rows)))
    for start in range(0, rows, step):
        yield slice(start, start + step)


def _is_channels_last(data: Values) -> bool:
    """True if neighbouring channels are neighbours in memory."""
    extent, step = data.shape[1], data.strides[1]
    others = [other for other, length in zip(data.strides[2:], data.shape[2:], strict=True) if length > 1]
    return extent > 1 and step == data.itemsize and all(other > step for other in others)


def _biased(sums: Values, bias: Array | None = None) -> Values:
    return sums if bias is None else sums + summable(bias).reshape(-1, *(1,) * (sums.ndim - 2))


def _extent(box: Box | None, axis: int) -> int:
    return 0 if box is None else box[axis][1] - box[axis][0]


class ConvTranspose(Product):
    """Transposed convolution. Input [N, C, spatial...], weight [C, K / group, kernel...], bias [K]."""

    op_class = OpClass.MAIN
    is_local = True
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
        total = [greater(0, size - extent) for size, extent in zip(full, wanted, strict=True)]
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

    def summed(self, call: Call) -> tuple[int, int] | None:
        return (1, 0) if call.integer("group", 1) == 1 else None

    def enclosing(self, call: Call, box: Box) -> Box:
        group = call.integer("group", 1)
        return box if group == 1 else (box[0], aligned(box[1], call.result.shape[1] // group), *box[2:])

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with begins relative to the first output that the data's box reaches, and the box's groups."""
        strides, pads = call.integers("strides") or (), call.integers("pads") or ()
        begins = (
            found[0] + pads[i] - read[0] * strides[i]
            for i, (found, read) in enumerate(zip(box[2:], (needed[0] or ())[2:], strict=True))
        )
        group = _extent(box, 1) // _extent(needed[1], 1)
        return {**call.attributes, "pads": (*begins, *pads[len(strides) :]), "group": group}

    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        """Scatters each input element to the outputs that it reaches; begins of a box may be negative."""
        data, weight = given
        values, factors = summable(data), summable(weight)
        strides, dilations = call.integers("strides") or (), call.integers("dilations") or ()
        group, pads, rank = call.integer("group", 1), call.integers("pads") or (), data.ndim - 2
        (batch, filters, *extents), inputs, kernel = call.result.shape, data.shape[2:], weight.shape[2:]
        if not all(inputs):
            return np.zeros(call.result.shape, dtype=values.dtype)
        grouped = values.reshape(batch, group, data.shape[1] // group, prod(inputs))
        factors = factors.reshape(group, data.shape[1] // group, -1).transpose(0, 2, 1)
        spread = np.matmul(factors, grouped).reshape(batch, filters, *kernel, *inputs)
        lead = [max(0, -pads[i]) for i in range(rank)]
        reach = [strides[i] * (inputs[i] - 1) + dilations[i] * (kernel[i] - 1) + 1 for i in range(rank)]
        full = [lead[i] + max(reach[i], pads[i] + extents[i]) for i in range(rank)]
        result = np.zeros((batch, filters, *full), dtype=values.dtype)
        for tap in product(*map(range, kernel)):
            begins = [lead[i] + tap[i] * dilations[i] for i in range(rank)]
            place = tuple(
                slice(begins[i], begins[i] + strides[i] * (inputs[i] - 1) + 1, strides[i]) for i in range(rank)
            )
            result[(slice(None), slice(None), *place)] += spread[(slice(None), slice(None), *tap)]
        kept = tuple(slice(lead[i] + pads[i], lead[i] + pads[i] + extents[i]) for i in range(rank))
        return np.asarray(result[(slice(None), slice(None), *kept)])

    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        return narrowed(_biased(sums, *others[:1]), call.result.dtype)
