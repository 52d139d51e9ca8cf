"""Groups that repeat: written from what the first of their like emitted, byte for byte as if lowered (PROG-1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program import segment
from compiler.program.executable import ChipSegment
from compiler.program.program import Program
from compiler.program.repeat import Repeats
from compiler.tiling.geometry import GroupGeometry
from tests.models import Model


def chain(x: str, model: Model) -> str:
    """Relus one after another."""
    for _ in range(14):
        x = model.relu(x)
    return x


def blocks(x: str, model: Model) -> str:
    """Residual blocks; sums wait for what was made long before them."""
    for _ in range(9):
        made = model.conv(model.relu(model.conv(x, 8, 8, bias=True)), 8, 8)
        x = model.node("Add", [made, x])
    return x


def shared(x: str, model: Model) -> str:
    """One matrix for all products, and one early value that each of them is added to."""
    matrix, first = model.weight(9, 9), model.node("Sigmoid", [x])
    for _ in range(12):
        x = model.node("Add", [model.node("MatMul", [x, matrix]), first])
    return x


def looked_up(x: str, model: Model) -> str:
    """Rows of tables, the indices made of the values before."""
    found = x
    for _ in range(12):
        flat = model.node("Reshape", [found, model.ints(-1)])
        indices = model.node("Cast", [model.node("Clip", [flat, model.constant(np.float32(0)), ""])], to=7)
        rows = model.node("Gather", [model.weight(600, 9), indices])
        found = model.node("ReduceMean", [rows], axes=[1], keepdims=0)
    return found


BUILDS: tuple[Callable[[str, Model], str], ...] = (chain, blocks, shared, looked_up)


def programs(build: Callable[[str, Model], str], profile: str) -> list[Program]:
    """The programs of a network whose groups are single ops."""
    model = Model()
    model.output(build(model.input([1, 8, 9, 9]), model))
    options = parse_options({"fusion": "none", "verify": "none"})
    executable = compile_model(model.data(), builtin_profile(profile), options).executable
    assert executable is not None
    return [found.program for found in executable.segments if isinstance(found, ChipSegment)]


@pytest.mark.parametrize("profile", ["cluster4x4", "edge4"])
@pytest.mark.parametrize("build", BUILDS)
def test_a_group_that_repeats_is_written_as_it_would_be_lowered(
    build: Callable[[str, Model], str], profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = 0

    def counted(*arguments: object) -> GroupGeometry:
        nonlocal lowered
        lowered += 1
        return GroupGeometry(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(segment, "GroupGeometry", counted)
    written = programs(build, profile)
    few, lowered = lowered, 0
    monkeypatch.setattr(Repeats, "write", lambda *_: False)
    plain = programs(build, profile)
    assert few < lowered
    for mine, its in zip(written, plain, strict=True):
        for name in ("commands", "wait_offsets", "waits", "calls", "bindings"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(its, name), err_msg=name)
        assert mine.steps == its.steps
        assert mine.regions == its.regions
        assert mine.units == its.units
        assert [t.entries.tobytes() for t in mine.tables] == [t.entries.tobytes() for t in its.tables]


def test_stationary_weights_are_each_tensors_own_and_repeat_nothing() -> None:
    for program in programs(blocks, "manycore2x64"):
        places = {(resident.place, resident.address) for resident in program.residents}
        assert len(places) == len(program.residents)
