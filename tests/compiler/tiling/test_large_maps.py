"""Networks with large maps fuse as far as memory allows, however many tiles that takes (FUSE-O, SPEC N-6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import pytest
from onnx import helper

from compiler.compile import plan_model
from compiler.frontend.precision import SetPrecision
from compiler.ops.op_facts import graph_facts
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.tiling import choose, refine
from compiler.tiling.geometry import Grid, GroupGeometry
from compiler.tiling.sizes import CandidateGrids
from compiler.tiling.tile import Order
from tests.compiler.tiling.tilings import tiled
from tests.models import import_graph
from tests.networks import mc_cnn

# N-6: DRAM bytes of the published schedule, which are the floor, and its energy.
_FLOOR_BYTES = 480_000 + 29_887_488 + 111_168
_PUBLISHED_J = 8.571e-3
_LONG = 1 << 17


def test_mc_cnn_is_one_group_at_the_floor() -> None:
    """N-6: 376 × 1242 positions of 64 channels, in tiles of a few hundred positions."""
    options = parse_options({"precision": "int8", "objective": "energy"})
    plan = plan_model(mc_cnn().SerializeToString(), builtin_profile("metaproto-df"), options).plan
    assert [len(segment.groups) for segment in plan.segments] == [1]
    assert plan.totals.dram_bytes == _FLOOR_BYTES
    assert plan.totals.energy_j <= _PUBLISHED_J


def test_pieces_that_follow_one_another_take_half_of_the_room() -> None:
    """TILE-8: then one piece comes and leaves while another is worked on, and the price knows it."""
    profile = builtin_profile("metaproto-df")
    graph = SetPrecision(precision="int8").run(import_graph(mc_cnn().SerializeToString()))
    group = tiled(GroupGeometry(graph_facts(graph), (1,)), {"H": 8}, profile=profile, order=Order.BREADTH_FIRST)
    (stage,) = group.stages
    assert stage.rounds > 1
    assert stage.piece_bytes <= profile.nram.capacity_bytes // 2
    assert group.doubles_pieces(stage)


def test_a_long_axis_is_cut_into_so_many_tiles_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSE-S4: candidates of an axis of millions stay few enough to be held; of 2^24 there were 10^7 in a table."""
    tables, tiles = [], []
    make = CandidateGrids.__init__

    def made(self: CandidateGrids, projections: Any, grids: Mapping[str, Grid], halo: Any) -> None:
        tables.append(sum(len(grid.starts) for grid in grids.values()))
        make(self, projections, grids, halo)

    def complete(table: Any, profile: Any, configuration: Any, tile: Mapping[str, int]) -> Any:
        tiles.append(-(-_LONG // tile["W"]))
        return choose.completed(table, profile, configuration, tile)

    monkeypatch.setattr(CandidateGrids, "__init__", made)
    monkeypatch.setattr(refine, "completed", complete)
    float32 = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[3], strides=[2]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(*its) for its in (("x", float32, [1, 2, 2 * _LONG + 1]), ("y", float32, None))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "long", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    plan_model(model.SerializeToString(), builtin_profile("cluster4x4"), parse_options({}))
    assert max(tables) < 1 << 20
    assert max(tiles) <= 1 << 16
