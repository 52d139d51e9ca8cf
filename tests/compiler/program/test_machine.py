"""Which engines share a queue (PROF-2)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.profile.load import profile_from_values
from compiler.program.emitter import Machine, machine_of
from tests.profiles import profile_values


def machine(shared: list[list[str]]) -> Machine:
    """The machine of `cluster4x4` with two clusters of three cores and engines that are one component."""
    values: dict[str, Any] = profile_values("cluster4x4")
    values |= {"clusters_per_chip": 2, "cores_per_cluster": 3}
    values["engines"]["shared"] = shared
    return machine_of(profile_from_values(values))


def numbers(found: Machine, engine: str) -> list[int]:
    """The queues of all engines of a kind."""
    return [queue for (name, _), queue in sorted(found.queue_of.items()) if name == engine]


@pytest.mark.parametrize("shared", [["gdma", "mvdma"], ["mvdma", "gdma"]])
def test_engines_of_cores_share_the_queue_of_their_clusters_engine(shared: list[str]) -> None:
    found = machine([shared])
    of_clusters, of_cores = numbers(found, "gdma"), numbers(found, "mvdma")
    assert len(set(of_clusters)) == 2
    assert of_cores == [of_clusters[core // 3] for core in range(6)]


def test_engines_of_the_same_kind_of_place_share_one_by_one() -> None:
    found = machine([["iodma", "mvdma"], ["gdma", "cdma", "bus"]])
    assert numbers(found, "iodma") == numbers(found, "mvdma")
    assert numbers(found, "gdma") == numbers(found, "cdma") == numbers(found, "bus")
    assert len(set(numbers(found, "iodma"))) == 6
    assert len(set(numbers(found, "gdma"))) == 2
    # beside DMA of cores and of clusters the cores themselves
    assert len(found.queues) == 6 + 2 + 6
