"""When a box is read from DRAM once for several cores, by hand (SHAPE-6, TILE-7)."""

from __future__ import annotations

import msgspec
import pytest

from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.shapes.ways import saved_by_passing_on


def test_cores_of_a_cluster_gain_by_its_sram_what_their_shares_lack() -> None:
    """cluster4x4: a core's share is 6.4 B/cycle, four cores' 25.6; 200 + 20 cycles start what passes the SRAM."""
    profile = builtin_profile("cluster4x4")
    assert saved_by_passing_on(profile, 6400, 4) == pytest.approx(1000 - 250 - 220 - 50)
    assert saved_by_passing_on(profile, 6400, 2) == pytest.approx(1000 - 500 - 220 - 50)
    assert saved_by_passing_on(profile, 640, 4) == pytest.approx(100 - 25 - 220 - 5)


def test_a_single_core_gains_by_the_faster_engine_of_its_cluster() -> None:
    """cluster4x4: 16 B/cycle by itself; GDMA and MVDMA 64 each."""
    profile = builtin_profile("cluster4x4")
    assert saved_by_passing_on(profile, 64_000, 1) == pytest.approx(4000 - 1000 - 220 - 1000)
    assert saved_by_passing_on(profile, 6400, 1) < 0


def test_cores_gain_over_links_what_one_reads_for_all() -> None:
    """edge4: a share is 4 B/cycle, the four of them 16, one engine moves 8; the ring 16 after one cycle."""
    profile = builtin_profile("edge4")
    assert saved_by_passing_on(profile, 6400, 4) == pytest.approx(1600 - 800 - 1 - 400)
    assert saved_by_passing_on(profile, 6400, 1) < 0


def without_ways() -> Profile:
    """edge4 without its ring."""
    profile = builtin_profile("edge4")
    return msgspec.structs.replace(profile, engines=msgspec.structs.replace(profile.engines, link=None))


def test_without_ways_between_cores_nothing_is_gained() -> None:
    assert saved_by_passing_on(without_ways(), 6400, 4) < 0
