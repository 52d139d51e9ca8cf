"""Values of programs that loop are those of the expanded program, to the bit (SIM-1, PROG-6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops.form import check_loops
from compiler.program.program import Program, Role, Step
from compiler.simulator import values
from compiler.simulator.values import Chip
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import LoweredGroup, lowered_groups, mc_cnn
from tests.compiler.program.loops.mutants import mutants, with_number
from tests.compiler.program.loops.samples import sample

SAMPLE = sample()
X = np.linspace(-3, 5, 96, dtype=np.float32).reshape(12, 8)


def memories(chip: Chip) -> list[bytes]:
    """All bytes of all memories."""
    return [chip.memory(place).tobytes() for place in range(len(chip.program.places))]


def ran(program: Program, given_: dict[str, Any]) -> Chip:
    """A chip that has run with these regions."""
    chip = Chip(program)
    for name, value in given_.items():
        chip.write(name, value)
    chip.run()
    return chip


def regions_of(group: LoweredGroup) -> dict[str, Any]:
    """Inputs and weights of a group."""
    network, regions = group.network, group.program.regions
    inputs = {region.name: network.values[region.name] for region in regions if region.role is Role.INPUT}
    return inputs | {region.name: network.constant(region.name) for region in regions if region.role is Role.WEIGHT}


def test_two_nests_compute_what_they_say() -> None:
    chip = ran(SAMPLE, {"x": X})
    np.testing.assert_array_equal(chip.read("y"), np.maximum(X, 0))
    np.testing.assert_array_equal(chip.read("z"), np.maximum(X, 0))
    assert memories(chip) == memories(ran(expanded(SAMPLE), {"x": X}))


@pytest.mark.parametrize("window", [1, 7])
def test_values_do_not_depend_on_windows(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    expected = memories(ran(SAMPLE, {"x": X}))
    monkeypatch.setattr(values, "_WINDOW", window)
    assert memories(ran(SAMPLE, {"x": X})) == expected


def test_groups_have_the_values_of_their_expanded_programs() -> None:
    for group in lowered_groups(5):
        given_ = regions_of(group)
        assert memories(ran(group.program, given_)) == memories(ran(expanded(group.program), given_))


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("block", range(5))
def test_many_groups_have_the_values_of_their_expanded_programs(block: int) -> None:
    for group in lowered_groups(20, first=50 + 200 * block):
        given_ = regions_of(group)
        assert memories(ran(group.program, given_)) == memories(ran(expanded(group.program), given_))


@pytest.mark.slow
def test_stages_have_the_values_of_their_expanded_program() -> None:
    """MC-CNN (N-6) on a small map, with bytes at random."""
    program, _ = mc_cnn(60, 72, {"W": 60, "H": 24})
    random = np.random.default_rng(1)
    given_ = {
        region.name: random.integers(-128, 128, region.shape).astype(region.dtype)
        for region in program.regions
        if region.role in (Role.INPUT, Role.WEIGHT)
    }
    assert memories(ran(program, given_)) == memories(ran(expanded(program), given_))


@pytest.mark.parametrize("window", [7, 1 << 14])
def test_a_step_is_observed_when_its_last_command_has_run(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(values, "_WINDOW", window)
    seen = []
    for program in (SAMPLE, expanded(SAMPLE)):
        told: list[tuple[int, Step, list[bytes]]] = []
        chip = Chip(program)
        chip.write("x", X)
        chip.run(lambda number, step, its, told=told: told.append((number, step, memories(its))))  # type: ignore[misc]
        seen.append(told)
    assert seen[0] == seen[1]
    assert [(number, step.tensor) for number, step, _ in seen[0]] == [(0, "y"), (1, "z")]


def test_an_access_that_leaves_its_memory_names_command_and_tile() -> None:
    far = with_number(SAMPLE, "terms", 0, "coefficient", (1 << 20) // 5)
    with pytest.raises(ProgramError, match="command 0 at tile 5, 1: ") as caught:
        Chip(far)
    assert (caught.value.command, caught.value.tile) == (0, (5, 1))
    assert caught.value.to_dict()["tile"] == [5, 1]


def test_what_all_tiles_touch_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_WINDOW", 7)
    Chip(SAMPLE, ProgramLimits(touched_bytes=1 << 14))
    with pytest.raises(ProgramError, match="touch too many bytes"):
        Chip(SAMPLE, ProgramLimits(touched_bytes=1 << 10))


@given(mutants(SAMPLE))
@settings(max_examples=200)
def test_changed_programs_are_refused_or_have_the_values_of_their_expanded_program(changed: Program) -> None:
    limits = ProgramLimits(looped_commands=500)
    try:
        check_loops(changed, limits)
    except ProgramError:
        with pytest.raises(ProgramError):
            Chip(changed, limits)
        return
    verdicts = []
    for program in (changed, expanded(changed)):
        try:
            verdicts.append(memories(ran(program, {"x": X})))
        except ProgramError:
            verdicts.append([])
    assert verdicts[0] == verdicts[1]
