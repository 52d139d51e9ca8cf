"""Tables on chips whose cores reach DRAM through an SRAM alone (PROG-1, SHAPE-3, SHAPE-6)."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import LimitError
from compiler.ir.graph import HOST
from compiler.ops.op_facts import graph_facts
from compiler.profile import Profile, builtin_profile
from compiler.program.context import Context
from compiler.program.emitter import Held, machine_of
from compiler.program.loops.time import time_of
from compiler.program.program import Level, Opcode, Program, Role
from compiler.program.slots import Slot
from compiler.program.timing.roofline import roofline_of
from compiler.shapes.passing import PassingRoom
from compiler.shapes.routes import Routes
from compiler.shapes.ways import dram_way, peer_way
from tests.compiler.shapes.dynamic import Compiled, corners_and
from tests.compiler.shapes.layer_networks import LAYERS, classifier, separable_convolutions
from tests.models import Model
from tests.profiles import changed_profile


def chip(clusters: int = 1, cores: int = 2, **changes: object) -> Profile:
    """Clusters of cores without engines of their own to DRAM."""
    sizes = {"clusters_per_chip": clusters, "cores_per_cluster": cores}
    return changed_profile("cluster4x4", **{"engines__iodma": None, **sizes, **changes})


def one_core() -> Profile:
    """`metaproto-df` with an array for the type of the networks here."""
    array, energy = {"int8": {"k": 32, "c": 2}, "float32": {"k": 8, "c": 8}}, {"int8": 0.04, "float32": 1.0}
    changes = {"matrix__arrays": array, "matrix__pj_per_mac": energy, "matrix__accumulator_bytes": 4}
    return changed_profile("metaproto-df", **changes)


PROFILES: dict[str, Profile] = {
    "one-core": one_core(),
    "1x2": chip(),
    "1x4": chip(cores=4),
    "2x2": chip(clusters=2),
    "1x2-no-bus": chip(engines__bus=None),
    "2x4-no-bus": chip(clusters=2, cores=4, engines__bus=None),
    "tiny": chip(sram__capacity_bytes=256),
    "split": chip(clusters=2, sram__capacity_bytes=8192, sram__weight_bytes=4096),
}


@pytest.mark.matrix(first=3, rest=8)
@pytest.mark.parametrize("layer", sorted(LAYERS))
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_values_are_those_of_the_model(profile: str, layer: str) -> None:
    """Both ends and in between, by programs that are proved; rows of tables are the host's."""
    build, ranges = LAYERS[layer]
    of = Compiled.of(build(), ranges, PROFILES[profile], verify="none")
    assert [miss for dims in corners_and(ranges, 2) for miss in of.misses(dims)] == []


@pytest.mark.matrix(first=3, rest=3)
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_box_passes_the_sram_on_its_way(profile: str) -> None:
    of = Compiled.of(separable_convolutions(), {"n": (1, 3), "h": (1, 20)}, PROFILES[profile], verify="none")
    (program,) = of.programs({"n": 3, "h": 20})
    srams = (Level.SRAM, Level.SRAM_WEIGHTS)
    for opcode, side in ((Opcode.LOAD, "target"), (Opcode.STORE, "source")):
        rows = program.commands[program.commands["opcode"] == opcode]
        assert len(rows)
        assert {program.places[place].level for place in rows[side].tolist()} <= set(srams)
    if PROFILES[profile].sram.weight_bytes is not None:  # type: ignore[union-attr]
        levels = [program.places[place].level for place in loads_of_weights(program)["target"].tolist()]
        assert set(levels) == {Level.SRAM_WEIGHTS}


def loads_of_weights(program: Program) -> np.ndarray:
    """The commands that read weights in DRAM."""
    rows = program.commands[program.commands["opcode"] == Opcode.LOAD]
    weights = [(r.address, r.address + r.size_bytes) for r in program.regions if r.role is Role.WEIGHT]
    found: np.ndarray = rows[[any(a <= at < b for a, b in weights) for at in rows["source_address"].tolist()]]
    return found


@pytest.mark.parametrize("profile", ["1x2", "1x4", "2x2", "1x2-no-bus", "2x4-no-bus"])
def test_weights_of_all_calls_are_read_once_for_each_cluster(profile: str) -> None:
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES[profile], verify="none")
    (program,) = of.programs({"rows": 50})
    read = loads_of_weights(program)["source_address"].tolist()
    clusters = PROFILES[profile].clusters_per_chip
    assert sorted(read.count(address) for address in set(read)) == [clusters] * 2
    has_bus = PROFILES[profile].engines.bus is not None
    assert bool((program.commands["opcode"] == Opcode.BROADCAST).any()) == has_bus


def test_a_box_larger_than_half_the_sram_passes_in_pieces() -> None:
    """Of 256 bytes of SRAM 128 hold a piece, so that the next one finds room beside it."""
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES["tiny"], verify="none")
    (program,) = of.programs({"rows": 50})
    rows = program.commands[np.isin(program.commands["opcode"], (Opcode.LOAD, Opcode.STORE))]
    sizes = rows["run_bytes"] * rows["counts"].prod(axis=1)
    assert sizes.max() <= 128
    # the matrix of 24 × 40 numbers in float32, at least
    assert (sizes[rows["opcode"] == Opcode.LOAD] == sizes.max()).sum() >= 24 * 40 * 4 // 128


def test_an_sram_that_holds_no_element_is_refused_with_its_field() -> None:
    """Two bytes for weights, of four bytes each; 64 for activations are enough to pass."""
    small = Compiled.of(classifier(), {"rows": (1, 3)}, chip(sram__capacity_bytes=64), verify="none")
    assert small.misses({"rows": 3}) == []
    with pytest.raises(LimitError) as caught:
        Compiled.of(classifier(), {"rows": (1, 3)}, chip(sram__weight_bytes=2))
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("no_room_to_pass", "4 bytes", "2 bytes")
    assert "sram.weight_bytes" in str(caught.value.hint)


