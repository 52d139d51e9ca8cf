"""Tables on chips in whose cores weights lie before a program runs (PROF-2, SHAPE-9, PART-5)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import LimitError, RequestError
from compiler.frontend.source import ModelSource
from compiler.ops.op_facts import graph_facts
from compiler.options import parse_options
from compiler.profile import Profile, builtin_profile
from compiler.program.executable import ChipSegment
from compiler.program.loops.time import time_of
from compiler.program.program import Opcode, Program, Role
from compiler.program.timing.roofline import roofline_of
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.package import read_package
from compiler.shapes.residence import resident_parts_of
from tests.compiler.shapes.dynamic import Compiled, corners_and
from tests.compiler.shapes.layer_networks import LAYERS, classifier, separable_convolutions
from tests.models import Model
from tests.profiles import changed_profile

_STATIONARY = {"mode": "stationary", "compression": 1.0}
_WRAM = {"capacity_bytes": 65536, "read_pj_per_byte": 0.5, "write_pj_per_byte": 0.5}


def edge(links: str | None = "ring", **changes: object) -> Profile:
    """Four cores with stationary weights, with or without links between them."""
    link = None if links is None else {"topology": links, "bytes_per_cycle": 8.0}
    return changed_profile("edge4", **{"weights": _STATIONARY, "engines__link": link, **changes})


PROFILES: dict[str, Profile] = {
    "manycore": builtin_profile("manycore2x64"),
    "ring": edge(),
    "mesh": edge("mesh"),
    "none": edge(None),
    "ring-wram": edge(wram=_WRAM),
    "none-wram": edge(None, wram=_WRAM),
    "split-nram": edge(nram__weight_bytes=40_000),
    "one-core": edge(None, cores_per_cluster=1),
    "sram": changed_profile("cluster4x4", weights=_STATIONARY),
    "sram-alone": changed_profile("cluster4x4", weights=_STATIONARY, engines__cdma=None, engines__bus=None),
    "sram-no-iodma": changed_profile("cluster4x4", weights=_STATIONARY, engines__iodma=None),
}


def of_weights(program: Program, opcode: Opcode) -> int:
    """Commands of a kind that read a weight in DRAM."""
    rows = program.commands[(program.commands["opcode"] == opcode) & (program.commands["source"] == 0)]
    weights = [(r.address, r.address + r.size_bytes) for r in program.regions if r.role is Role.WEIGHT]
    return sum(any(low <= at < high for low, high in weights) for at in rows["source_address"].tolist())


def count(program: Program, opcode: Opcode) -> int:
    """Commands of a kind."""
    return int((program.commands["opcode"] == opcode).sum())


@pytest.mark.matrix(first=2, rest=6)
@pytest.mark.parametrize("layer", sorted(LAYERS))
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_values_are_those_of_the_model_wherever_weights_lie(profile: str, layer: str) -> None:
    """Both ends and in between, by programs that are proved, and by the tables alone."""
    build, ranges = LAYERS[layer]
    of = Compiled.of(build(), ranges, PROFILES[profile], verify="none")
    assert [miss for dims in corners_and(ranges, 2) for miss in of.misses(dims)] == []


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("profile", ["manycore", "ring", "mesh", "ring-wram", "one-core", "sram", "sram-no-iodma"])
def test_weights_that_lie_in_connected_cores_are_not_read_from_dram(profile: str) -> None:
    for name in ("convolutions", "classifier"):
        build, ranges = LAYERS[name]
        of = Compiled.of(build(), ranges, PROFILES[profile], verify="none")
        for dims in corners_and(ranges, 2):
            (program,) = of.programs(dims)
            assert program.residents
            assert of_weights(program, Opcode.LOAD) == 0


def test_what_lies_where_does_not_depend_on_the_shape() -> None:
    """And no command writes at or above the first of it."""
    build, ranges = LAYERS["convolutions"]
    of = Compiled.of(build(), ranges, PROFILES["ring"], verify="none")
    found = []
    for dims in corners_and(ranges, 3):
        (program,) = of.programs(dims)
        lies = {(r.place, program.regions[r.region].name, r.starts, r.lengths, r.address) for r in program.residents}
        found.append(lies)
        first = {place: min(r.address for r in program.residents if r.place == place) for place, *_ in lies}
        rows = program.commands[np.isin(program.commands["target"], list(first))]
        for place, address in zip(rows["target"].tolist(), rows["target_address"].tolist(), strict=True):
            assert address < first[place]
    assert all(lies == found[0] for lies in found)
    parts = resident_parts_of(of.model, PROFILES["ring"], of.model.parts[0])
    assert len(parts) == len(found[0])


def test_a_core_takes_its_own_part_and_gets_the_others_from_their_owners() -> None:
    """One row, one call: of 40 channels in four cores ten are the core's own, thirty come over the links."""
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES["ring"], verify="none")
    (program,) = of.programs({"rows": 1})
    # the matrix and the bias
    assert (count(program, Opcode.MOVE), count(program, Opcode.EXCHANGE)) == (2, 6)
    sent = program.commands[program.commands["opcode"] == Opcode.EXCHANGE]
    assert sorted(sent["run_bytes"].tolist()) == [10 * 4] * 3 + [24 * 10 * 4] * 3
    owners = {program.queues[queue].number for queue in sent["queue"].tolist()}
    (core,) = {program.places[place].number for place in sent["target"].tolist()}
    assert owners == {0, 1, 2, 3} - {core}


