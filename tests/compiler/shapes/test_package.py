"""Packages: written and read back, byte for byte; refused with a reason where they are not as written (SHAPE-10)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import LimitError, RequestError
from compiler.options import Options
from compiler.program.encoding.container import NO_SEGMENT, PACKAGE, Section, read_container, write_container
from compiler.program.errors import ExecutableError
from compiler.shapes.instantiate import simple_tables
from compiler.shapes.make_tables import MakeTables
from compiler.shapes.package import read_package, stored_values, write_package
from compiler.shapes.prepared import ShapeTables
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.matrices import tries
from tests.models import error_of

REFUSALS = (ExecutableError, RequestError, LimitError)
SHAPES = ({"batch": 2, "height": 9, "width": 11}, {"batch": 1, "height": 17, "width": 12})


@cache
def compiled() -> Compiled:
    """A small network of free batch, height and width."""
    return Compiled.of(residual_network(), {"batch": (1, 3), "height": (4, 17), "width": (4, 13)})


@cache
def prepared() -> tuple[ShapeTables, ...]:
    """The tables of two shapes."""
    return MakeTables(options=Options(tables=SHAPES)).run(compiled().model).tables


@cache
def package() -> bytes:
    """Its package, with these tables."""
    of = compiled()
    return b"".join(bytes(piece) for piece in write_package(of.model, prepared(), of.values))


def with_profile(profile: bytes) -> bytes:
    """The package with another profile, its checksums and the profile's digest right."""
    container = read_container(memoryview(package()), kind=PACKAGE)
    manifest = json.loads(bytes(container.section("manifest")))
    manifest["profile_digest"] = hashlib.sha256(profile).hexdigest()
    sections = {"manifest": json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode(), "profile": profile}
    sections |= {name: bytes(container.section(name)) for name in ("numbers", "constants")}
    written = (Section(name=name, segment=NO_SEGMENT, pieces=(data,)) for name, data in sections.items())
    return b"".join(bytes(piece) for piece in write_container(tuple(written), kind=PACKAGE))


def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The package with another manifest, its checksums right."""
    container = read_container(memoryview(package()), kind=PACKAGE)
    manifest = json.loads(bytes(container.section("manifest")))
    found = change(manifest)
    text = found if isinstance(found, bytes) else json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    names = ("profile", "numbers", "constants")
    rest = (Section(name=name, segment=NO_SEGMENT, pieces=(bytes(container.section(name)),)) for name in names)
    sections = (Section(name="manifest", segment=NO_SEGMENT, pieces=(text,)), *rest)
    return b"".join(bytes(piece) for piece in write_container(sections, kind=PACKAGE))


def test_what_was_read_is_written_again_byte_for_byte() -> None:
    read = read_package(memoryview(package()))
    again = b"".join(bytes(p) for p in write_package(read.model, read.tables, stored_values(read.data)))
    assert again == package()


def test_the_same_model_makes_the_same_package() -> None:
    first, second = (Compiled.of(encoder_layer(), {"batch": (1, 2), "length": (1, 9)}).package() for _ in range(2))
    assert first == second


def test_what_was_read_makes_the_same_tables() -> None:
    read = read_package(memoryview(package()))
    for dims in ({"batch": 1, "height": 4, "width": 13}, {"batch": 3, "height": 17, "width": 4}):
        for mine, its in zip(simple_tables(compiled().model, dims), simple_tables(read.model, dims), strict=True):
            assert (mine is None) == (its is None)
            if mine is not None and its is not None:
                assert mine.runs.tobytes() == its.runs.tobytes()
                assert mine.cost_cycles == its.cost_cycles


@given(st.data())
def test_one_flipped_bit_anywhere_is_found(data: st.DataObject) -> None:
    wrong = bytearray(package())
    wrong[data.draw(st.integers(0, len(wrong) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(REFUSALS):
        read_package(memoryview(bytes(wrong)))


@given(st.data())
def test_a_file_that_is_cut_short_or_longer_is_refused(data: st.DataObject) -> None:
    whole = package()
    wrong = whole[: data.draw(st.integers(0, len(whole) - 1))] if data.draw(st.booleans()) else whole + b"\0"
    with pytest.raises(REFUSALS):
        read_package(memoryview(wrong))


def test_another_profile_is_refused_by_name() -> None:
    with pytest.raises(RequestError) as caught:
        read_package(memoryview(package()), profile_digest="0" * 64)
    assert caught.value.code == "wrong_profile"
    assert "edge4" in str(caught.value)


@pytest.mark.parametrize("profile", [b"[]", b"{", b"{}", b"\xff", b"9" * 5000, b"[" * 200_000])
@pytest.mark.parametrize("wanted", [None, "0" * 64])
def test_a_profile_that_is_none_is_refused_whichever_is_wanted(profile: bytes, wanted: str | None) -> None:
    with pytest.raises(ExecutableError):
        read_package(memoryview(with_profile(profile)), profile_digest=wanted)


@pytest.mark.parametrize(("key", "value"), [("schema", 99), ("schema", None), ("compiler_version", "0.0.1")])
def test_another_version_is_refused(key: str, value: object) -> None:
    with pytest.raises(REFUSALS) as caught:
        read_package(memoryview(changed(lambda manifest: manifest.update({key: value}))))
    assert caught.value.code == "package_version"


def nested(depth: int) -> list[Any]:
    """An expression of so many levels."""
    found: list[Any] = [1, [["batch", 1]]]
    for _ in range(depth):
        found = [0, [[["*", found, [1, []]], 1]]]
    return found


def first(manifest: dict[str, Any], holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The first tensor of which something holds."""
    return next(tensor for tensor in manifest["graph"]["tensors"] if holds(tensor))


