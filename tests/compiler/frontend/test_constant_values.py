"""Constants: every way in which ONNX stores values gives the values that the onnx package reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import InternalError, ModelError
from compiler.frontend.constant_values import (
    ONNX_CODES,
    constant_of,
    derive,
    element_type,
    literal,
    materialise,
    type_label,
)
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Derived, Literal, Opaque, Splat, Stored
from compiler.units import DTYPE_NAMES, element_bytes, numpy_dtype

EMPTY = ModelSource.from_bytes(b"")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "code",
    [
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
        TensorProto.INT8,
        TensorProto.UINT8,
        TensorProto.INT16,
        TensorProto.UINT16,
        TensorProto.INT32,
        TensorProto.UINT32,
        TensorProto.INT64,
        TensorProto.UINT64,
        TensorProto.BOOL,
    ],
)
def test_values_are_those_that_the_onnx_package_reads(code: int, raw: bool) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    values = np.array([[0, 1, 2], [3, 1, 0]]).astype(dtype)
    proto = numpy_helper.from_array(values, "w") if raw else helper.make_tensor("w", code, (2, 3), values.ravel())
    constant = constant_of(proto, span=None, node=None, what="w")
    found = materialise(constant, EMPTY)
    assert found.dtype == dtype
    assert found.tolist() == numpy_helper.to_array(proto).tolist()


def test_bfloat16_values_are_those_of_their_bit_patterns() -> None:
    proto = helper.make_tensor("w", TensorProto.BFLOAT16, (2,), [1.0, -2.0])
    constant = constant_of(proto, span=None, node=None, what="w")
    assert constant.dtype == "bfloat16"
    found = materialise(constant, EMPTY)
    assert found.astype(np.float32).tolist() == [1.0, -2.0]
    assert found.view(np.uint16).tolist() == [0x3F80, 0xC000]


def test_stored_values_are_a_view_of_the_file() -> None:
    data = b"head" + np.arange(6, dtype=np.float32).tobytes()
    constant = Constant(shape=(2, 3), dtype="float32", data=Stored(offset=4, size_bytes=24))
    found = materialise(constant, ModelSource.from_bytes(data))
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(found, np.frombuffer(data, dtype=np.uint8))


def test_a_splat_takes_no_space() -> None:
    constant = Constant(shape=(1 << 20, 1 << 10), dtype="int8", data=Splat(value=b"\x07"))
    found = materialise(constant, EMPTY)
    assert found.strides == (0, 0)
    assert int(found[-1, -1]) == 7


def test_a_literal_keeps_values_of_arrays_that_are_not_contiguous() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    assert materialise(literal(values, "float32"), EMPTY).tolist() == values.tolist()


def test_derived_values_come_from_other_constants() -> None:
    base = literal(np.arange(6, dtype=np.float32).reshape(2, 3), "float32")
    turned = derive("Transpose", (base,), (3, 2), {"perm": (1, 0)})
    assert materialise(turned, EMPTY).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert materialise(derive("Reshape", (turned,), (6,)), EMPTY).tolist() == [0, 3, 1, 4, 2, 5]


def test_inputs_that_descriptions_share_are_computed_once() -> None:
    """Otherwise sixty sums of a constant with itself would be two to the power of sixty sums."""
    constant = literal(np.array([1.0, 3.0], dtype=np.float32), "float32")
    for _ in range(60):
        constant = derive("Add", (constant, constant), (2,))
    assert materialise(constant, EMPTY).tolist() == [2.0**60, 3 * 2.0**60]


def test_digests_are_those_of_equal_values() -> None:
    def padded(value: float) -> Constant:
        base = literal(np.zeros(2, dtype=np.float32), "float32")
        return derive("Pad", (base,), (4,), {"value": value})

    assert padded(0.0).digest == padded(0.0).digest
    # equal as numbers, but not the same bits
    assert padded(0.0) == padded(-0.0)
    assert padded(0.0).digest != padded(-0.0).digest
    found = {
        Constant(shape=(1,), dtype="int32", data=data).digest
        for data in (
            Splat(value=b"abcd"),
            Literal(data=b"abcd"),
            Stored(offset=0, size_bytes=4),
            Opaque(tensor=b"abcd"),
        )
    }
    assert len(found) == 4


def test_derived_values_have_the_type_that_is_asked_for() -> None:
    base = literal(np.array([1.5, -2.5], dtype=np.float32), "float32")
    cast = derive("Cast", (base,), (2,), {"to": "int8"}, "int8")
    found = materialise(cast, EMPTY)
    assert (found.dtype.name, found.tolist()) == ("int8", [1, -2])


def test_an_unknown_derivation_is_our_fault() -> None:
    constant = Constant(shape=(), dtype="float32", data=Derived(function="magic", inputs=()))
    with pytest.raises(InternalError, match="magic"):
        materialise(constant, EMPTY)


@pytest.mark.parametrize("code", [TensorProto.UNDEFINED, 99, -1])
def test_an_element_type_that_does_not_exist_is_named_with_those_that_do(code: int) -> None:
    with pytest.raises(ModelError) as caught:
        element_type(code, node="n", what="input 'x'")
    error = caught.value
    assert (error.code, error.node, error.actual) == ("unsupported_dtype", "n", f"type code {code}")
    assert "float32" in str(error.limit)


@pytest.mark.parametrize("code", sorted(set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}))
def test_every_element_type_of_onnx_has_one_name(code: int) -> None:
    name = element_type(code, node=None, what="input 'x'")
    assert ONNX_CODES[name] == code
    assert type_label(code) == name


def test_a_constant_of_a_type_that_only_the_host_understands_is_kept_as_it_is() -> None:
    """IMPORT-6: text passes through to the host."""
    proto = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"b"])
    constant = constant_of(proto, span=None, node=None, what="w")
    assert (constant.dtype, constant.shape) == ("string", (2,))
    assert isinstance(constant.data, Opaque)
    assert TensorProto.FromString(constant.data.tensor) == proto
    with pytest.raises(InternalError, match="string"):
        materialise(constant, EMPTY)


def test_external_values_are_a_view_of_the_file_beside_the_model() -> None:
    weights = b"head" + np.arange(4, dtype=np.float32).tobytes()
    source = ModelSource.from_buffer(b"model", files={"data/w.bin": weights})
    constant = constant_of(
        external(location="./data/w.bin", offset="4"), span=None, node=None, what="w", files=source.files
    )
    assert constant.data == Stored(offset=4, size_bytes=16, file="data/w.bin")
    found = materialise(constant, source)
    assert found.tolist() == [0, 1, 2, 3]
    assert np.shares_memory(found, np.frombuffer(weights, dtype=np.uint8))


def test_descriptions_of_many_levels_are_computed() -> None:
    """No call in a call for each of them, for values and for digests."""
    its = Constant(shape=(2,), dtype="float32", data=Literal(data=np.array([1, 2], dtype=np.float32).tobytes()))
    for _ in range(2001):
        its = Constant(shape=(2,), dtype="float32", data=Derived(function="Neg", inputs=(its,), attributes=()))
    assert materialise(its, ModelSource(name="m", data=b"", sha256="")).tolist() == [-1, -2]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({"location": "/etc/passwd"}, "external_data_path"),
        ({"location": "../w.bin"}, "external_data_path"),
        ({"location": "a/../../w.bin"}, "external_data_path"),
        ({"location": "C:w.bin"}, "external_data_path"),
        ({"location": "a\\w.bin"}, "external_data_path"),
        ({"location": ""}, "external_data_path"),
        ({"location": "."}, "external_data_path"),
        ({}, "external_data_path"),
        ({"location": "other.bin"}, "external_data"),
        ({"location": "w.bin", "offset": "5"}, "external_data"),
        ({"location": "w.bin", "offset": "-1"}, "external_data"),
        ({"location": "w.bin", "offset": "+1"}, "external_data"),
        ({"location": "w.bin", "offset": " 1"}, "external_data"),
        ({"location": "w.bin", "offset": "²"}, "external_data"),
        ({"location": "w.bin", "offset": "9" * 19}, "external_data"),
        ({"location": "w.bin", "length": "15"}, "external_data"),
        ({"location": "w.bin", "length": "17"}, "external_data"),
    ],
)
def test_external_data_that_is_not_in_the_upload_is_refused(entries: dict[str, str], code: str) -> None:
    """IMPORT-4: short, with bad or negative offsets, or outside."""
    with pytest.raises(ModelError) as caught:
        constant_of(external(**entries), span=None, node="n", what="w", files={"w.bin": bytes(20)})
    assert caught.value.code == code


def external(**entries: str) -> onnx.TensorProto:
    """Four float32 values in a file beside the model."""
    proto = onnx.TensorProto(dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        proto.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return proto


@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_element_sizes_agree_with_numpy(name: str) -> None:
    assert element_bytes(name) == numpy_dtype(name).itemsize


def test_stored_spans_that_do_not_fit_the_shape_are_refused() -> None:
    proto = onnx.TensorProto(dims=[4], data_type=TensorProto.FLOAT)
    with pytest.raises(ModelError) as caught:
        constant_of(proto, span=(0, 15), node=None, what="initializer 'w'")
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("invalid_tensor", 15, 16)
