"""Which activations of a group are held when (TILE-2)."""

from __future__ import annotations

import numpy as np

from compiler.tiling.geometry import GroupGeometry
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
    assert spans["x"] == (0, 0)
    assert spans[middle] == (1, 2)
    assert spans[early] == (0, 3)
    assert spans[late] == (2, 3)


def test_an_input_is_held_from_the_start_to_its_last_reader() -> None:
    model = Model()
    x, y = model.input([1, 4, 4, 4], "x"), model.input([1, 4, 4, 4], "y")
    a = model.conv(x, 4, 4)
    model.output(model.node("Concat", [model.conv(a, 4, 4), y], axis=1))
    _, spans = held(model)
    assert (spans["x"], spans["y"]) == ((0, 0), (0, 2))


def test_an_elementwise_result_takes_over_the_space_of_an_input_that_dies() -> None:
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


def test_the_peak_is_the_largest_sum_over_steps() -> None:
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4]), 4, 8)
    model.output(model.conv(x, 8, 2))
    geometry, _ = held(model)
    volumes = np.array([[4.0, 1.0], [8.0, 20.0], [2.0, 3.0]])
    assert geometry.peak(volumes).tolist() == [12.0, 23.0]


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