def table_of(manifest: dict[str, Any]) -> Any:
    """The first table of the first shape: kind, runs, its cycles, those of the simple one."""
    return next(one for one in manifest["tables"][0]["routines"] if one[0])


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no object": lambda _: b"[]",
    "no JSON": lambda _: b"{",
    "deep JSON": lambda _: b"[" * 200_000 + b"]" * 200_000,
    "long number": lambda _: b'{"schema": ' + b"9" * 5000 + b"}",
    "no such chip": lambda m: m["parts"][0].__setitem__(3, 1),
    "chip is no number": lambda m: m["parts"][0].__setitem__(3, "0"),
    "no graph": lambda m: m.pop("graph"),
    "graph is a list": lambda m: m.update(graph=[]),
    "dims are a list": lambda m: m["graph"].update(dims=[1]),
    "huge extent": lambda m: m["graph"]["tensors"][0].update(shape=[10**30], axes=["N"]),
    "negative extent": lambda m: m["graph"]["tensors"][0].update(shape=[-1], axes=["N"]),
    "extent is true": lambda m: m["graph"]["tensors"][0].update(shape=[True], axes=["N"]),
    "unknown type": lambda m: first(m, lambda t: t["constant"])["constant"].update(dtype="float7"),
    "varies along no axis": lambda m: first(m, lambda t: t["symbols"])["symbols"][0].__setitem__(0, 99),
    "varies with no dimension": lambda m: first(m, lambda t: t["symbols"])["symbols"][0].__setitem__(
        1, [0, [["?", 1]]]
    ),
    "deep expression": lambda m: first(m, lambda t: t["symbols"])["symbols"][0].__setitem__(1, nested(80)),
    "no such operator": lambda m: first(m, lambda t: t["symbols"])["symbols"][0].__setitem__(
        1, [0, [[["**", [2, []], [64, []]], 1]]]
    ),
    "piece outside": lambda m: first(m, lambda t: t["constant"])["constant"].update(piece=[10**12, 4]),
    "negative piece": lambda m: first(m, lambda t: t["constant"])["constant"].update(piece=[-64, 4]),
    "short piece": lambda m: first(m, lambda t: t["constant"])["constant"].update(piece=[0, 0]),
    "huge splat": lambda m: first(m, lambda t: t["constant"]).update(
        constant={"shape": [2**50], "dtype": "float32", "splat": "AAAAAA=="}
    ),
    "unknown function": lambda m: first(m, lambda t: t["constant"]).update(
        constant={"shape": [1], "dtype": "float32", "function": "Expand", "inputs": [], "attributes": []}
    ),
    "unknown kind": lambda m: m["graph"]["ops"][0].__setitem__(0, "Explode"),
    "reads nothing": lambda m: m["graph"]["ops"][0][1].__setitem__(0, "nowhere"),
    "made twice": lambda m: m["graph"]["ops"][1].__setitem__(2, m["graph"]["ops"][0][2]),
    "no origin": lambda m: m["graph"]["ops"][0].__setitem__(3, []),
    "unknown attribute varies": lambda m: m["graph"]["ops"][0].__setitem__(5, [["size", 0, [0, [["batch", 1]]]]]),
    "outputs are a word": lambda m: m["graph"].update(output_tensors=m["graph"]["output_tensors"][0]),
    "output without a name": lambda m: m["graph"].update(output_names=[]),
    "output made by nothing": lambda m: m["graph"].update(output_tensors=["nowhere"]),
    "no range": lambda m: m["ranges"].pop("batch"),
    "empty range": lambda m: m["ranges"].update(batch=[5, 3, 1]),
    "step of nothing": lambda m: m["ranges"].update(batch=[1, 3, 0]),
    "range of text": lambda m: m["ranges"].update(batch="abc"),
    "huge range": lambda m: m["ranges"].update(batch=[1, 10**20, 1]),
    "part of other ops": lambda m: m["parts"][0].__setitem__(1, [10**9]),
    "part of no routine": lambda m: m["parts"][0].__setitem__(2, [-1]),
    "an op that nobody runs": lambda m: m["parts"][0][2].pop(),
    "routines in another order": lambda m: m["parts"][0][2].reverse(),
    "ops of a routine in another order": lambda m: next(
        one["ops"] for one in m["libraries"] if len(one["ops"]) > 1
    ).reverse(),
    "routine of no ops": lambda m: m["libraries"][0].update(ops=[]),
    "routine of other ops": lambda m: m["libraries"][0].update(ops=[10**9]),
    "divides no axis": lambda m: m["libraries"][0].update(tiled=[7]),
    "divides an axis twice": lambda m: m["libraries"][0].update(tiled=[1, 1]),
    "no units": lambda m: m["libraries"][0].update(units=[]),
    "tile of nothing": lambda m: m["libraries"][0]["units"][0].update(tile=[0, 0, 0, 0]),
    "huge tile": lambda m: m["libraries"][0]["units"][0].update(tile=[10**30] * 4),
    "tile longer than its costs": lambda m: m["libraries"][0]["units"][0].update(tile=[10**6] * 4),
    "no such level": lambda m: next(iter(m["libraries"][0]["units"][0]["buffers"].values())).__setitem__(0, 99),
    "buffer below 0": lambda m: next(iter(m["libraries"][0]["units"][0]["buffers"].values())).__setitem__(2, [-8]),
    "costs elsewhere": lambda m: m["libraries"][0]["cost"].update(compute=[[10**9, 8]] * 4),
    "costs of half a number": lambda m: m["libraries"][0]["cost"].update(compute=[[0, 7]] * 4),
    "cost of another rank": lambda m: m["libraries"][0]["cost"].update(
        compute=m["libraries"][0]["cost"]["compute"][:1]
    ),
    "cost of text": lambda m: m["libraries"][0]["cost"].update(call_cycles="much"),
    "cost of no number": lambda m: m["libraries"][0]["cost"].update(call_cycles=float("nan")),
    "endless cost": lambda m: m["libraries"][0]["cost"].update(compute_cycles=float("inf")),
    "cost below 0": lambda m: m["libraries"][0]["cost"]["operands"][0].__setitem__(1, -1.0),
    "factors of runs": lambda m: m["libraries"][0]["cost"]["compute"].__setitem__(0, table_of(m)[1]),
    "too few factors": lambda m: m["libraries"][0]["cost"]["operands"][-1][2][0].__setitem__(1, 8),
    "factors along other axes": lambda m: m["libraries"][0]["cost"]["operands"][0][2].append(None),
    "no core loads": lambda m: m["libraries"][0].update(loaders=0),
    "more cores load than there are": lambda m: m["libraries"][0].update(loaders=5),
    "memory below 0": lambda m: m["libraries"][0]["units"][0].update(activation_bytes=-1),
    "memory of text": lambda m: m["libraries"][0]["units"][0].update(weight_bytes="much"),
    "buffer of no bytes": lambda m: next(iter(m["libraries"][0]["units"][0]["buffers"].values())).__setitem__(3, 0),
    "buffer of half a byte": lambda m: next(iter(m["libraries"][0]["units"][0]["buffers"].values())).__setitem__(
        3, 0.5
    ),
    "unread input that is made": lambda m: m["graph"].update(unread=[first(m, lambda t: t["constant"])]),
    "table of another kind": lambda m: table_of(m).__setitem__(0, "best"),
    "table of a shape out of range": lambda m: m["tables"][0]["dims"].update(batch=4),
    "table of half a shape": lambda m: m["tables"][0]["dims"].pop("batch"),
    "tables of another shape": lambda m: m["tables"][0].update(dims=m["tables"][1]["dims"]),
    "fewer tables than routines": lambda m: m["tables"][0]["routines"].pop(),
    "more tables than routines": lambda m: m["tables"][0]["routines"].append([None, None, 0, 0]),
    "no table where there has to be one": lambda m: table_of(m).__setitem__(slice(0, 2), [None, None]),
    "runs elsewhere": lambda m: table_of(m)[1].__setitem__(0, 10**9),
    "runs of half a run": lambda m: table_of(m)[1].__setitem__(1, 3),
    "runs of another routine": lambda m: table_of(m).__setitem__(1, m["tables"][1]["routines"][0][1]),
    "table below cost": lambda m: table_of(m).__setitem__(2, -1.0),
    "table of no cost": lambda m: table_of(m).__setitem__(2, float("nan")),
    "simple table of endless cost": lambda m: table_of(m).__setitem__(3, float("inf")),
    "tables of too many shapes": lambda m: m.update(tables=m["tables"] * 33),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_manifest_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(REFUSALS) as caught:
        read_package(memoryview(changed(HOSTILE[name])))
    assert caught.value.message


