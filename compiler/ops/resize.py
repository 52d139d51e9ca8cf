"""Resize and Upsample: nearest and linear sampling, with exact rational coordinates.

Output position o of an axis samples the input at (o·scale + offset) / divisor, three integers per axis. `infer` brings
every coordinate transformation to this form; access and evaluation use only this form. ONNX Runtime computes positions
in float32, and where these are of other elements an axis to the nearest is no form of ours (`resize_positions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, isfinite
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import AxisMap, same
from compiler.ir.graph import Attribute
from compiler.ir.symbol import Dim, bounds_of, is_always_least, is_dropped, unknown_extent
from compiler.ir.varying_floats import VaryingFloat, at_all_extents, ratio_of, rational, varying_float
from compiler.ops.base import FLOATS, Access, Array, Call, Constraint, Inferred, OpClass, OpKind, Work
from compiler.ops.compute_types import Values, narrowed, taken, widened
from compiler.ops.resize_positions import Integers, NearestAxes
from compiler.ops.slab import Box

_Number = TypeVar("_Number", int, Integers)

_TRANSFORMATIONS: Final = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDINGS: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_POLICIES: Final = ("stretch", "not_larger", "not_smaller")
# Those of which positions depend on the factor alone.
_BY_FACTOR: Final = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")
_LARGEST_EXTENT: Final = 2**40
_LARGEST_PRODUCT: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One axis for the coordinate transformation: its extents and the factor between them."""

    source: int
    target: int
    factor: Fraction
    by_size: bool = False

    @property
    def at_maxima(self) -> _Axis:
        """This axis where all dynamic dimensions are at their maxima."""
        factor = Fraction(int(self.factor.numerator), int(self.factor.denominator))
        return replace(self, source=int(self.source), target=int(self.target), factor=factor)

    @property
    def is_kept(self) -> bool:
        """True for a varying axis that has the same extent before and after, whatever that is."""
        return isinstance(self.source, Dim) and not isinstance(self.target - self.source, Dim) and self.factor == 1

    def is_varying(self, transformation: str) -> bool:
        """True if the sampling of a position depends on the dynamic dimensions."""
        if not isinstance(self.source, Dim) and not isinstance(self.target, Dim):
            return False
        if transformation == "align_corners":
            return isinstance(self.target - self.source, Dim)
        if transformation == "pytorch_half_pixel" and bounds_of(self.target)[0] <= 1:
            return True
        # a factor that the model gives is constant; only the rounding of the extent can change the sampling
        matters = self.by_size or transformation == "half_pixel_symmetric"
        scaled = self.source * self.factor.numerator
        return matters and isinstance(self.target * self.factor.denominator - scaled, Dim)


_MODES: Final = ("nearest", "linear", "bilinear", "cubic")


def _mode(call: Call) -> str:
    mode = call.text("mode", "nearest")
    if mode not in _MODES:
        call.fail("unknown mode", actual=mode, limit=", ".join(_MODES))
    return "linear" if mode == "bilinear" else mode


def _transformation(call: Call) -> str:
    if call.op_type == "Upsample" or call.opset < 11:
        return "asymmetric"
    found = call.text("coordinate_transformation_mode", "half_pixel")
    if found not in _TRANSFORMATIONS:
        call.fail("unknown coordinate_transformation_mode", actual=found, limit=", ".join(_TRANSFORMATIONS))
    return found


def _rounding(call: Call, axis: _Axis) -> str:
    if call.op_type == "Upsample":
        return "floor"
    if call.opset < 11:  # unspecified in ONNX; this is ONNX Runtime's choice
        return "ceil" if axis.factor < 1 else "floor"
    found = call.text("nearest_mode", "round_prefer_floor")
    if found not in _ROUNDINGS:
        call.fail("unknown nearest_mode", actual=found, limit=", ".join(_ROUNDINGS))
    return found


