"""SIM-5: fields of a profile by name, amounts with units, and profiles with fields changed."""

from __future__ import annotations

import pytest

from compiler.errors import ProfileError, RequestError
from compiler.profile import builtin_names, builtin_profile, parse_profile, profile_digest, profile_json
from compiler.profile.fields import SHORT_NAMES, field_named, on_chip_bytes, profile_fields, value_of, with_fields
from compiler.profile.quantities import quantity

KIB, MIB = 1024, 1024**2


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("256KiB", "B", 262144),
        ("1.5 MiB", "B", 1572864),
        ("12MB", "B", 12_000_000),
        ("12.8GB/s", "B/s", 12_800_000_000),
        ("800MHz", "Hz", 800_000_000),
        ("1.2ms", "s", 0.0012),
        ("150ns", "s", 1.5e-7),
        ("5mJ", "J", 0.005),
        ("3µJ", "J", 3e-6),
        ("8B/cycle", "B/cycle", 8),
        ("1e6", "B", 1_000_000),
        ("64", "", 64),
        (64, "B", 64),
        (64.0, "B", 64),
        (0.5, "", 0.5),
    ],
)
def test_an_amount_is_exact_in_the_unit_of_its_field(text: object, unit: str, amount: float) -> None:
    found = quantity(text, unit)
    assert (found, type(found)) == (amount, type(amount))


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("256KiB", ""),
        ("1ms", "B"),
        ("1B", "B/s"),
        ("-1", "B"),
        ("", "B"),
        ("1KiB" + " " * 50, "B"),
        ("1e999", "B"),
        ("NaN", "B"),
        ("1 QiB", "B"),
        (True, "B"),
        (None, "B"),
        ([1], "B"),
    ],
)
def test_what_is_no_amount_of_the_unit_is_refused(text: object, unit: str) -> None:
    with pytest.raises(RequestError) as refused:
        quantity(text, unit)
    assert refused.value.code == "invalid_quantity"


def test_every_short_name_is_a_field_and_every_figure_of_the_profiles_too() -> None:
    assert {field_named(short).path for short in SHORT_NAMES} == set(SHORT_NAMES.values())
    paths = {field.path for field in profile_fields()}
    assert {"vector.lanes", "matrix.arrays.int8.k", "weights.mode", "limits.program_bytes_per_core"} <= paths
    assert not {"name", "schema", "description"} & paths


@pytest.mark.parametrize("name", builtin_names())
def test_every_field_that_a_profile_has_can_be_set_to_what_it_is(name: str) -> None:
    profile = builtin_profile(name)
    values = {field.path: value_of(profile, field) for field in profile_fields()}
    present = {path: value for path, value in values.items() if value is not None}
    assert with_fields(profile, present) is profile


def test_a_changed_profile_differs_in_the_field_and_the_name_alone() -> None:
    base = builtin_profile("edge4")
    changed = with_fields(base, {"nram.capacity_bytes": 64 * KIB, "engines.link.topology": "mesh"})
    assert (changed.nram.capacity_bytes, changed.name) == (64 * KIB, "edge4-varied")
    assert with_fields(changed, {"nram.capacity_bytes": 256 * KIB, "engines.link.topology": "ring"}) != base
    assert parse_profile(profile_json(changed)) == changed
    assert profile_digest(changed) != profile_digest(base)
    again = with_fields(changed, {"nram.capacity_bytes": 128 * KIB})
    assert again.name == "edge4-varied"


def test_a_unit_of_time_reaches_a_field_in_nanoseconds() -> None:
    field = field_named("dram.startup_ns")
    assert [field.parsed(value) for value in ("1.5us", "150ns", "150", 150)] == [1500, 150, 150, 150]


@pytest.mark.parametrize(("name", "near"), [("srm", "sram"), ("dram_bandwith", "dram_bandwidth"), ("lane", "lanes")])
def test_an_unknown_field_is_refused_with_the_names_that_come_near(name: str, near: str) -> None:
    with pytest.raises(RequestError) as refused:
        field_named(name)
    assert refused.value.code == "unknown_field"
    assert near in str(refused.value.limit)


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"sram.capacity_bytes": MIB}, "no_such_part", "has no sram"),
        ({"engines.gdma.bytes_per_cycle": 8}, "no_such_part", "has no engines.gdma"),
        ({"nram.capacity_bytes": 0}, "invalid_profile", "nram.capacity_bytes"),
        ({"nram.capacity_bytes": 1.5}, "invalid_profile", "nram.capacity_bytes"),
        ({"engines.link.topology": "torus"}, "invalid_profile", "torus"),
        ({"weights.compression": 2}, "invalid_profile", "weights.compression"),
    ],
)
def test_a_change_that_makes_no_profile_is_refused(changes: dict[str, int], code: str, names: str) -> None:
    with pytest.raises(ProfileError) as refused:
        with_fields(builtin_profile("edge4"), changes)
    assert refused.value.code == code
    assert names in str(refused.value)


def test_on_chip_bytes_are_those_of_all_levels_on_all_chips() -> None:
    assert on_chip_bytes(builtin_profile("edge4")) == 4 * 256 * KIB
    assert on_chip_bytes(builtin_profile("cluster4x4")) == 4 * (2 * MIB + 4 * (512 * KIB + MIB))
    assert on_chip_bytes(builtin_profile("manycore2x64")) == 2 * 64 * 512 * KIB
    assert on_chip_bytes(builtin_profile("metaproto-df")) == 2 * MIB + 96 * KIB
