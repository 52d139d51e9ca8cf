"""What graphs say of smaller extents than the maxima: it is right, or it is refused (SHAPE-9)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from compiler.errors import ModelError
from tests.compiler.shapes import varying_layers, varying_refused, varying_shapes  # noqa: F401 - they note their models
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.varying_models import REFUSED, SERVED
from tests.models import Model

# Models without expressions for what varies that are served all the same: the chip computes it.
COMPUTED = frozenset(
    {
        "cast_bool",
        "ceil_div",
        "ceil_div3",
        "concat_two_consts",
        "cumsum_const",
        "int32_mul",
        "mask_where",
        "mean_const",
        "pow_scale",
        "scale_sqrt",
        "slice_const_rev",
        "slice_end_max",
        "softmax_const",
        "tile_const",
        "tile_const2",
        "trilu_k",
        "where_cast_sub1",
        "where_eq",
    }
)


def tried(ranges: dict[str, tuple[int, int]]) -> list[dict[str, int]]:
    """The ends of the ranges, what is next to them, and the middle; of many combinations some."""
    extents = [sorted({low, low + 1, (low + high) // 2, high - 1, high}) for low, high in ranges.values()]
    every = list(product(*extents))
    chosen = np.random.default_rng(0).permutation(len(every))[:4]
    return [dict(zip(ranges, dims, strict=True)) for dims in {every[0], every[-1], *(every[i] for i in chosen)}]


@pytest.mark.parametrize("name", sorted(SERVED))
def test_values_at_smaller_extents_are_those_of_the_model(name: str) -> None:
    """By the program of an instance, and by the tables alone (SHAPE-9, SHAPE-8)."""
    build, ranges = SERVED[name]
    model = Model()
    build(model)
    compiled = Compiled.of(model, ranges)
    assert [miss for dims in tried(dict(ranges)) for miss in compiled.misses(dims)] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_has_no_expression_is_computed_by_the_chip_or_refused(name: str) -> None:
    """Never folded at the maxima: of floats and flags nobody makes a shape, so the chip may compute them."""
    build, ranges, code = REFUSED[name]
    model = Model()
    build(model)
    try:
        compiled = Compiled.of(model, ranges)
    except ModelError as error:
        assert error.code == code  # noqa: PT017 - or it is served
        return
    assert name in COMPUTED
    assert [miss for dims in tried(dict(ranges)) for miss in compiled.misses(dims)] == []


@pytest.mark.parametrize("name", ["slice_x_clamped", "squeeze_all", "slice_x_last1", "eq_one_and_more"])
def test_a_range_within_which_nothing_has_to_be_chosen_is_served(name: str) -> None:
    """The same models as are refused from 1 on, where the smallest extent decides."""
    model = Model()
    if name == "eq_one_and_more":
        x = model.input([3, "s"])
        length = model.node("Gather", [model.node("Shape", [x]), model.ints(1)], axis=0)
        chosen = model.node("Where", [model.node("Equal", [length, model.ints(1)]), model.ints(7), model.ints(2)])
        model.output(model.node("Mul", [x, model.node("Cast", [chosen], to=1)]))
    else:
        REFUSED[name][0](model)
    compiled = Compiled.of(model, {"s": (5, 8)})
    assert [miss for extent in range(5, 9) for miss in compiled.misses({"s": extent})] == []
