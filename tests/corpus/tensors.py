"""Constants whose bytes, fields and shape disagree, dense and sparse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import onnx
from onnx import TensorProto, helper

from tests.corpus.build import edited, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

Change = Callable[[onnx.ModelProto], object]
_TYPES: Final = "unsupported_dtype invalid_model invalid_type"
_TENSOR: Final = "invalid_tensor invalid_shape tensor_too_large"


def _weight(**fields: object) -> Change:
    """Replace the convolution's weight by a tensor of the given fields."""

    def change(proto: onnx.ModelProto) -> None:
        proto.graph.initializer[0].CopyFrom(TensorProto(**{"name": "w", "data_type": 1, **fields}))  # type: ignore[arg-type]

    return change


def _constant_node(**fields: object) -> Build:
    """A Constant of a malformed tensor."""

    def fill(model: Model) -> None:
        value = TensorProto(**fields)  # type: ignore[arg-type]
        x = model.input([4])
        model.output(model.node("Add", [x, model.node("Constant", [], name="node", value=value)]))

    return written(fill)


def _sparse(dims: Sequence[int], indices: Sequence[int], values: Sequence[float], index_dims: Sequence[int]) -> Build:
    """The weight `w` as a sparse initialiser added to the input."""

    def fill(model: Model) -> None:
        model.output(model.node("Add", [model.input([4]), "w"], name="node"))

    def change(proto: onnx.ModelProto) -> None:
        sparse = proto.graph.sparse_initializer.add(dims=dims)
        sparse.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [len(values)], values))
        sparse.indices.CopyFrom(TensorProto(dims=index_dims, data_type=TensorProto.INT64, int64_data=indices))

    return edited(change, fill)


_WEIGHT_BYTES: Final = 4 * 3 * 3 * 3 * 4
_SHAPE: Final = (4, 3, 3, 3)

TENSORS: Final = (
    case(
        "bytes-shorter-than-the-shape",
        edited(_weight(dims=_SHAPE, raw_data=bytes(_WEIGHT_BYTES - 4))),
        reject(_TENSOR, "w"),
        "a short weight",
    ),
    case(
        "bytes-longer-than-the-shape",
        edited(_weight(dims=_SHAPE, raw_data=bytes(_WEIGHT_BYTES + 4))),
        reject(_TENSOR, "w"),
        "a long weight",
    ),
    case(
        "bytes-that-are-no-whole-element",
        edited(_weight(dims=_SHAPE, raw_data=bytes(_WEIGHT_BYTES - 1))),
        reject(_TENSOR, "w"),
        "a torn element",
    ),
    case(
        "floats-fewer-than-the-shape",
        edited(_weight(dims=_SHAPE, float_data=[0.0] * 107)),
        reject(_TENSOR, "w"),
        "short",
    ),
    case(
        "floats-more-than-the-shape", edited(_weight(dims=_SHAPE, float_data=[0.0] * 109)), reject(_TENSOR, "w"), "long"
    ),
    case(
        "bytes-and-floats",
        edited(_weight(dims=_SHAPE, raw_data=bytes(_WEIGHT_BYTES), float_data=[1.0] * 108)),
        accept(),
        "two sets of values: ONNX Runtime reads the bytes",
    ),
    case(
        "integers-in-a-tensor-of-floats",
        edited(_weight(dims=_SHAPE, int32_data=[1] * 108)),
        reject(_TENSOR, "w"),
        "values in the field of another type",
    ),
    case(
        "text-in-a-tensor-of-floats",
        edited(_weight(dims=_SHAPE, string_data=[b"1"] * 108)),
        reject(_TENSOR, "w"),
        "text",
    ),
    case("a-tensor-without-data", edited(_weight(dims=_SHAPE)), reject(_TENSOR, "w"), "a shape and no values"),
    case(
        "a-tensor-without-data-of-huge-dims",
        edited(_weight(dims=[2**31, 2**31])),
        reject(_TENSOR, "w"),
        "and a huge shape",
    ),
    case(
        "a-tensor-of-dims-that-overflow",
        edited(_weight(dims=[2**62, 8], raw_data=bytes(64))),
        reject(_TENSOR, "w"),
        "a product that is 0 in 64 bits",
    ),
    case(
        "a-tensor-of-dims-that-overflow-to-the-size",
        edited(_weight(dims=[2**32 + 1, 2**32, 1], raw_data=bytes(4))),
        reject(_TENSOR, "w"),
        "a product that fits in 64 bits only when wrapped",
    ),
    case(
        "a-tensor-of-a-negative-dim",
        edited(_weight(dims=[-4, 3, 3, 3], raw_data=bytes(_WEIGHT_BYTES))),
        reject(_TENSOR, "w"),
        "a negative extent",
    ),
    case(
        "a-tensor-of-two-negative-dims",
        edited(_weight(dims=[-4, -3, 3, 3], raw_data=bytes(_WEIGHT_BYTES))),
        reject(_TENSOR, "w"),
        "negative extents whose product is right",
    ),
    case(
        "a-tensor-of-type-0",
        edited(_weight(dims=_SHAPE, data_type=0, raw_data=bytes(432))),
        reject(f"{_TYPES} invalid_tensor", "w"),
        "an undefined type",
    ),
    case(
        "a-tensor-of-type-9999",
        edited(_weight(dims=_SHAPE, data_type=9999, raw_data=bytes(432))),
        reject(f"{_TYPES} invalid_tensor", "w"),
        "a type of no version",
    ),
    case(
        "a-tensor-of-another-type",
        edited(_weight(dims=_SHAPE, data_type=7, raw_data=bytes(864))),
        reject(f"{_TYPES} invalid_tensor", "conv"),
        "an integer weight for a float input",
    ),
    case(
        "a-tensor-in-segments",
        edited(lambda p: p.graph.initializer[0].segment.CopyFrom(TensorProto.Segment(begin=0, end=9))),
        either("invalid_tensor invalid_model"),
        "a part of a tensor, never used by anyone",
    ),
    case(
        "a-tensor-of-65-axes",
        edited(_weight(dims=[1] * 65, float_data=[1.0])),
        reject(f"{_TENSOR} invalid_model", "w"),
        "more axes than arrays can have",
    ),
    case(
        "a-tensor-of-100000-axes",
        edited(_weight(dims=[1] * 100_000, float_data=[1.0])),
        reject(f"{_TENSOR} invalid_model", "w"),
        "far more axes",
    ),
    case(
        "text-as-bytes",
        edited(_weight(dims=[2], data_type=8, raw_data=b"abcd")),
        reject(f"{_TYPES} invalid_tensor", "w"),
        "text has no bytes form",
    ),
    case(
        "weights-of-nan",
        edited(_weight(dims=_SHAPE, float_data=[float("nan")] * 108)),
        accept(),
        "values are not judged",
    ),
    case(
        "half-a-byte-too-few",
        edited(_weight(dims=[3], data_type=TensorProto.INT4, raw_data=b"a")),
        reject(f"{_TYPES} {_TENSOR}", "w"),
        "three half bytes in one byte",
    ),
    case(
        "a-constant-of-huge-dims",
        _constant_node(name="t", data_type=1, dims=[2**40, 2**40], raw_data=bytes(16)),
        reject(_TENSOR, "node"),
        "an attribute of a huge shape",
    ),
    case(
        "a-constant-of-huge-dims-and-no-data",
        _constant_node(name="t", data_type=1, dims=[2**33]),
        reject(_TENSOR, "node"),
        "32 GiB that are not there",
    ),
    case(
        "a-constant-of-a-short-tensor",
        _constant_node(data_type=1, dims=[4], raw_data=bytes(12)),
        reject(_TENSOR, "node"),
        "an attribute of too few bytes",
    ),
    case("a-constant-of-an-empty-tensor-message", _constant_node(), reject(f"{_TENSOR} {_TYPES}", "node"), "no fields"),
)

