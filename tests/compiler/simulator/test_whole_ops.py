"""SIM-1: calls may store boxes of whole results, and no fault of a program is hidden by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.ir.graph import Graph
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment, Executable
from compiler.program.program import Opcode, Program, Role
from compiler.simulator import value_check
from compiler.simulator.calls import CallRunner
from compiler.simulator.compare import agree_within_rounding, compare
from compiler.simulator.run import MadeOf, run_executable
from compiler.simulator.value_check import ValueCheck, check_values
from compiler.simulator.values import Chip
from tests.compiler.planning import BY_RULES
from tests.compiler.program.builder import changed
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import LoweredGroup, lowered_group, lowered_groups, random_clusters
from tests.compiler.program.lowered import Network, chip
from tests.compiler.program.lowered import group as by_hand
from tests.compiler.simulator.faults import FAULTS, Fault, checked, find_faults, kernels_run, wrong_weight
from tests.models import Model

CHIPS: Final = ("edge4", "cluster4x4", "manycore2x64")


def chip_of(group: LoweredGroup, program: Program, *, whole: bool) -> Chip:
    """A chip with a program of a group and its inputs and weights; `whole`: with results of whole ops."""
    network = group.network
    chip = Chip(program, graph=network.facts.graph if whole else None)
    for region in program.regions:
        if region.role is Role.WEIGHT:
            chip.write(region.name, network.constant(region.name))
        elif region.role is Role.INPUT:
            chip.write(region.name, network.values[region.name])
    return chip


def results(chip: Chip, order: list[int] | None = None) -> dict[str, Any]:
    """All that a chip leaves in DRAM after its program has run."""
    chip.run(order=order)
    made = (Role.OUTPUT, Role.INTERMEDIATE)
    return {region.name: chip.read(region.name) for region in chip.program.regions if region.role in made}


def is_right(group: LoweredGroup, found: dict[str, Any]) -> bool:
    """True if all results are those of the reference."""
    return all(compare(name, value, group.network.values[name]).holds for name, value in found.items())


def is_right_in(group: LoweredGroup, program: Program, order: list[int], *, whole: bool) -> bool:
    """True if the commands in this order give the reference's results; False also where they cannot be done."""
    try:
        return is_right(group, results(chip_of(group, program, whole=whole), order))
    except ProgramError:
        return False


def groups() -> Iterator[LoweredGroup]:
    """Random groups on cores, and on clusters with an SRAM."""
    yield from lowered_groups(3)
    made = (lowered_group(seed, random_clusters) for seed in range(100))
    found = (group for group in made if group is not None)
    for _ in range(3):
        yield next(found)


# --- what is taken from whole ops -------------------------------------------------------------------------------------


def test_few_calls_run_their_kernels_and_results_are_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one call per step runs its kernel; results agree with those of all kernels within rounding."""
    ran = kernels_run(monkeypatch)
    shares = []
    for group in groups():
        plain = results(chip_of(group, group.program, whole=False))
        kernels = len(ran)
        ran.clear()
        found = results(chip_of(group, group.program, whole=True))
        assert all(agree_within_rounding(found[name], values) for name, values in plain.items())
        assert len(group.program.steps) <= len(ran) <= kernels
        shares.append(len(ran) / kernels)
        ran.clear()
    assert min(shares) < 0.2


def test_each_kind_of_tile_runs_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """First, middle and last tiles differ in what they read; so do those of other extents."""
    group = next(lowered_groups(1))
    seen: set[tuple[Any, ...]] = set()
    before = CallRunner.run

    def note(self: Any, command: int, *rest: Any) -> None:
        seen.add(marks(self._program, self._book, command))
        before(self, command, *rest)

    def marks(program: Program, book: Any, command: int) -> tuple[Any, ...]:
        call = program.calls[program.commands["call"][command]]
        geometry = book.geometry(int(call["table"]))
        starts, stops = geometry.starts[:, call["entry"]], geometry.stops[:, call["entry"]]
        ends = (starts == 0).tolist(), (stops == geometry.shapes).tolist()
        return int(call["table"]), str((stops - starts).tolist()), str(ends)

    monkeypatch.setattr(CallRunner, "run", note)
    results(chip_of(group, group.program, whole=True))
    sampled = set(seen)
    results(chip_of(group, group.program, whole=False))
    assert sampled == seen


def test_a_kernel_that_differs_from_the_whole_op_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a kernel computes another thing than the whole op, every call of its kind runs it."""
    group = next(lowered_groups(1))
    before = CallRunner._run

    def faulty(self: Any, command: int, table: int, entry: int, geometry: Any, settled: Any) -> None:
        before(self, command, table, entry, geometry, lambda box, values: settled(box, values * np.float32(1.0001)))

    monkeypatch.setattr(CallRunner, "_run", faulty)
    kernels = results(chip_of(group, group.program, whole=False))
    found = results(chip_of(group, group.program, whole=True))
    assert all(np.array_equal(found[name], values) for name, values in kernels.items())
    (name,) = kernels
    assert not agree_within_rounding(kernels[name], group.network.values[name])


