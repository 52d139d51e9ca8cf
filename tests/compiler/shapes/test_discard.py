"""Programs whose tables discard tails or mix units: nothing outside the tensors is touched (SHAPE-4, SHAPE-11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from compiler.errors import RequestError
from compiler.frontend.source import opened
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment, Executable
from compiler.program.loops.proof import prove
from compiler.program.program import Level, Opcode, Program, Role
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.model import ShapeModel
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import ShapeTable
from compiler.shapes.tails import TailMode
from compiler.simulator.inputs import random_inputs
from compiler.simulator.run import run_executable
from compiler.simulator.value_check import check_values
from compiler.simulator.values import Chip
from tests.compiler.program.builder import changed
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import residual_network

Tables = Callable[[ShapeModel, dict[str, int]], tuple[ShapeTable | None, ...]]
# Bytes between regions that nobody may touch, and what they hold.
_GUARD = 512
_MARK = 0xA5
DIMS = ({"batch": 2, "height": 11, "width": 13}, {"batch": 1, "height": 17, "width": 5})


@cache
def compiled() -> Compiled:
    """A network of free batch, height and width."""
    return Compiled.of(residual_network(), {"batch": (1, 3), "height": (4, 25), "width": (4, 21)})


def discarding(model: ShapeModel, dims: dict[str, int]) -> tuple[ShapeTable | None, ...]:
    """Per routine the table that discards tails along as many axes as units leave any."""
    return tuple(_discarding(model, number, dims) for number in range(len(model.libraries)))


def _discarding(model: ShapeModel, number: int, dims: dict[str, int]) -> ShapeTable | None:
    tiled = model.libraries[number].routine.tiled
    whole = model.problem(number, dims)
    shape = tuple(whole[axis] for axis in tiled)
    every = sorted(product((TailMode.DISCARD, None), repeat=len(tiled)), key=lambda modes: modes.count(None))
    for modes in every if tiled else []:
        with suppress(RequestError):  # no unit has a tail along all these axes
            return model.chooser(number, whole).table(shape, modes)
    return None


def mixed(model: ShapeModel, dims: dict[str, int]) -> tuple[ShapeTable | None, ...]:
    """Per routine the optimised table."""
    found: list[ShapeTable | None] = []
    for number, library in enumerate(model.libraries):
        problem, tiled = model.problem(number, dims), library.routine.tiled
        lengths = tuple(problem[axis] for axis in tiled)
        found.append(optimised_table(library.units, model.cost_at(number, problem), lengths) if tiled else None)
    return tuple(found)


def instance(tables: Tables, dims: dict[str, int]) -> Executable:
    """The executable of some tables."""
    of = compiled()
    return instantiate(of.model, dims, tables(of.model, dims), opened(of.model.graph.source, of.source))


def segments(executable: Executable) -> Iterator[ChipSegment]:
    """What the chip runs."""
    yield from (segment for segment in executable.segments if isinstance(segment, ChipSegment))


@pytest.mark.parametrize("dims", DIMS)
def test_tails_are_discarded_and_values_hold(dims: dict[str, int]) -> None:
    of = compiled()
    tables = [table for table in discarding(of.model, dims) if table is not None]
    assert sum((table.runs["mode"] == TailMode.DISCARD).any() for table in tables) >= len(tables) / 2
    graph = graph_at(of.model.graph, dims, of.values)
    check = check_values(instance(discarding, dims), graph, of.source)
    assert check.has_run
    assert check.holds


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("tables", [discarding, mixed])
@pytest.mark.parametrize("dims", DIMS)
def test_results_do_not_depend_on_which_tables_were_used(tables: Tables, dims: dict[str, int]) -> None:
    """SHAPE-11: sums run over whole axes in one order, so only how numpy adds up boxes of other sizes may differ."""
    of = compiled()
    inputs = random_inputs(graph_at(of.model.graph, dims, of.values), 4)
    expected = run_executable(instance(simple_tables, dims), inputs)
    for name, array in run_executable(instance(tables, dims), inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)


def guarded(program: Program) -> Program:
    """The program with room between all regions, that nobody owns."""
    places = program.places
    order = sorted(program.regions, key=lambda region: region.address)
    shift = {region.name: _GUARD * (number + 1) for number, region in enumerate(order)}
    bounds = np.array([region.address for region in order])
    shifts = np.array([shift[region.name] for region in order])
    commands = program.commands.copy()
    loads = commands["opcode"] == Opcode.LOAD
    stores = commands["opcode"] == Opcode.STORE
    assert all(places[place].level == Level.DRAM for place in commands["source"][loads].tolist())
    for chosen, field in ((loads, "source_address"), (stores, "target_address")):
        addresses = commands[field][chosen]
        commands[field][chosen] = addresses + shifts[np.searchsorted(bounds, addresses, side="right") - 1]
    regions = tuple(replace(region, address=region.address + shift[region.name]) for region in program.regions)
    return replace(program, commands=commands, regions=regions)


@pytest.mark.parametrize("tables", [discarding, simple_tables, mixed])
@pytest.mark.parametrize("dims", DIMS)
def test_guard_bytes_around_tensors_stay_as_they_are(tables: Tables, dims: dict[str, int]) -> None:
    """Also inputs and weights: only what the program makes is written."""
    of = compiled()
    inputs = random_inputs(graph_at(of.model.graph, dims, of.values), 2)
    plain = instance(tables, dims)
    expected = run_executable(plain, inputs)
    for segment in segments(plain):
        program = guarded(segment.program)
        prove(program)
        chip = Chip(program)
        memory = chip.memory(next(n for n, place in enumerate(program.places) if place.level == Level.DRAM))
        memory[:] = _MARK
        for weight in segment.weights:
            chip.write_bytes(program.regions[weight.region].name, weight.data.write_to)
        for region in program.regions:
            if region.role is Role.INPUT:
                chip.write(region.name, inputs[region.name])
        before = memory.copy()
        chip.run()
        may_change = np.zeros(len(memory), dtype=np.bool_)
        for region in program.regions:
            if region.role not in (Role.INPUT, Role.WEIGHT):
                may_change[region.address : region.address + region.size_bytes] = True
        assert (~may_change).sum() >= _GUARD * len(program.regions)
        np.testing.assert_array_equal(memory[~may_change], before[~may_change])
        for output in plain.outputs:
            np.testing.assert_array_equal(chip.read(output.tensor), expected[output.name])


@pytest.mark.parametrize("dims", DIMS)
def test_a_store_that_is_widened_beyond_its_tensor_is_refused(dims: dict[str, int]) -> None:
    for segment in segments(instance(discarding, dims)):
        program = guarded(segment.program)
        stores = np.flatnonzero(program.commands["opcode"] == Opcode.STORE)
        last = {}
        for region in program.regions:
            inside = [
                n
                for n in stores.tolist()
                if region.address <= program.commands["target_address"][n] < region.address + region.size_bytes
            ]
            if inside:
                last[region.name] = max(inside, key=lambda n: int(program.commands["target_address"][n]))
        assert last
        for number in last.values():
            row = program.commands[number]
            wider = int(row["run_bytes"]) + 4
            with pytest.raises(ProgramError):
                prove(changed(program, commands=(number, "run_bytes", wider)))
            axis = int(np.argmax(row["counts"] > 1))
            if row["counts"][axis] > 1:
                more = int(row["counts"][axis]) + 1
                with pytest.raises(ProgramError):
                    prove(changed(program, commands=(number, f"counts.{axis}", more)))


def test_no_box_is_cheaper_for_being_longer() -> None:
    """SHAPE-4: so a whole tile that overlaps its neighbour costs no less than one of which a part is discarded."""
    for library in compiled().model.libraries:
        moved = (factor for operand in library.cost.operands for factor in operand.factors if factor is not None)
        for factor in (*library.cost.compute, *moved):
            assert (np.diff(factor[1:]) >= 0).all()
