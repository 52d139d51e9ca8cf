"""Element-wise ops: arithmetic (scalar class) and activations and other functions (vector class)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from compiler.ops.base import (
    Access,
    Array,
    Call,
    Inferred,
    OpClass,
    OpKind,
    Work,
    broadcast_access,
    broadcast_shapes,
    default_axes,
)
from compiler.units import numpy_dtype

Evaluate = Callable[..., Array]


class Elementwise(OpKind):
    """One output element from the broadcast elements of the inputs.

    `operations` is the work per output element in vector operations; for a variadic op (Sum, Max, Min, Mean) it is
    per input beyond the first.
    """

    in_place = True

    def __init__(
        self,
        kind: str,
        *,
        arity: int | None,
        operations: int,
        evaluate: Evaluate | None = None,
        result: str | None = None,
    ) -> None:
        super().__init__(kind)
        self.arity = arity
        self.operations = operations
        self.function = evaluate
        self.result = result

    def _data_inputs(self, call: Call) -> int:
        return len(call.inputs) if self.arity is None else self.arity

    def infer(self, call: Call) -> Inferred:
        count = self._data_inputs(call)
        if count < 1:
            call.fail("at least one input is needed")
        tensors = [call.tensor(index) for index in range(count)]
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) > 1 and self.kind not in ("Where", "Pow"):
            call.fail("inputs have different element types", actual=", ".join(sorted(dtypes)))
        if call.opset < 7 and call.integer("axis", -1) >= 0:
            call.fail(
                "broadcasting along a given axis (opsets before 7) is not supported",
                code="unsupported_op",
                actual=call.integer("axis", -1),
                hint="Convert the model to opset 7 or later",
            )
        shape = broadcast_shapes(call, tuple(tensor.shape for tensor in tensors))
        lead = next((t for t in tensors if t.constant is None and t.shape == shape), None)
        return Inferred(
            shape=shape,
            dtype=self.result or tensors[1 if self.kind == "Where" else 0].dtype,
            axes=lead.axes if lead else default_axes(len(shape)),
            kind=self.kind,
            inputs=tuple(range(count)),
            attributes={name: value for name, value in call.attributes.items() if isinstance(value, int | float | str)},
        )

    def access(self, call: Call) -> Access:
        output = call.output.shape if call.output else ()
        return tuple(None if t is None else broadcast_access(t.shape, output) for t in call.inputs)

    def work(self, call: Call) -> Work:
        count = max(1, len(call.inputs) - 1) if self.arity is None else 1
        return Work(vector_ops=Fraction(self.operations * count))

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        del call
        if self.function is None:
            return None
        result = np.asarray(self.function(*arrays))
        first = arrays[1 if self.kind == "Where" else 0]
        return result if self.result or first is None else result.astype(first.dtype)


class Scalar(Elementwise):
    """Add, subtract, multiply (FUSE-7's scalar ops)."""

    op_class = OpClass.SCALAR


class Vector(Elementwise):
    """Activations and other element-wise functions."""

    op_class = OpClass.VECTOR


class Clip(Vector):
    """Clip with constant bounds (inputs 1 and 2, or attributes in old opsets); Relu6 is one."""

    def __init__(self) -> None:
        super().__init__("Clip", arity=1, operations=2)

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        low = float(call.value(1, "min").reshape(())) if call.has(1) else call.number("min", float("-inf"))
        high = float(call.value(2, "max").reshape(())) if call.has(2) else call.number("max", float("inf"))
        return Inferred(
            shape=data.shape,
            dtype=data.dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"min": low, "max": high},
        )


class Cast(Vector):
    """Conversion to another element type; `to` is the type's name."""

    def __init__(self) -> None:
        super().__init__("Cast", arity=1, operations=1)

    def infer(self, call: Call) -> Inferred:
        data = call.tensor(0)
        target = call.text("to", data.dtype)
        return Inferred(
            shape=data.shape,
            dtype=target,
            axes=data.axes,
            kind=self.kind,
            inputs=(0,),
            attributes={"to": target},
            source=0 if target == data.dtype else None,
        )

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        if arrays[0] is None:
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            return arrays[0].astype(numpy_dtype(call.text("to", "float32")))


def _variadic(function: Callable[[Array, Array], Array]) -> Evaluate:
    def evaluate(*arrays: Array) -> Array:
        result = arrays[0]
        for array in arrays[1:]:
            result = function(result, array)
        return result

    return evaluate


def _divide(a: Array, b: Array) -> Array:
    if np.issubdtype(a.dtype, np.integer):
        safe = np.where(b == 0, 1, b)
        quotient = np.abs(a) // np.abs(safe)  # ONNX integer division truncates
        return np.asarray(np.sign(a) * np.sign(safe) * quotient)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.divide(a, b))


def elementwise_kinds() -> tuple[OpKind, ...]:
    """All element-wise kinds; the numbers are vector operations per element (polynomial approximations)."""
    return (
        Scalar("Add", arity=2, operations=1, evaluate=np.add),
        Scalar("Sub", arity=2, operations=1, evaluate=np.subtract),
        Scalar("Mul", arity=2, operations=1, evaluate=np.multiply),
        Scalar("Sum", arity=None, operations=1, evaluate=_variadic(np.add)),
        Vector("Div", arity=2, operations=1, evaluate=_divide),
        Vector("Pow", arity=2, operations=8),
        Vector("Max", arity=None, operations=1, evaluate=_variadic(np.maximum)),
        Vector("Min", arity=None, operations=1, evaluate=_variadic(np.minimum)),
        Vector("Mean", arity=None, operations=1),
        Vector("Neg", arity=1, operations=1, evaluate=np.negative),
        Vector("Abs", arity=1, operations=1, evaluate=np.abs),
        Vector("Sqrt", arity=1, operations=1, evaluate=np.sqrt),
        Vector("Reciprocal", arity=1, operations=1),
        Vector("Exp", arity=1, operations=4),
        Vector("Log", arity=1, operations=4),
        Vector("Floor", arity=1, operations=1, evaluate=np.floor),
        Vector("Ceil", arity=1, operations=1, evaluate=np.ceil),
        Vector("Sign", arity=1, operations=1),
        Vector("Relu", arity=1, operations=1),
        Vector("LeakyRelu", arity=1, operations=2),
        Vector("PRelu", arity=2, operations=2),
        Vector("Elu", arity=1, operations=6),
        Vector("Sigmoid", arity=1, operations=6),
        Vector("HardSigmoid", arity=1, operations=3),
        Vector("HardSwish", arity=1, operations=4),
        Vector("Tanh", arity=1, operations=6),
        Vector("Softplus", arity=1, operations=8),
        Vector("Erf", arity=1, operations=8),
        Vector("Gelu", arity=1, operations=10),
        Vector("Where", arity=3, operations=1, evaluate=np.where),
        Vector("Equal", arity=2, operations=1, evaluate=np.equal, result="bool"),
        Vector("Less", arity=2, operations=1, evaluate=np.less, result="bool"),
        Vector("Greater", arity=2, operations=1, evaluate=np.greater, result="bool"),
        Vector("Not", arity=1, operations=1, evaluate=np.logical_not, result="bool"),
        Clip(),
        Cast(),
    )
