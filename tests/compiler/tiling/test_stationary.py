"""Stationary weights: how they lie on a chip, what they leave for tiles, and what using them moves (PROF-2)."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.compile import Compilation, compile_model
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.plan import PlanGroup
from compiler.tiling.stationary import WeightTable
from tests.compiler.partition.graphs import stationary
from tests.models import Model
from tests.strategies import models


def resident(facts: GraphFacts, *ops: int, cores: int = 4, compression: float = 1.0) -> int:
    """Bytes in the fullest core."""
    profile = stationary(nram_bytes=65536, cores=cores, compression=compression)
    return WeightTable(facts, profile).resident_bytes_per_core(ops)


# Where they lie


@pytest.mark.parametrize(("filters", "cores"), [(8, 4), (9, 4), (3, 4), (1, 4), (7, 1), (65, 64)])
def test_a_convolutions_weights_are_dealt_out_by_output_channels(filters: int, cores: int) -> None:
    """The fullest core holds the most channels; a single filter has no channels to deal out and lies in every core."""
    model = Model()
    model.output(model.conv(model.input([1, 6, 8, 8]), 6, filters, 3))
    row = 6 * 9 * 4
    dealt = [len(part) for part in np.array_split(np.arange(filters), cores)]
    assert resident(model.facts(), 0, cores=cores) == max(dealt) * row


@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
def test_a_products_weights_are_dealt_out_by_columns_and_its_bias_with_them(kind: str) -> None:
    model = Model()
    inputs = [model.input([5, 16]), model.weight(16, 10)]
    if kind == "Gemm":
        inputs.append(model.weight(10))
    model.output(model.node(kind, inputs))
    rows = 16 + (kind == "Gemm")
    assert resident(model.facts(), 0) == 3 * rows * 4


def test_a_depthwise_convolutions_weights_are_dealt_out_by_channels() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 10, 8, 8]), 10, 10, 3, group=10))
    assert resident(model.facts(), 0) == 3 * 9 * 4


def test_weights_without_channels_lie_in_every_core() -> None:
    """A matrix that is added along rows: each core needs all 6 × 7 elements of it, whatever channels it makes."""
    model = Model()
    model.output(model.node("Add", [model.input([1, 3, 6, 7]), model.weight(6, 7)]))
    assert resident(model.facts(), 0) == 6 * 7 * 4


def test_a_weight_that_several_ops_read_lies_on_the_chip_once() -> None:
    model = Model()
    x, w = model.input([1, 4, 8, 8]), model.weight(4, 4, 3, 3)
    x = model.node("Conv", [x, w], pads=[1] * 4)
    x = model.node("Conv", [x, w], pads=[1] * 4)
    model.output(model.conv(x, 4, 4))
    facts = model.facts()
    one = 4 * 9 * 4
    assert [resident(facts, *ops) for ops in ((0,), (1,), (0, 1), (0, 2), (0, 1, 2))] == [
        one,
        one,
        one,
        2 * one,
        2 * one,
    ]
    table = WeightTable(facts, stationary(nram_bytes=65536))
    assert [table.size_bytes(ops) for ops in ((0,), (0, 1), (0, 1, 2))] == [4 * one, 4 * one, 8 * one]


def test_compressed_weights_take_their_share() -> None:
    """PROF-2: compression."""
    model = Model()
    model.output(model.conv(model.input([1, 3, 8, 8]), 3, 5, 3))
    assert [resident(model.facts(), 0, compression=share) for share in (1.0, 0.5, 0.3)] == [216, 108, ceil(216 * 0.3)]


def test_streamed_weights_lie_nowhere_but_have_a_size() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 3, 8, 8]), 3, 5, 3))
    table = WeightTable(model.facts(), builtin_profile("edge4"))
    assert (table.resident_bytes_per_core((0,)), table.size_bytes((0,))) == (0, 5 * 3 * 9 * 4)


@settings(max_examples=60)
@given(models(max_ops=10), st.sampled_from([1, 3, 4, 64]), st.data())
def test_no_core_holds_less_than_its_share_or_more_than_all(model: Model, cores: int, data: st.DataObject) -> None:
    """And more ops never have fewer weights."""
    facts = graph_facts(model.graph())
    count = len(facts.ops)
    table = WeightTable(facts, stationary(nram_bytes=65536, cores=cores))
    ops = tuple(sorted(data.draw(st.sets(st.integers(0, count - 1))))) if count else ()
    size, fullest = table.size_bytes(ops), table.resident_bytes_per_core(ops)
    assert size == facts.weight_bytes(ops)
    assert size <= fullest * cores
    assert fullest <= size
    more = tuple(range(count))
    assert table.size_bytes(more) >= size
    assert table.resident_bytes_per_core(more) >= fullest


# What they leave, and what using them moves


def planned(model: Model, *, nram_bytes: int, **options: object) -> tuple[Compilation, PlanGroup]:
    """The plan on a chip of four cores, and its first group."""
    found = compile_model(model.data(), stationary(nram_bytes=nram_bytes), parse_options(options))
    return found, found.plan.segments[0].groups[0]


def two_convolutions() -> Model:
    """Weights of 1,152 bytes each."""
    model = Model()
    x = model.conv(model.input([1, 4, 32, 32]), 4, 8, name="first")
    model.output(model.conv(x, 8, 4, name="second"))
    return model


def test_groups_are_planned_in_the_memory_that_all_weights_of_their_segment_leave() -> None:
    """Both convolutions' weights lie there while either runs."""
    found, _ = planned(two_convolutions(), nram_bytes=8192)
    (segment,) = found.plan.segments
    assert segment.resident_bytes_per_core == 2 * 288
    limits = {rule.limit for group in segment.groups for rule in group.rules if rule.id == "TILE-2:tile"}
    assert limits == {8192.0 - 2 * 288}
    assert all(rule.holds for group in segment.groups for rule in group.rules if rule.id.startswith("TILE-2"))


