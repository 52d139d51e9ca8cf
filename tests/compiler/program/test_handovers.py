"""Who serves whom when where units hold what others need: parts between units over links and between clusters."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.program import Opcode
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Handed, Handover, Spread
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.lowered import Lowered, Network, lower
from tests.compiler.tiling.tilings import configuration
from tests.models import Model
from tests.profiles import profile_values

SIDE = 8
# an eighth of a map of 8 x 8 x 8 float32
PART = SIDE * SIDE * 4


def linked(cores: int) -> Profile:
    """Cores on a mesh."""
    values = profile_values("manycore2x64")
    values |= {"name": "linked", "chips": 1, "cores_per_cluster": cores, "weights": {"mode": "streamed"}}
    # so that nothing but parts passes between units
    values["dram"]["multicast"] = True
    return profile_from_values(values)


def clusters(port: float | None) -> Profile:
    """Four clusters of a core that send to each other at 64 bytes a cycle; `port`: what their memories take."""
    values = profile_values("edge4")
    ports = {} if port is None else {"bytes_per_cycle": port, "ports": "separate"}
    values |= {"name": "clusters", "clusters_per_chip": 4, "cores_per_cluster": 1}
    values["sram"] = {"capacity_bytes": 1 << 16, "read_pj_per_byte": 1.0, "write_pj_per_byte": 1.0} | ports
    values["dram"]["multicast"] = True
    values["engines"] = {name: {"bytes_per_cycle": 64} for name in ("gdma", "mvdma", "cdma")}
    return profile_from_values(values)


def handed_on(profile: Profile, made: dict[str, int], held: str, taken: dict[str, int]) -> Lowered:
    """Two convolutions on all units, each a group with a tile per unit; between them units hold parts along an axis."""
    model = Model()
    x = model.input([1, SIDE, SIDE, SIDE], "x")
    model.output(model.conv(model.conv(x, SIDE, SIDE, 1, pad=0), SIDE, SIDE, 1, pad=0))
    network, units = Network(model), profile.units.count
    share = SIDE // units
    handed = Handed(place=0, axis=held, share=share, before_end=0)
    size = share * PART
    groups = []
    for op, tile, handover in (
        (0, made, Handover(hands=handed, takes=(), held_bytes=size)),
        (1, taken, Handover(hands=None, takes=(handed,), held_bytes=size)),
    ):
        geometry = GroupGeometry(network.facts, (op,))
        whole = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
        how: Any = {"units": units, "handover": handover, "halo": ()}
        spread = Spread.CHANNELS if "C" in tile else Spread.BANDS
        core = None if profile.sram is None else {**whole, **tile}
        groups.append(
            TiledGroup(geometry, profile.holding(size), configuration(**how, spread=spread), {**whole, **tile}, core)
        )
    lowered = lower(network, *groups, profile=profile)
    lowered.check_values()
    return lowered


def served(lowered: Lowered, group: int) -> list[list[int]]:
    """By sender the units that it sends parts to while a group runs, in order."""
    program = lowered.expanded
    found: dict[int, list[int]] = {}
    for row, number in zip(program.commands, program.group_numbers.tolist(), strict=True):
        source, target = program.places[row["source"]], program.places[row["target"]]
        if number == group and row["opcode"] == Opcode.EXCHANGE and source.level is target.level:
            found.setdefault(source.number, []).append(target.number)
    return [found[sender] for sender in sorted(found)]


def are_apart(served: list[list[int]]) -> bool:
    """True if at each turn all senders serve different units, every other one once."""
    count = len(served)
    assert [sorted(its) for its in served] == [[u for u in range(count) if u != mine] for mine in range(count)]
    return all(len(set(turn)) == count for turn in zip(*served, strict=True))


@pytest.mark.parametrize("cores", [4, 8])
def test_units_that_take_from_all_others_over_links_are_served_in_turn(cores: int) -> None:
    """Channels that all units hold, for rows: no receiver is sent two parts at a time (TILE-4)."""
    share = SIDE // cores
    found = served(handed_on(linked(cores), {"C": share}, "C", {"H": share}), 1)
    assert are_apart(found)


@pytest.mark.parametrize("cores", [4, 8])
def test_units_that_put_to_all_others_over_links_serve_them_in_turn(cores: int) -> None:
    share = SIDE // cores
    found = served(handed_on(linked(cores), {"H": share}, "C", {"C": share}), 0)
    assert are_apart(found)


def test_half_of_the_units_send_up_and_half_down() -> None:
    """So both directions of links carry as much."""
    found = served(handed_on(linked(4), {"C": 2}, "C", {"H": 2}), 1)
    assert found == [[1, 2, 3], [0, 3, 2], [3, 0, 1], [2, 1, 0]]


def test_clusters_whose_memories_take_all_that_comes_are_served_one_after_the_other() -> None:
    """The first one goes to work while the next ones wait; with slower ports they are served in turn."""
    free, ported = (served(handed_on(clusters(port), {"C": 2}, "C", {"H": 2}), 1) for port in (None, 64))
    assert [its[0] for its in free] == [1, 0, 0, 0]
    assert are_apart(ported)
