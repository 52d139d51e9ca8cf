"""Constant factors and biases of products as the integers that the model stores (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from compiler.frontend.constant_values import materialise
from compiler.frontend.dequantised import scale_and_zero, stored_constant
from compiler.frontend.exact_moves import Integers
from compiler.frontend.packed_weights import has_four_bits, offset_of, packed_numbers
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant
from compiler.ir.graph import Op, Tensor
from compiler.ops import channel_axes, definition
from compiler.ops.base import FLOATS, Array, Call
from compiler.ops.compute_types import Values
from compiler.ops.packed import FOUR_BITS_MOST
from compiler.ops.quantised import ACCUMULATOR, EIGHT_BITS, LARGEST_DIFFERENCE
from compiler.units import numpy_dtype

# By how much the scale of a bias may differ from the product of the scales of data and weight, which is a float32.
_SAME: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The second factor of a product as integers, with float32 scales and int32 zero points: one, or by output channel.

    Where one of these is not known before the run, `scale_name` or `zero_name` is its tensor, and 1 or 0 stands here.
    `largest` is the largest |q - zero point|. `by` is the DequantizeLinear that makes its floats; for a constant it is
    None, and `constant` has the integers. `layout` says how those of 4 bits lie packed (compiler.ops.packed); empty for
    others.
    """

    name: str
    scales: Array
    zeros: Array
    largest: int
    scale_name: str = ""
    zero_name: str = ""
    by: Op | None = None
    constant: Constant | None = None
    layout: tuple[int, ...] = ()


def weight_made(made: Integers) -> Weight | None:
    """A second factor that an op makes; None if it has not 8 bits."""
    if made.dtype not in EIGHT_BITS:
        return None
    return Weight(
        name=made.name,
        scales=np.asarray([made.scale], np.float32),
        zeros=np.asarray([made.zero], np.int32),
        largest=made.largest,
        scale_name=made.scale_name,
        zero_name=made.zero_name,
        by=made.by,
    )


def weight_by_channel(
    op: Op, call: Call, maker: Op, tensors: Mapping[str, Tensor], source: ModelSource
) -> Weight | None:
    """A second factor that a DequantizeLinear makes by output channels, of integers that no constant has."""
    axes, attributes = channel_axes(op, call), dict(maker.attributes)
    if maker.kind != "DequantizeLinear" or axes is None or attributes.get("axis") != axes[0]:
        return None
    if not call.result.elements:
        return None
    name, *parameters = maker.inputs
    shapes = {tensors[its].shape for its in parameters}
    if tensors[name].dtype not in EIGHT_BITS or shapes != {(tensors[name].shape[axes[0]],)}:
        return None
    scale, *zero = (tensors[its].constant for its in parameters)
    if scale is None:
        return None
    scales, zeros, zero_name = materialise(scale, source), np.zeros(1, np.int32), ""
    if zero and zero[0] is None:
        zero_name = parameters[1]
    elif zero and zero[0] is not None:
        zeros = materialise(zero[0], source).astype(np.int32)
    if not np.isfinite(scales).all():
        return None
    return Weight(
        name=name,
        scales=_narrow(scales.astype(np.float32)),
        zeros=_narrow(zeros),
        largest=LARGEST_DIFFERENCE,
        zero_name=zero_name,
        by=maker,
    )


def _narrow(values: Array) -> Array:
    """Values by channel; one where all are equal."""
    return values.reshape(-1)[:1] if (values == values.flat[0]).all() else values.reshape(-1)


def stored_weight(op: Op, call: Call, tensor: Tensor, source: ModelSource) -> Weight | None:
    """A constant second factor; None if it is not dequantised, or by scales or zero points along another axis than
    that of output channels.
    """
    if tensor.constant is None or tensor.stored_dtype not in EIGHT_BITS or tensor.dtype not in FLOATS:
        return None
    if not tensor.elements or not call.result.elements:
        return None
    scales, zeros = scale_and_zero(tensor.constant, source)
    axis, *_ = channel_axes(op, call) or (None,)
    along = {number for of in (scales, zeros) for number, extent in enumerate(of.shape) if extent > 1}
    if not along <= {axis} or not np.isfinite(scales).all():
        return None
    stored = stored_constant(tensor.constant)
    scales, zeros = _narrow(scales), _narrow(zeros)
    bounds: Any = np.iinfo(numpy_dtype(stored.dtype))
    name, least, most, offset = f"{tensor.name}/integers", int(bounds.min), int(bounds.max), 0
    layout: tuple[int, ...] = ()
    if has_four_bits(stored):
        # what an op's tiles have parts of stays an axis
        access = definition(op).access(call)[1] or ()
        layout = tuple(0 if one.axis is not None else extent for one, extent in zip(access, stored.shape, strict=True))
        offset = offset_of(stored.dtype)
        stored, name, least, most = packed_numbers(stored, layout), f"{tensor.name}/packed", 0, FOUR_BITS_MOST
    zeros = zeros.astype(np.int32) + offset
    return Weight(
        name=name,
        scales=scales.astype(np.float32),
        zeros=zeros,
        largest=max(most - int(zeros.min()), int(zeros.max()) - least),
        constant=stored,
        layout=layout,
    )


def stored_bias(op: Op, bias: Constant, units: Values, source: ModelSource) -> Constant | None:
    """A constant bias as the int32 that is stored, if it counts in units of the sums (one, or by output channel)."""
    if bias.stored_dtype != ACCUMULATOR or bias.dtype not in FLOATS:
        return None
    scales, zeros = scale_and_zero(bias, source)
    channels = 0 if op.kind in ("Conv", "ConvTranspose") else scales.ndim - 1
    along = [axis for axis, extent in enumerate(scales.shape) if extent > 1]
    if zeros.any() or along not in ([], [channels]) or scales.size not in (1, units.size):
        return None
    # not a number is near to nothing
    is_near = np.abs(scales.astype(np.float64).reshape(-1) - units) <= _SAME * np.abs(units)
    return stored_constant(bias) if is_near.all() else None


def depth_of(op: Op, call: Call) -> int:
    """How many products a sum has at most."""
    if op.kind in ("Conv", "ConvTranspose"):
        return call.tensor(1).elements // call.result.shape[1]
    return int(definition(op).work(call).macs)
