"""Programs of tables: address tables, what all cores read, segments that are proved apart (SHAPE-1, SHAPE-9)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from compiler.compile import compile_shapes
from compiler.errors import LimitError
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment
from compiler.program.loops.proof import prove
from compiler.program.program import ADDRESSES, Opcode, Program
from compiler.shapes import instantiate as module
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.model import ShapeModel
from compiler.shapes.simple import simple_table
from compiler.shapes.table import check_cover
from compiler.shapes.unit_library import Library
from tests.compiler.shapes.dynamic import misses
from tests.compiler.shapes.layer_networks import LAYERS
from tests.models import Model


def network() -> Model:
    """Two convolutions and a product of what they make."""
    model = Model()
    x = model.input(["n", 3, "h", 16], "x")
    y = model.relu(model.conv(x, 3, 8, 3, stride=2))
    model.output(model.conv(y, 8, 8, 3))
    return model


def made(profile: str) -> tuple[ShapeModel, ModelSource]:
    source = ModelSource.from_bytes(network().data())
    options = parse_options({"dims": {"n": {"min": 1, "max": 16}, "h": {"min": 5, "max": 40}}, "verify": "none"})
    model = compile_shapes(source, builtin_profile(profile), options)
    return model, opened(model.graph.source, source)


def programs(model: ShapeModel, source: ModelSource, dims: dict[str, int]) -> list[Program]:
    executable = instantiate(model, dims, simple_tables(model, dims), source)
    return [segment.program for segment in executable.segments if isinstance(segment, ChipSegment)]


def test_units_read_windows_by_address_tables_that_each_core_loads_once() -> None:
    """ADDR-5: a table depends on a unit's buffers, not on where a tile lies."""
    model, source = made("edge4")
    (program,) = programs(model, source, {"n": 3, "h": 37})
    assert 1 <= len(program.addresses) <= 2
    bound = program.bindings["operand"] <= ADDRESSES
    assert bound.any()
    regions = {program.regions[one.region].address: program.regions[one.region].size_bytes for one in program.addresses}
    loads = program.commands[program.commands["opcode"] == Opcode.LOAD]
    of_tables = np.isin(loads["source_address"], list(regions)) & (loads["source"] == 0)
    targets = loads["target"][of_tables].tolist()
    assert len(targets) == len(set(zip(targets, loads["source_address"][of_tables].tolist(), strict=True)))
    for unit in (one for library in model.libraries for one in library.buffers):
        assert any(name.endswith(":addresses") for name in unit.placed)


def test_where_a_profile_reads_by_strides_units_have_no_address_tables() -> None:
    profile = msgspec.structs.replace(builtin_profile("edge4"), addressing="strides")
    source = ModelSource.from_bytes(network().data())
    options = parse_options({"dims": {"n": {"min": 1, "max": 4}, "h": {"min": 5, "max": 40}}, "verify": "none"})
    model = compile_shapes(source, profile, options)
    (program,) = programs(model, opened(model.graph.source, source), {"n": 2, "h": 9})
    assert program.addresses == ()
    assert not (program.bindings["operand"] <= ADDRESSES).any()


@pytest.mark.parametrize(("profile", "opcode"), [("cluster4x4", Opcode.BROADCAST), ("edge4", Opcode.BROADCAST)])
def test_what_all_calls_read_is_passed_on_and_read_from_dram_once_a_cluster(profile: str, opcode: Opcode) -> None:
    """TILE-7: weights of a routine whose channels are not divided."""
    model, source = made(profile)
    (program,) = programs(model, source, {"n": 16, "h": 40})
    commands = program.commands
    assert (commands["opcode"] == opcode).any()
    weights = {region.address for region in program.regions if region.role == "weight"}
    loads = commands[(commands["opcode"] == Opcode.LOAD) & (commands["source"] == 0)]
    read = [address for address in loads["source_address"].tolist() if address in weights]
    clusters = builtin_profile(profile).clusters_per_chip
    assert max(read.count(address) for address in set(read)) <= max(clusters, 1)


