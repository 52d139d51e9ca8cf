"""Extents that vary: integers at their maxima whose expressions say what they are elsewhere."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compiler.ir import symbol
from compiler.ir.symbol import (
    Dim,
    Expression,
    bounds_of,
    expression_of,
    greater,
    is_always_least,
    is_dropped,
    lesser,
    symbols_of,
)

NAMES = ("batch", "rows", "columns")
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
Tree = tuple[Any, ...]
values = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 40), min_size=3)
leaves = st.one_of(st.sampled_from(NAMES), st.integers(-9, 9))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(OPERATIONS)), inner, inner), st.tuples(st.just("neg"), inner)
    ),
    max_leaves=6,
)


def computed(tree: Any, names: dict[str, Any]) -> Any:
    """The tree's value, by whatever arithmetic the named values have."""
    if isinstance(tree, str):
        return names[tree]
    if isinstance(tree, int):
        return tree
    if tree[0] == "neg":
        return -computed(tree[1], names)
    return OPERATIONS[tree[0]](computed(tree[1], names), computed(tree[2], names))


def dims(maxima: dict[str, int]) -> dict[str, Dim]:
    """The names as extents with the given maxima."""
    return {name: Dim.symbol(name, extent) for name, extent in maxima.items()}


@given(trees, values, values)
def test_an_expression_gives_the_integer_that_plain_arithmetic_gives(
    tree: Any, maxima: dict[str, int], other: dict[str, int]
) -> None:
    """At the maxima the extent is that integer itself; elsewhere its expression gives it."""
    try:
        expected, elsewhere = computed(tree, dict(maxima)), computed(tree, dict(other))
    except ZeroDivisionError:
        assume(False)
    try:
        found = computed(tree, dict(dims(maxima)))
    except ZeroDivisionError:
        raise AssertionError("an extent divides by zero where the integer does not") from None
    assert int(found) == expected
    expression = expression_of(found)
    if expression is None:
        # what cancels out is a constant everywhere
        assert elsewhere == expected
    else:
        assert expression.value(maxima) == expected
        assert expression.value(other) == elsewhere


@given(trees, values)
def test_arithmetic_with_extents_gives_plain_integers_or_extents(tree: Any, maxima: dict[str, int]) -> None:
    """Nothing in between: an extent without an expression in symbols is an int."""
    try:
        found = computed(tree, dict(dims(maxima)))
    except ZeroDivisionError:
        assume(False)
    assert type(found) in (int, Dim)
    assert type(found) is int or expression_of(found) is not None or isinstance(tree, str)


