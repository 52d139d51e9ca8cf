"""Stored units: found by models with routines in common, made again when lost, never changing a result (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from compiler.compile import compile_package, compile_shapes
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.executable import write
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.package import write_package
from compiler.shapes.stored_units import StoredUnits
from tests.compiler.shapes.dynamic import Ranges
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.compiler.shapes.stored import UnitsInMemory
from tests.compiler.shapes.test_canonical_routine import IMAGES, WORDS, renamed
from tests.models import Model


def compiled(
    source: ModelSource, ranges: Ranges, stored: StoredUnits | None = None, profile: str = "edge4"
) -> tuple[bytes, bytes]:
    """The package of a model, and its executable at the least extents."""
    dims = {name: {"min": low, "max": high} for name, (low, high) in ranges.items()}
    options = parse_options({"dims": dims, "tables": [{name: low for name, (low, _) in ranges.items()}]})
    made = compile_package(source, builtin_profile(profile), options, stored=stored)
    file = opened(made.model.graph.source, source)
    pieces = write_package(made.model, made.tables, lambda constant: materialise(constant, file))
    least = {name: low for name, (low, _) in ranges.items()}
    executable = instantiate(made.model, least, simple_tables(made.model, least), file)
    return b"".join(map(bytes, pieces)), b"".join(map(bytes, write(executable)))


def source_of(model: Model) -> ModelSource:
    return ModelSource.from_bytes(model.data())


@pytest.mark.parametrize(
    ("model", "ranges", "profile"),
    [
        pytest.param(residual_network(), IMAGES, "edge4", id="images", marks=pytest.mark.slow),
        pytest.param(encoder_layer(), WORDS, "manycore2x64", id="stationary", marks=pytest.mark.full),
    ],
)
def test_cold_and_warm_stores_give_equal_packages_and_executables(model: Model, ranges: Ranges, profile: str) -> None:
    stored = UnitsInMemory()
    without = compiled(source_of(model), ranges, None, profile)
    cold = compiled(source_of(model), ranges, stored, profile)
    before = dict(stored.values)
    stored.counts.clear()
    warm = compiled(source_of(model), ranges, stored, profile)
    assert without == cold == warm
    assert stored.values == before
    assert stored.counts["units stored"] == 0
    assert stored.counts["units used"] > 0


@pytest.mark.slow
def test_a_warm_store_is_asked_twice() -> None:
    stored = UnitsInMemory()
    compiled(source_of(encoder_layer()), WORDS, stored)
    stored.counts.clear()
    compiled(source_of(encoder_layer()), WORDS, stored)
    assert stored.counts["requests"] == 2


def test_a_renamed_model_finds_all_its_units() -> None:
    stored = UnitsInMemory()
    compiled(source_of(residual_network()), IMAGES, stored)
    stored.counts.clear()
    dims = {"batch": "A", "height": "Z", "width": "B"}
    compiled(renamed(residual_network(), dims), {dims[name]: ends for name, ends in IMAGES.items()}, stored)
    assert stored.counts["units stored"] == 0
    assert stored.counts["libraries used"] > 0


@pytest.mark.slow
def test_a_deeper_model_makes_no_more_units() -> None:
    stored = UnitsInMemory()
    compiled(source_of(encoder_layer(layers=2)), WORDS, stored)
    stored.counts.clear()
    compiled(source_of(encoder_layer(layers=4)), WORDS, stored)
    assert stored.counts["units stored"] == 0


@cache
def residual_values() -> tuple[tuple[bytes, bytes], dict[str, bytes]]:
    """What a residual network compiles to, and the values that are stored of it."""
    stored = UnitsInMemory()
    return compiled(source_of(residual_network()), IMAGES, stored), stored.values


def flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"TSRU" + bytes(60),
        lambda value: value[: len(value) // 2],
        flipped,
        lambda value: value[:4] + b"\xff" + value[5:],
    ],
    ids=["empty", "zeros", "cut", "flipped", "format"],
)
@pytest.mark.parametrize("kind", ["library", "unit"])
def test_damaged_values_are_dropped_and_made_again(damage: Callable[[bytes], bytes], kind: str) -> None:
    sound, before = residual_values()
    stored = UnitsInMemory()
    hurt = next(key for key in sorted(before) if key.startswith(f"{kind}:"))
    stored.values |= before | {hurt: damage(before[hurt])}
    assert compiled(source_of(residual_network()), IMAGES, stored) == sound
    assert stored.counts["dropped"] > 0
    assert stored.values == before


@pytest.mark.slow
def test_a_value_under_another_key_is_dropped() -> None:
    stored = UnitsInMemory()
    source = source_of(residual_network())
    sound = compiled(source, IMAGES, stored)
    before = dict(stored.values)
    first, second = [key for key in sorted(before) if key.startswith("library:")][:2]
    stored.values[first] = before[second]
    assert compiled(source, IMAGES, stored) == sound
    assert stored.values == before


def test_a_lost_unit_is_made_again() -> None:
    stored = UnitsInMemory()
    source = source_of(residual_network())
    sound = compiled(source, IMAGES, stored)
    before = dict(stored.values)
    del stored.values[next(key for key in sorted(before) if key.startswith("unit:"))]
    stored.counts["dropped"] += 1
    assert compiled(source, IMAGES, stored) == sound
    assert stored.values == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"min": 1, "max": 50, "step": 30}, {"min": 1, "max": 40, "step": 30}),
        ({"min": 8, "max": 10, "step": 5}, {"min": 1, "max": 8}),
    ],
    ids=["maxima that no step reaches", "one extent"],
)
def test_ranges_with_equal_keys_have_equal_libraries(first: dict[str, int], second: dict[str, int]) -> None:
    """Extents that no step reaches decide nothing, and one extent is another size than a range up to it."""
    model = Model()
    model.output(model.relu(model.conv(model.input([1, 4, "h", 24], "x"), 4, 4)))
    source, profile, stored = source_of(model), builtin_profile("edge4"), UnitsInMemory()
    compile_shapes(source, profile, parse_options({"dims": {"h": first}}), stored=stored)
    cold = UnitsInMemory()
    compile_shapes(source, profile, parse_options({"dims": {"h": second}}), stored=stored)
    compile_shapes(source, profile, parse_options({"dims": {"h": second}}), stored=cold)
    assert cold.values.items() <= stored.values.items()
