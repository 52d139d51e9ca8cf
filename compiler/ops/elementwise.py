"""Element-wise ops: arithmetic (scalar class) and activations and other functions (vector class)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.graph import Attribute, Tensor
from compiler.ops import elementwise_functions as functions
from compiler.ops.base import (
    FLOATS,
    NATIVE_DTYPES,
    NUMBERS,
    Access,
    Array,
    Call,
    Constraint,
    Inferred,
    OpClass,
    OpKind,
    Work,
    default_axes,
)
from compiler.ops.broadcasting import broadcast_access, broadcast_shapes
from compiler.ops.compute_types import error_function, narrowed, widened
from compiler.ops.elementwise_functions import Function
from compiler.units import DTYPE_NAMES

_NO_PARAMETERS: Final[Mapping[str, int | float | str]] = MappingProxyType({})


class Elementwise(OpKind):
    """One output element from the broadcast elements of the inputs.

    `operations` is the number of vector operations per output element; for a variadic op (Sum, Max, Min, Mean) it
    counts per input beyond the first. `result` is the output's element type if it differs from the first input's.
    `parameters` are attributes with their defaults. Attribute `axis` of the IR op (opsets before 7 only) is the axis
    of the first input where the axes of the second begin.
    """

    in_place = True
    is_local = True

    def __init__(
        self,
        kind: str,
        *,
        arity: int | None,
        operations: int,
        evaluate: Function,
        dtypes: tuple[str, ...] = FLOATS,
        result: str | None = None,
        parameters: Mapping[str, int | float | str] = _NO_PARAMETERS,
    ) -> None:
        super().__init__(kind)
        self.arity = arity
        self.operations = operations
        self.function = evaluate
        self.dtypes = dtypes
        self.result = result
        self.parameters = parameters

    def infer(self, call: Call) -> Inferred:
        count = len(call.inputs) if self.arity is None else self.arity
        if count < 1:
            call.fail("at least one input is needed")
        tensors = [call.tensor(index) for index in range(count)]
        self._check_dtypes(call, tensors)
        axis = self._legacy_axis(call, tensors)
        shapes = tuple(tensor.shape for tensor in tensors)
        if axis is not None:
            shapes = (shapes[0], _placed(shapes[0], shapes[1], axis))
        shape = broadcast_shapes(call, shapes)
        lead = next((t for t in tensors if t.constant is None and t.shape == shape), None)
        attributes: dict[str, Attribute] = {
            name: _parameter(call, name, default) for name, default in self.parameters.items()
        }
        if axis is not None:
            attributes["axis"] = axis
        return Inferred(
            shape=shape,
            dtype=self.result or self._result_dtype(tensors),
            axes=lead.axes if lead else default_axes(len(shape)),
            kind=self.kind,
            inputs=tuple(range(count)),
            attributes=attributes,
        )

    def _check_dtypes(self, call: Call, tensors: list[Tensor]) -> None:
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) > 1:
            call.fail("inputs have different element types", actual=", ".join(sorted(dtypes)))

    def _result_dtype(self, tensors: list[Tensor]) -> str:
        return tensors[0].dtype

    def _legacy_axis(self, call: Call, tensors: list[Tensor]) -> int | None:
        """The axis where the second input begins (broadcasting of opsets before 7); None to align at the end."""
        if call.opset >= 7 or len(tensors) != 2 or "broadcast" not in call.attributes:
            return None
        a, b = tensors[0].shape, tensors[1].shape
        if not call.integer("broadcast", 0) or "axis" not in call.attributes:
            return None
        axis = call.within(call.integer("axis", 0), max(1, len(a)))
        if axis + len(b) > len(a):
            call.fail("the second input has axes beyond the first's", actual=b, limit=f"{a} from axis {axis} on")
        return axis if axis + len(b) < len(a) else None

    def access(self, call: Call) -> Access:
        output = call.result.shape
        axis = call.attributes.get("axis")
        # a sum may have hundreds of inputs, of few shapes
        shapes = {tensor.shape for tensor in call.inputs if tensor is not None}
        of_shape = {shape: broadcast_access(shape, output) for shape in shapes}
        maps = [None if t is None else of_shape[t.shape] for t in call.inputs]
        if isinstance(axis, int):
            maps[1] = _placed_access(call.tensor(1).shape, output, axis)
        return tuple(maps)

    def work(self, call: Call) -> Work:
        count = max(1, len(call.inputs) - 1) if self.arity is None else 1
        return Work(vector_ops=Fraction(self.operations * count))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        given = [widened(array) for array in arrays]
        axis = call.attributes.get("axis")
        if isinstance(axis, int):
            given[1] = given[1].reshape(_placed(given[0].shape, given[1].shape, axis))
        parameters = {name: call.attributes.get(name, default) for name, default in self.parameters.items()}
        return narrowed(self.function(*given, **parameters), call.result.dtype)


def _parameter(call: Call, name: str, default: float | str) -> Attribute:
    if isinstance(default, str):
        return call.text(name, default)
    return call.integer(name, default) if isinstance(default, int) else call.number(name, default)


def _placed(first: tuple[int, ...], second: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The second shape with 1s appended, so that it begins at `axis` of the first."""
    return (*second, *(1,) * (len(first) - axis - len(second)))


