"""Pinned schedules as JSON: what is read, what is refused, and that the way of writing does not matter (TILE-9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler import schedule
from compiler.cache_key import cache_key
from compiler.errors import RequestError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report import plan
from compiler.schedule import AMOUNT_MAX, JSON_BYTES_MAX, Schedule, parse_schedule

PROFILE = builtin_profile("edge4")
GROUP: dict[str, Any] = {
    "nodes": ["conv1", "relu"],
    "tiling": {"tile": {"H": 4, "W": 8}, "channel_slices": 2, "order": "depth-first", "double_buffered": False},
    "halo": {"H": "cached", "W": "recompute"},
    "placement": {"units": 4, "spread": "bands", "placement": "blocks", "walk": ["W", "H"]},
    "ops": [{"node": "conv1", "weight_mode": "resident"}],
}


def key(value: object) -> str:
    """The cache key under a schedule."""
    return cache_key("a" * 64, PROFILE, parse_options({"schedule": value}))


def test_a_canonical_schedule_is_its_own_canonical_form() -> None:
    """TILE-9: the form that options print is a schedule as one may be given."""
    found = parse_schedule({"groups": [GROUP], "fuse": [["b", "a"]], "apart": [["z", "y"]]})
    assert parse_schedule(msgspec.to_builtins(found)) == found
    assert parse_schedule(json.loads(msgspec.json.encode(found))) == found
    assert found.fuse == (("a", "b"),)


def test_extents_as_a_list_or_by_axis_are_one_schedule() -> None:
    by_axis = {"nodes": ["a"], "tiling": {"tile": {"W": 8, "N": 1, "H": 4}, "core_tile": {"H": 2}}}
    listed = {"nodes": ["a"], "tiling": {"axes": ["N", "H", "W"], "tile": [1, 4, 8], "core_tile": {"H": 2}}}
    assert parse_schedule({"groups": [by_axis]}) == parse_schedule({"groups": [listed]})


def test_what_a_plan_derives_is_read_over() -> None:
    derived = {**GROUP, "id": "s0.g7", "cycles": 3, "energy_j": 0.1, "rules": [{"id": "FUSE-4"}], "sram_tile": {}}
    derived["tiling"] = {**GROUP["tiling"], "tiles": 9, "rounds": 3, "kept_bytes": 1}
    derived["ops"] = [
        {"node": "conv1", "kind": "Conv", "weight_bytes": 4, "weight_mode": "resident", "weight_home": "core"},
        {"node": "relu", "kind": "Relu", "weight_mode": "none", "weight_loads": 0},
    ]
    assert parse_schedule({"groups": [derived]}) == parse_schedule({"groups": [GROUP]})


def test_a_plan_document_is_its_groups() -> None:
    document = {
        "schema": "tessera.plan/1",
        "compiler_version": "1",
        "segments": [{"id": "s0", "kind": "host", "groups": []}, {"id": "s1", "groups": [{**GROUP, "id": "s1.g0"}]}],
    }
    assert parse_schedule(document) == parse_schedule({"groups": [GROUP]})


@pytest.mark.parametrize(
    ("document", "read"),
    [
        (plan.Plan, schedule._PlanIn),
        (plan.PlanSegment, schedule._SegmentIn),
        (plan.PlanGroup, schedule._GroupIn),
        (plan.TilingDoc, schedule._TilingIn),
        (plan.Placement, schedule.PinnedPlacement),
        (plan.PlanOp, schedule._OpIn),
    ],
)
def test_every_field_of_a_plan_is_known_to_a_schedule(
    document: type[msgspec.Struct], read: type[msgspec.Struct]
) -> None:
    """A field added to the plan has to say whether it is pinned or derived."""
    assert set(document.__struct_fields__) == set(read.__struct_fields__)


def test_parts_of_a_node_are_told_apart() -> None:
    parts = [{"node": "split", "part": 1}, {"node": "split", "part": 0, "weight_mode": "resident"}]
    found = parse_schedule({"groups": [{"ops": parts}]})
    assert found.groups[0].nodes == ("split",)
    assert [op.part for op in found.groups[0].ops] == [0, 1]


def group(**changed: object) -> dict[str, object]:
    """A schedule of one group with some of it changed."""
    return {"groups": [{**GROUP, **changed}]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, ("schedule", "object", "3")),
        ([], ("object",)),
        ({"grups": []}, ("unknown field", "grups")),
        ({"groups": [{"nodes": [1]}]}, ("groups[0].nodes[0]", "str", "1")),
        ({"groups": [{"nodes": []}]}, ("groups[0]", "at least one ONNX node")),
        (group(colour=1), ("groups[0]", "unknown field", "colour")),
        (group(halo={"H": "kept"}), ("groups[0].halo", "recompute, cached, exchange", "kept")),
        (group(halo="cached"), ("groups[0].halo", "object", "cached")),
        (group(tiling={"tile": {"H": 0}}), ("groups[0].tiling.tile", ">= 1")),
        (group(tiling={"tile": {"H": "4"}}), ("groups[0].tiling.tile", "int")),
        (group(tiling={"tile": [4, 8]}), ("groups[0].tiling.tile", "axes", "[4,8]")),
        (group(tiling={"axes": ["H"], "tile": [4, 8]}), ("groups[0].tiling.tile", "axes")),
        (
            group(tiling={"order": "upside-down"}),
            ("groups[0].tiling.order", "depth-first, breadth-first", "upside-down"),
        ),
        (group(placement={"units": 2.5}), ("groups[0].placement.units", "int", "2.5")),
        (group(placement={"placement": "heap"}), ("placement.placement", "z-order", "heap")),
        (group(ops=[{"node": "a", "weight_mode": "twice"}]), ("ops[0].weight_mode", "once-through", "twice")),
        (group(ops=[{"weight_mode": "resident"}]), ("ops[0]", "node")),
        (group(ops=[{"node": "a", "part": 0}, {"node": "a"}]), ("ops[1]", "whole or in parts")),
        (
            group(ops=[{"node": "a", "weight_mode": "resident"}, {"node": "a", "weight_mode": "streamed"}]),
            ("ops[1].weight_mode", "one mode"),
        ),
        ({"fuse": [["a"]]}, ("fuse[0]", "length 2")),
        ({"fuse": [["a", "a"]]}, ("fuse[0]", "two different nodes")),
        ({"apart": [["a", 2]]}, ("apart[0][1]", "str")),
        ({"schema": "tessera.plan/2", "segments": []}, ("schema", "tessera.plan/1", "tessera.plan/2")),
        ({"schema": "tessera.plan/1", "segments": [{"groups": [{"x": 1}]}]}, ("segments[0].groups[0]", "x")),
        ({"fuse": [["a", object()]]}, ("plain JSON",)),
    ],
)
def test_a_schedule_of_the_wrong_form_is_refused_with_path_value_and_what_was_expected(
    value: object, words: tuple[str, ...]
) -> None:
    with pytest.raises(RequestError) as caught:
        parse_options({"schedule": value})
    assert caught.value.code == "invalid_schedule"
    assert str(caught.value).isprintable()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {"groups": [{"nodes": [f"n{number}" for number in range(AMOUNT_MAX + 1)]}]},
        {"groups": [{"nodes": ["a"]}] * (AMOUNT_MAX + 1)},
        {"fuse": [["a", "b"]] * (AMOUNT_MAX + 1)},
        {"schema": "tessera.plan/1", "segments": [], "options": {"x": "y" * JSON_BYTES_MAX}},
    ],
    ids=["nodes", "groups", "pairs", "bytes"],
)
def test_a_schedule_beyond_its_bounds_is_refused(value: Mapping[str, object]) -> None:
    with pytest.raises(RequestError) as caught:
        parse_schedule(value)
    assert caught.value.code == "invalid_schedule"
    assert "too many" in caught.value.message or "too large" in caught.value.message


def test_a_very_deep_value_is_refused_and_not_a_crash() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(RequestError):
        parse_schedule({"groups": value})


NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
AXES = ("N", "C", "H", "W")


@st.composite
def spellings(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """One schedule written in two ways."""
    nodes = draw(st.lists(NAMES, min_size=1, unique=True))
    cut = draw(st.integers(0, len(nodes)))
    first: dict[str, Any] = {"groups": []}
    second: dict[str, Any] = {"groups": []}
    for members in (nodes[:cut], nodes[cut:]):
        if not members:
            continue
        extents = {axis: draw(st.integers(1, 64)) for axis in AXES}
        halo = {axis: draw(st.sampled_from(["cached", "exchange"])) for axis in draw(st.permutations(["H", "W"]))}
        one: dict[str, Any] = {"nodes": members, "tiling": {"tile": extents}, "halo": halo}
        axes = draw(st.permutations(AXES))
        two: dict[str, Any] = {
            "halo": dict(reversed(halo.items())),
            "tiling": {"axes": list(axes), "tile": [extents[axis] for axis in axes], "rounds": draw(st.integers())},
            "nodes": draw(st.permutations(members)),
            "id": draw(st.text(max_size=3)),
            "ops": [{"node": name, "weight_mode": "none"} for name in draw(st.lists(st.sampled_from(members)))],
        }
        first["groups"].append(one)
        second["groups"].append(two)
    second["groups"] = draw(st.permutations(second["groups"]))
    if draw(st.booleans()):
        return first, {"schema": "tessera.plan/1", "segments": [{"groups": second["groups"]}]}
    pairs = draw(st.lists(st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1]), max_size=4))
    first["apart"] = [list(pair) for pair in pairs]
    second["apart"] = [list(reversed(pair)) for pair in draw(st.permutations(pairs))]
    return first, second


@given(spellings())
def test_the_cache_key_does_not_depend_on_how_a_schedule_is_written(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """TILE-9."""
    first, second = both
    assert parse_schedule(first) == parse_schedule(second)
    assert key(first) == key(second)


def test_the_cache_key_depends_on_what_is_pinned() -> None:
    keys = {key(None), key({}), key({"groups": [GROUP]}), key(group(halo={"H": "cached"})), key({"fuse": [["a", "b"]]})}
    assert len(keys) == 5


def test_an_empty_schedule_is_one_that_pins_nothing() -> None:
    assert parse_schedule({}) == Schedule()


def test_every_field_of_a_plan_is_read_over_in_a_schedule() -> None:
    """A plan.json is a schedule, whatever a later version adds to it (TILE-9)."""
    fields = dict.fromkeys(plan.Plan.__struct_fields__)
    assert parse_schedule({**fields, "schema": "tessera.plan/1", "segments": []}) == Schedule()
