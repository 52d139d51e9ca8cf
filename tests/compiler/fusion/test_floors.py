"""Floors of groups never exceed the prices of their tilings: else the search would end in an error (FUSE-O)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from compiler.cost.objective import Totals
from compiler.errors import TesseraError
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.floors import GroupFloors
from compiler.fusion.postdominators import PostDominators
from compiler.fusion.segment_graph import SegmentGraph
from compiler.fusion.single_output import single_output_groups
from compiler.ops.op_facts import graph_facts
from compiler.options import Options
from compiler.profile import builtin_names, builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.tiling.choose import Refusal
from tests.compiler.fusion.cases import PRECISIONS, any_model, any_profile, names_of, segment_of, tight
from tests.models import LIGHT_NAMES, Model, import_graph, light_path, whole_segment
from tests.profiles import profile_values, small_profile
from tests.strategies import OBJECTIVES

CASES = 4000
_GROUPS = 6
_TRIED = 64
_ROUNDING = 1e-9
FIGURES = ("DRAM bytes", "cycles", "pJ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """How many groups were compared, and the largest ratio of floor to price of each figure."""

    count: int
    nearest: tuple[float, ...]


def groups_of(graph: SegmentGraph, most: int) -> list[int]:
    """Groups with one output, for each op the smallest ones."""
    tree = PostDominators.of(graph)
    return [group for op in graph.ops for group, _ in single_output_groups(tree, op, lambda _: True, most)]


def compare(evaluator: Evaluator, graph: SegmentGraph, groups: list[int], what: object) -> Priced:
    """Floors against the prices of chosen tilings, and of those with tiles by cost; infinite: no tiling is possible."""
    floors = GroupFloors(graph, evaluator.profile).of(groups)
    assert (floors >= 0).all()
    count, nearest = 0, [0.0] * len(FIGURES)
    for group, floor in zip(groups, floors.tolist(), strict=True):
        try:
            choice = evaluator.tiling(group)
        except TesseraError:  # no array for the type
            continue
        if isinstance(choice, Refusal):
            continue
        count += 1
        for cost in {choice.cost, evaluator.refined(group, _TRIED)[0].cost}:
            totals = Totals.of((cost,))
            price = (totals.dram_bytes, totals.cycles, totals.energy_pj)
            for number, (least, actual) in enumerate(zip(floor, price, strict=True)):
                where = f"{what}: {bin(group)} ({names_of(graph, group)}), {FIGURES[number]} {actual}, floor {least}"
                assert least * (1 - _ROUNDING) <= actual, where
                nearest[number] = max(nearest[number], least / actual if actual else 0.0)
    return Priced(count=count, nearest=tuple(nearest))


def evaluator_of(graph: SegmentGraph, profile: Profile, **options: Any) -> Evaluator | None:
    """An evaluator of a segment; None if weights that stay on the chip are larger than it."""
    try:
        return SegmentCompilers(profile, Options(fusion="search", **options)).of(graph.facts).evaluator(graph.ops)
    except TesseraError:
        return None


def check(seed: int) -> Priced:
    """A random network on a random or a built-in chip, some of its groups."""
    random = Random(seed)
    precision = random.choice(PRECISIONS)
    model = any_model(random, random.choice((2, 4, 8, 12)))
    name = random.choice(builtin_names()) if random.random() < 0.25 else ""
    if name and "float32" not in builtin_profile(name).matrix.arrays:
        precision = "int8"
    graph = segment_of(model, precision)
    if graph is None:
        return Priced(count=0, nearest=(0.0, 0.0, 0.0))
    profile = builtin_profile(name) if name else any_profile(random)
    if not name and random.random() < 0.5:
        profile = tight(random, profile, graph.facts)
    evaluator = evaluator_of(graph, profile, objective=random.choice(OBJECTIVES))
    if evaluator is None:
        return Priced(count=0, nearest=(0.0, 0.0, 0.0))
    groups = groups_of(graph, 64)
    return compare(evaluator, graph, random.sample(groups, min(_GROUPS, len(groups))), seed)


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("start", range(0, CASES, 20))
def test_floors_never_exceed_prices(start: int) -> None:
    """FUSE-O: random ops of random extents on chips with and without each part; and they come close to some."""
    found = [check(seed) for seed in range(start, start + 20)]
    assert sum(one.count for one in found) > 2 * len(found)
    assert min(max(one.nearest[figure] for one in found) for figure in range(len(FIGURES))) > 0.9


LIGHT = [(name, profile) for name in LIGHT_NAMES for profile in ("cluster4x4", "edge4", "manycore2x64")]


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(("name", "profile"), LIGHT)
def test_floors_of_groups_of_real_networks_never_exceed_prices(name: str, profile: str) -> None:
    random = Random(f"{name} {profile}")
    graph = whole_segment(graph_facts(import_graph(light_path(name).read_bytes())))
    hardware = builtin_profile(profile)
    objective: Any = random.choice(OBJECTIVES)
    options = Options(fusion="search", objective=objective)
    compilers = SegmentCompilers(hardware, options).of(graph.facts)
    # stationary weights of a whole network, padded to the arrays, may leave nothing of a core for any group
    resident = compilers.resident_bytes(graph.ops) if hardware.is_stationary else 0
    fits = resident < hardware.resident_capacity_bytes
    evaluator, groups = compilers.evaluator(graph.ops), groups_of(graph, 48)
    assert (compare(evaluator, graph, random.sample(groups, 16), name).count > 0) == fits


def test_an_input_that_a_result_is_written_over_is_not_held_beside_it() -> None:
    """The end of AlexNet: with the weights that pass, the SRAM has room for two maps, not for three."""
    graph = whole_segment(graph_facts(import_graph(light_path("bvlc_alexnet").read_bytes())))
    evaluator = evaluator_of(graph, builtin_profile("cluster4x4"), objective="dram_bytes")
    assert evaluator is not None
    assert [graph.facts.graph.ops[op].kind for op in range(17, 22)] == ["Relu", "Gemm", "Relu", "Gemm", "Softmax"]
    assert compare(evaluator, graph, [sum(1 << op for op in range(17, 22))], "tail").count == 1


def single(model: Model, profile: Profile, objective: str, precision: str = "model") -> Priced:
    """All groups of a small network."""
    graph = segment_of(model, precision)
    assert graph is not None
    evaluator = evaluator_of(graph, profile, objective=objective)
    assert evaluator is not None
    return compare(evaluator, graph, groups_of(graph, 64), objective)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_product_whose_sums_are_shared_out_has_less_on_a_unit_than_positions_allow(objective: str) -> None:
    """Four units take a quarter each of the input channels of three positions."""
    values = profile_values("edge4") | {"clock_hz": 1e9}
    values["matrix"]["arrays"] = {"int8": {"k": 8, "c": 2}}
    values["matrix"]["pj_per_mac"] = {"int8": 0.1}
    values["vector"]["lanes"] = 1
    values["dram"] |= {"bandwidth_bytes_per_s": 1e12, "startup_ns": 0, "multicast": True}
    values["engines"] = {
        "iodma": {"bytes_per_cycle": 256},
        "link": {"topology": "ring", "bytes_per_cycle": 64, "hop_cycles": 0, "pj_per_byte_hop": 0.0},
    }
    model = Model()
    model.output(model.conv(model.input([1, 5, 3, 5]), 5, 4, 3, pad=0, bias=True))
    assert single(model, profile_from_values(values), objective, "int8").count == 1


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_computed_factor_is_read_where_activations_lie(objective: str) -> None:
    values = profile_values("edge4")
    values["wram"] = {"capacity_bytes": 8192, "read_pj_per_byte": 20.0, "write_pj_per_byte": 0.4}
    values["nram"] |= {"read_pj_per_byte": 0.0}
    model = Model()
    model.output(model.node("MatMul", [model.input([1, 2, 8, 9]), model.input([1, 2, 9, 8])]))
    assert single(model, profile_from_values(values), objective).count == 1


def test_work_counts_in_every_tile_along_an_axis_that_channels_follow() -> None:
    """A product's rows are the channels of what it reads: cut over units, none of these is left out of the price."""
    model = Model()
    x = model.input([1, 4, 21, 56])
    model.output(model.node("MatMul", [model.node("Mul", [x, x]), model.weight(56, 16)]))
    graph = whole_segment(model.facts())
    evaluator = evaluator_of(graph, small_profile(nram_bytes=32768, wram_bytes=32768, cores=4))
    assert evaluator is not None
    choice = evaluator.tiling(graph.all)
    assert not isinstance(choice, Refusal)
    assert choice.tiling.tile[1] < 4
    elements = 4 * 21 * 56
    ((product, dataflow, cycles),) = (op for stage in choice.cost.stages for op in stage.ops if op[0] == 0)
    assert (product, dataflow) == (0, "vector")
    assert cycles >= elements / 4 / 8


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_square_that_is_added_to_its_transpose_is_not_read_along_the_diagonal_alone(objective: str) -> None:
    """Rows and columns both follow the tile: what it needs beyond earlier ones is no box, and no halo is kept."""
    model = Model()
    x = model.relu(model.input([1, 1, 3, 3]))
    y = model.node("Mul", [model.node("Transpose", [x], perm=[0, 1, 3, 2]), x])
    model.output(model.node("Slice", [y, model.ints(0), model.ints(1), model.ints(2)]))
    assert single(model, small_profile(nram_bytes=128, cores=4), objective).count > 1


def test_rows_that_two_ops_of_a_group_read_of_an_input_count_once() -> None:
    """Rows 0 to 5 and rows 2 to 9 of ten: the group reads ten, not fourteen."""
    model = Model()
    x = model.input([1, 4, 10, 8])
    upper = model.node("Slice", [x, model.ints(0), model.ints(6), model.ints(2)])
    lower = model.node("Slice", [x, model.ints(2), model.ints(10), model.ints(2)])
    model.output(model.node("Add", [upper, model.node("MaxPool", [lower], kernel_shape=[3, 1])]))
    assert single(model, small_profile(nram_bytes=32768), "dram_bytes").count > 1
