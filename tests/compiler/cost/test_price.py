"""Prices worked out by hand: cycles, energy and what bounds them (SPEC 5.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.cost.levels import LevelBytes
from compiler.cost.model import Cost, StepTraffic, Traffic, price
from compiler.cost.objective import Totals, objective_value, ranking
from compiler.cost.rates import dram_port_bytes_per_cycle, handed_bytes_per_cycle, mac_energy_pj, reads_are_shared
from compiler.cost.turns import Passing
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from tests.models import Model
from tests.profiles import profile_values, small_profile

CLUSTER, EDGE = builtin_profile("cluster4x4"), builtin_profile("edge4")


# What belongs to an op of a group and not to the group.
_STEP = frozenset(StepTraffic._fields)


def traffic(**changes: Any) -> Traffic:
    """A group of one op on four units of four cores that moves and computes nothing, but for the changes."""
    step: dict[str, Any] = {"op": 0, "stage": 0, "dataflow": "vector", "compute_cycles": 0, "array_cycles": 0}
    values: dict[str, Any] = {
        "input_bytes": 0,
        "weight_bytes": 0,
        "output_bytes": 0,
        "turns": 1,
        "unhidden_cycles": 0.0,
        "last_store_bytes": 0,
        "exposed_transfers": 1,
        "hidden_transfers": 0,
        "units": 4,
        "cores": 16,
        "overlapped": True,
        "sram_ends": LevelBytes(),
        "nram_ends": LevelBytes(),
        "passed_on_bytes": 0,
        "copied_bytes": 0,
        "loading_share": None,
    }
    own = {name: value for name, value in changes.items() if name in _STEP}
    rest = {name: value for name, value in changes.items() if name not in _STEP}
    return Traffic(**{"steps": (StepTraffic(**{**step, **own}),), **values, **rest})


def test_dram_transfers_take_bytes_over_bandwidth_and_their_start_up() -> None:
    """102.4 GB/s at 1 GHz; 200 ns to begin and 200 ns to end."""
    cost = price(traffic(input_bytes=512_000, weight_bytes=256_000, output_bytes=256_000), CLUSTER)
    assert cost.dram_cycles == 10_000
    assert cost.cycles == 10_000 + 400
    assert cost.bound_by == "dram"
    assert (cost.dram_read_bytes, cost.dram_write_bytes, cost.weight_read_bytes) == (768_000, 256_000, 256_000)
    assert cost.dram_bytes == 1_024_000


def test_one_unit_is_limited_by_its_own_engine() -> None:
    """GDMA moves 64 bytes per cycle and cluster; two of them exceed the DRAM's 102.4."""
    assert dram_port_bytes_per_cycle(CLUSTER, 1) == 64
    assert dram_port_bytes_per_cycle(CLUSTER, 2) == pytest.approx(102.4)
    assert [dram_port_bytes_per_cycle(EDGE, units) for units in (1, 2, 4)] == [8, 16, 16]


def test_transfers_hide_behind_computation_except_first_and_last() -> None:
    cost = price(
        traffic(input_bytes=102_400, arriving_bytes=10_240, last_store_bytes=5_120, compute_cycles=5_000, turns=10),
        CLUSTER,
    )
    assert cost.cycles == 5_000 + 150 + 400
    assert cost.bound_by == "compute"


