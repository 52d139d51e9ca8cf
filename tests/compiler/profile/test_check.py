"""PROF-4: all that is wrong with a profile at once, and amounts with units in profile files."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml

from compiler.errors import ProfileError
from compiler.profile import builtin_names, builtin_profile, parse_profile, profile_digest, profile_json
from compiler.profile.check import MAX_FAULTS, Fault, checked
from compiler.profile.field_descriptions import VALUES
from compiler.profile.quantities import UNITS
from tests.profiles import profile_values

CLUSTER = profile_values("cluster4x4")
WITH_UNITS = {path: entry.unit for path, entry in VALUES.items() if entry.unit}


def with_value(path: str, value: Any) -> dict[str, Any]:
    """A built-in profile with one field changed; parts that it does not have are made."""
    values = deepcopy(CLUSTER)
    *parents, leaf = path.split(".")
    target = values
    for parent in parents:
        target[parent] = target.get(parent) or {}
        target = target[parent]
    target[leaf] = value
    return values


def faults_of(values: Mapping[str, Any]) -> dict[str, Fault]:
    """The faults by path."""
    profile, faults = checked(values)
    assert (profile is None) == bool(faults)
    return {fault.path: fault for fault in faults}


@pytest.mark.parametrize(
    ("path", "text", "number"),
    [
        ("sram.capacity_bytes", "2MiB", 2097152),
        ("sram.capacity_bytes", "2 MiB", 2097152),
        ("nram.capacity_bytes", "64KiB", 65536),
        ("nram.capacity_bytes", "64kB", 64000),
        ("limits.program_bytes", "1.5MB", 1_500_000),
        ("dram.capacity_bytes", "16GiB", 17179869184),
        ("dram.bandwidth_bytes_per_s", "102.4GB/s", 102.4e9),
        ("engines.gdma.bytes_per_cycle", "0.5KiB/cycle", 512),
        ("clock_hz", "1.2GHz", 1.2e9),
        ("dram.startup_ns", "0.2us", 200),
        ("matrix.pj_per_mac.int8", "0.00006nJ", 0.06),
        ("nram.read_pj_per_byte", "0.4pJ/B", 0.4),
        ("static_w", "500mW", 0.5),
    ],
)
def test_an_amount_and_the_number_that_it_is_make_the_same_profile(path: str, text: str, number: float) -> None:
    """PROF-1: the digest does not depend on how an amount is written."""
    digests = {
        profile_digest(parse_profile(yaml.safe_dump(with_value(path, value)).encode())) for value in (text, number)
    }
    assert len(digests) == 1


@pytest.mark.matrix(first=24, rest=24)
@pytest.mark.parametrize("path", WITH_UNITS)
def test_a_field_takes_its_own_unit_and_no_other(path: str) -> None:
    unit = UNITS[WITH_UNITS[path]]
    assert path not in faults_of(with_value(path, f"8{WITH_UNITS[path]}"))
    for other in UNITS.values():
        if other.base != unit.base:
            fault = faults_of(with_value(path, f"8{other.base}"))[path]
            assert fault.found == f"8{other.base}"
            assert f"number of {unit.words}" in fault.allowed


@pytest.mark.parametrize(
    "text", ["2Mib", "2MIB", "mB", "2 mB", "2fB", "-2MiB", "2MiB MiB", "1e99TiB", "9" * 50 + "B", "٣B", ""]
)
def test_what_is_no_amount_or_too_large_is_a_fault(text: str) -> None:
    assert faults_of(with_value("sram.capacity_bytes", text)).keys() == {"sram.capacity_bytes"}


@pytest.mark.parametrize("prefix", ["Ki", "Mi"])
def test_binary_prefixes_stand_before_bytes_only(prefix: str) -> None:
    assert "clock_hz" in faults_of(with_value("clock_hz", f"1{prefix}Hz"))


def test_all_faults_are_found_at_once_and_relations_in_the_parts_that_are_right() -> None:
    values = profile_values("edge4")
    values["chips"] = 0
    values["colour"] = "blue"
    del values["vector"]
    values["dram"]["capacity_bytes"] = "4GHz"
    values["nram"]["access_bytes"] = 1024
    values["nram"]["capacity_bytes"] = 512
    values["matrix"]["pj_per_mac"] = {"int8": 1}
    values["engines"]["gdma"] = {"bytes_per_cycle": 8}
    faults = faults_of(values)
    assert list(faults) == [
        "chips",
        "dram.capacity_bytes",
        "colour",
        "vector",
        "nram.access_bytes",
        "matrix.pj_per_mac.float32",
        "matrix.pj_per_mac.float16",
        "engines.gdma",
    ]
    with pytest.raises(ProfileError) as refused:
        parse_profile(yaml.safe_dump(values, sort_keys=False).encode())
    assert "7 more to correct: dram.capacity_bytes, colour" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("dram.bandwith_bytes_per_s", 1, "Did you mean bandwidth_bytes_per_s?"),
        ("clock", 1e9, "Did you mean clock_hz?"),
        ("matrix.arrays.floet16", {"k": 1, "c": 1}, "Did you mean float16?"),
        ("weights.mode", "stationery", "Did you mean stationary?"),
        ("topology", "mesh", "Did you mean engines.link.topology?"),
        ("colour", "blue", ""),
    ],
)
def test_a_mistyped_name_or_word_is_met_with_the_one_that_is_near(path: str, value: Any, hint: str) -> None:
    assert faults_of(with_value(path, value))[path].hint == hint


@pytest.mark.parametrize(("field", "blocks", "lane"), [("rows", 3, "c"), ("columns", 5, "k"), ("columns", 64, "k")])
def test_blocks_that_do_not_divide_the_lanes_of_an_array_are_refused(field: str, blocks: int, lane: str) -> None:
    """PROF-4."""
    path = f"matrix.arrays.int8.block_{field}"
    assert faults_of(with_value(path, blocks))[path].allowed == f"a divisor of {lane} (32)"


def test_blocks_that_divide_the_lanes_of_an_array_are_taken() -> None:
    assert not faults_of(with_value("matrix.arrays.int8.block_columns", 8))


def test_faults_are_bounded() -> None:
    _, faults = checked({**profile_values("edge4"), **{f"field{number}": 1 for number in range(5000)}})
    assert len(faults) == MAX_FAULTS


def test_whatever_was_found_is_shown_as_one_short_line() -> None:
    """A number of thousands of digits cannot even be written out."""
    values: list[Any] = [16**9000, -(16**9000), [[[[1]]]], {"a": 1}, "x" * 10_000, float("nan"), "\x1b[31m"]
    for value in values:
        fault = faults_of(with_value("clock_hz", value))["clock_hz"]
        assert fault.found.isprintable()
        assert len(fault.found) <= 120


def test_a_mistyped_name_of_a_profile_is_met_with_the_one_that_is_near() -> None:
    with pytest.raises(Exception, match=r"Did you mean cluster4x4\?"):
        builtin_profile("cluter4x4")


@pytest.mark.parametrize("name", builtin_names())
def test_plain_numbers_are_read_as_they_stand(name: str) -> None:
    """A profile without amounts is what it was before there were any."""
    profile, faults = checked(profile_values(name))
    assert faults == ()
    assert profile is not None
    assert profile_json(profile) == profile_json(builtin_profile(name))