def tiles_of_rows(op: str, rows: int) -> LoweredGroup:
    """A group of one op whose rows are read at a stride of 2 or written at one; so many rows per tile."""
    model = Model(seed=2)
    x = model.input([1, 3, 54, 6], "x")
    if op == "ConvTranspose":
        model.output(model.node(op, [x, model.weight(3, 4, 2, 2)], strides=[2, 2], kernel_shape=[2, 2]))
    elif op == "MaxPool":
        model.output(model.pool(x, 2, 2))
    else:
        model.output(model.conv(x, 3, 4))
    network = Network(model)
    found = lowered_group(0, lambda _: (network, by_hand(network, chip(), {"H": rows})))
    assert found is not None
    return found


def break_kernels(monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[int, int], bool]) -> None:
    """From now on kernels are wrong where this is true of the first row and the one past the last."""
    before = CallRunner._run

    def faulty(self: Any, command: int, table: int, entry: int, geometry: Any, settled: Any) -> None:
        def other(box: Any, values: Any) -> Any:
            return settled(box, values * np.float32(1.01) if is_broken(*box[2]) else values)

        before(self, command, table, entry, geometry, other)

    monkeypatch.setattr(CallRunner, "_run", faulty)


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("op", ["MaxPool", "ConvTranspose"])
def test_a_kernel_that_is_wrong_at_one_phase_is_found(monkeypatch: pytest.MonkeyPatch, op: str, wrong: int) -> None:
    """Tiles of three rows start at odd and at even ones in turn, and read equally much; the last tile is right."""
    group = tiles_of_rows(op, 3)
    (shape,) = (value.shape for value in results(chip_of(group, group.program, whole=True)).values())
    break_kernels(monkeypatch, lambda start, stop: start > 0 and stop < shape[2] and start % 2 == wrong)
    kernels = results(chip_of(group, group.program, whole=False))
    found = results(chip_of(group, group.program, whole=True))
    assert not is_right(group, found)
    assert all(np.allclose(found[name], values, rtol=1e-5, atol=1e-6) for name, values in kernels.items())


def test_a_kernel_that_is_wrong_in_late_calls_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of many calls of a kind runs its kernel as the first does."""
    group = tiles_of_rows("Conv", 1)
    break_kernels(monkeypatch, lambda start, _: 30 <= start < 52)
    ran = kernels_run(monkeypatch)
    assert not is_right(group, results(chip_of(group, group.program, whole=True)))
    assert len(ran) < 10


def test_groups_whose_whole_results_are_too_large_run_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.simulator.whole_tensors._LARGEST_BYTES", 0)
    group = next(lowered_groups(1))
    ran = kernels_run(monkeypatch)
    assert is_right(group, results(chip_of(group, group.program, whole=True)))
    assert len(ran) == int((expanded(group.program).commands["opcode"] == Opcode.COMPUTE).sum())


@pytest.mark.parametrize("room", [0, -1])
def test_operands_count_in_the_size_of_an_op(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """One convolution of [1, 3, 54, 6] by [4, 3, 3, 3], without bias, at 8 bytes an element."""
    elements = 3 * 54 * 6 + 4 * 3 * 3 * 3 + 4 * 54 * 6
    monkeypatch.setattr("compiler.simulator.whole_tensors._LARGEST_OP_BYTES", 8 * elements + room)
    group = tiles_of_rows("Conv", 1)
    ran = kernels_run(monkeypatch)
    assert is_right(group, results(chip_of(group, group.program, whole=True)))
    calls = int((expanded(group.program).commands["opcode"] == Opcode.COMPUTE).sum())
    assert (len(ran) < calls) == (room == 0)


def test_windows_of_tensors_of_other_ranks_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of calls on matrices beside others on maps, command by command."""
    monkeypatch.setattr("compiler.simulator.values._WINDOW", 1)
    model = Model(seed=4)
    x = model.conv(model.input([1, 3, 8, 8], "x"), 3, 4)
    flat = model.node("Reshape", [x, model.ints(1, 256)])
    model.output(model.node("MatMul", [flat, model.weight(256, 10)]))
    for fusion in ("search", "none"):
        values = compile_model(model.data(), builtin_profile("edge4"), Options(fusion=fusion)).report.values
        assert values.checked
        assert values.max_error is not None
        assert values.max_error < 1e-5


# --- what the values of changed programs show -------------------------------------------------------------------------

FIELDS: Final = (
    *(("commands", name) for name in ("source_address", "target_address", "run_bytes", "source", "target")),
    *(("commands", f"{side}_strides.{axis}") for side in ("source", "target") for axis in range(2)),
    *(("bindings", name) for name in ("address", "place", "starts.2", "starts.3", "strides.2", "strides.3")),
    *(("calls", name) for name in ("table", "entry", "first")),
)


