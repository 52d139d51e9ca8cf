"""Dimensions from the shapes of inputs, and what is refused by name (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compiler.errors import RequestError
from compiler.ir.symbol import Dim, expression_of
from compiler.shapes.extents import InputShape, Range, check_dims, dims_of, parse_shapes

RANGES = {"batch": Range(low=1, high=8), "rows": Range(low=3, high=12, step=3)}
TWICE = expression_of(2 * Dim.symbol("rows", 12))
BATCH, ROWS = (expression_of(Dim.symbol(name, one.high)) for name, one in RANGES.items())
OTHERS = expression_of(Dim.symbol("others", 5))
assert TWICE is not None
assert OTHERS is not None
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


def test_extents_are_checked_whichever_input_gives_their_dimensions() -> None:
    """An axis of 2*rows before the input that says how many rows there are."""
    backwards = tuple(reversed(INPUTS))
    assert dims_of(backwards, RANGES, GOOD, partial=False) == {"batch": 2, "rows": 6}
    with pytest.raises(RequestError) as caught:
        dims_of(backwards, RANGES, {**GOOD, "wide": (14,)}, partial=False)
    assert caught.value.code == "extent_out_of_range"
    assert "'wide'" in caught.value.message


UNREAD = InputShape(name="spare", dtype="float32", extents=(BATCH, OTHERS), is_read=False)


def test_inputs_that_no_op_needs_are_accepted_and_may_be_left_out() -> None:
    """Dimensions that they share with others are checked; of their own nobody knows a range."""
    inputs = (*INPUTS, UNREAD)
    assert dims_of(inputs, RANGES, GOOD, partial=False) == {"batch": 2, "rows": 6}
    assert dims_of(inputs, RANGES, {**GOOD, "spare": (2, 99)}, partial=False) == {"batch": 2, "rows": 6}
    with pytest.raises(RequestError) as caught:
        dims_of(inputs, RANGES, {**GOOD, "spare": (3, 99)}, partial=False)
    assert caught.value.code == "contradicting_extents"


def test_shapes_are_read_from_words() -> None:
    found = parse_shapes(["x:1x3", "a:b:7", "one:"], INPUTS, RANGES)
    assert found == {"x": (1, 3), "a:b": (7,), "one": ()}
    for word in ("x", ":3", "x:1x", "x:٣", "x:1e3", "x:-", "x:9999999999999999999"):
        with pytest.raises(RequestError) as caught:
            parse_shapes([word], INPUTS, RANGES)
        assert (caught.value.code, caught.value.actual) == ("invalid_shape", word)
        assert "x[batch, 4, rows]" in str(caught.value.limit)
        assert "rows = 3 to 12 in steps of 3" in str(caught.value.limit)
        assert "up to 18 digits" in caught.value.message
    with pytest.raises(RequestError, match="two shapes"):
        parse_shapes(["x:1", "x:1"], INPUTS, RANGES)


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
