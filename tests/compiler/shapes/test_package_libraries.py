"""Packages that name their libraries: the same model with a folder of units, refused by name without (SHAPE-1, 10)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.compile import compile_package
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.encoding.container import NO_SEGMENT, PACKAGE, Section, read_container, write_container
from compiler.program.errors import ExecutableError
from compiler.program.executable import write
from compiler.shapes.direct import run_directly
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.package import Package, read_package, stored_values, write_package
from compiler.shapes.package_libraries import UnitsError
from compiler.shapes.unit_bundle import decode_bundle, encode_bundle
from compiler.shapes.unit_encoding import decode_library
from compiler.simulator.inputs import random_inputs
from compiler.unit_key import library_id_of
from tests.compiler.shapes.dynamic import Ranges
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.compiler.shapes.stored import UnitsInMemory
from tests.compiler.shapes.test_canonical_routine import IMAGES, WORDS
from tests.models import Model, error_of


@dataclass(frozen=True)
class Folder:
    """Bundles by the id of their library."""

    bundles: Mapping[str, bytes]

    def bundle(self, library_id: str) -> bytes | None:
        return self.bundles.get(library_id)

    def __str__(self) -> str:
        return "the folder"


@dataclass(frozen=True)
class Made:
    """A model's packages with and without units, and its libraries as bundles."""

    source: ModelSource
    full: bytes
    small: bytes
    units: Folder

    def read(self) -> Package:
        return read_package(memoryview(self.small), units=self.units)


MODELS: dict[str, tuple[Callable[[], Model], Ranges]] = {
    "images": (residual_network, IMAGES),
    "encoder": (encoder_layer, WORDS),
}
CASES = [("images", "edge4"), ("encoder", "edge4"), ("encoder", "manycore2x64")]


@cache
def made(name: str = "images", profile: str = "edge4") -> Made:
    network, ranges = MODELS[name]
    source = ModelSource.from_bytes(network().data())
    dims = {one: {"min": low, "max": high} for one, (low, high) in ranges.items()}
    options = parse_options({"dims": dims, "tables": [{one: low for one, (low, _) in ranges.items()}]})
    stored = UnitsInMemory()
    found = compile_package(source, builtin_profile(profile), options, stored=stored)
    file = opened(found.model.graph.source, source)

    def package(*, with_units: bool) -> bytes:
        pieces = write_package(
            found.model, found.tables, lambda constant: materialise(constant, file), with_units=with_units
        )
        return b"".join(map(bytes, pieces))

    used = {use.library_id for use in found.model.uses}
    libraries = [key for key in stored.values if key.startswith("library:") and library_id_of(key) in used]
    return Made(
        source=source,
        full=package(with_units=True),
        small=package(with_units=False),
        units=Folder({library_id_of(key): encode_bundle(key, stored.values) for key in libraries}),
    )


def again(package: Package, *, with_units: bool) -> bytes:
    pieces = write_package(package.model, package.tables, stored_values(package.data), with_units=with_units)
    return b"".join(map(bytes, pieces))


