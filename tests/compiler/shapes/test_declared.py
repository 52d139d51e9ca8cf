"""IMPORT-10: dynamic dimensions take their values from the shapes in a request."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from compiler.errors import RequestError
from compiler.options import DimRange, Options
from compiler.shapes.declared import dims_from_arrays, dims_from_words
from tests.models import Model


def graph() -> onnx.GraphProto:
    model = Model()
    x, mask = model.input(["batch", 3, "rows"], "x"), model.input([None, "rows"], "mask")
    model.inputs.append(onnx.helper.make_tensor_value_info("scale", onnx.TensorProto.FLOAT, ["parts"]))
    model.constant(np.ones(4, np.float32), "scale")
    model.output(model.node("Add", [x, mask]))
    return model.proto().graph


def test_dimensions_take_the_extents_that_shapes_show() -> None:
    assert dims_from_words(graph(), Options(), ["x:2x3x7", "mask:5x7"]) == {"batch": 2, "rows": 7, "mask.0": 5}


def test_what_option_dims_gives_stays_and_the_rest_is_taken_from_shapes() -> None:
    options = Options(dims={"batch": 2, "rows": DimRange(min=4, max=8)})
    assert dims_from_words(graph(), options, ["x:2x3x7", "mask:5x7"]) == {"mask.0": 5}


def test_a_dimension_that_no_given_shape_shows_is_left_out() -> None:
    assert dims_from_words(graph(), Options(), ["x:2x3x7"]) == {"batch": 2, "rows": 7}


def test_arrays_of_constants_and_of_settled_dimensions_are_left_to_who_takes_them() -> None:
    arrays = {"mask": np.zeros((5, 7)), "scale": np.zeros(9)}
    assert dims_from_arrays(graph(), Options(), arrays) == {"mask.0": 5, "rows": 7}
    settled = Options(dims={"batch": 1, "rows": 3, "mask.0": 1})
    assert dims_from_arrays(graph(), settled, arrays) == {}


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (["x:2x3x7", "mask:5x8"], "contradicting_extents", ["'rows'", "7 and 8"]),
        (["x:2x4x7"], "extent_out_of_range", ["axis 1", "'x'"]),
        (["x:2x3"], "wrong_rank", ["'x'"]),
        (["x:2x3x0"], "extent_out_of_range", ["axis 2"]),
        (["y:2x3x7"], "unknown_input", ["'y'", "x, mask"]),
        (["x:4x3x7"], "extent_out_of_range", ["'batch'", "actual 4", "limit 2"]),
        (["x:2x3x9"], "extent_out_of_range", ["'rows'", "4 to 8"]),
    ],
)
def test_a_shape_that_the_model_or_option_dims_excludes_is_refused(
    words: list[str], code: str, names: list[str]
) -> None:
    options = Options(dims={"batch": 2, "rows": DimRange(min=4, max=8)}) if code.startswith("extent") else Options()
    with pytest.raises(RequestError) as caught:
        dims_from_words(graph(), options, words)
    assert caught.value.code == code
    for name in names:
        assert name in str(caught.value)


def with_a_sum() -> onnx.GraphProto:
    model = Model()
    model.output(model.relu(model.input(["rows"], "x")))
    model.output(model.relu(model.input(["past", 2], "y")))
    model.output(model.relu(model.input(["past + rows + 1"], "mask")))
    model.output(model.relu(model.input(["past + others"], "z")))
    return model.proto().graph


def test_a_dimension_named_as_a_sum_of_others_is_none_of_its_own() -> None:
    shapes = ["x:3", "y:5x2", "mask:9", "z:7"]
    assert dims_from_words(with_a_sum(), Options(), shapes) == {"rows": 3, "past": 5, "past + others": 7}
    with pytest.raises(RequestError) as caught:
        dims_from_words(with_a_sum(), Options(), ["x:3", "y:5x2", "mask:8", "z:7"])
    assert "mask" in str(caught.value)


def test_an_extent_may_be_given_to_a_sum_by_its_name() -> None:
    options = Options(dims={"past + rows + 1": 1})
    assert dims_from_words(with_a_sum(), options, ["x:3", "mask:1"]) == {"rows": 3}