_SPARSE: Final = f"{_TENSOR} invalid_model"
SPARSE: Final = (
    case("a-sparse-weight", _sparse([4], [1, 3], [1.0, 2.0], [2]), accept(), "legal"),
    case(
        "a-sparse-weight-of-2-to-the-36-zeros", _sparse([2**36], [5], [1.0], [1]), reject(_SPARSE), "256 GiB of zeros"
    ),
    case(
        "a-sparse-weight-of-huge-dims", _sparse([2**40, 2**20], [0, 1], [1.0, 2.0], [2]), reject(_SPARSE), "2^60 zeros"
    ),
    case("a-sparse-weight-of-overflowing-dims", _sparse([2**62, 8], [0], [1.0], [1]), reject(_SPARSE), "0 in 64 bits"),
    case("a-sparse-weight-of-negative-dims", _sparse([-4], [0], [1.0], [1]), reject(_SPARSE), "a negative extent"),
    case("a-sparse-weight-of-indices-beyond", _sparse([4], [9], [1.0], [1]), reject(_SPARSE), "an index out of range"),
    case("a-sparse-weight-of-negative-indices", _sparse([4], [-1], [1.0], [1]), reject(_SPARSE), "a negative index"),
    case(
        "a-sparse-weight-of-unsorted-indices",
        _sparse([4], [3, 1], [1.0, 2.0], [2]),
        accept(),
        "ONNX wants order",
    ),
    case(
        "a-sparse-weight-of-too-few-indices",
        _sparse([4], [1], [1.0, 2.0], [1]),
        reject(_SPARSE),
        "values without a place",
    ),
    case(
        "a-sparse-weight-of-strange-indices",
        _sparse([4], [1, 2], [1.0, 2.0], [2, 5]),
        reject(_SPARSE),
        "indices of rank 2",
    ),
)

CASES: Final[tuple[Case, ...]] = (*TENSORS, *SPARSE)