@pytest.mark.parametrize(
    ("moved", "cycles", "cause"),
    [
        # the first turn waits for its part of what comes, and what the last one makes leaves after it
        ({"taken_cycles": 4_000.0, "first_taken_cycles": 400.0}, 400 + 10_000, "exchange"),
        ({"put_cycles": 3_000.0, "last_put_cycles": 300.0}, 10_000 + 300, "exchange"),
        ({"taken_cycles": 400.0, "first_taken_cycles": 400.0, "last_store_bytes": 51_200}, 400 + 10_000 + 500, "dram"),
        ({"put_cycles": 300.0, "last_put_cycles": 300.0, "last_store_bytes": 51_200}, 10_000 + 500, "dram"),
        # where it takes longer, the last turn works when all of it has come
        ({"taken_cycles": 20_000.0, "first_taken_cycles": 2_000.0}, 20_000 + 1_000, "exchange"),
        # what comes and what goes are moved by the same engines
        ({"taken_cycles": 12_000.0, "put_cycles": 9_500.0}, 12_000 + 9_500, "exchange"),
        # two buffers, through which parts come from DRAM, pass between units and are worked on
        ({"taken_cycles": 9_000.0, "input_bytes": 819_200}, (8_000 + 9_000 + 10_000) // 2, "exchange"),
    ],
)
def test_what_comes_from_units_that_hold_it_goes_on_beside_the_work(
    moved: dict[str, Any], cycles: int, cause: str
) -> None:
    """Ten turns of 1,000 cycles; of bytes of DRAM 102.4 a cycle."""
    cost = price(traffic(compute_cycles=10_000, turns=10, exposed_transfers=0, **moved), CLUSTER)
    assert cost.cycles == cycles
    assert dict(cost.stalls) == {cause: cycles - 10_000}


def steps(*own: dict[str, Any]) -> tuple[StepTraffic, ...]:
    """Ops of one stage, each of 1,000 cycles, but for what is said of each."""
    plain: dict[str, Any] = {"stage": 0, "dataflow": "vector", "compute_cycles": 1_000, "array_cycles": 0}
    return tuple(StepTraffic(**{"op": number, **plain, **its}) for number, its in enumerate(own))


def test_the_first_turn_waits_for_the_weights_of_each_op_in_turn() -> None:
    """Weights of the second op come in 3,000 cycles; ten turns of 200, but the first ends 100 after they are there."""
    wait = traffic(steps=steps({}, {"lasting_bytes": 307_200}), weight_bytes=307_200, turns=10)
    assert price(wait, CLUSTER).cycles == 3_000 + 100 + 9 * 200 + 400
    # the first op's weights come before those of the second, and all of the computation after them
    wait = traffic(steps=steps({"lasting_bytes": 307_200}, {}), weight_bytes=307_200, turns=10)
    assert price(wait, CLUSTER).cycles == 3_000 + 200 + 9 * 200 + 400


def test_small_weights_wait_for_the_start_ups_of_those_before_them() -> None:
    """Loads of 200 cycles each, one after the other; the first start-up counts by itself."""
    wait = traffic(steps=steps({"loading_cycles": 200.0}, {"loading_cycles": 400.0}), input_bytes=1_024)
    assert price(wait, CLUSTER).cycles == 2_000 + 400
    wait = traffic(steps=steps({"loading_cycles": 200.0}, {"loading_cycles": 3_000.0}), input_bytes=1_024)
    assert price(wait, CLUSTER).cycles == 3_200 - 200 + 1_000 + 400
    # with one buffer nothing is worked on meanwhile
    assert price(replace(wait, overlapped=False), CLUSTER).cycles == 3_200 - 200 + 2_000 + 400


def test_inputs_come_more_slowly_while_the_cores_engines_load_weights() -> None:
    """A fifth of the rate: 100 cycles' worth of inputs after 500; without the weights they would be there after 100."""
    both: dict[str, Any] = {"input_bytes": 10_240, "weight_bytes": 204_800, "compute_cycles": 1_000, "turns": 10}
    ops = steps({"arriving_bytes": 10_240}, {"lasting_bytes": 204_800})
    shared = price(traffic(**both, steps=ops, loading_share=0.2), CLUSTER).cycles
    # weights take the rest of the rate, and end when both have come
    assert shared == 2_100 + 100 + 9 * 200 + 400
    # a fifth of the rate until they are there, unless the weights have come before
    ops = steps({"arriving_bytes": 10_240}, {})
    before = traffic(**{**both, "weight_bytes": 102_400}, steps=ops, loading_share=0.2)
    assert price(before, CLUSTER).cycles == 100 + 200 + 9 * 200 + 400


@pytest.mark.parametrize(("turns", "cycles"), [(1, 1_000 + 1_000), (4, 1_000 + 250), (10, 1_000 + 100)])
def test_the_last_of_several_turns_works_when_the_rest_has_moved(turns: int, cycles: int) -> None:
    """All inputs come in 1,000 cycles: those of each turn are worked on while others come, but for the last ones."""
    ops = steps({"arriving_bytes": 102_400 // turns})
    assert price(traffic(input_bytes=102_400, turns=turns, steps=ops), CLUSTER).cycles == cycles + 400


def test_the_last_part_of_a_sum_works_when_the_rest_has_moved() -> None:
    ops = steps({"arriving_bytes": 25_600})
    assert price(traffic(input_bytes=102_400, parts=4, steps=ops), CLUSTER).cycles == 1_000 + 250 + 400


def test_a_part_starts_comes_and_is_worked_on_before_its_buffer_takes_the_next_but_one() -> None:
    """Ten loads of 200 ns to start and 100 to come, and 100 of work: through two buffers."""
    ops = steps({"arriving_bytes": 10_240})
    found = price(traffic(input_bytes=102_400, unit_loads=10, turns=10, steps=ops), CLUSTER)
    assert found.cycles == 10 * (200 + 100 + 100) / 2 + 400


@pytest.mark.parametrize(
    ("passing", "turn"),
    [
        # directly, one place: each part comes when the one before it is done, 4 × (100 + 25)
        (Passing(parts=4, fetched=0.0, moved=100.0, slots=1, directly=True, ahead=False), 500),
        # two places: they come one after the other
        (Passing(parts=4, fetched=0.0, moved=100.0, slots=2, directly=True, ahead=False), 400),
        # by the SRAM, where all have room: they are there when the cores turn to them, and move in 10 each
        (Passing(parts=4, fetched=20.0, moved=10.0, slots=1, directly=False, ahead=True), 140),
        # by the SRAM, where one has room
        (Passing(parts=4, fetched=60.0, moved=10.0, slots=1, directly=False, ahead=False), 240),
    ],
)
def test_weights_that_pass_come_in_every_turn(passing: Passing, turn: int) -> None:
    """100 cycles of computation a turn."""
    cycles = [
        price(traffic(steps=steps({"passing": passing, "compute_cycles": 100 * turns}), turns=turns), CLUSTER).cycles
        for turns in (10, 11, 20)
    ]
    assert [more - cycles[0] for more in cycles] == [0, turn, 10 * turn]


def test_without_double_buffering_transfers_and_computation_alternate() -> None:
    cost = price(traffic(input_bytes=102_400, compute_cycles=5_000, overlapped=False), CLUSTER)
    assert cost.cycles == 5_000 + 1_000 + 400


@pytest.mark.parametrize(
    ("ops", "cycles"),
    [
        # parts are handed on as they come
        ([{"lasting_bytes": 102_400, "handed_bytes": 115_200}] * 2, 2 * 1_000 + 1_000),
        # units take longer than DRAM
        ([{"lasting_bytes": 51_200, "handed_bytes": 384_000}] * 2, 2 * 2_000 + 1_000),
        # stationary weights do not come from DRAM
        ([{"handed_bytes": 384_000}] * 2, 2 * 2_000 + 1_000),
    ],
)
def test_what_units_hand_each_other_is_waited_for_once(ops: list[dict[str, Any]], cycles: int) -> None:
    """Two ops of 1,000 cycles in one turn, each begins when its part is there; units hand on 192 bytes a cycle."""
    its = [{**op, "exchanged_bytes": op["handed_bytes"]} for op in ops]
    cost = price(traffic(steps=steps(*its), exposed_transfers=0), CLUSTER)
    assert handed_bytes_per_cycle(CLUSTER, 4) == 192
    assert cost.cycles == cycles
    assert cost.stages[0].bound_by == "compute"


def test_without_double_buffering_cores_wait_until_inputs_are_handed_on() -> None:
    """102.4 bytes a cycle from DRAM, then 192 between units; the longer one names the stall."""
    ways: dict[str, Any] = {"input_bytes": 102_400, "compute_cycles": 5_000, "overlapped": False}
    for passed, cycles, cause in ((96_000, 500, "dram"), (384_000, 2_000, "exchange")):
        cost = price(traffic(passed_on_bytes=passed, **ways), CLUSTER)
        assert cost.cycles == 5_000 + 1_000 + cycles + 400
        assert dict(cost.stalls) == {cause: 1_000 + cycles, "start-up": 400}


def test_a_group_that_moves_nothing_has_no_start_up() -> None:
    assert price(traffic(compute_cycles=7), CLUSTER).cycles == 7


def test_on_chip_transfers_share_the_cores_move_engines() -> None:
    """4 units × 4 cores × 64 bytes per cycle."""
    cost = price(traffic(sram=LevelBytes(read=10_240_000, written=0), compute_cycles=1), CLUSTER)
    assert cost.onchip_cycles == 10_000
    assert cost.bound_by == "on-chip"


def test_what_is_broadcast_goes_over_the_bus_instead() -> None:
    """128 bytes per cycle and cluster."""
    cost = price(traffic(sram=LevelBytes(read=512_000, written=0), broadcast_bytes=512_000), CLUSTER)
    assert cost.onchip_cycles == 1_000


@pytest.mark.parametrize(("ports", "cycles"), [("shared", 1_000), ("separate", 600)])
def test_an_srams_own_bandwidth_bounds_reads_and_writes_together_unless_it_has_ports_for_both(
    ports: str, cycles: int
) -> None:
    """PROF-2: 4 units of 256 bytes per cycle; 614,400 bytes read and 409,600 written."""
    values = profile_values("cluster4x4")
    values["sram"] |= {"bytes_per_cycle": 256, "ports": ports}
    values["engines"]["mvdma"]["bytes_per_cycle"] = 10_000
    profile = profile_from_values(values)
    cost = price(traffic(sram=LevelBytes(read=614_400, written=409_600)), profile)
    assert cost.onchip_cycles == cycles
    assert cost.stalls == (("sram", cycles),)


def test_weights_in_a_part_of_their_own_do_not_wait_for_activations() -> None:
    """PROF-2: the slower of the two parts of a split SRAM counts, not both."""
    values = profile_values("cluster4x4")
    values["sram"] |= {"bytes_per_cycle": 256, "weight_bytes": 1024}
    values["engines"]["mvdma"]["bytes_per_cycle"] = 10_000
    profile = profile_from_values(values)
    both = traffic(sram=LevelBytes(read=1_024_000), sram_weights=LevelBytes(read=2_048_000))
    assert price(both, profile).onchip_cycles == 2_000


def test_stages_follow_one_another_each_as_slow_as_its_slowest_part() -> None:
    """The first computes 5,000 cycles, the second waits 3,000 for its memory port: 1,000 of them computing."""
    steps = (
        StepTraffic(op=0, dataflow="vector", compute_cycles=5_000, array_cycles=0, nram_read_cycles=400, stage=0),
        StepTraffic(op=1, dataflow="vector", compute_cycles=1_000, array_cycles=0, nram_write_cycles=3_000, stage=1),
    )
    cost = price(traffic(steps=steps), CLUSTER)
    assert cost.cycles == 8_000
    assert cost.compute_cycles == 6_000
    assert cost.stalls == (("nram", 2_000),)
    assert [stage.bound_by for stage in cost.stages] == ["compute", "nram"]


def test_ops_of_one_stage_overlap_with_the_transfers_of_all_of_them() -> None:
    """5,000 + 1,000 cycles of computation hide 400 + 3,000 cycles of the memory's ports."""
    steps = (
        StepTraffic(op=0, dataflow="vector", compute_cycles=5_000, array_cycles=0, nram_write_cycles=400, stage=0),
        StepTraffic(op=1, dataflow="vector", compute_cycles=1_000, array_cycles=0, nram_write_cycles=3_000, stage=0),
    )
    cost = price(traffic(steps=steps), CLUSTER)
    assert (cost.cycles, cost.stalls) == (6_000, ())


def test_energy_is_priced_by_level_and_direction() -> None:
    values = profile_values("cluster4x4")
    values["dram"] |= {"read_pj_per_byte": 2.0, "write_pj_per_byte": 3.0}
    values["sram"] |= {"read_pj_per_byte": 5.0, "write_pj_per_byte": 7.0}
    values["nram"] |= {"read_pj_per_byte": 11.0, "write_pj_per_byte": 13.0}
    values["wram"] |= {"read_pj_per_byte": 17.0, "write_pj_per_byte": 19.0}
    values["static_w"] = 0.0
    cost = price(
        traffic(
            input_bytes=1000,
            weight_bytes=100,
            output_bytes=10,
            sram=LevelBytes(read=10_000, written=100_000),
            nram=LevelBytes(read=1, written=2),
            wram=LevelBytes(read=3, written=4),
            mac_energy_pj=0.5,
            vector_ops=20,
        ),
        profile_from_values(values),
    )
    expected = 2 * 1100 + 3 * 10 + 5 * 10_000 + 7 * 100_000 + 11 + 13 * 2 + 17 * 3 + 19 * 4 + 0.5 + 20 * 0.1
    assert cost.energy_pj == pytest.approx(expected)
    levels = {"dram": 2230.0, "sram": 750_000.0, "nram": 37.0, "wram": 127.0, "mac": 0.5, "vector": 2.0}
    assert dict(cost.energy_by_level) == pytest.approx({**levels, "registers": 0, "link": 0, "static": 0})


def test_static_power_costs_energy_while_a_group_runs() -> None:
    """1 W for 1 µs is 1 µJ."""
    assert price(traffic(compute_cycles=1000), CLUSTER).energy_pj == pytest.approx(1e6)


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(1, 4),
    st.sampled_from([CLUSTER, EDGE]),
)
def test_no_group_is_faster_than_its_roofline(
    read: int, written: int, compute: int, units: int, profile: Profile
) -> None:
    cost = price(traffic(input_bytes=read, output_bytes=written, compute_cycles=compute, units=units), profile)
    assert cost.cycles >= compute
    assert cost.cycles >= (read + written) / profile.dram_bytes_per_cycle


def test_energy_of_a_product_follows_its_element_type() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 4, 8, 8]), 4, 4))
    (op,) = model.facts().ops
    assert mac_energy_pj(op, CLUSTER) == 1.2
    assert mac_energy_pj(replace(op, dtype="int8"), CLUSTER) == 0.06