def _placed_access(shape: tuple[int, ...], output: tuple[int, ...], axis: int) -> tuple[AxisMap, ...]:
    return tuple(same(axis + i) if extent == output[axis + i] else WHOLE for i, extent in enumerate(shape))


class Scalar(Elementwise):
    """Add, subtract, multiply (FUSE-7's scalar ops)."""

    op_class = OpClass.SCALAR


class Vector(Elementwise):
    """Activations and other element-wise functions."""

    op_class = OpClass.VECTOR


class Power(Vector):
    """Pow: the exponent may have another element type; the result has the base's."""

    input_dtypes = MappingProxyType({1: NUMBERS})

    def _check_dtypes(self, call: Call, tensors: list[Tensor]) -> None:
        """Accepts any two types."""


class PRelu(Vector):
    """PRelu: before opset 7 a slope of one axis may have one element per channel."""

    def _legacy_axis(self, call: Call, tensors: list[Tensor]) -> int | None:
        data, slope = tensors[0].shape, tensors[1].shape
        by_channel = call.opset < 7 and len(slope) == 1 and len(data) > 2 and slope[0] == data[1]
        return 1 if by_channel else None


class Where(Vector):
    """Where: input 1 where the condition (input 0) holds, else input 2."""

    input_dtypes = MappingProxyType({0: ("bool",)})

    def _check_dtypes(self, call: Call, tensors: list[Tensor]) -> None:
        if tensors[1].dtype != tensors[2].dtype:
            call.fail("the two choices have different element types", actual=f"{tensors[1].dtype}, {tensors[2].dtype}")

    def _result_dtype(self, tensors: list[Tensor]) -> str:
        return tensors[1].dtype


class Clip(Vector):
    """Clip between two bounds (inputs 1 and 2, or attributes in old opsets); also Relu6.

    Attributes `min` and `max` of the IR op are numbers, infinite where there is no bound. A bound known only at run
    time is an input instead of an attribute: the inputs are data, min, max.
    """

    def __init__(self) -> None:
        super().__init__("Clip", arity=1, operations=2, evaluate=functions.clip, dtypes=NUMBERS)

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        self._check_dtypes(call, [tensor for tensor in call.inputs if tensor is not None])
        known = {name: _bound(call, index, name) for index, name in enumerate(_BOUNDS, start=1)}
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0, *(index for index, bound in enumerate(known.values(), start=1) if bound is None)),
            attributes={name: bound for name, bound in known.items() if bound is not None},
        )

    def access(self, call: Call) -> Access:
        data = tuple(same(axis) for axis in range(len(call.tensor(0).shape)))
        return (data, *(tuple(WHOLE for _ in t.shape) for t in call.inputs[1:] if t is not None))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        given = iter(arrays[1:])
        low, high = (call.attributes[name] if name in call.attributes else next(given).reshape(()) for name in _BOUNDS)
        clipped = functions.clip(
            widened(arrays[0]),
            low=None if low == float("-inf") else low,
            high=None if high == float("inf") else high,
        )
        return narrowed(clipped, call.result.dtype)


