"""Randomly damaged models: each compiles or is refused; a failure names the seed, which makes the file again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.corpus.case import Case, accept, either
from tests.corpus.mutate import mutant
from tests.corpus.originals import originals
from tests.corpus.sandbox import Sandbox, objections

EXPORTED = Path(__file__).parents[2] / "data" / "exported"
BLOCK = 25
ALL = 5_000


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One server process for all mutants of this test process."""
    with Sandbox() as started:
        yield started


@pytest.fixture(scope="session")
def models() -> tuple[bytes, ...]:
    """The models to be damaged: ours, and the smallest ones that exporters wrote."""
    exported = sorted(EXPORTED.glob("*.onnx"), key=lambda path: (path.stat().st_size, path.name))
    return (*originals(), *(without_dynamic_dims(path.read_bytes()) for path in exported[:3]))


def without_dynamic_dims(data: bytes) -> bytes:
    """The model with 1 in the place of every dynamic dimension of its inputs, so that damage gets past them."""
    proto = onnx.load_from_string(data)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = 1
    return bytes(proto.SerializeToString())


def failures(sandbox: Sandbox, models: tuple[bytes, ...], seeds: range) -> list[str]:
    """What is wrong with the outcomes of a range of mutants, each with its seed."""
    found = []
    for seed in seeds:
        outcome = sandbox.compile(mutant(seed, models))
        anything = either(outcome.code) if outcome.ended == "rejected" else accept()
        case = Case(name=f"seed {seed}", attacks="damage", build=bytes, expected=anything)
        found += [f"{case.name}: {objection}" for objection in objections(case, outcome)]
    return found


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("first", range(0, ALL, BLOCK))
def test_a_damaged_model_compiles_or_is_refused(first: int, sandbox: Sandbox, models: tuple[bytes, ...]) -> None:
    """IMPORT-4: never an internal error, a crash, a hang or a memory bomb."""
    assert failures(sandbox, models, range(first, first + BLOCK)) == []


@pytest.mark.matrix(first=0, rest=1)
def test_the_models_compile_before_they_are_damaged(sandbox: Sandbox, models: tuple[bytes, ...]) -> None:
    case = Case(name="original", attacks="nothing", build=bytes, expected=accept())
    assert [
        (index, found) for index, data in enumerate(models) if (found := objections(case, sandbox.compile(data)))
    ] == []


def test_a_seed_makes_the_same_file_twice_and_another_seed_another_one() -> None:
    models = originals()
    files = [mutant(seed, models) for seed in range(100)]
    assert files == [mutant(seed, models) for seed in range(100)]
    assert len(set(files)) > 90
    assert not set(files[:50]) & set(models) or len(set(files) - set(models)) > 80


def test_many_damaged_models_are_still_messages() -> None:
    """Damage that only breaks the framing would test the parser and nothing behind it."""
    models = originals()
    parsed = 0
    for seed in range(200):
        try:
            proto = onnx.load_from_string(mutant(seed, models))
        except Exception:  # noqa: BLE001 - whatever the parser says
            continue
        parsed += bool(proto.graph.node)
    assert parsed > 80
