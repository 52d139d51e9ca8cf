"""DRAM bytes by price are those that programs move, address tables apart (SPEC 5.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compiler.program.loops.time import time_of
from compiler.program.steps.segment import SegmentSteps
from compiler.tiling.candidates import channel_size
from compiler.tiling.choose import completed, tables_of
from compiler.tiling.configurations import simple_configurations
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.lowerable import lowering_check
from compiler.tiling.placement import Placement
from compiler.tiling.tile import Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from compiler.tiling.wishes import Wishes
from tests.compiler.program.lowered import Network, chip, fits, segment_of
from tests.models import Model


def drawn(seed: int) -> Iterator[tuple[Network, TiledGroup]]:
    """Up to three tilings of a random group of up to three ops: products in groups, addends of fewer axes, some with
    the weights of another op.
    """
    rng = np.random.default_rng(seed)
    channels, height, width = 4 * int(rng.integers(1, 4)), int(rng.integers(5, 12)), int(rng.integers(5, 9))
    model = Model(seed=seed)
    x = model.input([1, channels, height, width])
    same = (model.weight(channels, channels, 1, 1), model.weight(channels)) if rng.integers(2) else None
    for _ in range(int(rng.integers(1, 4))):
        if same is not None and rng.integers(2):
            x = model.node("Conv", [x, *same])
            continue
        match int(rng.integers(3 if same else 4)):
            case 0:
                x = model.relu(x)
            case 1:
                shape = [[1, channels, 1, width], [1, channels, 1, 1], [1, channels, height, 1]][int(rng.integers(3))]
                x = model.node("Add", [x, model.input(shape)])
            case 2:
                kernel = int(rng.choice([1, 3]))
                x = model.conv(x, channels, channels, kernel, pad=kernel // 2, group=int(rng.choice([2, 4, channels])))
            case _:
                filters = 4 * int(rng.integers(1, 5))
                x = model.conv(x, channels, filters, 1, pad=0)
                channels = filters
    model.output(x)
    network = Network(model, seed=seed)
    clustered, count = bool(rng.integers(2)), int(rng.integers(1, 5))
    profile = chip(
        cores=int(rng.choice([1, 2, 4])) if clustered else count,
        clusters=count if clustered else 1,
        sram=1 << 16 if clustered else 0,
        nram=1 << int(rng.integers(11, 15)),
        wram=int(rng.choice([0, 1 << 11])),
        multicast=bool(rng.integers(2)),
    )
    geometry, wishes = GroupGeometry(network.facts, network.ops), Wishes(objective="latency")
    whole = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    tables = list(tables_of(geometry, profile, wishes))
    choices = [(its, choice) for its in tables for choice in simple_configurations(geometry, its, profile)]
    for number in rng.permutation(len(choices))[:3].tolist():
        table, choice = choices[number]
        tile = whole | {axis: int(rng.integers(1, whole[axis] + 1)) for axis in ("H", "W")}
        channels_of_tile = channel_size(table, choice)
        if channels_of_tile is not None:
            tile["C"] = channels_of_tile
        tiled = completed(table, profile, choice, tile)
        if isinstance(tiled, TiledGroup) and fits(tiled) and lowering_check(tiled) is None:
            yield network, tiled


def is_exact(tiled: TiledGroup) -> bool:
    """False for tiles dealt otherwise than in bands of rows: addends that units share are priced as in equal bands."""
    choice = tiled.configuration
    first = next((axis for axis in choice.walk if axis != "N"), "H")
    return choice.spread is not Spread.BANDS or (choice.placement is Placement.BANDS and first == "H")


@pytest.mark.matrix(first=2, rest=4)
@pytest.mark.parametrize("start", range(0, 100, 10))
def test_priced_bytes_are_moved(start: int) -> None:
    compared = 0
    for seed in range(start, start + 10):
        for network, tiled in drawn(seed):
            if not is_exact(tiled):
                continue
            steps = SegmentSteps(*segment_of(network, tiled, resident_bytes=0, profile=tiled.profile))
            moved = time_of(steps.lowered(), tiled.profile).moved().memories["dram"]
            priced = traffic_of(tiled)
            assert moved.written == priced.output_bytes, seed
            assert abs(moved.read - priced.read_bytes - priced.table_bytes) <= priced.table_bytes, seed
            compared += 1
    assert compared > 5