_BOUNDS: Final = ("min", "max")


def _bound(call: Call, index: int, name: str) -> float | None:
    """A bound's value, infinite if absent; None if it is known only at run time."""
    if not call.has(index):
        return call.number(name, float("-inf") if name == "min" else float("inf"))
    if call.tensor(index).elements != 1:
        call.fail(f"{name} must have one element", actual=call.tensor(index).shape)
    if index not in call.values:
        return None
    exact: float = call.value(index, name).reshape(()).item()
    return exact if isinstance(exact, int) else float(exact)


class Cast(Vector):
    """Conversion to another element type; attribute `to` is the type's name."""

    constraints = (
        Constraint(
            f"attribute to is {', '.join(NATIVE_DTYPES)}",
            lambda call: None if _target(call) in NATIVE_DTYPES else _target(call),
            on_chip_only=True,
        ),
    )

    def __init__(self) -> None:
        super().__init__("Cast", arity=1, operations=1, evaluate=np.asarray, dtypes=NATIVE_DTYPES)

    def infer(self, call: Call) -> Inferred:
        data, target = call.tensor(0), _target(call)
        if target not in DTYPE_NAMES:
            call.fail("attribute to is no known element type", actual=target, limit=", ".join(DTYPE_NAMES))
        return Inferred(
            shape=data.shape,
            dtype=target,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"to": target},
            source=0 if target == data.dtype else None,
        )


# Names of element types in opsets before 6.
_OLD_NAMES: Final[Mapping[str, str]] = MappingProxyType({"FLOAT": "float32", "DOUBLE": "float64"})


def _target(call: Call) -> str:
    name = call.text("to", call.tensor(0).dtype)
    return _OLD_NAMES.get(name, name.lower())


def elementwise_kinds() -> tuple[OpKind, ...]:
    """All element-wise kinds; the numbers are vector operations per element (polynomial approximations)."""
    return (
        Scalar("Add", arity=2, operations=1, evaluate=np.add, dtypes=NUMBERS),
        Scalar("Sub", arity=2, operations=1, evaluate=np.subtract, dtypes=NUMBERS),
        Scalar("Mul", arity=2, operations=1, evaluate=np.multiply, dtypes=NUMBERS),
        Scalar("Sum", arity=None, operations=1, evaluate=functions.variadic(np.add)),
        Vector("Mean", arity=None, operations=1, evaluate=functions.mean),
        Vector("Div", arity=2, operations=1, evaluate=functions.divide, dtypes=NUMBERS),
        Vector("Mod", arity=2, operations=3, evaluate=functions.modulo, dtypes=NUMBERS, parameters={"fmod": 0}),
        Power("Pow", arity=2, operations=8, evaluate=functions.power, dtypes=(*FLOATS, "int32", "int64")),
        Vector("Max", arity=None, operations=1, evaluate=functions.variadic(np.maximum), dtypes=NUMBERS),
        Vector("Min", arity=None, operations=1, evaluate=functions.variadic(np.minimum), dtypes=NUMBERS),
        Where("Where", arity=3, operations=1, evaluate=np.where, dtypes=NATIVE_DTYPES),
        Clip(),
        Cast(),
        *_unary_kinds(),
        *_activation_kinds(),
        *_logical_kinds(),
    )


def _unary_kinds() -> tuple[OpKind, ...]:
    signed = (*FLOATS, "int8", "int32", "int64")
    return (
        Vector("Neg", arity=1, operations=1, evaluate=np.negative, dtypes=signed),
        Vector("Abs", arity=1, operations=1, evaluate=np.abs, dtypes=NUMBERS),
        Vector("Sign", arity=1, operations=1, evaluate=np.sign, dtypes=NUMBERS),
        Vector("Sqrt", arity=1, operations=1, evaluate=np.sqrt),
        Vector("Reciprocal", arity=1, operations=1, evaluate=np.reciprocal),
        Vector("Exp", arity=1, operations=4, evaluate=np.exp),
        Vector("Log", arity=1, operations=4, evaluate=np.log),
        Vector("Sin", arity=1, operations=4, evaluate=np.sin),
        Vector("Cos", arity=1, operations=4, evaluate=np.cos),
        Vector("Floor", arity=1, operations=1, evaluate=np.floor),
        Vector("Ceil", arity=1, operations=1, evaluate=np.ceil),
        Vector("Round", arity=1, operations=1, evaluate=np.rint),
        Vector("Erf", arity=1, operations=8, evaluate=error_function),
    )