def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The package without units with another manifest, its checksums right."""
    container = read_container(memoryview(made().small), kind=PACKAGE)
    contents = {name: bytes(container.section(name)) for name in ("manifest", "profile", "numbers", "constants")}
    manifest = json.loads(contents["manifest"])
    change(manifest)
    contents["manifest"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    sections = [Section(name=name, segment=NO_SEGMENT, pieces=(data,)) for name, data in contents.items()]
    return b"".join(map(bytes, write_container(sections, kind=PACKAGE)))


def refusal(units: Folder | None) -> UnitsError:
    refused = error_of(lambda: read_package(memoryview(made().small), units=units))
    assert isinstance(refused, UnitsError)
    return refused


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(("name", "profile"), CASES)
def test_with_its_units_a_package_is_the_full_one_byte_for_byte(name: str, profile: str) -> None:
    one = made(name, profile)
    assert b'"activation_bytes"' in one.full
    assert b'"activation_bytes"' not in one.small
    assert again(one.read(), with_units=True) == one.full
    assert again(one.read(), with_units=False) == one.small
    assert again(read_package(memoryview(one.full)), with_units=False) == one.small


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(("name", "profile"), CASES)
def test_programs_and_values_are_those_of_the_full_package(name: str, profile: str) -> None:
    one = made(name, profile)
    packages = (read_package(memoryview(one.full)), one.read())
    for end in (0, 1):
        dims = {axis: ends[end] for axis, ends in MODELS[name][1].items()}
        programs, outputs = [], []
        for package in packages:
            model, values = package.model, stored_values(package.data)
            source = ModelSource(name=model.model_name, data=bytes(package.data), sha256=model.model_digest)
            programs.append(b"".join(map(bytes, write(instantiate(model, dims, simple_tables(model, dims), source)))))
            given_inputs = random_inputs(graph_at(model.graph, dims, values), 1)
            found = run_directly(model, values, given_inputs, package.tables)
            outputs.append({output: array.tobytes() for output, array in found.items()})
        assert programs[0] == programs[1]
        assert outputs[0] == outputs[1]


def test_a_full_package_needs_no_folder() -> None:
    assert again(read_package(memoryview(made().full), units=Folder({})), with_units=True) == made().full


def test_missing_libraries_are_named_with_how_to_pull_them() -> None:
    bundles = made().units.bundles
    (first, *rest) = sorted(bundles)
    assert rest
    refused = refusal(Folder({one: bundles[one] for one in rest}))
    assert refused.code == "missing_units"
    assert refused.message.startswith(f"1 of the {len(bundles)} libraries")
    assert "the folder" in refused.message
    assert refused.actual == f"no {first}"
    assert f"URL/v1/units/{first}" in str(refused)
    assert "tessera units pull" in str(refused)
    without = refusal(None)
    assert without.code == "missing_units"
    assert "no folder of units was given" in without.message
    assert first in str(without)


@given(st.data())
def test_a_library_with_one_flipped_bit_is_refused_by_name(data: st.DataObject) -> None:
    bundles = made().units.bundles
    name = data.draw(st.sampled_from(sorted(bundles)))
    wrong = bytearray(bundles[name])
    wrong[data.draw(st.integers(0, len(wrong) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refused = refusal(Folder({**bundles, name: bytes(wrong)}))
    assert refused.code == "invalid_units"
    assert name in refused.message


@pytest.mark.parametrize("data", [b"", b"TSRB", b"\0" * 100])
def test_a_file_that_is_no_library_is_refused_by_name(data: bytes) -> None:
    name = sorted(made().units.bundles)[0]
    refused = refusal(Folder({**made().units.bundles, name: data}))
    assert refused.code == "invalid_units"
    assert name in refused.message


@pytest.mark.slow
def test_a_sound_library_of_another_routine_or_profile_is_refused_by_name() -> None:
    bundles = made().units.bundles
    first, second, *_ = sorted(bundles)
    others = made("encoder", "manycore2x64").units.bundles
    for foreign, data in ((second, bundles[second]), next(iter(others.items()))):
        refused = refusal(Folder({**bundles, first: data}))
        assert refused.code == "wrong_units"
        assert first in refused.message
        assert foreign in str(refused.actual)


def swapped(manifest: dict[str, Any]) -> None:
    """Two routines of other ops, each with the library of the other."""
    libraries = manifest["libraries"]
    last = next(one for one in libraries if one["id"] != libraries[0]["id"])
    libraries[0]["id"], last["id"] = last["id"], libraries[0]["id"]


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a path as an id": lambda m: m["libraries"][0].update(id="../../secret"),
    "no id": lambda m: m["libraries"][0].pop("id"),
    "a number as an id": lambda m: m["libraries"][0].update(id=1),
    "no names": lambda m: m["libraries"][0].update(names={}),
    "names are a list": lambda m: m["libraries"][0].update(names=[]),
    "no ops": lambda m: m["libraries"][0].update(ops=[]),
    "other ops": lambda m: m["libraries"][0].update(ops=[10**9]),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_manifest_is_refused(name: str) -> None:
    wrong = changed(HOSTILE[name])
    refused = error_of(lambda: read_package(memoryview(wrong), units=made().units))
    assert isinstance(refused, ExecutableError)
    assert refused.section == "manifest"


def test_a_library_of_other_ops_than_the_routines_is_refused() -> None:
    wrong = changed(swapped)
    refused = error_of(lambda: read_package(memoryview(wrong), units=made().units))
    assert isinstance(refused, ExecutableError)
    assert "is for other ops" in refused.message


def test_a_library_of_another_profile_than_the_packages_is_refused() -> None:
    """The manifest names it, and the folder has it: the package contradicts itself."""
    other = made("images", "cluster4x4")
    theirs = {bundle_ops(data): library_id for library_id, data in other.units.bundles.items()}

    def change(manifest: dict[str, Any]) -> None:
        for one in manifest["libraries"]:
            kinds = tuple(manifest["graph"]["ops"][op][0] for op in one["ops"])
            one["id"] = theirs.get(kinds, one["id"])

    wrong = changed(change)
    assert wrong != made().small
    folder = Folder({**made().units.bundles, **other.units.bundles})
    refused = error_of(lambda: read_package(memoryview(wrong), units=folder))
    assert isinstance(refused, ExecutableError)
    assert "another profile" in refused.message


def bundle_ops(data: bytes) -> tuple[str, ...]:
    """The kinds of the ops of a bundle's library."""
    key, values = decode_bundle(data)
    return decode_library(values[key]).kinds