def marked(slot: Slot, queue: int, command: int) -> Slot:
    """The slot as a command of a queue leaves it that has read it."""
    slot.begin()
    slot.writers[queue] = slot.touched[queue] = command
    return slot


def test_boxes_take_an_sram_round_and_round_and_wait_for_what_lay_there() -> None:
    """256 bytes: 100, 64 and 50 begin at 0, 128 and 192; 120 comes where the first was, 10 where the second was."""
    room = PassingRoom(place=0, capacity_bytes=256)
    first = marked(room.take(100), 0, 1)
    second = marked(room.take(64), 1, 2)
    third = marked(room.take(50), 2, 3)
    assert [slot.address for slot in (first, second, third)] == [0, 128, 192]
    assert [slot.before for slot in (first, second, third)] == [{}, {}, {}]
    fourth = marked(room.take(120), 3, 4)
    assert (fourth.address, fourth.before) == (0, {0: 1})
    fifth = room.take(10)
    assert (fifth.address, fifth.before) == (128, {1: 2})
    marked(fifth, 4, 5)
    # over the end: the fourth lay at the beginning; of the second's bytes the fifth took ten, the rest are waited for
    sixth = room.take(128)
    assert (sixth.address, sixth.before) == (0, {3: 4})
    marked(sixth, 5, 6)
    seventh = room.take(128)
    assert (seventh.address, seventh.before) == (128, {4: 5, 1: 2, 2: 3})


def test_cores_whose_buffers_lie_elsewhere_are_not_reached_by_one_command() -> None:
    """One load for all; the bus reaches two cores at address 64, the first core at address 0 moves its own."""
    profile, facts = chip(cores=3), graph_facts(classifier().graph({"rows": 4}))
    context = Context(facts, machine_of(profile), frozenset(), frozenset())
    box = ((0, 4), (0, 24))
    places = [context.machine.place_of[Level.NRAM, core] for core in range(3)]
    targets = {
        core: Held(Slot(place, at, 384), at, (0, 0), (96, 4), box)
        for core, (place, at) in enumerate(zip(places, (0, 64, 64), strict=True))
    }
    Routes(context, profile).bring("x", box, targets)
    rows = context.emitter.arrays()[0]
    assert rows["opcode"].tolist() == [Opcode.LOAD, Opcode.MOVE, Opcode.BROADCAST]
    assert rows["targets"].tolist() == [1, 1, 2]
    assert rows["target_address"].tolist() == [0, 0, 64]


def test_small_tables_are_read_by_rows_where_results_are_small() -> None:
    """Four rows are read whole for forty indices, and by the host as one index asks for fewer."""
    model = Model()
    ids = model.input(["length"], "ids", dtype=7)
    rows = model.node("Gather", [model.weight(4, 8), ids], axis=0)
    model.output(model.node("MatMul", [rows, model.weight(8, 8)]))
    of = Compiled.of(model, {"length": (1, 40)}, PROFILES["1x2"], verify="none")
    assert [op.kind for op in of.model.graph.ops].count(HOST) == 1
    assert [miss for dims in corners_and({"length": (1, 40)}, 2) for miss in of.misses(dims)] == []
    fixed = Compiled.of(model, {"length": (20, 40)}, PROFILES["1x2"], verify="none")
    assert not fixed.has_host
    assert [miss for dims in corners_and({"length": (20, 40)}, 2) for miss in fixed.misses(dims)] == []


@pytest.mark.parametrize("profile", ["one-core", "1x4", "2x4-no-bus"])
def test_no_program_of_tables_is_faster_than_its_roofline(profile: str) -> None:
    of = Compiled.of(separable_convolutions(), {"n": (1, 3), "h": (1, 20)}, PROFILES[profile], verify="none")
    for dims in corners_and({"n": (1, 3), "h": (1, 20)}, 2):
        (program,) = of.programs(dims)
        point, _ = roofline_of(time_of(program, PROFILES[profile]), [0] * len(program.group_names), PROFILES[profile])
        assert point.cycles >= max(point.bounds.values())


def test_the_way_through_an_sram_is_priced_as_both_of_its_parts() -> None:
    """102.4 bytes a cycle for 4 cores at most, a GDMA of 64 for both cores of a cluster, MVDMAs of 64 each."""
    way = dram_way(chip(clusters=2))
    assert way.bytes_per_cycle == pytest.approx(1 / (1 / 25.6 + 1 / 64))
    # both cores of a cluster start their transfers one after another
    assert way.start_cycles == 2 * 200 + 20
    assert way.readers == 2
    narrow = dram_way(chip(clusters=2, engines__gdma={"bytes_per_cycle": 16, "startup_ns": 10}))
    assert narrow.bytes_per_cycle == pytest.approx(1 / (1 / 8 + 1 / 64))


def test_the_way_between_cores_is_the_fastest_that_reaches_all() -> None:
    mesh = peer_way(builtin_profile("manycore2x64"))
    assert mesh is not None
    assert (mesh.start_cycles, mesh.bytes_per_cycle, mesh.readers) == (1, 8, 64)
    inside = peer_way(chip(cores=4))
    assert inside is not None
    assert (inside.start_cycles, inside.bytes_per_cycle) == (20, 64)
    across = peer_way(chip(clusters=2, cores=4))
    assert across is not None
    assert across.bytes_per_cycle == 32 / 4
    assert peer_way(chip(clusters=2, engines__cdma=None)) is None
