"""Segments to chips, once their cycles are known: loads, what passes between chips and host (PART-5)."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compiler.errors import LimitError
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.fusion.map_chips import MappedGraph, MapToChips
from compiler.ir.graph import Graph
from compiler.options import Options, parse_options
from compiler.partition.partition import PartitionGraph
from compiler.partition.segments import SegmentKind
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from tests.compiler.partition.graphs import convolutions, on_host
from tests.matrices import tries
from tests.models import Model, error_of
from tests.strategies import models

IMAGE = 4 * 4 * 64  # bytes of a map of `convolutions`


def mapped(graph: Graph, options: Options, profile: Profile | None = None) -> MappedGraph:
    """The graph partitioned, fused by `none` and mapped."""
    profile = profile or chips(2)
    compilers = SegmentCompilers(profile, options)
    partitioned = PartitionGraph(profile=profile, options=options, candidates=compilers.of).run(graph)
    fused = FuseSegments(options=options, compilers=compilers).run(partitioned)
    return MapToChips(profile=profile, options=options).run(fused)


def chips(count: int, *, dram_bytes: int | None = None) -> Profile:
    """edge4, several times."""
    profile = builtin_profile("edge4")
    dram = msgspec.structs.replace(profile.dram, capacity_bytes=dram_bytes or profile.dram.capacity_bytes)
    return msgspec.structs.replace(profile, chips=count, dram=dram)


def options(strategy: str = "balanced") -> Options:
    """No merging, no fusing."""
    return parse_options({"merge": "none", "fusion": "none", "chips": strategy})


def traffic(found: MappedGraph) -> dict[tuple[int | None, int | None], int]:
    """Bytes by source and target, the host as None."""
    return {(entry.source, entry.target): entry.size_bytes for entry in found.assignment.traffic}


def tapped(count: int) -> Graph:
    """Convolutions of which each is a segment of its own."""
    return convolutions(count, taps=range(count)).graph()


@pytest.mark.parametrize(
    ("strategy", "expected"), [("single", (0, 0, 0, 0)), ("balanced", (0, 0, 1, 1)), ("one-each", (0, 1, 2, 3))]
)
def test_each_strategy_gives_segments_their_chips(strategy: str, expected: tuple[int, ...]) -> None:
    found = mapped(tapped(4), options(strategy), chips(4 if strategy == "one-each" else 2))
    assert found.chip_of == expected


def test_loads_are_the_cycles_and_weights_of_the_segments_on_each_chip() -> None:
    found = mapped(tapped(4), options())
    for load in found.assignment.chips:
        mine = [segment for segment, chip in zip(found.fused.segments, found.chip_of, strict=True) if chip == load.chip]
        assert load.cycles == sum(group.choice.cost.cycles for segment in mine for group in segment.groups) > 0
        assert load.weight_bytes == len(mine) * 4 * 4 * 9 * 4


def test_what_two_chips_and_the_host_hand_each_other_is_counted_once_each() -> None:
    """Inputs from the host, outputs to it, and one map from chip to chip."""
    found = mapped(tapped(4), options())
    assert traffic(found) == {(None, 0): IMAGE, (0, None): 2 * IMAGE, (0, 1): IMAGE, (1, None): 2 * IMAGE}


def test_a_result_that_the_same_chip_reads_later_does_not_travel() -> None:
    found = mapped(tapped(3), options("single"))
    assert traffic(found) == {(None, 0): IMAGE, (0, None): 3 * IMAGE}


def test_a_map_that_two_segments_of_another_chip_read_crosses_once() -> None:
    model = Model()
    x = model.output(model.conv(model.input([1, 4, 8, 8]), 4, 4, name="a"))
    y = model.output(model.conv(x, 4, 4, name="b"))
    z = model.output(model.conv(model.node("Add", [x, y]), 4, 4, name="c"))
    model.output(model.node("Add", [z, x]))
    found = mapped(model.graph(), options("one-each"), chips(4))
    assert found.chip_of == (0, 1, 2, 3)
    moved = traffic(found)
    assert [moved[0, target] for target in (1, 2, 3)] == [IMAGE] * 3
    both = mapped(model.graph(), options(), chips(2))
    assert both.chip_of == (0, 0, 1, 1)
    # a's and b's result each once, although c's segment and the last one both read a's
    assert traffic(both)[0, 1] == 2 * IMAGE


def test_host_segments_have_no_chip_and_their_data_crosses_the_link() -> None:
    """IMPORT-6: to the host what it reads, from it what it makes."""
    found = mapped(on_host(convolutions(3).graph(), [1]), options("single"))
    assert found.chip_of == (0, None, 0)
    assert [load.segments for load in found.assignment.chips] == [(0, 1), ()]
    assert traffic(found) == {(None, 0): 2 * IMAGE, (0, None): 2 * IMAGE}


def test_a_graph_of_the_host_alone_uses_no_chip() -> None:
    found = mapped(on_host(convolutions(2).graph(), [0, 1]), options())
    assert found.chip_of == (None,)
    assert found.assignment.traffic == ()
    assert [load.cycles for load in found.assignment.chips] == [0, 0]


def test_more_segments_than_chips_cannot_have_one_each() -> None:
    with pytest.raises(LimitError) as caught:
        mapped(tapped(3), options("one-each"))
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("too_few_chips", 3, 2)


def test_weights_beyond_one_chips_dram_need_another_chip() -> None:
    """PART-5: under each chip's capacities. Three of the four segments' weights fit a DRAM, with their maps."""
    weights = 4 * 4 * 9 * 4
    small = chips(2, dram_bytes=3 * weights)
    wide = small_maps()
    assert mapped(wide, options(), small).chip_of == (0, 0, 1, 1)
    with pytest.raises(LimitError) as caught:
        mapped(wide, options("single"), small)
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("chip_capacity", 4 * weights, 3 * weights)


def small_maps() -> Graph:
    """Four convolutions of one pixel: hardly anything but weights."""
    model = Model()
    x = model.input([1, 4, 1, 1])
    for index in range(4):
        x = model.output(model.conv(x, 4, 4, name=f"c{index}"))
    return model.graph()


@tries(first=15, rest=40)
@given(models(max_ops=8), st.integers(1, 3), st.data())
def test_traffic_is_what_each_place_needs_of_the_others(model: Model, count: int, data: st.DataObject) -> None:
    """Recomputed tensor by tensor: once to each other place that reads it."""
    graph = model.graph()
    assume(graph.ops)
    graph = on_host(graph, data.draw(st.sets(st.integers(0, len(graph.ops) - 1), max_size=2)))
    strategy = data.draw(st.sampled_from(["single", "balanced"]))
    made: list[MappedGraph] = []
    error = error_of(lambda: made.append(mapped(graph, options(strategy), chips(count))))
    assert error is None
    (found,) = made
    place: dict[int, int | None] = {}
    for segment, chip in zip(found.fused.segments, found.chip_of, strict=True):
        assert (chip is None) == (segment.segment.kind is SegmentKind.HOST)
        place.update(dict.fromkeys(segment.segment.ops, chip))
    expected: Counter[tuple[int | None, int | None]] = Counter()
    for name, tensor in graph.tensors.items():
        if tensor.constant is None:
            source = place[graph.producer[name]] if name in graph.producer else None
            readers = {place[op] for op in graph.consumers.get(name, ())}
            readers |= {None} if name in graph.outputs else set()
            for target in readers - {source}:
                expected[source, target] += tensor.size_bytes
    assert Counter(traffic(found)) == expected
