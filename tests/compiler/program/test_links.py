"""What goes to many cores over links takes one command, which crosses each link once (PROG-1)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.emitter import Held, Machine, machine_of
from compiler.program.peers import from_peers
from compiler.program.program import Level, Opcode
from compiler.program.slots import Slot
from compiler.tiling.placement import Placement
from compiler.tiling.tile import Spread
from tests.compiler.program.lowered import Lowered, chip, group, pair, run, single, weights_of
from tests.profiles import profile_values


def mesh(columns: int) -> Profile:
    """As many rows as columns of linked cores that hold the weights, without address tables."""
    values = profile_values("manycore2x64")
    values |= {
        "name": "mesh",
        "chips": 1,
        "cores_per_cluster": columns**2,
        "weights": {"mode": "stationary"},
        "addressing": "strides",
    }
    return profile_from_values(values)


def sent(lowered: Lowered) -> dict[int, list[tuple[int, int]]]:
    """By core, or cluster, what it sends to others: the first receiver and how many, in order."""
    places, found = lowered.expanded.places, dict[int, list[tuple[int, int]]]()
    for row in [*lowered.commands(Opcode.EXCHANGE), *lowered.commands(Opcode.BROADCAST)]:
        to = places[row["target"]].number, int(row["targets"])
        found.setdefault(places[row["source"]].number, []).append(to)
    return found


@pytest.mark.parametrize(
    ("tile", "working", "ways"),
    [
        # three rows of three cores of four: the fourth ones have no work, and get it too
        ({"H": 2, "W": 2}, {0, 1, 2, 4, 5, 6, 8, 9, 10}, [(0, 11)]),
        # three rows of one core: three without work would get it for each that has
        ({"H": 2, "W": 6}, {0, 1, 2}, [(0, 3)]),
    ],
)
def test_stationary_weights_go_to_a_rectangle_of_a_mesh_at_once(
    tile: dict[str, int], working: set[int], ways: list[tuple[int, int]]
) -> None:
    network, profile = single(16, channels=4, height=6), mesh(4)
    resident = network.resident_bytes(profile)
    how: dict[str, Any] = {"units": 16, "spread": Spread.BANDS, "placement": Placement.BLOCKS}
    tiling = group(network, profile.beside(resident), tile, **how)
    lowered = run(network, tiling, resident_bytes=resident, profile=profile)
    assert set(lowered.boxes_by_core(0)) == working
    of_core = sent(lowered)
    # every core has a part of the weights, and of the bias
    assert len(of_core) == 16
    assert all(found == ways * len(weights_of(network)) for found in of_core.values())


def test_a_part_goes_to_cores_on_both_sides_by_one_command() -> None:
    """A core between others sends to all of them and itself, one at the end to the others."""
    network = pair(channels=4)
    lowered = run(network, group(network, chip(cores=4, multicast=True), {}, units=4, spread=Spread.CHANNELS))
    assert sent(lowered) == {0: [(1, 3)], 1: [(0, 4)], 2: [(0, 4)], 3: [(0, 3)]}


def test_clusters_send_to_each_side_by_a_command_of_its_own() -> None:
    network = pair(channels=4)
    profile = chip(clusters=4, sram=1 << 15, multicast=True)
    lowered = run(network, group(network, profile, {}, core={"H": 12}, units=4, spread=Spread.CHANNELS))
    of_cluster = {core: sorted(found) for core, found in sent(lowered).items()}
    assert of_cluster == {0: [(1, 3)], 1: [(0, 1), (2, 2)], 2: [(0, 2), (3, 1)], 3: [(0, 3)]}


class Sends:
    """Takes down what is sent: the first receiver and how many."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.found = machine, list[tuple[int, int]]()

    def copy(self, *what: Any, **_how: bool) -> None:
        _, _, _, target, *_, also = what
        self.found.append((self.machine.places[target.slot.place].number, 1 + len(also)))


@pytest.mark.parametrize(
    ("receivers", "idle", "ways"),
    [
        ([0, 2], {1}, [(0, 3)]),
        # a core with work may have something else there
        ([0, 2], set(), [(0, 1), (2, 1)]),
        # more cores without work than receive it before them
        ([0, 3], {1, 2}, [(0, 1), (3, 1)]),
        ([0, 1, 4], {2, 3}, [(0, 5)]),
    ],
)
def test_only_cores_without_work_get_what_others_need(
    receivers: list[int], idle: set[int], ways: list[tuple[int, int]]
) -> None:
    machine = machine_of(mesh(4))
    places = [number for number, place in enumerate(machine.places) if place.level is Level.NRAM]
    box = ((0, 8),)
    held = {core: Held(Slot(places[core], 64, 32), 64, (0,), (4,), box) for core in [*receivers, 9]}
    emitter: Any = Sends(machine)
    from_peers(emitter, [(9, held[9])], box, {core: held[core] for core in receivers}, 4, idle)
    assert emitter.found == ways
