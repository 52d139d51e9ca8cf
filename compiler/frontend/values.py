"""Values of constants: from protobuf tensors, and from descriptions when somebody needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from compiler.errors import InternalError, ModelError
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Derived, Literal, Splat, Stored
from compiler.ops.base import Array
from compiler.units import element_bytes, numpy_dtype

_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        getattr(onnx.TensorProto, label): name
        for label, name in (
            ("FLOAT", "float32"),
            ("FLOAT16", "float16"),
            ("BFLOAT16", "bfloat16"),
            ("DOUBLE", "float64"),
            ("INT8", "int8"),
            ("UINT8", "uint8"),
            ("INT16", "int16"),
            ("UINT16", "uint16"),
            ("INT32", "int32"),
            ("UINT32", "uint32"),
            ("INT64", "int64"),
            ("UINT64", "uint64"),
            ("BOOL", "bool"),
        )
    }
)


def element_type(code: int, *, node: str | None, what: str) -> str:
    """The element type name of an ONNX type code; raises ModelError for types outside IMPORT-5."""
    name = _TYPES.get(code)
    if name is None:
        known = onnx.TensorProto.DataType.items()
        label = next((text for text, number in known if number == code), str(code))
        raise ModelError(
            f"{what} has an element type that is not supported",
            code="unsupported_dtype",
            stage="import",
            node=node,
            actual=label.lower(),
            limit=", ".join(sorted(_TYPES.values())),
        )
    return name


def constant_of(proto: onnx.TensorProto, *, span: tuple[int, int] | None, node: str | None, what: str) -> Constant:
    """A constant from a protobuf tensor, or from the span of the file that holds its bytes.

    Raises ModelError if dims are negative, data is external, or the bytes do not fit the shape.
    """
    shape = tuple(int(extent) for extent in proto.dims)
    dtype = element_type(proto.data_type, node=node, what=what)

    def fail(message: str, code: str, actual: object, limit: object) -> ModelError:
        return ModelError(f"{what}: {message}", code=code, stage="import", node=node, actual=actual, limit=limit)

    if any(extent < 0 for extent in shape):
        raise fail("negative extent", "invalid_shape", shape, "at least 0")
    if proto.data_location == onnx.TensorProto.EXTERNAL or proto.external_data:
        raise fail("its data is in another file", "external_data", "external", "data inside the model file")
    expected = prod(shape) * element_bytes(dtype)
    if span is not None:
        if span[1] != expected:
            raise fail("its bytes do not fit its shape", "invalid_tensor", span[1], expected)
        return Constant(shape=shape, dtype=dtype, data=Stored(offset=span[0], size_bytes=span[1]))
    if proto.raw_data:
        if len(proto.raw_data) != expected:
            raise fail("its bytes do not fit its shape", "invalid_tensor", len(proto.raw_data), expected)
        return Constant(shape=shape, dtype=dtype, data=Literal(data=proto.raw_data))
    try:
        array = numpy_helper.to_array(proto)
    except (ValueError, TypeError) as error:
        raise fail("its values do not fit its shape", "invalid_tensor", str(error), expected) from None
    return Constant(shape=shape, dtype=dtype, data=Literal(data=array.tobytes()))


def literal(array: Array, dtype: str) -> Constant:
    """A constant that holds an array's values."""
    return Constant(
        shape=tuple(array.shape),
        dtype=dtype,
        data=Literal(data=np.ascontiguousarray(array, dtype=numpy_dtype(dtype)).tobytes()),
    )


def materialise(constant: Constant, source: ModelSource) -> Array:
    """The values of a constant as a read-only array; splats and stored weights are views, not copies."""
    dtype = numpy_dtype(constant.dtype)
    data = constant.data
    if isinstance(data, Splat):
        return np.broadcast_to(np.frombuffer(data.value, dtype=dtype)[0], constant.shape)
    if isinstance(data, Stored):
        buffer = source.view(data.offset, data.size_bytes)
        return np.frombuffer(buffer, dtype=dtype).reshape(constant.shape)
    if isinstance(data, Literal):
        return np.frombuffer(data.data, dtype=dtype).reshape(constant.shape)
    function = _DERIVED.get(data.function)
    if function is None:
        raise InternalError(f"no derived constant {data.function!r}", stage="import")
    inputs = tuple(materialise(part, source) for part in data.inputs)
    result = function(inputs, dict(data.attributes))
    return result.astype(dtype, copy=False).reshape(constant.shape)


def derive(
    function: str,
    inputs: tuple[Constant, ...],
    shape: tuple[int, ...],
    attributes: Mapping[str, tuple[int, ...] | float] = MappingProxyType({}),
) -> Constant:
    """A constant computed from others when needed."""
    return Constant(
        shape=shape,
        dtype=inputs[0].dtype,
        data=Derived(function=function, inputs=inputs, attributes=tuple(sorted(attributes.items()))),
    )


def _channel_scale(scale: Array, variance: Array, epsilon: float) -> NDArray[np.float64]:
    # in double precision: the folded convolution then differs from the two ops by float32 rounding only
    return np.asarray(scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon))


def _batchnorm_weight(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    weight, scale, variance = inputs
    factor = _channel_scale(scale, variance, attributes["epsilon"])
    return np.asarray(weight.astype(np.float64) * factor.reshape(-1, *(1,) * (weight.ndim - 1)))


def _batchnorm_bias(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    scale, shift, mean, variance, *bias = inputs
    before = bias[0].astype(np.float64) if bias else 0.0
    factor = _channel_scale(scale, variance, attributes["epsilon"])
    return np.asarray(shift.astype(np.float64) + (before - mean.astype(np.float64)) * factor)


_DERIVED: Final[Mapping[str, Callable[[tuple[Array, ...], Mapping[str, Any]], Array]]] = MappingProxyType(
    {
        "reshape": lambda inputs, _: inputs[0],
        "transpose": lambda inputs, attributes: inputs[0].transpose(attributes["perm"]),
        "batchnorm_weight": _batchnorm_weight,
        "batchnorm_bias": _batchnorm_bias,
    }
)