@tries(first=40, rest=100)
@given(st.data())
def test_whatever_is_put_in_place_of_a_value_is_read_or_refused(data: st.DataObject) -> None:
    """Any value of the manifest, replaced by any other: nothing but a refusal comes of it."""
    strange: st.SearchStrategy[Any] = st.sampled_from(
        [None, True, -1, 0, 1, 2**31, 2**63, 10**40, 0.5, "", "x", [], [[]], {}, {"a": 1}]
    )

    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 9)) == 0:
                place[key] = data.draw(strange)
                return
            place = inner

    wrong = changed(change)
    refused = error_of(lambda: read_package(memoryview(wrong)))
    assert refused is None or isinstance(refused, REFUSALS)


@pytest.mark.parametrize("missing", ["manifest", "profile", "numbers", "constants"])
def test_a_package_without_a_section_is_refused_by_its_name(missing: str) -> None:
    container = read_container(memoryview(package()), kind=PACKAGE)
    kept = [name for name, _ in container.entries if name != missing]
    sections = (Section(name=name, segment=NO_SEGMENT, pieces=(bytes(container.section(name)),)) for name in kept)
    data = b"".join(bytes(piece) for piece in write_container(tuple(sections), kind=PACKAGE))
    with pytest.raises(ExecutableError, match="the section is missing") as caught:
        read_package(memoryview(data))
    assert caught.value.section == missing


def test_constants_of_a_package_are_views_of_it() -> None:
    read = read_package(memoryview(package()))
    values = stored_values(read.data)
    whole = np.frombuffer(read.data, dtype=np.uint8)
    stored = [t.constant for t in read.model.graph.tensors.values() if t.constant is not None and not t.symbols]
    assert stored
    assert any(np.shares_memory(values(constant), whole) for constant in stored)
