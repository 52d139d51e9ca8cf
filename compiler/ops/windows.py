"""Shared by ops that slide a window: attributes, extents, boxes and taps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, NoReturn

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from compiler.ir.box import AxisMap, window
from compiler.ir.symbol import greater, lesser
from compiler.ops.base import Call, Constraint, Window
from compiler.ops.compute_types import Values
from compiler.ops.slab import Box
from compiler.units import ceil_div

_MAX_SPATIAL: Final = 3


def window_of(call: Call) -> Window | None:
    """The window of an op's resolved attributes; None for a single tap with stride 1."""
    kernel, strides = call.integers("kernel_shape") or (), call.integers("strides") or ()
    if not kernel or max(*kernel, *strides) == 1:
        return None
    dilations, pads = call.integers("dilations") or (), call.integers("pads") or ()
    return Window(kernel, strides, dilations, pads[: len(kernel)])


def spatial_rank(call: Call) -> int:
    """Number of spatial axes of input 0, [N, C, spatial...]."""
    rank = len(call.tensor(0).shape) - 2
    if rank < 1:
        call.fail(
            "input must have a batch, a channel and spatial axes", actual=call.tensor(0).shape, limit="at least 3 axes"
        )
    return rank


SPATIAL_AXES: Final = Constraint(
    f"spatial axes are 1 to {_MAX_SPATIAL}",
    lambda call: None if len(call.tensor(0).shape) - 2 <= _MAX_SPATIAL else len(call.tensor(0).shape) - 2,
)


def per_axis(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    """A positive integer per spatial axis."""
    values = call.integers(name, (default,) * rank) or (default,) * rank
    if len(values) != rank or any(value < 1 for value in values):
        call.fail(f"{name} must be {rank} positive integers", actual=values)
    return values


def padding(call: Call, strides: tuple[int, ...], spans: tuple[int, ...]) -> tuple[int, ...]:
    """Begin paddings, then end paddings, with automatic padding resolved."""
    rank = len(spans)
    extents = call.tensor(0).shape[2:]
    auto = call.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            lacking if span >= stride else greater(0, lacking)
            for extent, stride, span in zip(extents, strides, spans, strict=True)
            for lacking in ((ceil_div(extent, stride) - 1) * stride + span - extent,)
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


def window_extents(
    call: Call, strides: tuple[int, ...], spans: tuple[int, ...], pads: tuple[int, ...]
) -> tuple[int, ...]:
    """Output extents of a convolution; raises ModelError if a kernel span in `spans` exceeds its padded input."""
    result = []
    for index, padded in enumerate(padded_extents(call, pads)):
        if padded < spans[index]:
            _fail_kernel(call, index, spans[index], padded)
        result.append((padded - spans[index]) // strides[index] + 1)
    return tuple(result)


def pooled_extents(
    call: Call, strides: tuple[int, ...], spans: tuple[int, ...], pads: tuple[int, ...], *, ceil: bool
) -> tuple[int, ...]:
    """Output extents of a pooling; its kernel may exceed its padded input by less than two strides (IMPORT-4).

    The count divides towards zero, as in ONNX Runtime. A kernel that exceeds its input by less than a stride gives
    one position. By less than two strides it gives none, and the output is empty.
    """
    rank = len(spans)
    result = []
    for index, padded in enumerate(padded_extents(call, pads)):
        room, stride = padded - spans[index], strides[index]
        count = (ceil_div(room, stride) if ceil or room < 0 else room // stride) + 1
        if count < 0:
            _fail_kernel(call, index, spans[index], padded)
        # the last window may not start in the padding behind the input
        if ceil and pads[rank + index] + stride > spans[index]:
            count = lesser(count, ceil_div(call.tensor(0).shape[2 + index] + pads[index], stride))
        result.append(count)
    return tuple(result)


def padded_extents(call: Call, pads: tuple[int, ...]) -> tuple[int, ...]:
    """The spatial extents of input 0 with their padding."""
    rank = len(pads) // 2
    return tuple(
        extent + pads[index] + pads[rank + index] for index, extent in enumerate(call.tensor(0).shape[2 : 2 + rank])
    )


def _fail_kernel(call: Call, index: int, span: int, padded: int) -> NoReturn:
    call.fail(
        f"the kernel is larger than its padded input on spatial axis {index}",
        code="invalid_shape",
        actual=span,
        limit=int(padded),
    )


def window_access(call: Call) -> tuple[AxisMap, ...]:
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


def window_overlap(call: Call) -> tuple[int, ...]:
    """Kernel − stride per spatial axis (FUSE-19)."""
    kernel = call.integers("kernel_shape") or ()
    strides = call.integers("strides") or ()
    return tuple(size - stride for size, stride in zip(kernel, strides, strict=True))


def dilated(kernel: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    """The extents that a dilated kernel spans."""
    return tuple(dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True))


def local_pads(call: Call, box: Box, needed: Box | None) -> tuple[int, ...]:
    """The padding around the input box `needed` that the windows of an output box see: begins, then ends.

    Ends are those of the whole tensor: windows of a box away from the input's border end within `needed`.
    """
    strides, pads = call.integers("strides") or (), call.integers("pads") or ()
    begins = (
        # if all windows lie in the padding, `needed` is empty and begins at 0
        max(0, read[0] - found[0] * strides[i] + pads[i])
        for i, (found, read) in enumerate(zip(box[2:], (needed or ())[2:], strict=True))
    )
    return (*begins, *pads[len(strides) :])


def windows(data: Values, call: Call, kernel: tuple[int, ...], extents: tuple[int, ...], fill: float) -> NDArray[Any]:
    """The element that each tap reads at each output position, [N, C, kernel..., extents...]; `fill` outside the input.

    The result is a view in which overlapping windows share memory: do not write to it.
    """
    strides, dilations = call.integers("strides") or (), call.integers("dilations") or ()
    pads = call.integers("pads") or ()
    rank = len(kernel)
    reach = [(extents[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    width = [(pads[i], max(0, reach[i] - data.shape[2 + i] - pads[i])) for i in range(rank)]
    padded = data
    if any(map(any, width)):
        # in the memory order of the data
        order = sorted(range(data.ndim), key=lambda axis: -abs(data.strides[axis]))
        around = (*data.shape[:2], *(sum(width[i]) + data.shape[2 + i] for i in range(rank)))
        padded = np.full([around[axis] for axis in order], fill, data.dtype)
        padded = padded.transpose([order.index(axis) for axis in range(data.ndim)])
        middle = tuple(slice(width[i][0], width[i][0] + data.shape[2 + i]) for i in range(rank))
        padded[(slice(None), slice(None), *middle)] = data
    steps = padded.strides
    return as_strided(
        padded,
        shape=(*data.shape[:2], *kernel, *extents),
        strides=(
            *steps[:2],
            *(steps[2 + i] * dilations[i] for i in range(rank)),
            *(steps[2 + i] * strides[i] for i in range(rank)),
        ),
        writeable=False,
    )


def taps(
    data: Values, call: Call, kernel: tuple[int, ...], extents: tuple[int, ...], fill: float
) -> Iterator[tuple[tuple[int, ...], Values]]:
    """Each tap of the window with the input elements that it reads at all output positions; `fill` outside."""
    met = windows(data, call, kernel, extents, fill)
    for tap, at in zip(product(*map(range, kernel)), taps_of(kernel), strict=True):
        yield tap, met[at]


def taps_of(kernel: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """The index of each tap in the result of `windows`."""
    for tap in product(*map(range, kernel)):
        yield (slice(None), slice(None), *tap)
