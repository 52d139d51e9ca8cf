"""Values of constants: from protobuf tensors, and from descriptions on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from compiler.errors import InternalError, LimitError, ModelError, printable
from compiler.frontend.archive import safe_path
from compiler.frontend.source import Buffer, ModelSource
from compiler.ir.constant import Constant, Derived, Literal, Opaque, Splat, Stored
from compiler.ir.graph import Attribute
from compiler.ops.base import Array
from compiler.ops.constants import by_definition
from compiler.ops.packed import HALF_OF_FOUR_BITS, packed, unpacked
from compiler.units import ceil_div, element_bytes, numpy_dtype

# A constant computed from others is built whole in memory when the executable is written.
MAX_COMPUTED_BYTES: Final = 2**31
# Element types whose values the compiler handles (IMPORT-5, and those of shape arithmetic).
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
# Element types with two numbers in a byte.
FOUR_BITS: Final = ("int4", "uint4")
# Functions of constants: packed numbers as single ones, and numbers packed along the last axis.
UNPACK: Final = "unpack"
PACK: Final = "pack"
# All ONNX element types by Tessera's name; those missing in the table above are supported by the host only.
ONNX_CODES: Final[Mapping[str, int]] = MappingProxyType(
    {
        _TYPES.get(code, label.lower()): code
        for label, code in onnx.TensorProto.DataType.items()
        if code != onnx.TensorProto.UNDEFINED
    }
)
_LABELS: Final[Mapping[int, str]] = MappingProxyType({code: name for name, code in ONNX_CODES.items()})


def type_label(code: int) -> str | None:
    """Tessera's name of an ONNX element type, including host-only ones; None for an unknown code."""
    return _LABELS.get(code)


def type_text(kind: onnx.TypeProto) -> str:
    """A non-tensor type in the operator sets' notation: seq(tensor(float)), optional(...), map(...).

    Empty if the model does not state the type.
    """
    match kind.WhichOneof("value"):
        case "tensor_type":
            name = type_label(kind.tensor_type.elem_type)
            return onnx_type(name) if name else ""
        case "sequence_type":
            inner = type_text(kind.sequence_type.elem_type)
            return f"seq({inner})" if inner else ""
        case "optional_type":
            inner = type_text(kind.optional_type.elem_type)
            return f"optional({inner})" if inner else ""
        case "map_type":
            key, inner = type_label(kind.map_type.key_type), type_text(kind.map_type.value_type)
            return f"map({_OPERATOR_NAMES.get(key, key)}, {inner})" if key and inner else ""
        case "sparse_tensor_type":
            name = type_label(kind.sparse_tensor_type.elem_type)
            return f"sparse_tensor({_OPERATOR_NAMES.get(name, name)})" if name else ""
    return ""


def type_of_text(text: str) -> onnx.TypeProto | None:
    """The inverse of `type_text` for tensors, sequences and optionals; None for others."""
    for prefix, make in (
        ("seq(", onnx.helper.make_sequence_type_proto),
        ("optional(", onnx.helper.make_optional_type_proto),
    ):
        if text.startswith(prefix) and text.endswith(")"):
            inner = type_of_text(text[len(prefix) : -1])
            return make(inner) if inner is not None else None
    if text.startswith("tensor(") and text.endswith(")"):
        name = text[len("tensor(") : -1]
        ours = next((own for own, other in _OPERATOR_NAMES.items() if other == name), name)
        code = ONNX_CODES.get(ours)
        return onnx.helper.make_tensor_type_proto(code, None) if code is not None else None
    return None


def onnx_type(dtype: str) -> str:
    """The type in the operator sets' notation: tensor(float) for float32; sequences and the like unchanged."""
    return dtype if "(" in dtype else f"tensor({_OPERATOR_NAMES.get(dtype, dtype)})"


# Element types that the operator sets name differently.
_OPERATOR_NAMES: Final[Mapping[str, str]] = MappingProxyType({"float32": "float", "float64": "double"})