@given(st.permutations([("batch", 2), ("rows", 3), ("columns", -1), ("rows", 4)]), st.integers(-5, 5))
def test_equal_sums_are_equal_objects_in_whatever_order_they_are_added(
    terms: list[tuple[str, int]], constant: int
) -> None:
    extents = dims({"batch": 7, "rows": 11, "columns": 5})
    total: Any = constant
    for name, factor in terms:
        total = total + extents[name] * factor
    assert expression_of(total) == expression_of(
        2 * extents["batch"] + 7 * extents["rows"] - extents["columns"] + constant
    )


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda n: n, "n"),
        (lambda n: 2 * n + 1, "2*n + 1"),
        (lambda n: 3 - n, "-n + 3"),
        (lambda n: (n - 1) // 2 + 1, "((n + 1) // (2))"),
        (lambda n: n // 2 // 2, "((n) // (4))"),
        (lambda n: (2 * n + 3) // 4, "((n + 1) // (2))"),
        (lambda n: (5 - n) // -4, "((n + 3) // (4)) - 2"),
        (lambda n: -(-n // 8), "-((-n) // (8))"),
        (lambda n: (8 - n % 8) % 8, "((-n) % (8))"),
        (lambda n: n + (8 - n % 8) % 8, "8*((n + 7) // (8))"),
        (lambda n: (4 * n + 6) // 4, "n + 1"),
        (lambda n: (n * n) // n, "n"),
        (lambda n: n % 8, "((n) % (8))"),
        (lambda n: n - n + 5, None),
        (lambda n: n // n, None),
        (lambda n: n * 0, None),
    ],
)
def test_expressions_are_short_where_they_can_be(build: Callable[[Any], Any], text: str | None) -> None:
    expression = expression_of(build(Dim.symbol("n", 12)))
    assert (None if expression is None else str(expression)) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda n: ((n - 1) // 2) // 2 + 1, lambda n: ((n - 1) // 2 + 1 - 1) // 2 + 1),
        (lambda n: (n - 1) // 4 + 1, lambda n: (n + 3) // 4),
        (lambda n: -(-n // 8), lambda n: (n + 7) // 8),
        (lambda n: n % 6, lambda n: n - n // 6 * 6),
        (lambda n: n // 2, lambda n: n - (n + 1) // 2),
        (lambda n: (n // 2 + 1) * (n // 2 + 1), lambda n: n // 2 * (n // 2) + n // 2 * 2 + 1),
        (lambda n: (n + n % 2) // 2, lambda n: (n + n % 2 + 1) // 2),
    ],
)
def test_equal_extents_have_no_difference_however_they_are_written(
    one: Callable[[Any], Any], other: Callable[[Any], Any]
) -> None:
    """What a network's windows make of an extent, and what its exporter works out beside them."""
    extent = Dim.symbol("n", 10**9)
    difference = one(extent) - other(extent)
    assert (type(difference), difference) == (int, 0)


def test_products_of_extents_divide_out_again() -> None:
    """Reshape to (batch·rows, ...) and back."""
    extents = dims({"batch": 4, "rows": 6})
    product = prod((extents["batch"], extents["rows"]))
    assert expression_of(product // extents["rows"]) == Expression(terms=(("batch", 1),))
    assert expression_of(product // extents["batch"]) == Expression(terms=(("rows", 1),))


def test_an_extent_is_an_integer_to_whoever_asks_for_one() -> None:
    extent = Dim.symbol("n", 12)
    assert extent == 12
    assert hash(extent) == hash(12)
    assert list(range(extent)) == list(range(12))
    assert type(int(extent)) is int
    assert extent / 8 == 1.5


def test_what_is_no_integer_keeps_no_expression() -> None:
    """A scale of 1.5 gives a number, not an extent."""
    extent = Dim.symbol("n", 3)
    assert extent * 1.5 == 4.5
    assert type(extent * 0.5) is float
    assert type(extent + float("inf")) is float


def test_only_the_axes_that_vary_have_symbols() -> None:
    extent = Dim.symbol("n", 12)
    found = symbols_of((3, extent, 12, extent // 4))
    assert [(axis, str(expression)) for axis, expression in found] == [(1, "n"), (3, "((n) // (4))")]


def test_a_symbol_without_a_value_is_an_error() -> None:
    expression = expression_of(Dim.symbol("n", 3) + Dim.symbol("m", 2))
    assert expression is not None
    assert expression.symbols == {"n", "m"}
    with pytest.raises(KeyError):
        expression.value({"n": 1})


def deep(extent: Any) -> Any:
    """Means of an extent and the one before until the expression is too deep to keep."""
    first = extent
    for _ in range(20):
        extent = (first + extent + 1) // 3
        expression = expression_of(extent)
        assert expression is None or expression.depth <= 12
    return extent


def test_an_expression_that_grows_too_deep_is_dropped() -> None:
    """It helps nobody; the extent stays at its maximum."""
    found = deep(Dim.symbol("n", 10**9))
    assert (found, expression_of(found)) == (500000000, None)


def test_an_expression_with_too_many_terms_is_dropped() -> None:
    terms = [Dim.symbol(f"n{index}", 2) for index in range(17)]
    assert expression_of(sum(terms[:16])) is not None
    assert (sum(terms), expression_of(sum(terms))) == (34, None)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_what_a_dropped_expression_enters_is_not_mistaken_for_known(operation: str) -> None:
    """The extent varies, so `m` plus its maximum would be wrong elsewhere."""
    dropped, other = deep(Dim.symbol("n", 10**9)), Dim.symbol("m", 7)
    for found in (OPERATIONS[operation](other, dropped), OPERATIONS[operation](dropped, other), -dropped + other):
        assert expression_of(found) is None


LIMITS = {"batch": (1, 3), "rows": (2, 6), "columns": (3, 5)}
EVERY = [dict(zip(LIMITS, dims, strict=True)) for dims in product(*(range(a, b + 1) for a, b in LIMITS.values()))]


def made(tree: Any) -> tuple[Any, list[int]]:
    """A tree's value of dims, and what it is at all their extents; trees that divide by 0 are left out."""
    try:
        every = [int(computed(tree, dims)) for dims in EVERY]
        found = computed(tree, {name: Dim.symbol(name, high, low) for name, (low, high) in LIMITS.items()})
    except ZeroDivisionError:
        assume(False)
        raise
    return found, every


@given(trees)
def test_bounds_hold_everything_that_a_number_can_be(tree: Any) -> None:
    found, every = made(tree)
    assume(not is_dropped(found))
    low, high = bounds_of(found)
    assert low <= min(every)
    assert max(every) <= high


@given(trees, trees)
def test_a_choice_is_right_everywhere_or_unknown(first: Any, second: Any) -> None:
    (a, all_a), (b, all_b) = made(first), made(second)
    assume(not is_dropped(a) and not is_dropped(b))
    for choose, plain in ((lesser, min), (greater, max)):
        found = choose(a, b)
        assert int(found) == plain(int(a), int(b))
        expression = expression_of(found)
        if not is_dropped(found):
            values = [int(found) if expression is None else expression.value(dims) for dims in EVERY]
            assert values == list(map(plain, all_a, all_b))
    least = is_always_least(a, b)
    assert least is None or all((x <= y) == least for x, y in zip(all_a, all_b, strict=True))


def test_a_choice_that_depends_on_the_extents_is_unknown() -> None:
    rows = Dim.symbol("rows", 12)
    assert is_dropped(lesser(rows, 5))
    assert is_dropped(greater(rows, 5))
    assert lesser(rows, 12) is rows
    assert greater(rows, 12) == 12
    assert is_always_least(Dim.symbol("rows", 12, 6), 5) is False
    # what is cut off a map that was halved and doubled again is never longer than the map
    assert is_always_least(rows, 2 * ((rows - 1) // 2) + 2) is True


def test_numbers_beyond_64_bits_leave_bounds_as_wide_as_those_of_the_parts() -> None:
    rows = Dim.symbol("rows", 12)
    for found in (rows // 2**40 // 2**40, (rows // 10**10 + 5) // 10**10, -(rows // 2**33) // 2**31):
        low, high = bounds_of(found)
        assert low <= int(found) <= high
        assert is_always_least(found, 1) is True


def test_the_normal_form_of_products_of_sums_stays_small() -> None:
    """Each level had five times the products of the one before: six levels, 24 nodes of a model, took 14 s."""
    dims = [Dim.symbol(f"d{number}", 3) for number in range(5)]
    found = dims[0]
    for divisor in (5, 7, 5):
        found = found * sum(dims[1:], start=dims[0]) // divisor + dims[0]
        expression = expression_of(found)
        assert expression is not None
        assert symbol._normal(expression).size <= 64
