"""Ops that slide a window: convolution, transposed convolution and pooling."""

from __future__ import annotations

from fractions import Fraction
from math import prod

from compiler.ir.box import WHOLE, AxisMap, same, window
from compiler.ir.graph import Attribute
from compiler.ops.base import Access, Call, Inferred, MatrixShape, OpClass, OpKind, Work, spatial_axes
from compiler.units import ceil_div

_MAX_SPATIAL = 3


def _spatial_rank(call: Call) -> int:
    rank = len(call.tensor(0).shape) - 2
    if not 1 <= rank <= _MAX_SPATIAL:
        call.fail(
            "input must have a batch, a channel and 1 to 3 spatial axes",
            code="unsupported_op",
            actual=f"{len(call.tensor(0).shape)} axes",
            limit="3 to 5 axes",
        )
    return rank


def _per_axis(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = call.integers(name, (default,) * rank) or (default,) * rank
    if len(values) != rank or any(value < 1 for value in values):
        call.fail(f"{name} must be {rank} positive integers", actual=values)
    return values


def _padding(call: Call, strides: tuple[int, ...], spans: tuple[int, ...]) -> tuple[int, ...]:
    """Begin paddings then end paddings; automatic padding resolved."""
    rank = len(spans)
    extents = call.tensor(0).shape[2:]
    auto = call.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max(0, (ceil_div(extent, stride) - 1) * stride + span - extent)
            for extent, stride, span in zip(extents, strides, spans, strict=True)
        ]
        small = [amount // 2 for amount in total]
        large = [amount - half for amount, half in zip(total, small, strict=True)]
        begin, end = (small, large) if auto == "SAME_UPPER" else (large, small)
        return (*begin, *end)
    if auto == "VALID":
        return (0,) * (2 * rank)
    if auto != "NOTSET":
        call.fail("unknown auto_pad", actual=auto, limit="NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    pads = call.integers("pads", (0,) * (2 * rank)) or (0,) * (2 * rank)
    if len(pads) != 2 * rank or any(pad < 0 for pad in pads):
        call.fail(f"pads must be {2 * rank} integers of at least 0", actual=pads)
    return pads


def _window_extents(
    call: Call, strides: tuple[int, ...], spans: tuple[int, ...], pads: tuple[int, ...], *, ceil: bool
) -> tuple[int, ...]:
    """Output extents of a window of dilated size `spans`."""
    rank = len(spans)
    result = []
    for index, extent in enumerate(call.tensor(0).shape[2:]):
        padded = extent + pads[index] + pads[rank + index]
        room = padded - spans[index]
        if room < 0:
            call.fail(
                f"the kernel is larger than its padded input on spatial axis {index}",
                actual=spans[index],
                limit=padded,
            )
        count = (ceil_div(room, strides[index]) if ceil else room // strides[index]) + 1
        if ceil and (count - 1) * strides[index] >= extent + pads[index]:
            count -= 1  # a last window may not start in the padding behind the input
        result.append(count)
    return tuple(result)


def _window_access(call: Call) -> tuple[AxisMap, ...]:
    """Access of the spatial axes of input 0, from resolved attributes."""
    kernel = call.integers("kernel_shape") or ()
    strides = call.integers("strides") or ()
    dilations = call.integers("dilations") or ()
    pads = call.integers("pads") or ()
    return tuple(
        window(
            2 + index,
            kernel=kernel[index],
            stride=strides[index],
            dilation=dilations[index],
            pad=pads[index],
        )
        for index in range(len(kernel))
    )


def _overlap(call: Call) -> tuple[int, ...]:
    kernel = call.integers("kernel_shape") or ()
    strides = call.integers("strides") or ()
    return tuple(size - stride for size, stride in zip(kernel, strides, strict=True))


def _spans(kernel: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True))


def _check_bias(call: Call, channels: int) -> tuple[int, ...]:
    if not call.has(2):
        return (0, 1)
    if call.tensor(2).shape != (channels,):
        call.fail("the bias must have one element per output channel", actual=call.tensor(2).shape, limit=channels)
    return (0, 1, 2)


class Conv(OpKind):
    """Convolution, 1-D to 3-D, any group, stride, dilation and padding.

    Input [N, C, spatial...], weight [K, C / group, kernel...], bias [K]; output [N, K, spatial...].
    """

    op_class = OpClass.MAIN

    def infer(self, call: Call) -> Inferred:
        rank = _spatial_rank(call)
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
        kernel = weight.shape[2:]
        if (call.integers("kernel_shape") or kernel) != kernel:
            call.fail("kernel_shape disagrees with the weight", actual=call.integers("kernel_shape"), limit=kernel)
        strides = _per_axis(call, "strides", rank, 1)
        dilations = _per_axis(call, "dilations", rank, 1)
        spans = _spans(kernel, dilations)
        pads = _padding(call, strides, spans)
        extents = _window_extents(call, strides, spans, pads, ceil=False)
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
            (same(0), channel, *_window_access(call)),
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
        return _overlap(call)


class ConvTranspose(OpKind):
    """Transposed convolution. Input [N, C, spatial...], weight [C, K / group, kernel...], bias [K]."""

    op_class = OpClass.MAIN

    def infer(self, call: Call) -> Inferred:
        rank = _spatial_rank(call)
        data, weight = call.tensor(0), call.tensor(1)
        if len(weight.shape) != rank + 2:
            call.fail("the weight's rank differs from the input's", actual=len(weight.shape), limit=rank + 2)
        group = call.integer("group", 1)
        if group < 1 or weight.shape[0] != data.shape[1] or data.shape[1] % group:
            call.fail(
                "channels and groups disagree with the weight",
                actual=f"input channels {data.shape[1]}, weight {weight.shape}, group {group}",
            )
        kernel = weight.shape[2:]
        strides = _per_axis(call, "strides", rank, 1)
        dilations = _per_axis(call, "dilations", rank, 1)
        spans = _spans(kernel, dilations)
        extra = call.integers("output_padding", (0,) * rank) or (0,) * rank
        bounds = tuple(max(stride, dilation) for stride, dilation in zip(strides, dilations, strict=True))
        if len(extra) != rank or any(not 0 <= more < bound for more, bound in zip(extra, bounds, strict=False)):
            call.fail(f"output_padding must be {rank} integers below stride or dilation", actual=extra)
        if (call.integers("kernel_shape") or kernel) != kernel:
            call.fail("kernel_shape disagrees with the weight", actual=call.integers("kernel_shape"), limit=kernel)
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
        elements = call.output.elements if call.output else 0
        return Work(macs=Fraction(total, elements) if elements else Fraction(0))

    def matrix(self, call: Call) -> MatrixShape:
        group = call.integer("group", 1)
        weight = call.tensor(1).shape
        taps = ceil_div(prod(weight[2:]), prod(call.integers("strides") or ()))
        return MatrixShape(groups=group, out_channels=weight[1], in_channels=weight[0] // group, taps=taps)

    def overlap(self, call: Call) -> tuple[int, ...]:
        return tuple(0 for _ in call.integers("kernel_shape") or ())


class Pool(OpKind):
    """MaxPool and AveragePool over a window. Input [N, C, spatial...]."""

    op_class = OpClass.MAIN

    def infer(self, call: Call) -> Inferred:
        rank = _spatial_rank(call)
        data = call.tensor(0)
        kernel = call.integers("kernel_shape")
        if kernel is None or len(kernel) != rank or any(size < 1 for size in kernel):
            call.fail(f"kernel_shape must be {rank} positive integers", actual=kernel)
        strides = _per_axis(call, "strides", rank, 1)
        dilations = _per_axis(call, "dilations", rank, 1)
        spans = _spans(kernel, dilations)
        pads = _padding(call, strides, spans)
        extents = _window_extents(call, strides, spans, pads, ceil=bool(call.integer("ceil_mode", 0)))
        return Inferred(
            shape=(*data.shape[:2], *extents),
            dtype=data.dtype,
            axes=spatial_axes(rank + 2),
            kind=self.kind,
            inputs=(0,),
            attributes={
                "kernel_shape": kernel,
                "strides": strides,
                "dilations": dilations,
                "pads": pads,
                "count_include_pad": call.integer("count_include_pad", 0),
            },
        )

    def access(self, call: Call) -> Access:
        return ((same(0), same(1), *_window_access(call)),)

    def work(self, call: Call) -> Work:
        return Work(vector_ops=Fraction(prod(call.integers("kernel_shape") or ())))

    def overlap(self, call: Call) -> tuple[int, ...]:
        return _overlap(call)


class GlobalPool(OpKind):
    """GlobalAveragePool and GlobalMaxPool: all spatial positions of a channel become one."""

    op_class = OpClass.MAIN

    def infer(self, call: Call) -> Inferred:
        rank = _spatial_rank(call)
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