def test_one_core_uses_all_its_weights_in_place() -> None:
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES["one-core"], verify="none")
    (program,) = of.programs({"rows": 50})
    assert {opcode: count(program, opcode) for opcode in (Opcode.MOVE, Opcode.EXCHANGE, Opcode.BROADCAST)} == {
        Opcode.MOVE: 0,
        Opcode.EXCHANGE: 0,
        Opcode.BROADCAST: 0,
    }
    for library in of.model.libraries:
        assert all(unit.weight_bytes == 0 for unit in library.buffers)


def test_weights_in_place_that_a_call_needs_nothing_of_have_no_buffer_and_want_none() -> None:
    """Calls on the left half of a Concat need no column of the right product's weights."""
    model = Model()
    x = model.input(["rows", 8], "x")
    halves = [model.node("MatMul", [x, model.weight(8, 16)]) for _ in range(2)]
    model.output(model.node("Concat", halves, axis=1))
    of = Compiled.of(
        model, {"rows": (1, 40)}, edge(None, cores_per_cluster=1, nram__capacity_bytes=2600), verify="none"
    )
    assert any(len(library.routine.ops) > 1 for library in of.model.libraries)
    assert [miss for dims in corners_and({"rows": (1, 40)}, 2) for miss in of.misses(dims)] == []


def test_what_all_calls_need_each_owner_sends_once_to_all() -> None:
    """Rows are divided, channels are not: a weight's four parts reach four cores by a broadcast each."""
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES["ring"], verify="none")
    (program,) = of.programs({"rows": 44})
    assert count(program, Opcode.COMPUTE) == 4 * 3
    rows = program.commands[program.commands["opcode"] == Opcode.BROADCAST]
    assert rows["run_bytes"].tolist().count(24 * 10 * 4) == 4
    assert rows["targets"].tolist() == [4] * 8
    assert count(program, Opcode.EXCHANGE) + count(program, Opcode.MOVE) == 0


def test_neighbours_need_the_same_weights_so_that_one_command_reaches_them() -> None:
    """Eight cores, calls in a grid of rows and channels: weights change with every call, rows stay for several."""
    model = Model()
    x = model.input(["rows", 128], "x")
    model.output(model.relu(model.node("MatMul", [x, model.weight(128, 256)])))
    profile = edge(cores_per_cluster=8, nram__capacity_bytes=40_000)
    of = Compiled.of(model, {"rows": (1, 128)}, profile, verify="none")
    (program,) = of.programs({"rows": 128})
    assert of.misses({"rows": 128}) == []
    assert count(program, Opcode.BROADCAST) > count(program, Opcode.EXCHANGE)
    # commands work for the op that reads what they bring
    assert set(program.commands["step"].tolist()) == {0, 1}


