"""Tiles larger than the usual one: what stays in the core otherwise passes it in pieces (PROG-2, SIM-1)."""

from __future__ import annotations

import pytest

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import parse_profile
from compiler.profile.schema import Profile
from compiler.program.larger import FreeSpace, cut, gaps, smaller
from tests.models import Model

_PROFILE = """
schema: tessera.profile/1
name: one-core
clock_hz: 1.0e+9
chips: 1
clusters_per_chip: 1
cores_per_cluster: 1
line_bytes: 64
dram:
  {{capacity_bytes: 1073741824, bandwidth_bytes_per_s: 8.0e+9, read_pj_per_byte: 80, write_pj_per_byte: 80,
  startup_ns: 0}}
sram: {{capacity_bytes: 262144, weight_bytes: 262144, read_pj_per_byte: 1.5, write_pj_per_byte: 1.5}}
nram: {{capacity_bytes: {nram}, read_pj_per_byte: 0.4, write_pj_per_byte: 0.4}}
wram: {{capacity_bytes: 32768, read_pj_per_byte: 0.4, write_pj_per_byte: 0.4}}
engines:
  gdma: {{bytes_per_cycle: 8, startup_ns: 0}}
  mvdma: {{bytes_per_cycle: 64, startup_ns: 0}}
matrix: {{arrays: {{float32: {{k: 32, c: 2, ox: 4, oy: 4}}}}, pj_per_mac: {{float32: 0.04}}}}
vector: {{lanes: 64, pj_per_operation: 0.1}}
static_w: 0
weights: {{mode: streamed}}
addressing: {addressing}
"""


def _profile(nram_bytes: int, addressing: str) -> Profile:
    return parse_profile(_PROFILE.format(nram=nram_bytes, addressing=addressing).encode())


def _network(extent: int, channels: int) -> bytes:
    model = Model()
    x = model.input([1, channels, extent, extent], "x")
    for _ in range(4):
        x = model.node("Relu", [model.conv(x, channels, channels)])
    model.output(x)
    return model.data()


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("addressing", ["strides", "tables"])
@pytest.mark.parametrize(
    ("nram_bytes", "extent", "channels", "objective"),
    [(32768, 40, 16, "latency"), (16384, 48, 8, "latency"), (49152, 64, 8, "energy"), (16384, 64, 8, "energy")],
)
def test_the_first_tile_of_a_walk_passes_a_small_core_with_the_right_values(
    nram_bytes: int, extent: int, channels: int, objective: str, addressing: str
) -> None:
    found = compile_model(
        _network(extent, channels), _profile(nram_bytes, addressing), parse_options({"objective": objective})
    )
    values = found.report.values
    assert values.checked
    assert [output.holds for output in values.outputs] == [True]


def test_space_is_taken_where_there_is_room_first() -> None:
    space = FreeSpace([(192, 256), (256, 300), (10, 74), (1024, 1024)])
    assert space.largest_bytes == 108
    assert space.take(10) == 64
    assert space.take(64) == 192
    assert space.take(45) is None
    assert space.take(44) == 256
    assert space.take(1) is None


def test_what_is_free_lies_between_what_is_taken() -> None:
    assert gaps([(30, 40), (10, 20), (35, 38), (15, 25)], 50) == [(0, 10), (25, 30), (40, 50)]
    assert gaps([(0, 50)], 50) == []


def test_pieces_cover_a_box_once_and_shrink_axis_after_axis() -> None:
    assert cut(((1, 4), (0, 2)), (2, 2)) == [((1, 3), (0, 2)), ((3, 4), (0, 2))]
    assert list(smaller((1, 3, 4), (2, 1))) == [(1, 3, 4), (1, 3, 2), (1, 3, 1), (1, 2, 1), (1, 1, 1)]
