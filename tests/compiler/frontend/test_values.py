"""Constants: every way in which ONNX stores values gives the values that the onnx package reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import InternalError, ModelError
from compiler.frontend.source import ModelSource
from compiler.frontend.values import constant_of, derive, element_type, literal, materialise
from compiler.ir.constant import Constant, Derived, Splat, Stored
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
    turned = derive("transpose", (base,), (3, 2), {"perm": (1, 0)})
    assert materialise(turned, EMPTY).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert materialise(derive("reshape", (turned,), (6,)), EMPTY).tolist() == [0, 3, 1, 4, 2, 5]


def test_an_unknown_derivation_is_our_fault() -> None:
    constant = Constant(shape=(), dtype="float32", data=Derived(function="magic", inputs=()))
    with pytest.raises(InternalError, match="magic"):
        materialise(constant, EMPTY)


def test_an_unknown_element_type_is_named_with_those_known() -> None:
    with pytest.raises(ModelError) as caught:
        element_type(TensorProto.COMPLEX64, node="n", what="input 'x'")
    assert (caught.value.code, caught.value.node, caught.value.actual) == ("unsupported_dtype", "n", "complex64")
    assert "float32" in str(caught.value.limit)


@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_element_sizes_agree_with_numpy(name: str) -> None:
    assert element_bytes(name) == numpy_dtype(name).itemsize


def test_stored_spans_that_do_not_fit_the_shape_are_refused() -> None:
    proto = onnx.TensorProto(dims=[4], data_type=TensorProto.FLOAT)
    with pytest.raises(ModelError) as caught:
        constant_of(proto, span=(0, 15), node=None, what="initializer 'w'")
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("invalid_tensor", 15, 16)
