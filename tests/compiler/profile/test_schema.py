"""What a profile says of itself: the memory that stationary weights leave (PROF-2)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.profile import builtin_profile, parse_profile, profile_json
from tests.profiles import small_profile


def test_weights_are_stationary_only_where_the_profile_says_so() -> None:
    """PROF-2: streamed from DRAM, or stationary on the chip."""
    assert builtin_profile("manycore2x64").is_stationary
    assert not builtin_profile("edge4").is_stationary


def test_stationary_weights_take_their_bytes_from_the_memory_that_weights_share_with_activations() -> None:
    profile = builtin_profile("manycore2x64")
    left = profile.beside(100_000)
    assert left.nram.capacity_bytes == profile.nram.capacity_bytes - 100_000
    assert left.nram.read_pj_per_byte == profile.nram.read_pj_per_byte
    assert (left.dram, left.engines, left.name) == (profile.dram, profile.engines, profile.name)


def test_stationary_weights_take_their_bytes_from_a_weight_memory_of_its_own() -> None:
    profile = small_profile(nram_bytes=1000, wram_bytes=5000)
    left = profile.beside(1200)
    assert left.wram is not None
    assert (left.wram.capacity_bytes, left.nram) == (3800, profile.nram)
    assert profile.resident_capacity_bytes == 5000


def test_a_profile_beside_no_weights_is_itself() -> None:
    profile = builtin_profile("manycore2x64")
    assert profile.beside(0) is profile


@pytest.mark.parametrize("wram_bytes", [None, 1000])
def test_weights_that_leave_nothing_leave_one_byte(wram_bytes: int | None) -> None:
    """What does not fit is refused by the tiling, with the op's name, and not by the profile."""
    left = small_profile(nram_bytes=1000, wram_bytes=wram_bytes).beside(10**9)
    assert left.weight_memory_bytes == 1


def test_a_partial_sum_takes_four_bytes_unless_the_profile_says_otherwise() -> None:
    assert builtin_profile("cluster4x4").partial_sum_bytes == 4
    assert builtin_profile("metaproto-df").partial_sum_bytes == 2


@pytest.mark.parametrize("path", ["dram.ports", "nram.ports", "nram.access_bytes", "matrix.buffers.weight"])
def test_a_profile_reads_back_with_its_ports_and_buffers(path: str) -> None:
    """PROF-1: the canonical form carries every field."""
    profile = builtin_profile("polar4x4" if path == "dram.ports" else "metaproto-df")
    default: Any = builtin_profile("edge4")
    stated: Any = parse_profile(profile_json(profile))
    for part in path.split("."):
        stated, default = getattr(stated, part), getattr(default, part)
    assert stated != default
    assert parse_profile(profile_json(profile)) == profile