def declared_extent(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """The declared extent of an axis; None for a free one, which old exporters write as a negative extent."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def element_type(code: int, *, node: str | None, what: str) -> str:
    """The element type name of an ONNX type code; raises ModelError for an unknown code."""
    name = _LABELS.get(code)
    if name is None:
        raise ModelError(
            f"{what} has an element type that does not exist",
            code="unsupported_dtype",
            stage="import",
            node=node,
            actual=f"type code {code}",
            limit=", ".join(sorted(ONNX_CODES)),
        )
    return name


def constant_of(
    proto: onnx.TensorProto,
    *,
    span: tuple[int, int] | None,
    node: str | None,
    what: str,
    files: Mapping[str, Buffer] = MappingProxyType({}),
) -> Constant:
    """A constant from a protobuf tensor, from the span of the file that holds its bytes, or from an external file.

    Raises ModelError if dims are negative, external data is missing, or the bytes do not fit the shape.
    """
    shape = tuple(int(extent) for extent in proto.dims)
    dtype = element_type(proto.data_type, node=node, what=what)

    def fail(message: str, code: str, actual: object, limit: object) -> ModelError:
        return ModelError(f"{what}: {message}", code=code, stage="import", node=node, actual=actual, limit=limit)

    if any(extent < 0 for extent in shape):
        raise fail("negative extent", "invalid_shape", shape, "at least 0")
    is_external = proto.data_location == onnx.TensorProto.EXTERNAL or proto.external_data
    if dtype in FOUR_BITS and (is_external or span is not None):
        count = ceil_div(prod(shape), 2)
        begin, size = span or (0, count)
        if size != count:
            raise fail("its bytes do not fit its shape", "invalid_tensor", size, count)
        stored = _external(proto, count, files, fail) if is_external else Stored(offset=begin, size_bytes=size)
        return _of_bytes(Constant(shape=(count,), dtype="uint8", data=stored), shape, dtype)
    if dtype in FOUR_BITS:
        # in the field for numbers two bytes may lie in one
        given, wanted = len(proto.raw_data) or len(proto.int32_data), ceil_div(prod(shape), 2)
        if given != wanted:
            raise fail("its bytes do not fit its shape", "invalid_tensor", given, wanted)
    if proto.data_type not in _TYPES:
        if is_external or span is not None:
            raise fail("large data of this element type is not supported", "unsupported_dtype", dtype, "inline data")
        return Constant(shape=shape, dtype=dtype, data=Opaque(tensor=proto.SerializeToString(deterministic=True)))
    expected = prod(shape) * element_bytes(dtype)
    if is_external:
        return Constant(shape=shape, dtype=dtype, data=_external(proto, expected, files, fail))
    if span is not None:
        if span[1] != expected:
            raise fail("its bytes do not fit its shape", "invalid_tensor", span[1], expected)
        return Constant(shape=shape, dtype=dtype, data=Stored(offset=span[0], size_bytes=span[1]))
    if proto.raw_data:
        if len(proto.raw_data) != expected:
            raise fail("its bytes do not fit its shape", "invalid_tensor", len(proto.raw_data), expected)
        return Constant(shape=shape, dtype=dtype, data=Literal(data=proto.raw_data))
    # ONNX Runtime ignores other fields too
    count = len(getattr(proto, onnx.helper.tensor_dtype_to_field(proto.data_type)))
    if count != prod(shape):
        raise fail("its values do not fit its shape", "invalid_tensor", f"{count} values", f"{prod(shape)} values")
    try:
        array = numpy_helper.to_array(proto)
    except (ValueError, TypeError, OverflowError) as error:
        raise fail("its values do not fit its type", "invalid_tensor", str(error), expected) from None
    return Constant(shape=shape, dtype=dtype, data=Literal(data=array.tobytes()))


def sparse_constant_of(proto: onnx.SparseTensorProto, *, node: str | None, what: str) -> Constant:
    """The description of a sparse constant: its nonzero elements and their positions.

    Raises ModelError if values, indices and shape do not fit together, LimitError for a constant that is too large.
    """
    shape = tuple(int(extent) for extent in proto.dims)
    values = constant_of(proto.values, span=None, node=node, what=what)
    indices = constant_of(proto.indices, span=None, node=node, what=f"{what}, its indices")

    def fail(message: str, actual: object, limit: object) -> ModelError:
        return ModelError(
            f"{what}: {message}", code="invalid_tensor", stage="import", node=node, actual=actual, limit=limit
        )

    if any(isinstance(part.data, Opaque) for part in (values, indices)) or not indices.dtype.startswith("int"):
        raise fail("its sparse form is not supported", f"{values.dtype} at {indices.dtype}", "numbers at integers")
    size = prod(shape) * element_bytes(values.dtype)
    if size > MAX_COMPUTED_BYTES:
        raise LimitError(
            f"{what} is too large for a sparse tensor",
            code="tensor_too_large",
            stage="import",
            node=node,
            actual=f"{size} bytes in {shape}",
            limit=f"{MAX_COMPUTED_BYTES} bytes",
        )
    count = prod(values.shape)
    if len(values.shape) != 1 or indices.shape not in ((count,), (count, len(shape))):
        raise fail("its indices do not fit its values", indices.shape, f"{(count,)} or {(count, len(shape))}")
    assert isinstance(indices.data, Literal)
    places = np.frombuffer(indices.data.data, dtype=numpy_dtype(indices.dtype)).reshape(indices.shape).astype(np.int64)
    ends = np.array(shape if places.ndim == 2 else prod(shape))
    if np.any((places < 0) | (places >= ends)):
        raise fail("an index is out of range", f"{places.min()} to {places.max()}", f"0 to below {ends.tolist()}")
    if places.ndim == 2:
        places = np.ravel_multi_index(tuple(places.T), shape) if shape else np.zeros(count, np.int64)
    return derive("sparse", (values, literal(places, "int64")), shape, {"elements": prod(shape)})


def _external(
    proto: onnx.TensorProto, expected: int, files: Mapping[str, Buffer], fail: Callable[..., ModelError]
) -> Stored:
    """The position of external data, always inside the upload and inside its file (IMPORT-4)."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    path = safe_path(location, what="the location of external data")
    if path not in files:
        there = ", ".join(sorted(files)[:5]) or "nothing: the model came alone"
        raise fail(
            f"its data is in file {printable(path, 120)!r}, which did not come with the model",
            "external_data",
            printable(path, 120),
            f"a file that came with the model ({printable(there, 200)})",
        )
    numbers = {}
    for key, default in (("offset", 0), ("length", expected)):
        text = entries.get(key, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
            raise fail(f"the {key} of its external data is no number of bytes", "external_data", text, "0 or more")
        numbers[key] = int(text)
    size = len(files[path])
    if numbers["length"] != expected:
        raise fail(
            "the length of its external data does not fit its shape", "external_data", numbers["length"], expected
        )
    if numbers["offset"] + expected > size:
        raise fail(
            f"its external data goes beyond the end of file {printable(path, 120)!r}",
            "external_data",
            f"bytes {numbers['offset']} to {numbers['offset'] + expected}",
            f"{size} bytes",
        )
    return Stored(offset=numbers["offset"], size_bytes=expected, file=path)


_DIGITS: Final = 18


def _of_bytes(stored: Constant, shape: tuple[int, ...], dtype: str) -> Constant:
    """A constant of 4 bits from its bytes."""
    signed = int(dtype == "int4")
    return derive(UNPACK, (stored,), shape, {"elements": prod(shape), "signed": signed}, dtype)


def in_eight_bits(constant: Constant) -> Constant:
    """A 4-bit constant as an 8-bit one for which `is_packed` holds; any other constant unchanged."""
    if constant.dtype not in FOUR_BITS:
        return constant
    if isinstance(constant.data, Opaque):
        proto = onnx.TensorProto.FromString(constant.data.tensor)
        values = np.asarray(onnx.numpy_helper.to_array(proto)).astype(np.int8).reshape(-1) & 15
        pairs = packed(np.pad(values, (0, values.size % 2)))
        constant = _of_bytes(literal(pairs, "uint8"), constant.shape, constant.dtype)
    return replace(constant, dtype="int8" if constant.dtype == "int4" else "uint8")


def is_packed(constant: Constant) -> bool:
    """True for a constant of 8 bits that is stored in 4."""
    return isinstance(constant.data, Derived) and constant.data.function == UNPACK


def packed_bytes(constant: Constant, source: ModelSource) -> bytes:
    """The bytes of a constant that `is_packed`, as they are stored."""
    assert isinstance(constant.data, Derived)
    return materialise(constant.data.inputs[0], source).tobytes()


def literal(array: Array, dtype: str) -> Constant:
    """A constant that holds an array's values."""
    return Constant(
        shape=tuple(array.shape),
        dtype=dtype,
        data=Literal(data=np.ascontiguousarray(array, dtype=numpy_dtype(dtype)).tobytes()),
    )


def materialise(constant: Constant, source: ModelSource) -> Array:
    """The values of a constant as a read-only array; splats and stored weights are views, not copies.

    Inputs that several descriptions share are computed once.
    """
    if not constant.inputs:
        return _values_of(constant, source, ())
    known: dict[bytes, Array] = {}
    # what a description consists of comes first, without a call in a call: some have hundreds of levels
    pending = [constant]
    while True:
        its = pending[-1]
        missing = [part for part in its.inputs if part.digest not in known]
        if missing:
            pending += missing
            continue
        found = known[its.digest] = _values_of(its, source, tuple(known[part.digest] for part in its.inputs))
        pending.pop()
        if not pending:
            return found


def _values_of(constant: Constant, source: ModelSource, inputs: tuple[Array, ...]) -> Array:
    """The values of a constant, those of a derived one from its inputs'."""
    data = constant.data
    if isinstance(data, Opaque):
        raise InternalError(f"values of type {constant.dtype} are the host's alone", stage="import")
    dtype = numpy_dtype(constant.dtype)
    if isinstance(data, Splat):
        return np.broadcast_to(np.frombuffer(data.value, dtype=dtype)[0], constant.shape)
    if isinstance(data, Stored):
        buffer = source.view(data.offset, data.size_bytes, data.file)
        return np.frombuffer(buffer, dtype=dtype).reshape(constant.shape)
    if isinstance(data, Literal):
        return np.frombuffer(data.data, dtype=dtype).reshape(constant.shape)
    function = _DERIVED.get(data.function)
    values = dict(data.attributes)
    result = by_definition(constant, data, inputs) if function is None else function(inputs, values)
    return result.astype(dtype, copy=False).reshape(constant.shape)


def derive(
    function: str,
    inputs: tuple[Constant, ...],
    shape: tuple[int, ...],
    attributes: Mapping[str, Attribute] = MappingProxyType({}),
    dtype: str | None = None,
) -> Constant:
    """A constant computed from others on demand; `function` is an op kind or a function of this module."""
    return Constant(
        shape=shape,
        dtype=dtype or inputs[0].dtype,
        data=Derived(function=function, inputs=inputs, attributes=tuple(sorted(attributes.items()))),
    )


def _channel_scale(scale: Array, variance: Array, epsilon: float) -> NDArray[np.float64]:
    # in double precision, so that the folded convolution differs from the two ops by float32 rounding only
    return np.asarray(scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon))


def _batchnorm_weight(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    weight, scale, variance = inputs
    factor = _channel_scale(scale, variance, attributes["epsilon"]).reshape(-1, *(1,) * (weight.ndim - 1))
    # each product is rounded as it is made: all of them in double precision would not stay in the cache
    result = np.empty(weight.shape, dtype=weight.dtype)
    return np.multiply(weight, factor, out=result, dtype=np.float64, casting="unsafe")


def _batchnorm_bias(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    scale, shift, mean, variance, *bias = inputs
    before = bias[0].astype(np.float64) if bias else 0.0
    factor = _channel_scale(scale, variance, attributes["epsilon"])
    return np.asarray(shift.astype(np.float64) + (before - mean.astype(np.float64)) * factor)


def _scattered(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    values, places = inputs
    result = np.zeros(attributes["elements"], dtype=values.dtype)
    result[places] = values
    return result


def _unpacked(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    """Numbers of 4 bits, two in a byte, as many as `elements`."""
    numbers = unpacked(inputs[0])[: attributes["elements"]].astype(np.int8)
    return (
        np.where(numbers < HALF_OF_FOUR_BITS, numbers, numbers - 2 * HALF_OF_FOUR_BITS)
        if attributes["signed"]
        else numbers
    )


def _packed(inputs: tuple[Array, ...], attributes: Mapping[str, Any]) -> Array:
    """Numbers plus `add`, filled up to so many (`count`) along the last axis, two in a byte."""
    numbers = inputs[0].astype(np.int16) + attributes["add"]
    fill = attributes["count"] - numbers.shape[-1]
    return packed(np.pad(numbers, (*((0, 0) for _ in numbers.shape[1:]), (0, fill))))


_DERIVED: Final[Mapping[str, Callable[[tuple[Array, ...], Mapping[str, Any]], Array]]] = MappingProxyType(
    {
        "batchnorm_weight": _batchnorm_weight,
        "batchnorm_bias": _batchnorm_bias,
        "sparse": _scattered,
        UNPACK: _unpacked,
        PACK: _packed,
    }
)
