"""Prices worked out by hand: cycles, energy and what bounds them (SPEC 5.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.cost.model import Cost, LevelBytes, Traffic, price
from compiler.cost.objective import Totals, objective_value, ranking
from compiler.cost.rates import (
    CoreWork,
    dram_port_bytes_per_cycle,
    mac_energy_pj,
    op_cycles,
    reads_are_shared,
)
from compiler.errors import ModelError
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from tests.models import Model
from tests.profiles import profile_values, small_profile

CLUSTER, EDGE = builtin_profile("cluster4x4"), builtin_profile("edge4")


def traffic(**changes: Any) -> Traffic:
    """A group that moves and computes nothing, but for the changes."""
    values: dict[str, Any] = {
        "input_bytes": 0,
        "weight_bytes": 0,
        "output_bytes": 0,
        "first_load_bytes": 0,
        "last_store_bytes": 0,
        "exposed_transfers": 1,
        "units": 4,
        "overlapped": True,
        "sram": LevelBytes(),
        "nram": LevelBytes(),
        "wram": LevelBytes(),
        "exchanged_bytes": 0,
        "broadcast_bytes": 0,
        "compute_cycles": 0,
        "macs": 0,
        "mac_energy_pj": 0.0,
        "vector_ops": 0,
    }
    return Traffic(**{**values, **changes})


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
        traffic(input_bytes=102_400, first_load_bytes=10_240, last_store_bytes=5_120, compute_cycles=5_000), CLUSTER
    )
    assert cost.cycles == 5_000 + 150 + 400
    assert cost.bound_by == "compute"


def test_without_double_buffering_transfers_and_computation_alternate() -> None:
    cost = price(traffic(input_bytes=102_400, compute_cycles=5_000, overlapped=False), CLUSTER)
    assert cost.cycles == 5_000 + 1_000 + 400


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


def test_a_memorys_own_bandwidth_bounds_reads_and_writes_together() -> None:
    values = profile_values("cluster4x4")
    values["nram"]["bytes_per_cycle"] = 64
    profile = profile_from_values(values)
    cost = price(traffic(nram=LevelBytes(read=600_000, written=424_000)), profile)
    assert cost.onchip_cycles == 1_000


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


def conv_cycles(profile: Profile, channels: int, filters: int, *, group: int = 1, kernel: int = 3) -> int:
    """Cycles of one core for a whole 8×8 convolution."""
    model = Model()
    model.output(model.conv(model.input([1, channels, 8, 8]), channels, filters, kernel, group=group))
    (op,) = model.facts().ops
    return op_cycles(op, CoreWork(elements=64 * filters, channels=filters), profile)


def test_full_arrays_take_one_cycle_per_array_of_products() -> None:
    """16×16 float32: 64 pixels × 9 taps × 2 × 2 array passes."""
    assert conv_cycles(CLUSTER, 32, 32) == 64 * 9 * 2 * 2


def test_channels_that_do_not_fill_the_array_take_whole_passes() -> None:
    assert conv_cycles(CLUSTER, 17, 33) == 64 * 9 * 2 * 3


def test_grouped_convolutions_pass_the_array_once_per_group() -> None:
    assert conv_cycles(CLUSTER, 32, 32, group=2) == 2 * 64 * 9


def test_depthwise_convolutions_run_on_the_vector_lanes_where_that_is_faster() -> None:
    """2 operations per product on 64 lanes, against one lane of the array per channel."""
    assert conv_cycles(CLUSTER, 32, 32, group=32) == 2 * 9 * 64 * 32 // 64


def test_no_elements_take_no_cycles() -> None:
    model = Model()
    model.output(model.relu(model.input([1, 4])))
    (op,) = model.facts().ops
    assert op_cycles(op, CoreWork(elements=0, channels=1), CLUSTER) == 0
    assert op_cycles(op, CoreWork(elements=65, channels=1), CLUSTER) == 2


def test_a_type_without_an_array_is_refused_by_name() -> None:
    values = profile_values("edge4")
    del values["matrix"]["arrays"]["float32"]
    with pytest.raises(ModelError) as caught:
        conv_cycles(profile_from_values(values), 4, 4)
    assert caught.value.code == "no_array_for_dtype"


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
        weight_read_bytes=0,
        dram_cycles=0,
        onchip_cycles=0,
        compute_cycles=0,
        cycles=cycles,
        energy_pj=energy,
        bound_by="dram",
        macs=0,
        vector_ops=0,
        sram=level,
        nram=level,
        wram=level,
        exchanged_bytes=0,
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