def test_reads_are_shared_where_something_passes_them_on() -> None:
    """SPEC 5.1: DRAM multicast, CDMA between clusters, links between cores; one unit needs none."""
    assert reads_are_shared(CLUSTER)
    assert reads_are_shared(EDGE)
    values = profile_values("edge4")
    values["engines"]["link"] = None
    assert not reads_are_shared(profile_from_values(values))
    values["dram"]["multicast"] = True
    assert reads_are_shared(profile_from_values(values))
    assert reads_are_shared(small_profile(nram_bytes=1024, sram_bytes=2048))


def cost_of(cycles: int, energy: float, dram: int) -> Cost:
    """A cost with the figures that objectives look at."""
    level = LevelBytes()
    return Cost(
        dram_read_bytes=dram,
        dram_write_bytes=0,
        table_read_bytes=0,
        weight_read_bytes=0,
        dram_cycles=0,
        onchip_cycles=0,
        compute_cycles=0,
        array_cycles=0,
        cycles=cycles,
        energy_pj=energy,
        bound_by="dram",
        macs=0,
        vector_ops=0,
        sram=level,
        nram=level,
        wram=level,
        exchanged_bytes=0,
        stalls=(),
        energy_by_level=(),
        stages=(),
    )


def test_edp_is_total_energy_times_total_latency() -> None:
    """SPEC 5.1: not a sum over groups."""
    totals = Totals.of([cost_of(2, 3.0, 5), cost_of(7, 11.0, 13)])
    assert objective_value("edp", totals) == (2 + 7) * (3 + 11)
    assert objective_value("latency", totals) == 9
    assert objective_value("energy", totals) == 14
    assert objective_value("dram_bytes", totals) == 18


def test_ties_are_broken_by_what_the_objective_leaves_open() -> None:
    fast, slow = Totals.of([cost_of(1, 9.0, 5)]), Totals.of([cost_of(2, 1.0, 5)])
    assert ranking("dram_bytes", fast) < ranking("dram_bytes", slow)
    assert ranking("energy", slow) < ranking("energy", fast)


@pytest.mark.parametrize(("units", "copies"), [(1, 1), (2, 2), (3, 3), (4, 6)])
def test_clusters_hand_each_other_their_parts_of_what_all_need_at_the_same_time(units: int, copies: int) -> None:
    """Of four each has read a quarter and sends it twice at most: to those before it, and to those behind it."""
    assert CLUSTER.engines.cdma is not None
    assert handed_bytes_per_cycle(CLUSTER, units) == CLUSTER.engines.cdma.bytes_per_cycle * copies


@pytest.mark.parametrize("units", [1, 2, 4])
def test_some_link_between_cores_carries_all_that_these_hand_each_other(units: int) -> None:
    """So bytes arrive at all other cores at the rate of one link."""
    assert EDGE.engines.link is not None
    assert handed_bytes_per_cycle(EDGE, units) == EDGE.engines.link.bytes_per_cycle * max(1, units - 1)
