"""Builds random quantised graphs: draws types, scales and constants, and converts between floats and integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import frexp, ldexp, sqrt
from typing import Any, Final, TypeVar

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.quantised.reference import Interpreter

Array = NDArray[Any]
T = TypeVar("T")
_IR_VERSION: Final = 10
_OPSETS: Final = (13, 17, 21)
# Ops that enlarge a map leave one beyond this as it is.
LARGEST_EXTENT: Final = 16
_INT4: Final = (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """A value of integers with the names of its scale and zero point (empty: none, which means 0)."""

    name: str
    scale: str
    zero_point: str


class Builder:
    """A graph under construction. Every node is computed at once, for its results say which scales fit them.

    With `four_bits` weights have 4 bits, most of them one zero point.
    """

    def __init__(self, seed: int, *, four_bits: bool = False) -> None:
        self.random = np.random.default_rng([28, seed, 4] if four_bits else [28, seed])
        self.four_bits = four_bits
        self.opset = _OPSETS[-1] if four_bits else self.pick(_OPSETS)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.outputs: list[str] = []
        self.pool: list[Quantised] = []
        self.ops: list[str] = []
        self.is_exact = True
        self.needs_vnni = False
        self.activations = self.pick(((np.int8,), (np.uint8,), (np.int8, np.uint8)))
        self.has_constant_nodes = self.chance(0.15)
        self.powers = self.pick((0.05, 0.05, 0.05, 0.5, 1.0))
        self._floats: dict[str, str] = {}
        self._count = 0
        opsets = [helper.make_opsetid("", self.opset)]
        self.model = helper.make_model(onnx.GraphProto(name="quantised"), opset_imports=opsets, ir_version=_IR_VERSION)
        self._interpreter = Interpreter(self.model)

    # draws

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[int(self.random.integers(len(items)))]

    def chance(self, share: float) -> bool:
        """True in that share of the draws."""
        return bool(self.random.random() < share)

    def whole(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    # values

    def array(self, name: str) -> Array:
        """What a value is for the graph's inputs."""
        return self._interpreter.array(name)

    def shape(self, x: Quantised) -> tuple[int, ...]:
        """A quantised value's shape."""
        return self.array(x.name).shape

    def fresh(self, stem: str) -> str:
        """A name that no other value has."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, array: Any, stem: str = "k") -> str:
        """A constant: an initialiser, or in some graphs a node."""
        array = np.asarray(array)
        name = self.fresh(stem)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        values = array.astype(np.int8) if array.dtype in _INT4 else array
        tensor = (
            helper.make_tensor(name, kind, array.shape, values.reshape(-1).tolist())
            if array.dtype in _INT4
            else onnx.numpy_helper.from_array(array, name)
        )
        self._interpreter.values[name] = array
        if self.has_constant_nodes:
            self.nodes.append(helper.make_node("Constant", [], [name], name=self.fresh("n"), value=tensor))
        else:
            self.model.graph.initializer.append(tensor)
            self._interpreter.constants[name] = tensor
        return name

    def ints(self, *values: int) -> str:
        """A list of int64 as an initialiser."""
        return self.constant(np.array(values, np.int64))

    def input(self, array: Array) -> str:
        """A graph input with its values."""
        name = self.fresh("input")
        self.inputs[name] = array
        self._interpreter.values[name] = array
        return name

    def nodes_out(self, op_type: str, inputs: Sequence[str], count: int, **attributes: Any) -> tuple[str, ...]:
        """A node with several outputs."""
        outputs = [self.fresh(op_type.lower()) for _ in range(count)]
        node = helper.make_node(op_type, list(inputs), outputs, name=self.fresh("n"), **attributes)
        self.nodes.append(node)
        self._interpreter.compute(node)
        return tuple(outputs)

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        return self.nodes_out(op_type, inputs, 1, **attributes)[0]

    # quantisation

    def scale(self, value: float) -> float:
        """Near the value: a power of 2, which makes ties, or 24 bits of mantissa.

        The last 12 bits are drawn, for machines may differ in the last bits of the value.
        """
        mantissa, exponent = frexp(max(value, 1e-6))
        if self.chance(self.powers):
            return ldexp(0.5 if mantissa < sqrt(0.5) else 1, exponent)
        return ldexp((round(mantissa * 2**12) + int(self.random.integers(2**12)) / 2**12) / 2**12, exponent)

    def activation_type(self) -> Any:
        """The integer type of the next map; of 16 bits only where a float's last bit cannot be a step of them."""
        if self.opset >= 21 and self.chance(0.08) and self.is_exact:
            return self.pick((np.int16, np.uint16))
        return self.pick(self.activations)

    def fitting(self, array: Array, kind: Any) -> tuple[float, int]:
        """Scale and zero point with which the floats about fill the type's range."""
        limits = np.iinfo(kind)
        low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
        room = float(self.random.uniform(0.9, 1.2))
        if self.chance(0.4):
            middle = (int(limits.min) + int(limits.max) + 1) // 2
            return self.scale(max(-low, high) * room / (int(limits.max) - middle)), middle
        scale = self.scale((high - low) * room / (int(limits.max) - int(limits.min)))
        return scale, int(np.clip(round(int(limits.min) - low / scale), int(limits.min), int(limits.max)))

    def quantise(self, name: str, kind: Any = None) -> Quantised:
        """Round a float value to integers."""
        kind = self.activation_type() if kind is None else kind
        array = self.array(name)
        scale, zero_point = self.fitting(array, kind)
        if kind == np.uint8 and array.min() >= 0 and self.chance(0.3):
            q = Quantised(name="", scale=self.constant(np.float32(scale)), zero_point="")
        else:
            zero = self.constant(np.array(zero_point, kind))
            q = Quantised(name="", scale=self.constant(np.float32(scale)), zero_point=zero)
        inputs = [name, q.scale, q.zero_point] if q.zero_point else [name, q.scale]
        return self.keep(self.node("QuantizeLinear", *inputs), q.scale, q.zero_point)

    def keep(self, name: str, scale: str, zero_point: str) -> Quantised:
        """A quantised value that later ops may read."""
        x = Quantised(name=name, scale=scale, zero_point=zero_point)
        self.pool.append(x)
        return x

    def dequantise(self, x: Quantised, **attributes: Any) -> str:
        """The floats; a DequantizeLinear may have several readers."""
        if x.name not in self._floats or self.chance(0.4):
            inputs = [x.name, x.scale, x.zero_point] if x.zero_point else [x.name, x.scale]
            self._floats[x.name] = self.node("DequantizeLinear", *inputs, **attributes)
        return self._floats[x.name]

    def integers(self, shape: Sequence[int], kind: Any, *, bits: int = 8) -> Array:
        """Weights: integers about the middle of the type's range, some at its ends."""
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        drawn = np.rint(self.random.standard_normal(shape) * high / 2.5)
        middle = 0 if np.dtype(kind) in (np.dtype(np.int8), _INT4[0]) else 2 ** (4 if bits == 4 else 8) // 2
        return np.asarray(np.clip(drawn, low, high) + middle).astype(np.int16).astype(kind)

    def weight(self, shape: Sequence[int], axis: int, depth: int, **wanted: Any) -> Quantised:
        """A quantised initialiser; scales and zero points per tensor, or along an axis, for sums of that depth."""
        kinds: list[Any] = [np.int8, np.int8, np.uint8]
        if self.opset >= 21 and not wanted and (self.four_bits or self.chance(0.2)):
            kinds = list(_INT4)
        kind = np.dtype(wanted.get("kind") or self.pick(kinds))
        bits = 4 if kind in _INT4 else wanted.get("bits") or self.pick((7, 8, 8))
        values = self.integers(shape, kind, bits=bits)
        per_axis = self.chance(0.5) if wanted.get("per_axis") is None else wanted["per_axis"]
        count = shape[axis] if per_axis else 1
        usual = 2.5 / 2 ** (bits - 1) / sqrt(depth)
        scales = np.array([self.scale(usual * float(self.random.uniform(0.5, 2))) for _ in range(count)], np.float32)
        middle = 0 if kind in (np.dtype(np.int8), _INT4[0]) else 2 ** (4 if bits == 4 else 8) // 2
        spread = 0 if self.chance(0.5) else 2 if bits == 4 else 9
        zeros = middle + self.random.integers(-spread, spread + 1, count)
        if wanted.get("one_zero_point"):
            zeros[:] = zeros[0]
        zero_points = zeros.astype(np.int16).astype(kind)
        is_plain = kind == np.int8 and not zeros.any() and not wanted and self.chance(0.5)
        shape_of_scale = (count,) if per_axis else ()
        w = Quantised(
            name="",
            scale=self.constant(scales.reshape(shape_of_scale)),
            zero_point="" if is_plain else self.constant(zero_points.reshape(shape_of_scale)),
        )
        if w.zero_point and not wanted and bits > 4 and self.chance(0.15):
            return replace(w, name=self.rounded_weight(values, w, axis if per_axis else None))
        return replace(w, name=self.constant(values, "w"))

    def rounded_weight(self, values: Array, w: Quantised, axis: int | None) -> str:
        """Weights stored as floats and rounded by a node, as training with quantisation leaves them."""
        shape = [-1 if at == axis else 1 for at in range(values.ndim)]
        scale, zero = (self.array(name).reshape(shape) for name in (w.scale, w.zero_point))
        steps = values.astype(np.float32) - zero.astype(np.float32) + self.random.uniform(-0.4, 0.4, values.shape)
        floats = self.constant((steps * scale).astype(np.float32), "w")
        along = {} if axis is None else {"axis": axis}
        return self.node("QuantizeLinear", floats, w.scale, w.zero_point, **along)

    def weight_floats(self, w: Quantised, axis: int) -> str:
        """The floats of a quantised initialiser."""
        per_axis = self.array(w.scale).ndim == 1
        return self.dequantise(w, **({"axis": axis} if per_axis else {}))

    def bias(self, x: Quantised, w: Quantised, channels: int) -> list[str]:
        """A product's bias as a list: int32 in the product's scale (or rarely another one), float, or none."""
        form = self.pick(("int32", "int32", "int32", "float", "none", "other scale"))
        if form == "none":
            return []
        values = self.random.uniform(-1, 1, channels)
        if form == "float":
            return [self.constant(values.astype(np.float32), "bias")]
        scale = np.asarray(self.array(x.scale) * self.array(w.scale), np.float32)
        if scale.ndim:  # of a transposed convolution per filter of a group
            scale = np.tile(scale, channels // scale.size)
        if form == "other scale":
            scale = np.asarray(scale * np.float32(2.5))
        integers = self.constant(np.rint(values / scale).astype(np.int32), "bias")
        zero = [self.constant(np.zeros(scale.shape, np.int32))] if self.chance(0.4) else []
        per_axis = {"axis": 0} if scale.ndim else {}
        return [self.node("DequantizeLinear", integers, self.constant(scale), *zero, **per_axis)]

    def finish(self, product: str) -> Quantised | None:
        """A product's end: an activation or none, then integers, or a float that stays or is used on."""
        form = self.pick(("", "", "Relu", "Relu", "Relu6", "Clip", "float"))
        if form == "Relu":
            product = self.node("Relu", product)
        elif form in ("Relu6", "Clip"):
            low, high = (0.0, 6.0) if form == "Relu6" else sorted(self.random.uniform(-2, 2, 2))
            bounds = [self.constant(np.float32(low)), self.constant(np.float32(high))]
            product = self.node("Clip", product, *([bounds[0], ""] if self.chance(0.1) else bounds))
        elif form == "float":
            self.ops.append("float result")
            self.outputs.append(product)
            if self.chance(0.5):
                return None
        return self.quantise(product)

    def partner(self, x: Quantised, axis: int | None = None) -> Quantised:
        """Another value with x's shape (but for one axis): an older one, a constant, or x requantised.

        Without an axis a constant may have one value for all positions of some axes.
        """
        mine = self.shape(x)

        def fits(other: Quantised) -> bool:
            its = self.shape(other)
            return len(its) == len(mine) and all(
                at == axis or a == b for at, (a, b) in enumerate(zip(mine, its, strict=True))
            )

        older = [other for other in self.pool if other is not x and fits(other)]
        if older and self.chance(0.6):
            return self.pick(older)
        if self.chance(0.4):
            shape = mine if axis is not None else tuple(1 if self.chance(0.4) else extent for extent in mine)
            values = self.random.standard_normal(shape).astype(np.float32)
            kind = self.pick(self.activations)
            scale, zero = self.fitting(values, kind)
            limits = np.iinfo(kind)
            integers = np.clip(np.rint(values / scale) + zero, int(limits.min), int(limits.max)).astype(kind)
            name = self.constant(integers)
            return Quantised(
                name=name, scale=self.constant(np.float32(scale)), zero_point=self.constant(np.array(zero, kind))
            )
        factor = self.constant(np.float32(self.random.uniform(0.3, 3)))
        return self.quantise(self.node("Mul", self.dequantise(x), factor))
