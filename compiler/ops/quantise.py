"""QuantizeLinear and DequantizeLinear: element-wise conversion between floats and integers of 8 or 16 bits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.ir.box import WHOLE, same
from compiler.ir.graph import Attribute
from compiler.ops.base import (
    FLOATS,
    Access,
    Array,
    Call,
    Constraint,
    Inferred,
    OpClass,
    OpKind,
    Work,
)
from compiler.ops.compute_types import Values, narrowed, rounded_into, widened
from compiler.units import ceil_div

# ONNX codes of the types allowed in attribute output_dtype; 0 means that the other inputs decide.
_CODES: Final[Mapping[int, str]] = MappingProxyType(
    {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 10: "float16", 16: "bfloat16"}
)
# The element types of quantised tensors.
QUANTISED: Final = ("int8", "uint8", "int16", "uint16")


def _result(call: Call, default: str) -> str:
    code = call.integer("output_dtype", 0)
    return default if code == 0 else _CODES.get(code, f"type code {code}")


def _quantised(call: Call) -> str:
    """The integer type of a QuantizeLinear."""
    return call.tensor(2).dtype if call.has(2) else _result(call, "uint8")


def quantised(data: Values, scale: Values, zero: Values, dtype: str) -> Array:
    """Floats as integers: round(x / scale) + zero point, half to even, saturated. Scale and zero point broadcast."""
    return rounded_into(np.rint(widened(data).astype(scale.dtype) / scale) + zero, dtype)


def dequantised(data: Values, scale: Values, zero: Values, dtype: str) -> Array:
    """Integers as floats: (q − zero point)·scale. Scale and zero point broadcast."""
    return narrowed((data.astype(np.int32) - zero).astype(scale.dtype) * scale, dtype)


def spread_blocks(values: Array, axis: int, block: int, extent: int) -> Array:
    """Values by block of an axis as values by position."""
    return np.take(values, np.arange(extent) // block, axis=axis)


def _outside(dtype: str, allowed: tuple[str, ...]) -> str | None:
    return None if dtype in allowed else dtype


_UNBLOCKED: Final = Constraint(
    "one scale serves the whole tensor or one position of an axis (block_size is 0)",
    lambda call: call.integer("block_size", 0) or None,
    on_chip_only=True,
)


class Quantisation(OpKind):
    """The common part of both kinds: a scale and a zero point, per tensor or along one axis.

    Inputs: data, scale, zero point (optional). Attribute `axis` of the IR op is the axis that the scale follows; it is
    set if the scale has one element per position.
    """

    op_class = OpClass.VECTOR
    in_place = True
    is_local = True
    operations = 2

    def _inferred(self, call: Call, dtype: str) -> Inferred:
        data, scale = call.tensor(0), call.tensor(1)
        if call.has(2) and call.tensor(2).shape != scale.shape and {call.tensor(2).elements, scale.elements} != {1}:
            call.fail("scale and zero point differ in shape", actual=call.tensor(2).shape, limit=scale.shape)
        attributes: dict[str, Attribute] = {}
        block = call.integer("block_size", 0)
        if block > 0:
            axis = call.axis("axis", 1, len(data.shape))
            expected = tuple(ceil_div(e, block) if a == axis else e for a, e in enumerate(data.shape))
            if scale.shape != expected:
                call.fail("the scale must have one number per block", actual=scale.shape, limit=expected)
            attributes |= {"axis": axis, "block_size": block}
        elif scale.elements != 1 or len(scale.shape) > 1:
            axis = call.axis("axis", 1, len(data.shape))
            if scale.shape != (data.shape[axis],):
                call.fail(
                    "the scale must be one number or one per position of its axis",
                    actual=scale.shape,
                    limit=f"() or {(data.shape[axis],)}",
                )
            attributes["axis"] = axis
        return Inferred(
            shape=data.shape,
            dtype=dtype,
            axes=data.axes,
            kind=self.kind,
            inputs=(0, 1, 2) if call.has(2) else (0, 1),
            attributes=attributes,
        )

    def access(self, call: Call) -> Access:
        axis = None if call.integer("block_size", 0) else call.attributes.get("axis")
        scales = (
            (same(axis),) if isinstance(axis, int) else tuple(WHOLE for _ in tensor.shape)
            for tensor in call.inputs[1:]
            if tensor is not None
        )
        return (tuple(same(i) for i in range(len(call.tensor(0).shape))), *scales)

    def work(self, call: Call) -> Work:
        del call
        return Work(vector_ops=Fraction(self.operations))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        data, scale = arrays[0], arrays[1]
        axis, block = call.attributes.get("axis"), call.integer("block_size", 0)
        if block and isinstance(axis, int):
            scale, *zeros = (spread_blocks(array, axis, block, data.shape[axis]) for array in arrays[1:])
            zero = zeros[0].astype(np.int32) if zeros else np.zeros((), np.int32)
            return self._values(data, widened(scale), zero, call.result.dtype)
        shape = (-1, *(1,) * (data.ndim - axis - 1)) if isinstance(axis, int) else ()
        zero = arrays[2].reshape(shape).astype(np.int32) if len(arrays) > 2 else np.zeros((), np.int32)
        return self._values(data, widened(scale).reshape(shape), zero, call.result.dtype)

    @abstractmethod
    def _values(self, data: Array, scale: Values, zero: Values, dtype: str) -> Array:
        """The result's values; scale and zero point broadcast to the data."""


class QuantizeLinear(Quantisation):
    """Float to integer: round(x / scale) + zero point, saturated."""

    operations = 4
    dtypes = (*FLOATS, "int32")
    input_dtypes = MappingProxyType({1: FLOATS, 2: QUANTISED})
    constraints = (
        Constraint("the result is int8, uint8, int16 or uint16", lambda call: _outside(_quantised(call), QUANTISED)),
        _UNBLOCKED,
        Constraint("the quotient is of the scale's type (precision is 0)", lambda c: c.integer("precision", 0) or None),
    )

    def infer(self, call: Call) -> Inferred:
        return self._inferred(call, _quantised(call))

    def _values(self, data: Array, scale: Values, zero: Values, dtype: str) -> Array:
        return quantised(data, scale, zero, dtype)


class DequantizeLinear(Quantisation):
    """Integer to float: (x − zero point)·scale."""

    dtypes = (*QUANTISED, "int32")
    input_dtypes = MappingProxyType({1: FLOATS})
    constraints = (
        _UNBLOCKED,
        Constraint(
            "the result is float32, float16 or bfloat16",
            lambda call: _outside(_result(call, call.tensor(1).dtype), FLOATS),
            on_chip_only=True,
        ),
    )

    def infer(self, call: Call) -> Inferred:
        return self._inferred(call, _result(call, call.tensor(1).dtype))

    def _values(self, data: Array, scale: Values, zero: Values, dtype: str) -> Array:
        return dequantised(data, scale, zero, dtype)