def test_what_cannot_be_proved_as_one_program_is_several(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = made("edge4")
    dims = {"n": 2, "h": 9}
    whole = programs(model, source, dims)
    assert len(whole) == 1
    most = len({step.group for step in whole[0].steps})

    def proved(program: Program, **more: object) -> object:
        if len({step.group for step in program.steps}) > 1:
            raise ProgramError("too large", violation="size", actual=2, limit=1)
        return prove(program, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "prove", proved)
    assert len(programs(model, source, dims)) == most

    def never(*given: object, **more: object) -> object:
        del given, more
        raise ProgramError("too large", violation="size", actual=2, limit=1)

    monkeypatch.setattr(module, "prove", never)
    with pytest.raises(LimitError) as caught:
        programs(model, source, dims)
    assert caught.value.code == "program_too_large"


def test_calls_of_other_units_get_the_same_weights_together() -> None:
    """Buffers of two units lie differently; what both read comes from DRAM once a cluster all the same."""
    model = Model()
    x = model.input(["rows", 48], "x")
    model.output(model.relu(model.node("MatMul", [x, model.weight(48, 24)])))
    source = ModelSource.from_bytes(model.data())
    options = parse_options({"dims": {"rows": {"min": 1, "max": 256}}, "verify": "none"})
    shape_model = compile_shapes(source, builtin_profile("cluster4x4"), options)
    (library,) = shape_model.libraries
    large, small = (
        simple_table(library.units.chosen([unit]), shape_model.cost_at(0, (rows, 24)), (rows,))
        for unit, rows in ((_rows_of(library, 16), 128), (_rows_of(library, 8), 32))
    )
    runs = np.concatenate([large.runs, small.runs])
    runs["unit"] = np.repeat([0, 1], [len(large.runs), len(small.runs)])
    runs["start"][len(large.runs) :, 0] += 128
    mixed = replace(large, shape=(160,), units=(*large.units, *small.units), runs=runs)
    check_cover(mixed)
    executable = instantiate(shape_model, {"rows": 160}, [mixed], opened(shape_model.graph.source, source))
    (program,) = (segment.program for segment in executable.segments if isinstance(segment, ChipSegment))
    (weight,) = (region.address for region in program.regions if region.role == "weight")
    loads = program.commands[(program.commands["opcode"] == Opcode.LOAD) & (program.commands["source"] == 0)]
    assert loads["source_address"].tolist().count(weight) == 4


def _rows_of(library: Library, rows: int) -> int:
    """The number of the unit of so many rows and all columns."""
    return library.tiles.index((rows, 24))


@pytest.mark.slow
def test_programs_of_tables_keep_the_limits_of_an_executable() -> None:
    """Cut between routines; one that exceeds a limit alone is refused with the field (PART-3)."""
    build, _ = LAYERS["convolutions"]
    source = ModelSource.from_bytes(build().data())
    options = parse_options({"dims": {"n": {"min": 1, "max": 3}, "h": {"min": 1, "max": 20}}, "verify": "none"})
    dims = {"n": 3, "h": 20}

    def limited(commands: int | None) -> list[Program]:
        limits = msgspec.structs.replace(builtin_profile("edge4").limits, commands=commands)
        profile = msgspec.structs.replace(builtin_profile("edge4"), limits=limits)
        model = compile_shapes(source, profile, options)
        return programs(model, opened(model.graph.source, source), dims)

    (whole,) = limited(None)
    most = len(whole.commands)
    assert len(limited(most)) == 1
    parts = limited(most - 1)
    assert len(parts) == 2
    assert max(len(part.commands) for part in parts) < most
    with pytest.raises(LimitError) as caught:
        limited(8)
    assert caught.value.code == "program_too_long"
    assert "limits.commands" in str(caught.value.hint)


def test_a_product_that_the_host_runs_by_our_definition_takes_every_shape() -> None:
    model = Model()
    x = model.input(["n", 3, "h", 4])
    model.output(model.node("ConvTranspose", [x, model.weight(3, 2, 2, 2)], strides=[2, 2]))
    assert not misses(model, {"n": (1, 3), "h": (2, 5)}, count=1, profile="polar4x4")