def mutant(program: Program, random: np.random.Generator) -> Program:
    """A program with one number changed a little."""
    table, name = FIELDS[int(random.integers(len(FIELDS)))]
    rows = getattr(program, table)
    row = int(random.integers(len(rows)))
    column, _, axis = name.partition(".")
    old = rows[column][row][int(axis)] if axis else rows[column][row]
    return changed(program, **{table: (row, name, int(old) + int(random.choice([-64, -32, -4, -1, 1, 4, 32, 64])))})


def check_mutants(found: Iterator[LoweredGroup], count: int) -> tuple[int, int]:
    """Mutants have the values of their kernels, to rounding; how many ran, and how many of these were wrong."""
    ran = wrong = 0
    for number, group in enumerate(found):
        program, random = expanded(group.program), np.random.default_rng(number)
        for _ in range(count):
            other = mutant(program, random)
            try:
                kernels = results(chip_of(group, other, whole=False))
                wholes = results(chip_of(group, other, whole=True))
            except ProgramError:
                continue
            ran += 1
            right = is_right(group, kernels)
            wrong += not right
            assert is_right(group, wholes) == right
            assert all(compare(name, wholes[name], kernels[name], limit=1e-5).holds for name in kernels)
    return ran, wrong


@pytest.mark.parametrize(
    ("count", "least"),
    [pytest.param(10, 8, marks=pytest.mark.slow), pytest.param(25, 20, marks=pytest.mark.full)],
)
def test_changed_programs_have_the_values_of_their_kernels(count: int, least: int) -> None:
    ran, wrong = check_mutants(groups(), count)
    assert wrong >= least
    assert ran >= wrong


@pytest.mark.full
def test_many_changed_programs_have_the_values_of_their_kernels() -> None:
    ran, wrong = check_mutants(lowered_groups(20, first=50), 40)
    assert wrong >= 50
    assert ran >= wrong


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("late", ["missing", "after"])
def test_what_a_missing_wait_or_a_stale_halo_permits_is_seen(late: str) -> None:
    """A transfer that a call waits for comes after it, or never: the call reads what was there before.

    The check itself runs commands in program order: that waits are there is the proof's to show.
    """
    seen = 0
    for group in groups():
        program, random = expanded(group.program), np.random.default_rng(0)
        opcodes, waits = program.commands["opcode"], np.split(program.waits, program.wait_offsets[1:-1])
        pairs = [
            (call, int(before))
            for call in np.flatnonzero(opcodes == Opcode.COMPUTE).tolist()
            for before in waits[call]
            if opcodes[before] <= Opcode.EXCHANGE
        ]
        for pick in random.permutation(len(pairs))[:6].tolist():
            call, before = pairs[pick]
            order = [number for number in range(len(opcodes)) if number != before]
            if late == "after":
                order.insert(order.index(call) + 1, before)
            kernels, wholes = (is_right_in(group, program, order, whole=whole) for whole in (False, True))
            assert wholes == kernels
            seen += not kernels
    assert seen >= 10


# --- the check of a compilation ---------------------------------------------------------------------------------------


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("chip", CHIPS)
def test_a_right_program_passes_the_check(chip: str) -> None:
    executable, graph, source = checked(chip)
    assert check_values(executable, graph, source).holds


@pytest.mark.matrix(first=2, rest=3)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_the_check_finds_faults(chip: str, fault: Fault) -> None:
    """Of four random places each is refused, gives the same bits or gives other outputs; at least one does the last.

    A transfer that brings again what lies there may be left out.
    """
    find_faults(fault, *checked(chip))


def test_what_is_kept_for_a_second_judgement_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too much would be kept the program runs again, only if a limit is missed, and is judged alike."""
    right, graph, source = checked("edge4")
    wrong = wrong_weight(right, lambda rows: int(rows[0]))
    kept = check_values(wrong, graph, source)
    runs: list[Executable] = []

    def run(executable: Executable, *rest: Any, **named: Any) -> Any:
        runs.append(executable)
        return run_executable(executable, *rest, **named)

    monkeypatch.setattr(value_check, "run_executable", run)
    monkeypatch.setattr(value_check, "_LARGEST_KEPT_BYTES", 0)
    assert check_values(wrong, graph, source) == kept
    assert kept.between is not None
    assert check_values(right, graph, source).holds
    assert [executable is wrong for executable in runs] == [True, True, False]


def test_a_proof_serves_the_program_that_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation hands the proofs of its own programs on; another program of a segment is checked anew."""
    asked: list[tuple[Executable, MadeOf]] = []

    def note(executable: Executable, graph: Graph, *rest: Any, **named: Any) -> ValueCheck:
        asked.append((executable, MadeOf(graph=graph, proofs=named["proofs"])))
        return check_values(executable, graph, *rest, **named)

    monkeypatch.setattr(value_check, "check_values", note)
    model = Model(seed=3)
    model.output(model.conv(model.input([1, 3, 24, 24], "x"), 3, 8))
    compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    ((executable, made_of),) = asked
    (segment,) = executable.segments
    assert isinstance(segment, ChipSegment)
    assert made_of.proof(segment) is made_of.proofs[segment.id][1]
    assert made_of.proof(replace(segment, program=replace(segment.program))) is None
    assert made_of.proof(replace(segment, id="another")) is None