def _axes_of(call: Call) -> tuple[_Axis, ...]:
    """Extents and factor of every axis, from scales or sizes."""
    shape = call.tensor(0).shape
    chosen = call.integers("axes")
    axes = tuple(range(len(shape))) if chosen is None else tuple(call.within(a, len(shape), "axes") for a in chosen)
    sizes, scales = _sizes(call), _scales(call)
    given = sizes if scales is None else scales
    if given is None or len(given) != len(axes):
        call.fail("sizes or scales must cover every axis", actual=_told(given), limit=f"{len(axes)} of them")
    if any(not (float(value) > 0 and isfinite(float(value))) for value in given):
        call.fail("sizes and scales must be positive and finite", actual=_told(given))
    largest = max(
        (float(v) * (shape[a] if scales is not None else 1) for a, v in zip(axes, given, strict=True)), default=0.0
    )
    if largest > _LARGEST_EXTENT:
        call.fail("the result is too large", code="tensor_too_large", actual=_told(given), limit=_LARGEST_EXTENT)
    result = {axis: _Axis(source=extent, target=extent, factor=Fraction(1)) for axis, extent in enumerate(shape)}
    if scales is not None:
        for axis, scale in zip(axes, scales, strict=True):
            result[axis] = _scaled(call, shape[axis], scale)
    elif sizes is not None:
        factors = [Fraction(size, shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy not in _POLICIES:
            call.fail("unknown keep_aspect_ratio_policy", actual=policy, limit=", ".join(_POLICIES))
        if policy != "stretch" and factors:
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(factors)
            sizes = tuple(
                (2 * shape[axis] * f.numerator + f.denominator) // (2 * f.denominator)  # half rounds up
                for axis, f in zip(axes, factors, strict=True)
            )
        for axis, size, factor in zip(axes, sizes, factors, strict=True):
            result[axis] = _Axis(source=shape[axis], target=size, factor=factor, by_size=True)
    return tuple(result[axis] for axis in range(len(shape)))


def _told(given: tuple[float | VaryingFloat, ...] | None) -> str | None:
    """Sizes or scales in words: what varies by its ends."""
    return None if given is None else ", ".join(map(str, given))


def _scale(given: float | VaryingFloat) -> float | VaryingFloat:
    """A scale that varies, also as an extent, or a number."""
    found = varying_float(given, np.dtype(np.float32)) if isinstance(given, Dim | VaryingFloat) else None
    return float(given) if found is None else found


def _scaled(call: Call, source: int, scale: float | VaryingFloat) -> _Axis:
    """An axis by its scale; one that varies is the quotient of two extents, and the same as the size after it.

    Of another one that varies the extent is unknown; so it is where older operator sets round by whether an axis grows.
    """
    if isinstance(scale, VaryingFloat):
        target = ratio_of(scale, source)
        if target is not None and (call.opset >= 11 or is_always_least(source, target) is not None):
            return _Axis(source=source, target=target, factor=Fraction(target, source), by_size=True)
    factor = rational(float(scale))
    target = source * factor.numerator // factor.denominator
    if isinstance(scale, VaryingFloat):
        target = unknown_extent(int(target))
    return _Axis(source=source, target=target, factor=factor)


def _sizes(call: Call) -> tuple[int, ...] | None:
    if not call.has(3) or not call.tensor(3).elements:
        return None
    return call.constant_integers(3, "sizes")


def _scales(call: Call) -> tuple[float | VaryingFloat, ...] | None:
    index = 1 if call.op_type == "Upsample" or call.opset < 11 else 2
    if call.has(index) and call.tensor(index).elements:
        return tuple(_scale(v) for v in call.value(index, "scales").reshape(-1).tolist())
    given = call.attributes.get("scales")
    if isinstance(given, tuple):
        return tuple(float(v) for v in given)
    if "height_scale" in call.attributes:  # Upsample of opset 1: images only
        return (1.0, 1.0, call.number("height_scale", 1.0), call.number("width_scale", 1.0))
    return None


def _coordinates(transformation: str, axis: _Axis) -> tuple[int, int, int]:
    """scale, offset and divisor of an axis' sampling positions."""
    if axis.is_kept:
        return 1, 0, 1
    if axis.is_varying(transformation):
        return _varying_coordinates(transformation, axis)
    step = 1 / axis.factor
    if transformation == "align_corners":
        step = Fraction(axis.source - 1, axis.target - 1) if axis.target > 1 else Fraction(0)
        offset = Fraction(0)
    elif transformation == "asymmetric":
        offset = Fraction(0)
    elif transformation == "tf_half_pixel_for_nn":
        offset = step / 2
    elif transformation == "pytorch_half_pixel" and axis.target == 1:
        step = offset = Fraction(0)
    else:
        offset = (step - 1) / 2
        if transformation == "half_pixel_symmetric":
            offset += Fraction(axis.source, 2) * (1 - axis.target / (axis.factor * axis.source))
    divisor = step.denominator * offset.denominator
    scale, shift = int(step * divisor), int(offset * divisor)
    common = gcd(scale, shift, divisor)
    return scale // common, shift // common, divisor // common


def is_cubic(call: Call) -> bool:
    """Whether a Resize interpolates by cubic polynomials, from four positions per axis."""
    return _mode(call) == "cubic" and _transformation(call) != "tf_crop_and_resize"


def sampled_axes(call: Call) -> tuple[tuple[int, int, tuple[int, int, int]], ...]:
    """Per axis its extents before and after, and scale, offset and divisor of its sampling positions."""
    kind = _transformation(call)
    return tuple((axis.source, axis.target, _coordinates(kind, axis)) for axis in _axes_of(call))


def _varying_coordinates(transformation: str, axis: _Axis) -> tuple[int, int, int]:
    """scale, offset and divisor for varying extents.

    They are of unknown expression, with their values at the maxima, if an extent of 1 needs another formula.
    """
    source, target = axis.source, axis.target
    is_single = bounds_of(target)[0] <= 1
    if transformation == "asymmetric":
        return source, 0, target
    if transformation == "tf_half_pixel_for_nn":
        return 2 * source, source, 2 * target
    if transformation == "align_corners":
        return source - 1, 0, target - 1
    if transformation == "half_pixel" or (transformation == "pytorch_half_pixel" and not is_single):
        return 2 * source, source - target, 2 * target
    scale, offset, divisor = _coordinates(transformation, axis.at_maxima)
    return unknown_extent(scale), offset, divisor


def _form(call: Call, axis: _Axis) -> tuple[int, int, int]:
    """As `_coordinates`; of unknown expression if ONNX Runtime reads other elements at some extents in range."""
    kind = _transformation(call)
    scale, offset, divisor = _coordinates(kind, axis)
    extents = (axis.source, axis.target)
    is_fixed = axis.is_kept or not any(isinstance(extent, Dim) for extent in extents)
    if _mode(call) != "nearest" or is_fixed or any(map(is_dropped, (*extents, scale))):
        return scale, offset, divisor
    why = _why_otherwise(call, axis, (scale, offset, divisor))
    if why is not None:
        return unknown_extent(int(scale), why=why), int(offset), int(divisor)
    return scale, offset, divisor


def _why_otherwise(call: Call, axis: _Axis, form: tuple[int, int, int]) -> str | None:
    """At which extents in range ONNX Runtime reads other elements, or that there are too many of them."""
    kind, rounding = _transformation(call), _rounding(call, axis)
    if kind in _BY_FACTOR and not any(isinstance(number, Dim) for number in form):
        ends = (int(bounds_of(extent)[1]) for extent in (axis.source, axis.target))
        largest = replace(axis, source=next(ends), target=next(ends))
        return _difference(_nearest_axis(kind, rounding, largest, form, is_clipped=False))
    found = at_all_extents((axis.source, axis.target, *form))
    if found is None:
        return "there are too many extents to compare the positions that are read with float32 arithmetic"
    # the same extents before and after have the same positions
    found[1] = np.maximum(found[1], 0)
    _, first = np.unique(found[0] * (int(found[1].max()) + 1) + found[1], return_index=True)
    source, target, scale, offset, divisor = (numbers[first] for numbers in found)
    factors = np.full(source.shape, float(axis.factor), dtype=np.float32)
    if axis.is_varying(kind):
        floats = target.astype(np.float32) / np.maximum(source, 1).astype(np.float32)
        factors = np.asarray(floats, dtype=np.float32)
    axes = NearestAxes(
        transformation=kind,
        rounding=rounding,
        source=source,
        target=target,
        scale=factors,
        sampling=_nearest(rounding, np.where(divisor, scale, 0), offset, np.maximum(divisor, 1)),
    )
    return _difference(axes)


def _difference(axes: NearestAxes) -> str | None:
    """What differs from ONNX Runtime, with the extents before and after."""
    index = axes.first_difference()
    if index is None:
        return None
    if axes.are_too_many:
        return "there are too many positions to compare those that are read with float32 arithmetic"
    return f"from {axes.source[index]} to {axes.target[index]}, float32 arithmetic finds other positions"


def _nearest_axis(
    kind: str, rounding: str, axis: _Axis, form: tuple[int, int, int], *, is_clipped: bool = True
) -> NearestAxes:
    """One axis whose positions depend on no extent."""
    scale, offset, divisor = (np.array([number], dtype=np.int64) for number in form)
    return NearestAxes(
        transformation=kind,
        rounding=rounding,
        source=np.array([axis.source], dtype=np.int64),
        target=np.array([axis.target], dtype=np.int64),
        scale=np.array([float(axis.factor)], dtype=np.float32),
        sampling=_nearest(rounding, scale, offset, divisor),
        is_clipped=is_clipped,
    )


def _other_positions(call: Call) -> object | None:
    """The extents of an axis of which ONNX Runtime reads other elements, at the maxima."""
    if _mode(call) != "nearest":
        return None
    kind, axes = _transformation(call), [axis.at_maxima for axis in _axes_of(call)]
    is_copied = all(axis.source == axis.target for axis in axes)
    for axis in axes:
        form, known = _coordinates(kind, axis), replace(axis, factor=Fraction(1)) if is_copied else axis
        if _nearest_axis(kind, _rounding(call, axis), known, form).first_difference() is not None:
            return f"{axis.source} to {axis.target}"
    return None


def _other_type(call: Call) -> object | None:
    dtype = call.tensor(0).dtype
    return None if _mode(call) == "nearest" or dtype in (*FLOATS, "float64") else dtype


def _uneven_corners(call: Call) -> object | None:
    if _transformation(call) != "align_corners" or _scales(call) is None:
        return None
    return next((float(a.factor) for a in _axes_of(call) if (a.factor * a.source).denominator > 1), None)


def _huge(call: Call) -> object | None:
    for axis in _axes_of(call):
        if 4 * max(map(abs, _coordinates(_transformation(call), axis))) * max(1, axis.target) > _LARGEST_PRODUCT:
            return float(axis.factor)
    return None


class Resize(OpKind):
    """Resizing along any axes; the IR form of Resize and Upsample.

    Attributes of the IR op: `mode` (nearest or linear), `rounding` per axis (how nearest chooses), and `scale`,
    `offset`, `divisor` per axis: output position o samples the input at (o·scale + offset) / divisor.
    """

    op_class = OpClass.MOVEMENT
    is_local = True
    constant_inputs = MappingProxyType({1: "roi (up to opset 10: scales)", 2: "scales", 3: "sizes"})
    constraints: tuple[Constraint, ...] = (
        Constraint("mode is nearest or linear", lambda c: None if _mode(c) in ("nearest", "linear") else _mode(c)),
        Constraint("linear mode is for floats", _other_type),
        Constraint(
            "coordinate_transformation_mode is not tf_crop_and_resize",
            lambda call: "tf_crop_and_resize" if _transformation(call) == "tf_crop_and_resize" else None,
        ),
        Constraint(
            "antialias is 0, or no axis shrinks",
            lambda c: 1 if c.integer("antialias", 0) and any(a.factor < 1 for a in _axes_of(c)) else None,
        ),
        Constraint("exclude_outside is 0", lambda call: call.integer("exclude_outside", 0) or None),
        Constraint("with align_corners and scales, scaled extents are whole numbers", _uneven_corners),
        Constraint("sampling positions are quotients of integers that 64 bits hold", _huge),
        Constraint("to the nearest, float32 arithmetic finds the same positions", _other_positions),
    )

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        axes = _axes_of(call)
        shape = tuple(axis.target for axis in axes)
        if any(extent < 1 for extent in shape):
            call.fail("the result would be empty", actual=shape)
        found = [_form(call, axis) for axis in axes]
        is_one = all(part == (1, 0, 1) and not is_dropped(part[0]) for part in found)
        unchanged = shape == data.shape and is_one
        return Inferred(
            shape=shape,
            dtype=data.dtype,
            axes=data.axes,
            kind="Resize",
            inputs=(0,),
            attributes={
                "mode": _mode(call),
                "rounding": tuple(_rounding(call, axis) for axis in axes),
                "scale": tuple(part[0] for part in found),
                "offset": tuple(part[1] for part in found),
                "divisor": tuple(part[2] for part in found),
            },
            source=0 if unchanged else None,
        )

    def access(self, call: Call) -> Access:
        data, output = call.tensor(0), call.result
        return (
            tuple(
                _axis_map(index, _sampling(call, index), source, target)
                for index, (source, target) in enumerate(zip(data.shape, output.shape, strict=True))
            ),
        )

    def work(self, call: Call) -> Work:
        if call.text("mode", "nearest") == "nearest":
            return Work()
        blended = sum(a != b for a, b in zip(call.tensor(0).shape, call.result.shape, strict=True))
        return Work(vector_ops=Fraction(2 * 2**blended))

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """Attributes with offsets that map the box's first position into the data's box."""
        scales, offsets, divisors = (call.integers(name) or () for name in ("scale", "offset", "divisor"))
        local = (
            offsets[i] + found[0] * scales[i] - read[0] * divisors[i]
            for i, (found, read) in enumerate(zip(box, needed[0] or (), strict=True))
        )
        return {**call.attributes, "offset": tuple(local)}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        if call.text("mode", "nearest") == "nearest":
            positions = [
                np.clip(_sampling(call, i).first(np.arange(target)), 0, source - 1)
                for i, (source, target) in enumerate(zip(arrays[0].shape, call.result.shape, strict=True))
            ]
            return taken(arrays[0], positions)
        values = widened(arrays[0])
        for i, target in enumerate(call.result.shape):
            values = _blend(values, i, _sampling(call, i), target)
        return narrowed(values, call.result.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampling:
    """The input positions that output position o reads: `taps` positions from ⌊(o·scale + low) / divisor⌋ on."""

    scale: int
    low: int
    divisor: int
    taps: int

    def first(self, outputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first input position of each output position, not clamped."""
        return np.asarray((outputs * self.scale + self.low) // self.divisor)


def _sampling(call: Call, axis: int) -> _Sampling:
    scale, offset, divisor = ((call.integers(name) or ())[axis] for name in ("scale", "offset", "divisor"))
    if not divisor:  # of a result of one position, to which align_corners gives the first one
        scale, offset, divisor = 0, 0, 1
    if call.text("mode", "nearest") == "linear":
        return _Sampling(scale=scale, low=offset, divisor=divisor, taps=2)
    rounding = call.attributes["rounding"]
    scale, low, divisor = _nearest(rounding[axis] if isinstance(rounding, tuple) else rounding, scale, offset, divisor)
    return _Sampling(scale=scale, low=low, divisor=divisor, taps=1)


def _nearest(
    rounding: Attribute, scale: _Number, offset: _Number, divisor: _Number
) -> tuple[_Number, _Number, _Number]:
    """Three integers per axis: output position o reads input position ⌊(o·scale + low) / divisor⌋."""
    match rounding:
        case "floor":
            return scale, offset, divisor
        case "ceil":
            return scale, offset + divisor - 1, divisor
        case "round_prefer_ceil":
            return 2 * scale, 2 * offset + divisor, 2 * divisor
    return 2 * scale, 2 * offset + divisor - 1, 2 * divisor


def _axis_map(axis: int, sampling: _Sampling, source: int, target: int) -> AxisMap:
    """The sampling as an axis map, widened where positions outside the input read its border."""
    within = sampling.low == 0 if sampling.taps > 1 else 0 <= sampling.low < sampling.divisor
    if source == target and sampling.scale == sampling.divisor and within:
        return same(axis)
    ends = sampling.first(np.array([0, target - 1]))
    below = max(0, -(int(ends[0]) + sampling.taps - 1))
    above = max(0, int(ends[1]) - (source - 1))
    return AxisMap(
        axis=axis,
        scale=sampling.scale,
        low=sampling.low - above * sampling.divisor,
        high=sampling.low + (sampling.taps - 1 + below) * sampling.divisor,
        divisor=sampling.divisor,
    )


def _blend(values: Values, axis: int, sampling: _Sampling, target: int) -> Values:
    """Linear interpolation along one axis."""
    outputs, extent = np.arange(target), values.shape[axis]
    first = sampling.first(outputs)
    if extent == target and (sampling.scale, sampling.low) == (sampling.divisor, 0):
        return values
    part = (outputs * sampling.scale + sampling.low - first * sampling.divisor) / sampling.divisor
    weight = part.astype(values.dtype).reshape(-1, *(1,) * (values.ndim - axis - 1))
    left = np.take(values, np.clip(first, 0, extent - 1), axis=axis)
    right = np.take(values, np.clip(first + 1, 0, extent - 1), axis=axis)
    return np.asarray(left * (1 - weight) + right * weight)


class Upsample(Resize):
    """Upsample: the Resize of older opsets."""

    constant_inputs = MappingProxyType({1: "scales"})
    constraints = (*Resize.constraints[:2], Resize.constraints[-1])
