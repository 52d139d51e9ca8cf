"""Dimensions from the shapes of inputs, and what is refused by name (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compiler.errors import RequestError
from compiler.ir.symbol import Dim, expression_of
from compiler.shapes.extents import InputShape, Range, check_dims, dims_of

RANGES = {"batch": Range(low=1, high=8), "rows": Range(low=3, high=12, step=3)}
TWICE = expression_of(2 * Dim.symbol("rows", 12))
BATCH, ROWS = (expression_of(Dim.symbol(name, one.high)) for name, one in RANGES.items())
assert TWICE is not None
assert BATCH is not None
assert ROWS is not None
INPUTS = (
    InputShape(name="x", dtype="float32", extents=(BATCH, 4, ROWS)),
    InputShape(name="mask", dtype="bool", extents=(BATCH, ROWS)),
    InputShape(name="wide", dtype="float32", extents=(TWICE,)),
)
GOOD: dict[str, Sequence[int]] = {"x": (2, 4, 6), "mask": (2, 6), "wide": (12,)}


def test_shapes_of_inputs_give_the_dimensions() -> None:
    assert dims_of(INPUTS, RANGES, GOOD, partial=False) == {"batch": 2, "rows": 6}


def test_inputs_may_be_left_out_whose_dimensions_others_give() -> None:
    assert dims_of(INPUTS, RANGES, {"mask": (8, 3)}, partial=True) == {"batch": 8, "rows": 3}


@pytest.mark.parametrize(
    ("given", "code", "names"),
    [
        ({**GOOD, "y": (1,)}, "unknown_input", ["'y'", "x, mask, wide"]),
        ({**GOOD, "x": (2, 4)}, "wrong_rank", ["'x'", "2x4"]),
        ({**GOOD, "x": (2, 4, 6, 1)}, "wrong_rank", ["'x'", "batch = 1 to 8"]),
        ({**GOOD, "x": (0, 4, 6)}, "extent_out_of_range", ["axis 0", "'x'", "0x4x6"]),
        ({**GOOD, "x": (2, 4, -6)}, "extent_out_of_range", ["axis 2", "2x4x-6"]),
        ({**GOOD, "x": (9, 4, 6)}, "extent_out_of_range", ["'batch'", "9", "1 to 8"]),
        ({**GOOD, "x": (2, 4, 7), "mask": (2, 7)}, "extent_out_of_range", ["'rows'", "7", "in steps of 3"]),
        ({**GOOD, "x": (2, 5, 6)}, "extent_out_of_range", ["axis 1", "2x5x6"]),
        ({**GOOD, "mask": (3, 6)}, "contradicting_extents", ["'batch'", "2 and 3"]),
        ({**GOOD, "mask": (2, 9)}, "contradicting_extents", ["'rows'", "6 and 9"]),
        ({**GOOD, "wide": (13,)}, "extent_out_of_range", ["axis 0", "'wide'", "13"]),
        ({"x": (2, 4, 6), "wide": (12,)}, "missing_input", ["'mask'"]),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Sequence[int]], code: str, names: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        dims_of(INPUTS, RANGES, given, partial=False)
    assert caught.value.code == code
    assert all(name in str(caught.value) for name in names), str(caught.value)


def test_a_dimension_that_no_given_input_has_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        dims_of(INPUTS, RANGES, {}, partial=True)
    assert caught.value.code == "missing_dimension"
    assert "'batch'" in caught.value.message


@pytest.mark.parametrize(
    ("dims", "code"),
    [
        ({"batch": 1, "rows": 3, "columns": 2}, "unknown_dimension"),
        ({"batch": 0, "rows": 3}, "extent_out_of_range"),
        ({"batch": 1, "rows": 4}, "extent_out_of_range"),
        ({"batch": 1}, "missing_dimension"),
    ],
)
def test_dimensions_by_name_are_checked(dims: dict[str, int], code: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_dims(dims, RANGES)
    assert caught.value.code == code


def test_names_of_inputs_are_shown_escaped() -> None:
    with pytest.raises(RequestError) as caught:
        dims_of(INPUTS, RANGES, {"\x1b[31m<b>": (1,)}, partial=True)
    assert "\x1b" not in str(caught.value)
