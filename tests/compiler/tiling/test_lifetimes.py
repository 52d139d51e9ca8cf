"""Which activations of a group are held when (TILE-2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.tiling.geometry import GroupGeometry
from tests.compiler.tiling.oracle import written_over
from tests.models import Model


def held(model: Model) -> tuple[GroupGeometry, dict[str, tuple[int, int]]]:
    """First and last step of every activation of the whole graph as one group."""
    facts = model.facts()
    geometry = GroupGeometry(facts, range(len(facts.ops)))
    names, first, last = geometry.lifetimes
    return geometry, {name: (int(a), int(b)) for name, a, b in zip(names, first, last, strict=True)}


def test_results_that_leave_the_group_are_held_until_its_end() -> None:
    model = Model()
    x = model.input([1, 4, 4, 4], "x")
    early = model.output(model.conv(x, 4, 4))
    middle = model.conv(early, 4, 4)
    late = model.output(model.conv(middle, 4, 4))
    _, spans = held(model)
    assert spans["x"] == (0, 3)
    assert spans[middle] == (1, 2)
    assert spans[early] == (0, 3)
    assert spans[late] == (2, 3)


def test_inputs_are_held_for_the_whole_round() -> None:
    """The next tile's inputs come into a second buffer, so nothing is gained by giving this one back early."""
    model = Model()
    x, y = model.input([1, 4, 4, 4], "x"), model.input([1, 4, 4, 4], "y")
    a = model.conv(x, 4, 4)
    model.output(model.node("Concat", [model.conv(a, 4, 4), y], axis=1))
    _, spans = held(model)
    assert (spans["x"], spans["y"]) == ((0, 3), (0, 3))


def test_what_is_written_over_an_input_is_held_for_the_whole_round() -> None:
    """The input itself is gone then, but the tile after the next finds its own input at this place."""
    model = Model()
    y = model.relu(model.input([1, 4, 4, 4], "x"))
    model.output(model.conv(model.conv(y, 4, 4), 4, 4))
    geometry, spans = held(model)
    assert geometry.takes_over == {y: "x"}
    assert (spans["x"], spans[y]) == ((0, 0), (1, 3))


def test_an_elementwise_result_takes_over_the_space_of_an_operand_that_dies() -> None:
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4]), 4, 4)
    y = model.relu(x)
    model.output(model.conv(y, 4, 4))
    _, spans = held(model)
    assert spans[x] == (0, 1)
    assert spans[y] == (2, 2)


def test_an_elementwise_result_takes_no_space_that_is_still_read() -> None:
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4]), 4, 4)
    y = model.relu(x)
    model.output(model.node("Concat", [x, y], axis=1))
    _, spans = held(model)
    assert spans[y] == (1, 2)


def test_a_result_takes_no_space_that_another_op_has_read_before() -> None:
    """The other reader may need more of it than is made of the result: tiles keep it under its own boxes."""
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4]), 4, 4)
    early = model.conv(x, 4, 4)
    y = model.relu(x)
    model.output(model.node("Add", [early, y]))
    geometry, spans = held(model)
    assert y not in geometry.takes_over
    assert spans[x] == (0, 2)
    assert spans[y][0] == 2


@pytest.mark.parametrize(
    ("kind", "shape", "attributes"),
    [("Transpose", (1, 4, 4, 4), {"perm": [0, 1, 3, 2]}), ("Unsqueeze", (4, 4), {}), ("Flatten", (4, 2, 8), {})],
)
def test_views_and_other_orders_of_axes_take_over_no_space(
    kind: str, shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """They need other positions than they make, or have other axes."""
    model = Model()
    x = model.relu(model.input(list(shape), "x"))
    y = model.node(kind, [x, model.ints(0)] if kind == "Unsqueeze" else [x], **attributes)
    model.output(model.relu(y))
    geometry, _ = held(model)
    assert y not in geometry.takes_over
    assert not geometry.is_in_place


def test_an_operand_of_fewer_axes_gives_no_space_even_if_it_is_of_equal_size() -> None:
    model = Model()
    flat, deep = model.relu(model.input([4, 4])), model.relu(model.input([1, 4, 4]))
    result = model.output(model.node("Add", [flat, deep]))
    geometry, _ = held(model)
    assert geometry.takes_over[result] == deep


def test_what_takes_over_space_is_what_an_oracle_finds_position_by_position() -> None:
    model = Model()
    x, y = model.conv(model.input([1, 4, 4, 4]), 4, 4), model.input([1, 1, 4, 4])
    x = model.node("Mul", [y, model.relu(x)])
    model.output(model.conv(model.node("Add", [x, x]), 4, 4))
    geometry, _ = held(model)
    assert len(geometry.takes_over) == 3
    assert geometry.takes_over == written_over(geometry)


def test_the_peak_is_the_largest_sum_over_steps() -> None:
    """Of input, middle map and result: 4 + 8 and 4 + 8 + 2 with the first sizes, 1 + 20 and 1 + 20 + 3 with others."""
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4]), 4, 8)
    model.output(model.conv(x, 8, 2))
    geometry, _ = held(model)
    volumes = np.array([[4.0, 1.0], [8.0, 20.0], [2.0, 3.0]])
    assert geometry.peak(volumes).tolist() == [14.0, 24.0]


def test_only_elementwise_groups_may_overwrite_their_input() -> None:
    model = Model()
    model.output(model.relu(model.node("Sigmoid", [model.input([1, 4, 4, 4])])))
    assert held(model)[0].is_in_place
    model = Model()
    model.output(model.relu(model.conv(model.input([1, 4, 4, 4]), 4, 4)))
    assert not held(model)[0].is_in_place
    model = Model()
    model.output(model.node("Add", [model.input([1, 4, 4, 1]), model.weight(1, 4, 4, 4)]))
    assert not held(model)[0].is_in_place


def test_a_reshape_that_regroups_axes_may_not_overwrite_what_other_tiles_read() -> None:
    """A tile of [6, 4] needs all of [4, 6]: its result must not destroy it for the next tile."""
    model = Model()
    model.output(model.relu(model.node("Reshape", [model.input([4, 6]), model.ints(6, 4)])))
    assert not held(model)[0].is_in_place
