"""The DRAM route of each kind of data: directly by IODMA, or through the SRAM (TILE-7)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.cost.model import price
from compiler.profile import builtin_profile
from compiler.tiling.loads import op_weights
from compiler.tiling.tile import Order, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from tests.compiler.tiling.tilings import group_of_all, tiled
from tests.models import Model

CLUSTER, DEPTH_FIRST = builtin_profile("cluster4x4"), builtin_profile("metaproto-df")


def pointwise(**changes: Any) -> TiledGroup:
    """A 1×1 convolution on a map of 4 channels, 16 rows and columns, 4 clusters × 4 cores in bands."""
    model = Model()
    model.output(model.conv(model.input([1, 4, 16, 16]), 4, 4, 1))
    _, geometry = group_of_all(model)
    how: dict[str, Any] = {"units": 4, "spread": Spread.BANDS, "cores": 4, "core_spread": Spread.BANDS}
    return tiled(geometry, {"H": 4}, profile=CLUSTER, core={"H": 1}, **{**how, **changes})


def test_what_no_core_reads_twice_goes_past_the_sram() -> None:
    """TILE-7: inputs and outputs of 4096 B each cross no SRAM; weights do, for all cores of a cluster need them.

    One cluster reads them from DRAM and hands them on to three: four are written, four read for cores, three for CDMA.
    """
    group = pointwise()
    sram = price(traffic_of(group), CLUSTER).sram
    (weights,) = op_weights(group)
    assert (sram.read, sram.written) == (7 * weights.size_bytes, 4 * weights.size_bytes)


def test_what_several_cores_need_is_loaded_once_and_broadcast() -> None:
    """TILE-7: cores that share out channels all read the whole input: 4096 B in, and once over the bus."""
    traffic = traffic_of(pointwise(core_spread=Spread.CHANNELS))
    assert traffic.sram_ends.written == 4096
    assert traffic.steps[0].sram.read == traffic.steps[0].broadcast_bytes == 4096
    assert traffic.steps[0].nram.written >= 4 * 4096


@pytest.mark.parametrize(
    ("spread", "units", "times"), [(Spread.CHANNELS, 4, 0), (Spread.BANDS, 4, 4), (Spread.BANDS, 1, 0)]
)
def test_weights_that_one_core_alone_needs_go_past_the_sram(spread: Spread, units: int, times: int) -> None:
    """Where clusters have bands, each has a core that needs the same part: one reads it and hands it on."""
    group = pointwise(core_spread=Spread.CHANNELS, spread=spread, units=units)
    (weights,) = op_weights(group)
    assert traffic_of(group).steps[0].sram_weights.written == times * weights.size_bytes


def test_without_direct_engines_everything_is_staged() -> None:
    """metaproto-df has no IODMA: 256 B in and out, each written to the SRAM once and read from it once."""
    model = Model()
    model.output(model.relu(model.input([1, 1, 8, 8])))
    _, geometry = group_of_all(model)
    cost = price(traffic_of(tiled(geometry, {}, profile=DEPTH_FIRST, order=Order.DEPTH_FIRST)), DEPTH_FIRST)
    assert (cost.sram.read, cost.sram.written) == (512, 512)
