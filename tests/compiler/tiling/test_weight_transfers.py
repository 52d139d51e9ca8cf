"""How many transfers bring an op's weights, and what a group waits for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.profile import builtin_profile
from compiler.tiling.weight_transfers import transfers, transfers_of, weights_of
from tests.models import Model

CLUSTER, EDGE = builtin_profile("cluster4x4"), builtin_profile("edge4")


def test_weights_that_follow_the_channels_are_told_from_those_that_do_not() -> None:
    """A convolution with a bias has two that do; a factor that is one number has none."""
    model = Model()
    found = model.conv(model.input([1, 8, 6, 6]), 8, 16, bias=True)
    model.output(model.node("Mul", [found, model.constant(np.float32(3.0))]))
    assert [weights_of(op) for op in model.facts().ops] == [(2.0, 0.0), (0.0, 1.0)]


@pytest.mark.parametrize(
    ("cores", "sharing", "apart", "direct", "expected"),
    [
        (1.0, 1.0, 0.0, 0.0, 6 + 2),  # one unit brings all
        (1.0, 4.0, 0.0, 0.0, 6 / 4 + 2 / 4),  # four units need the same: each brings a part
        (4.0, 4.0, 0.0, 0.0, 4 * 6 / 4 + 2 / 4),  # the channels of each core by themselves
        (1.0, 4.0, 1.0, 0.0, 6 + 2 / 4),  # each unit brings its channels
        (4.0, 4.0, 1.0, 1.0, 6),  # all cores at the same time
    ],
)
def test_transfers_of_one_engine(cores: float, sharing: float, apart: float, direct: float, expected: float) -> None:
    assert transfers(6.0, 2.0, cores, sharing, apart, direct) == expected


def test_where_cores_load_their_weights_the_unit_brings_what_all_of_them_need() -> None:
    """Scales and zero points come one after the other by the unit's engine; a price that had them come at once was a
    quarter of what a network of 131 of them took.
    """
    assert transfers(1.0, 9.0, 4.0, 1.0, 1.0, 1.0) == 9
    assert transfers(1.0, 9.0, 4.0, 3.0, 0.0, 1.0) == 3


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_configurations_together_take_what_each_takes(rows: list[tuple[int, bool, bool]]) -> None:
    """Four cores a cluster; where neither units nor cores need the same weights, cores load them themselves."""
    model = Model()
    model.output(model.relu(model.conv(model.input([1, 8, 6, 6]), 8, 16, bias=True)))
    units, cores_apart, units_apart = (np.array(column) for column in zip(*rows, strict=True))
    found = transfers_of(model.facts().ops, CLUSTER, np.full(len(rows), 4), cores_apart, units, units_apart)
    expected = [
        transfers(2.0, 0.0, 4.0 if of_cores else 1.0, float(count), float(of_units), float(of_cores and alone))
        for count, of_cores, of_units in rows
        for alone in [of_units or count == 1]
    ]
    assert found.tolist() == [expected, [0.0] * len(rows)]


def test_cores_without_an_sram_bring_a_part_each_of_what_all_need() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 8, 6, 6]), 8, 16, bias=True))
    one, four, no = np.array([1]), np.array([4]), np.array([False])
    assert transfers_of(model.facts().ops, EDGE, one, no, four, no).tolist() == [[2 / 4]]
    assert transfers_of(model.facts().ops, EDGE, one, no, four, ~no).tolist() == [[2.0]]