def test_cores_without_a_way_between_them_read_what_they_lack_from_dram() -> None:
    """As programs of plans do: of a weight that follows the channels each core holds only its own."""
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES["none"], verify="none")
    (program,) = of.programs({"rows": 50})
    assert count(program, Opcode.EXCHANGE) + count(program, Opcode.BROADCAST) == 0
    # matrix and bias, once each for each of the four cores
    assert of_weights(program, Opcode.LOAD) <= 8


def test_constants_made_of_extents_are_read_from_dram_at_each_shape() -> None:
    """Their elements are not known before the shape is."""
    model = Model()
    x = model.input(["rows", 8], "x")
    rows = model.node("Gather", [model.node("Shape", [x]), model.constant(np.int64(0))], axis=0)
    product = model.node("MatMul", [x, model.weight(8, 8)])
    model.output(model.node("Div", [product, model.node("Cast", [rows], to=1)]))
    of = Compiled.of(model, {"rows": (1, 40)}, PROFILES["ring"], verify="none")
    assert [miss for dims in corners_and({"rows": (1, 40)}, 2) for miss in of.misses(dims)] == []
    (program,) = of.programs({"rows": 7})
    lying = {program.regions[one.region].name for one in program.residents}
    varying = [name for name, tensor in of.model.graph.tensors.items() if tensor.element_symbols]
    assert varying
    assert not lying & set(varying)


def test_a_weight_that_two_ops_read_in_different_ways_lies_in_both() -> None:
    """Whole in every core for a left factor, by columns for the op that multiplies by it from the right."""
    model = Model()
    x, weight = model.input([8, "columns"], "x"), model.weight(8, 8)
    first = model.node("Transpose", [model.node("MatMul", [weight, x])], perm=[1, 0])
    model.output(model.node("MatMul", [first, weight]))
    of = Compiled.of(model, {"columns": (1, 40)}, PROFILES["ring"], verify="none")
    assert [miss for dims in corners_and({"columns": (1, 40)}, 1) for miss in of.misses(dims)] == []
    parts = resident_parts_of(of.model, PROFILES["ring"], of.model.parts[0])
    assert sorted(part.box for part in parts) == sorted(
        [((0, 8), (0, 8))] * 4 + [((0, 8), (low, low + 2)) for low in range(0, 8, 2)]
    )


def heavy(layers: int) -> Model:
    """Products whose weights do not fit one chip together."""
    model = Model()
    x = model.input(["rows", 128], "x")
    for _ in range(layers):
        scaled = model.constant((model.random.standard_normal((128, 128)) / 12).astype(np.float32))
        x = model.relu(model.node("MatMul", [x, scaled]))
    model.output(x)
    return model


def test_segments_and_their_chips_are_those_of_the_plan() -> None:
    """Weights of 64 KiB each, chips that hold two of them beside what a call needs."""
    profile = edge(chips=2, nram__capacity_bytes=49_152, chip_link_bytes_per_s=8e9)
    of = Compiled.of(heavy(4), {"rows": (1, 16)}, profile, verify="none")
    options = parse_options({"dims": {"rows": 16}, "verify": "none"})
    executable = compile_model(heavy(4).data(), profile, options).executable
    assert executable is not None
    chips = [segment.chip for segment in of.executable({"rows": 16}).segments]  # type: ignore[union-attr]
    assert chips == [segment.chip for segment in executable.segments]  # type: ignore[union-attr]
    assert sorted(set(chips)) == [0, 1]
    assert [miss for rows in (1, 7, 16) for miss in of.misses({"rows": rows})] == []


def test_an_op_whose_weights_exceed_a_chip_is_cut_by_channels() -> None:
    """PART-3, at every shape."""
    profile = edge(nram__capacity_bytes=16_384)
    of = Compiled.of(heavy(1), {"rows": (1, 16)}, profile, verify="none")
    kinds = [op.kind for op in of.model.graph.ops]
    assert kinds.count("MatMul") > 1
    assert "Concat" in kinds
    assert [miss for rows in (1, 9, 16) for miss in of.misses({"rows": rows})] == []