def test_weights_that_lie_there_are_in_no_dram_figure() -> None:
    """SPEC 5.1: loaded before the first inference."""
    found, _ = planned(two_convolutions(), nram_bytes=65536)
    totals = found.plan.totals
    ops = [op for segment in found.plan.segments for group in segment.groups for op in group.ops]
    assert [(op.weight_mode, op.weight_loads, op.weight_bytes) for op in ops] == [("stationary", 0, 1152)] * 2
    assert all(group.weight_read_bytes == 0 for group in found.report.groups)
    assert totals.stationary_weight_bytes == 2304
    assert totals.dram_bytes_floor == 4 * (4 + 4) * 32 * 32


def test_a_core_that_computes_its_own_channels_uses_its_weights_in_place() -> None:
    """Only the one input row crosses the links, to the three cores that did not read it."""
    model = Model()
    model.output(model.node("MatMul", [model.input([1, 64]), model.weight(64, 64)], name="product"))
    found, group = planned(model, nram_bytes=32768)
    assert (group.placement.spread, group.placement.units) == ("channels", 4)
    assert found.report.groups[0].exchanged_bytes == 3 * 64 * 4
    staged = {rule.id: rule.actual for rule in group.rules}["TILE-2:weights"]
    assert staged == 0


def test_a_core_that_computes_rows_stages_its_peers_weights_over_the_links() -> None:
    """One filter, four bands: each core gets all of it, and keeps room for it.

    Three cores also get two input rows of 32 × 4 elements from the core above, which has read them (TILE-3).
    """
    model = Model()
    model.output(model.conv(model.input([1, 4, 32, 32]), 4, 1, name="conv"))
    found, group = planned(model, nram_bytes=8192, halo="exchange")
    weights = 4 * 9 * 4
    assert (group.placement.spread, group.placement.units) == ("bands", 4)
    assert found.report.groups[0].exchanged_bytes == 4 * weights + 3 * 2 * 32 * 4 * 4
    staged = {rule.id: rule.actual for rule in group.rules}["TILE-2:weights"]
    assert staged == weights