def _activation_kinds() -> tuple[OpKind, ...]:
    """Activations with their parameters' defaults (ONNX operator set 28)."""
    elu = {"alpha": 1.0}
    selu = {"alpha": 1.6732631921768188, "gamma": 1.0507010221481323}
    hard = {"alpha": 0.20000000298023224, "beta": 0.5}
    return (
        Vector(
            "Relu",
            arity=1,
            operations=1,
            evaluate=functions.relu,
            dtypes=(*FLOATS, "int8", "int32", "int64"),
        ),
        Vector(
            "LeakyRelu",
            arity=1,
            operations=2,
            evaluate=functions.leaky_relu,
            parameters={"alpha": 0.009999999776482582},
        ),
        PRelu("PRelu", arity=2, operations=2, evaluate=functions.prelu, dtypes=(*FLOATS, "int32", "int64")),
        Vector("ThresholdedRelu", arity=1, operations=2, evaluate=functions.thresholded_relu, parameters=elu),
        Vector("Elu", arity=1, operations=6, evaluate=functions.elu, parameters=elu),
        Vector("Celu", arity=1, operations=8, evaluate=functions.celu, parameters=elu),
        Vector("Selu", arity=1, operations=7, evaluate=functions.selu, parameters=selu),
        Vector("Sigmoid", arity=1, operations=6, evaluate=functions.sigmoid),
        Vector("HardSigmoid", arity=1, operations=3, evaluate=functions.hard_sigmoid, parameters=hard),
        Vector("HardSwish", arity=1, operations=4, evaluate=functions.hard_swish),
        Vector("Swish", arity=1, operations=8, evaluate=functions.swish, parameters={"alpha": 1.0}),
        Vector("Mish", arity=1, operations=15, evaluate=functions.mish),
        Vector("Tanh", arity=1, operations=6, evaluate=np.tanh),
        Vector("Softplus", arity=1, operations=8, evaluate=functions.softplus),
        Vector("Softsign", arity=1, operations=3, evaluate=functions.softsign),
        Vector("Gelu", arity=1, operations=10, evaluate=functions.gelu, parameters={"approximate": "none"}),
    )


def _logical_kinds() -> tuple[OpKind, ...]:
    signs = {"detect_negative": 1, "detect_positive": 1}
    return (
        Vector("Equal", arity=2, operations=1, evaluate=np.equal, dtypes=NATIVE_DTYPES, result="bool"),
        Vector("Less", arity=2, operations=1, evaluate=np.less, dtypes=NUMBERS, result="bool"),
        Vector("LessOrEqual", arity=2, operations=1, evaluate=np.less_equal, dtypes=NUMBERS, result="bool"),
        Vector("Greater", arity=2, operations=1, evaluate=np.greater, dtypes=NUMBERS, result="bool"),
        Vector("GreaterOrEqual", arity=2, operations=1, evaluate=np.greater_equal, dtypes=NUMBERS, result="bool"),
        Vector("And", arity=2, operations=1, evaluate=np.logical_and, dtypes=("bool",), result="bool"),
        Vector("Or", arity=2, operations=1, evaluate=np.logical_or, dtypes=("bool",), result="bool"),
        Vector("Xor", arity=2, operations=1, evaluate=np.logical_xor, dtypes=("bool",), result="bool"),
        Vector("Not", arity=1, operations=1, evaluate=np.logical_not, dtypes=("bool",), result="bool"),
        Vector("IsNaN", arity=1, operations=1, evaluate=np.isnan, result="bool"),
        Vector("IsInf", arity=1, operations=2, evaluate=functions.is_infinite, result="bool", parameters=signs),
    )