def test_an_op_without_room_beside_its_weights_is_refused_with_bytes_and_field() -> None:
    """4,099 numbers in whole pairs, and their mean in the least room there is: more than 16 KiB.

    A mean of integers has no parts.
    """
    model = Model()
    x = model.input(["rows", 4099], "x", TensorProto.INT32)
    total = model.node("Add", [x, model.constant(np.arange(4099), dtype=np.int32)])
    model.output(model.node("ReduceMean", [total], axes=[1], name="wide"), TensorProto.INT32)
    with pytest.raises(LimitError) as caught:
        Compiled.of(model, {"rows": (1, 8)}, edge(nram__capacity_bytes=16_384), verify="none")
    error = caught.value
    assert (error.code, error.node) == ("no_tile_fits", "wide")
    assert error.actual == f"{4100 * 4 + 8} bytes"
    assert str(error.limit).removesuffix(" bytes").isdigit()
    assert "nram.capacity_bytes" in str(error.hint)


def test_chips_that_do_not_hold_their_segments_are_refused() -> None:
    profile = edge(chips=1, nram__capacity_bytes=49_152)
    with pytest.raises(LimitError, match="more segments than chips"):
        Compiled.of(heavy(4), {"rows": (1, 16)}, profile, verify="none", chips="one-each")


def test_compressed_weights_have_no_tables_as_they_have_no_programs() -> None:
    profile = edge(weights={"mode": "stationary", "compression": 0.5})
    with pytest.raises(LimitError) as caught:
        Compiled.of(classifier(), {"rows": (1, 4)}, profile, verify="none")
    assert (caught.value.code, caught.value.actual) == ("no_tables_for_profile", "weights.compression=0.5")


def test_a_planning_what_if_has_no_tables() -> None:
    with pytest.raises(RequestError, match="made to be run") as caught:
        Compiled.of(classifier(), {"rows": (1, 4)}, PROFILES["manycore"], verify="none", precision="int8")
    assert "Leave out option precision" in str(caught.value.hint)


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("profile", ["manycore", "ring", "none-wram"])
def test_no_program_of_tables_is_faster_than_its_roofline(profile: str) -> None:
    of = Compiled.of(separable_convolutions(), {"n": (1, 3), "h": (1, 20)}, PROFILES[profile], verify="none")
    for dims in corners_and({"n": (1, 3), "h": (1, 20)}, 2):
        (program,) = of.programs(dims)
        point, _ = roofline_of(time_of(program, PROFILES[profile]), [0] * len(program.group_names), PROFILES[profile])
        assert point.cycles >= max(point.bounds.values())


def test_units_leave_the_room_that_resident_weights_take() -> None:
    of = Compiled.of(classifier(), {"rows": (1, 50)}, PROFILES["ring"], verify="none")
    facts = graph_facts(of.model.graph)
    parts = resident_parts_of(of.model, PROFILES["ring"], of.model.parts[0])
    first = min(part.address for part in parts)
    assert first >= PROFILES["ring"].nram.capacity_bytes - sum(map(facts.tensor_bytes, facts.weights_of(range(3)))) - 8
    for library in of.model.libraries:
        for unit in library.buffers:
            assert unit.activation_bytes + unit.weight_bytes <= first


def test_a_package_says_which_chip_runs_what_and_weights_lie_as_in_the_model() -> None:
    """SHAPE-10: the instance of a package is that of the model, to the byte."""
    profile = edge(chips=2, nram__capacity_bytes=49_152, chip_link_bytes_per_s=8e9)
    of = Compiled.of(heavy(4), {"rows": (1, 16)}, profile, verify="none")
    read = read_package(memoryview(of.package()))
    assert [part.chip for part in read.model.parts] == [part.chip for part in of.model.parts]
    mine, its = (
        of.executable({"rows": 9}),
        instantiate(
            read.model,
            {"rows": 9},
            simple_tables(read.model, {"rows": 9}),
            ModelSource.from_bytes(bytes(read.data)),
        ),
    )
    for one, other in zip(mine.segments, its.segments, strict=True):
        assert isinstance(one, ChipSegment)
        assert isinstance(other, ChipSegment)
        assert one.chip == other.chip
        assert one.program.residents == other.program.residents
        assert one.program.commands.tobytes() == other.program.commands.tobytes()
