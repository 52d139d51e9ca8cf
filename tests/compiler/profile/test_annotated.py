"""Annotated profiles read back as they were, and each field is explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from compiler.profile import Profile, builtin_names, builtin_profile, parse_profile
from compiler.profile.annotated import annotated, reference
from compiler.profile.field_descriptions import FIELDS, VALUES, Entry
from compiler.profile.quantities import UNITS, amount_text, quantity
from tests.strategies import profiles

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "profile.json").read_text())


@pytest.mark.parametrize("name", builtin_names())
def test_an_annotated_profile_reads_back_as_the_same_profile(name: str) -> None:
    assert parse_profile(annotated(builtin_profile(name)).encode()) == builtin_profile(name)


@given(profiles(), st.text(max_size=60), st.floats(0.001, 1e18), st.integers(1, 2**50))
def test_any_profile_reads_back_from_its_annotated_form(
    profile: Profile, description: str, clock_hz: float, capacity_bytes: int
) -> None:
    dram = msgspec.structs.replace(profile.dram, capacity_bytes=capacity_bytes)
    changed = msgspec.structs.replace(profile, description=description, clock_hz=clock_hz, dram=dram)
    assert parse_profile(annotated(changed).encode()) == changed


@pytest.mark.parametrize("word", ["true", "null", "1e5", "12", "0x1f", "2026-01-01", "y"])
def test_a_name_that_yaml_would_read_as_something_else_stays_text(word: str) -> None:
    profile = msgspec.structs.replace(builtin_profile("edge4"), name=word, description=word)
    assert parse_profile(annotated(profile).encode()) == profile


@pytest.mark.parametrize("name", builtin_names())
def test_the_annotated_form_has_each_field_with_unit_and_meaning_on_one_line(name: str) -> None:
    lines = annotated(builtin_profile(name)).splitlines()

    def follow(entries: tuple[Entry, ...], place: int) -> int:
        """Find the fields below each other in the order of the schema; where the last one stands."""
        for entry in entries:
            heads = (f"{entry.name}:", f"# {entry.name}:")
            place += next(n for n, line in enumerate(lines[place:]) if line.lstrip("# ").startswith(heads)) + 1
            line = " ".join(lines[place - 2 : place]) if entry.name == "description" else lines[place - 1]
            assert entry.meaning in line
            assert not entry.unit or f"# {UNITS[entry.unit].words}: " in line
            place = follow(entry.entries, place)
        return place

    follow(FIELDS, 0)
    assert all(len(line) <= 120 for line in lines if not line.startswith("description:"))


@pytest.mark.matrix(first=56, rest=56)
@pytest.mark.parametrize("path", VALUES)
def test_every_field_has_a_meaning_and_a_unit_where_its_name_says_one(path: str) -> None:
    entry = VALUES[path]
    assert entry.meaning
    units = {"_bytes": "B", "bytes_per_s": "B/s", "bytes_per_cycle": "B/cycle", "_hz": "Hz", "_ns": "ns", "_w": "W"}
    for ending, unit in {**units, "_pj_per_byte": "pJ/B", "cycles": "cycles"}.items():
        assert not path.endswith(ending) or entry.unit == unit


def test_the_reference_has_a_row_with_unit_and_meaning_for_each_field() -> None:
    rows = {tuple(line.split(" | ")) for line in reference().splitlines() if line.startswith("| `")}

    def follow(entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            held = entry.each or entry
            assert any((f"| `{entry.name}`", held.unit, f"{entry.meaning} |") == (*row[:2], row[-1]) for row in rows)
            follow(held.entries)

    follow(FIELDS)


@given(st.one_of(st.integers(0, 2**50), st.floats(0, 1e18)), st.sampled_from(["B/s", "B/cycle", "Hz"]))
def test_a_printed_amount_is_exact(value: float, unit: str) -> None:
    text = amount_text(value, unit)
    if "e-" not in text:
        assert float(quantity(text, unit)) == value


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2097152, "B", "2MiB"),
        (2097153, "B", "2097153B"),
        (1000, "B", "1000B"),
        (102.4e9, "B/s", "102.4GB/s"),
        (1.2e9, "Hz", "1.2GHz"),
        (200.0, "ns", "200ns"),
        (0.4, "pJ/B", "0.4pJ/B"),
        (64, "", "64"),
    ],
)
def test_an_amount_is_printed_with_the_prefix_that_makes_it_short(value: float, unit: str, text: str) -> None:
    assert amount_text(value, unit) == text


@pytest.mark.parametrize("name", builtin_names())
def test_the_json_schema_admits_amounts_where_a_field_has_a_unit_and_nowhere_else(name: str) -> None:
    values: dict[str, Any] = yaml.safe_load(annotated(builtin_profile(name)))
    jsonschema.validate(values, SCHEMA)
    assert isinstance(values["clock_hz"], str)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "chips": "1"}, SCHEMA)
