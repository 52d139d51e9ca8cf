"""Users' own profiles: what is wrong is named by path, value and what was expected (PROF-1, PROF-4)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import ProfileError, TesseraError
from compiler.profile import builtin_names, builtin_profile, parse_profile, plain_yaml, profile_digest, profile_json
from compiler.profile.annotated import annotated
from compiler.profile.load import MAX_PROFILE_BYTES
from tests.matrices import tries
from tests.models import error_of
from tests.profiles import profile_values
from tests.strategies import profiles

REMOVE = object()


def changed(path: str, value: Any, *, name: str = "cluster4x4") -> bytes:
    """A built-in profile with one field changed, added or removed, as JSON."""
    values = profile_values(name)
    *parents, leaf = path.split(".")
    target = values
    for parent in parents:
        target = target[parent]
    if value is REMOVE:
        del target[leaf]
    else:
        target[leaf] = value
    return json.dumps(values).encode()


def refused(data: bytes) -> ProfileError:
    """The error that a profile gives."""
    with pytest.raises(ProfileError) as caught:
        parse_profile(data, origin="mine")
    assert caught.value.code == "invalid_profile"
    assert caught.value.stage == "profile"
    return caught.value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nram.capacity_bytes", -1),
        ("nram.capacity_bytes", 0),
        ("nram.capacity_bytes", "512 KHz"),
        ("nram.capacity_bytes", "0.3 B"),
        ("clock_hz", "2MiB"),
        ("chips", "1"),
        ("nram.capacity_bytes", 1.5),
        ("nram.capacity_bytes", True),
        ("sram.capacity_bytes", 2**60),
        ("sram.capacity_bytes", 3),
        ("wram.capacity_bytes", 7),
        ("dram.bandwidth_bytes_per_s", 0),
        ("dram.bandwidth_bytes_per_s", -5.0),
        ("dram.bandwidth_bytes_per_s", 1e300),
        ("dram.read_pj_per_byte", -0.1),
        ("dram.multicast", "yes"),
        ("clock_hz", 0),
        ("chips", 0),
        ("clusters_per_chip", 0),
        ("cores_per_cluster", 100_000),
        ("line_bytes", 0),
        ("engines.gdma.bytes_per_cycle", 0),
        ("engines.mvdma.startup_ns", -1),
        ("vector.lanes", 0),
        ("static_w", -1),
        ("name", ""),
        ("name", "../../etc"),
        ("name", 5),
        ("schema", "tessera.profile/2"),
        ("weights.compression", 0),
        ("weights.compression", 1.5),
        ("weights.mode", "teleported"),
        ("limits.program_bytes", 0),
        ("engines.link", {"topology": "star", "bytes_per_cycle": 1}),
        ("dram.colour", "blue"),
        ("colour", "blue"),
        ("matrix.arrays.int8.k", -1),
        ("matrix.pj_per_mac.int8", -1),
        ("matrix.arrays.int8.ox", 0),
        ("matrix.arrays.int8.oy", 5000),
        ("matrix.accumulator_bytes", 0),
        ("matrix.accumulator_bytes", 9),
        ("dram.ports", "mesh-corners"),
        ("nram.ports", "both"),
        ("nram.access_bytes", 0),
        ("nram.access_bytes", 65_537),
        ("sram.access_bytes", 1.5),
    ],
)
def test_a_bad_field_is_named_with_path_value_and_what_was_expected(path: str, value: Any) -> None:
    """PROF-4."""
    error = refused(changed(path, value))
    named = path.removesuffix(".topology")
    assert named in error.message
    if not isinstance(value, dict):
        assert error.actual == str(value)
    assert error.limit
    assert error.hint is not None
    assert named in error.hint


@pytest.mark.parametrize(
    "path", ["schema", "name", "clock_hz", "chips", "dram", "nram", "engines", "matrix", "vector", "line_bytes"]
)
def test_a_missing_field_is_named(path: str) -> None:
    """PROF-4."""
    assert path in refused(changed(path, REMOVE)).message


@pytest.mark.parametrize("engine", ["gdma", "mvdma", "cdma", "bus"])
def test_an_engine_of_an_sram_needs_one(engine: str) -> None:
    """Programs would move data through a memory that is not there."""
    error = refused(changed(f"engines.{engine}", {"bytes_per_cycle": 8}, name="edge4"))
    assert f"engines.{engine}" in error.message
    assert "the profile has none" in str(error.limit)


@pytest.mark.parametrize(
    ("name", "path"), [("cluster4x4", "engines.gdma"), ("cluster4x4", "engines.mvdma"), ("edge4", "engines.iodma")]
)
def test_a_missing_engine_is_named(name: str, path: str) -> None:
    """Without it data does not reach the cores."""
    error = refused(changed(path, REMOVE, name=name))
    assert path in error.message
    assert error.actual == "absent"


def test_a_matrix_array_of_an_unknown_type_is_refused() -> None:
    error = refused(changed("matrix.arrays.float31", {"k": 1, "c": 1}))
    assert "matrix.arrays" in error.message
    assert error.actual == "float31"


def test_a_profile_without_arrays_is_refused() -> None:
    assert "matrix.arrays" in refused(changed("matrix.arrays", {})).message


def test_an_array_without_energy_is_refused() -> None:
    assert "matrix.pj_per_mac.int8" in refused(changed("matrix.pj_per_mac", {"float32": 1, "float16": 1})).message


@pytest.mark.parametrize(
    ("name", "path", "value", "expected"),
    [
        # one access moves more than there is, in a whole memory or in a part of a split one
        ("metaproto-df", "nram.capacity_bytes", 8, "at most nram.capacity_bytes (8 bytes)"),
        ("metaproto-df", "sram.weight_bytes", 16, "at most sram.weight_bytes (16 bytes)"),
        ("metaproto-df", "wram.capacity_bytes", 15, "at most wram.capacity_bytes (15 bytes)"),
    ],
)
def test_an_access_larger_than_its_memory_is_refused(name: str, path: str, value: int, expected: str) -> None:
    """PROF-4."""
    values = profile_values(name)
    level, part = path.split(".")
    values[level][part] = value
    values[level]["access_bytes"] = value
    parse_profile(json.dumps(values).encode())  # as large as the memory is well
    values[level]["access_bytes"] = value + 1
    error = refused(json.dumps(values).encode())
    assert f"field {level}.access_bytes is not valid" in error.message
    assert (error.actual, error.limit) == (str(value + 1), expected)


def test_dram_at_the_sides_of_a_mesh_that_is_none_is_refused() -> None:
    """PROF-4; a ring has no sides, and neither have cores without links."""
    ring = refused(changed("dram.ports", "mesh-sides", name="edge4"))
    lone = refused(changed("engines.link", REMOVE, name="polar4x4"))
    for error, found in ((ring, "topology ring"), (lone, "no links")):
        assert "dram.ports" in error.message
        assert error.actual == "mesh-sides"
        assert found in str(error.limit)
    assert parse_profile(changed("dram.ports", "mesh-sides", name="manycore2x64")).dram.ports == "mesh-sides"


def test_dram_at_the_sides_of_a_mesh_of_cores_that_an_sram_feeds_is_refused() -> None:
    """PROF-4; with an SRAM data comes to the clusters."""
    values = profile_values("cluster4x4")
    values["dram"]["ports"] = "mesh-sides"
    values["engines"]["link"] = profile_values("polar4x4")["engines"]["link"]
    error = refused(json.dumps(values).encode())
    assert "dram.ports" in error.message
    assert "SRAM" in str(error.limit)


@pytest.mark.parametrize(
    ("name", "least", "expected"),
    [
        ("weight", 4, "at least one element of the array for float32 (4 bytes)"),
        ("input", 4, "at least one element of the array for float32 (4 bytes)"),
        ("output", 5, "at least one partial sum (5 bytes)"),
    ],
)
def test_a_buffer_that_holds_no_operand_is_refused(name: str, least: int, expected: str) -> None:
    """PROF-4; the widest element type that the matrix unit works on counts."""

    def with_bytes(size: int) -> bytes:
        values = profile_values("cluster4x4")
        values["matrix"]["accumulator_bytes"] = 5
        values["matrix"]["buffers"][name] = {
            "capacity_bytes": size,
            "read_pj_per_byte": 0.1,
            "write_pj_per_byte": 0.1,
        }
        return json.dumps(values).encode()

    parse_profile(with_bytes(least))
    error = refused(with_bytes(least - 1))
    assert f"field matrix.buffers.{name}.capacity_bytes is not valid" in error.message
    assert (error.actual, error.limit) == (str(least - 1), expected)


def test_a_partial_sum_narrower_than_an_operand_is_refused() -> None:
    """PROF-4."""
    assert parse_profile(changed("matrix.accumulator_bytes", 4)).partial_sum_bytes == 4
    error = refused(changed("matrix.accumulator_bytes", 3))
    assert "matrix.accumulator_bytes" in error.message
    assert (error.actual, error.limit) == ("3", "at least one element of the array for float32 (4 bytes)")


@pytest.mark.parametrize("field", ["capacity_bytes", "read_pj_per_byte", "write_pj_per_byte"])
def test_a_buffer_states_its_size_and_both_energies(field: str) -> None:
    """PROF-4."""
    error = refused(changed(f"matrix.buffers.weight.{field}", REMOVE, name="metaproto-df"))
    assert f"matrix.buffers.weight.{field}" in error.message
    assert error.actual == "absent"


@pytest.mark.parametrize("text", [".nan", ".inf", "-.inf", "NaN", "Infinity", "1e400"])
def test_numbers_that_are_none_are_refused(text: str) -> None:
    data = yaml.safe_dump(profile_values("edge4")).replace("static_w: 0.2", f"static_w: {text}")
    assert text in data
    assert "static_w" in refused(data.encode()).message


@pytest.mark.parametrize("data", [b"[]", b"5", b"", b"null", b"just text", b"- a\n- b"])
def test_a_profile_that_is_no_object_is_refused(data: bytes) -> None:
    assert refused(data).limit == "object"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"a: b: c",
        b"\xff\xfe\x00",
        b"a\x00: 1",
        b"!!python/object/apply:os.system ['true']",
        b"? [1, 2]\n: 3",
        b"[" * 60_000,
        b"{a: " * 9_000,
        b"clock_hz: " + b"9" * 5000,
    ],
)
def test_what_is_neither_yaml_nor_json_is_refused(data: bytes) -> None:
    assert "\n" not in str(refused(data))


def test_yaml_aliases_are_refused_before_they_expand() -> None:
    """A bomb of a few hundred bytes would otherwise expand to gigabytes."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "aliases" in refused("\n".join(lines).encode()).message


@pytest.mark.parametrize("data", [b"name: a\nname: b", b'{"name": "a", "name": "b"}', b"dram: {a: 1, a: 2}"])
def test_a_field_given_twice_is_refused(data: bytes) -> None:
    assert "twice" in refused(data).message


def test_keys_that_are_no_text_are_refused() -> None:
    error = refused(b"1: 2\nname: x")
    assert "`" not in error.message


def test_a_profile_that_is_too_large_is_refused_unread() -> None:
    error = refused(b"#" * (MAX_PROFILE_BYTES + 1))
    assert (error.actual, error.limit) == (MAX_PROFILE_BYTES + 1, MAX_PROFILE_BYTES)


@pytest.mark.parametrize("text", ["1e9", "1E9", "1.0e9", "1.0e+9", "1000000000", "1_000_000_000"])
def test_yaml_numbers_mean_what_they_mean_in_json(text: str) -> None:
    """YAML 1.1 would read 1e9 as text."""
    data = yaml.safe_dump(profile_values("cluster4x4")).replace("clock_hz: 1000000000.0", f"clock_hz: {text}")
    assert f"clock_hz: {text}" in data
    assert parse_profile(data.encode()).clock_hz == 1e9


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json_is_read_however_it_is_indented(indent: Any) -> None:
    data = json.dumps(profile_values("edge4"), indent=indent).encode()
    assert parse_profile(data) == builtin_profile("edge4")


@pytest.mark.parametrize("name", builtin_names())
def test_the_digest_depends_on_content_not_on_form(name: str) -> None:
    """PROF-1."""
    values = profile_values(name)
    turned = dict(reversed(values.items()))
    forms = [json.dumps(values), json.dumps(turned), json.dumps(values, indent=3)]
    forms += [yaml.safe_dump(values), yaml.safe_dump(turned, default_flow_style=True)]
    digests = {profile_digest(parse_profile(form.encode())) for form in forms}
    assert digests == {profile_digest(builtin_profile(name))}


def test_the_digest_does_not_depend_on_defaults_being_written_out() -> None:
    short = profile_values("edge4")
    for name in ("sram", "wram", "chip_link_bytes_per_s", "description"):
        del short[name]
    full = profile_values("edge4") | {"description": ""}
    assert profile_digest(parse_profile(json.dumps(short).encode())) == profile_digest(
        parse_profile(json.dumps(full).encode())
    )


def test_whole_numbers_and_floats_of_equal_value_have_equal_digests() -> None:
    whole = parse_profile(changed("dram.read_pj_per_byte", 80))
    assert profile_digest(whole) == profile_digest(parse_profile(changed("dram.read_pj_per_byte", 80.0)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nram.capacity_bytes", 524_289),
        ("nram.ports", "separate"),
        ("nram.access_bytes", 2),
        ("matrix.arrays.int8.ox", 2),
        ("matrix.arrays.int8.oy", 2),
        ("matrix.accumulator_bytes", 4),
        ("matrix.buffers.input", {"capacity_bytes": 64, "read_pj_per_byte": 0, "write_pj_per_byte": 0}),
        ("static_w", 1.5),
        ("name", "other"),
        ("line_bytes", 32),
    ],
)
def test_the_digest_changes_with_each_field(path: str, value: Any) -> None:
    assert profile_digest(parse_profile(changed(path, value))) != profile_digest(builtin_profile("cluster4x4"))


def test_digests_of_built_in_profiles_differ() -> None:
    assert len({profile_digest(builtin_profile(name)) for name in builtin_names()}) == len(builtin_names())


@given(profiles())
def test_the_canonical_form_reads_back_as_the_same_profile(profile: Any) -> None:
    assert parse_profile(profile_json(profile)) == profile


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_loader(data: bytes) -> None:
    with pytest.raises(TesseraError):
        parse_profile(data)


@tries(first=20, rest=100)
@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=4), lambda c: st.lists(c, max_size=3)),
    st.sampled_from(sorted(profile_values("cluster4x4"))),
)
def test_no_value_of_any_field_crashes_the_loader(value: Any, field: str) -> None:
    data = json.dumps({**profile_values("cluster4x4"), field: value}).encode()
    error = error_of(lambda: parse_profile(data))
    assert error is None or field in str(error)


@pytest.mark.parametrize(
    "text",
    ["0x1", "0x_", "0b11", "0o17", "010", "1:30:00", ":".join(["9"] * 300) + ".5", "2001-99-99", "yes", "<<", "1__0"],
)
def test_words_that_are_no_numbers_of_json_are_named_as_they_are_written(text: str) -> None:
    """Other readers of YAML take hexadecimal, base 60 and dates to be numbers."""
    error = refused(annotated(builtin_profile("edge4")).replace("chips: 1 ", f"chips: {text} ").encode())
    assert "chips" in error.message
    assert str(error.actual)[:100] == text[:100]


@pytest.mark.parametrize("text", ["!!int ''", "!!float ''", "!!binary x", "&a 1", "! x"])
def test_tags_and_anchors_are_refused(text: str) -> None:
    assert "tags, anchors and aliases" in refused(f"chips: {text}".encode()).message


MARKS = [*"[{:-!&*#\t\n>|%,\"'9aé", "- ", "? ", "&a ", "[a: ", "[,", "--- ", "{? ", "a: |\n", "#\n"]
PARTS = [*"[]{}.-_\"'\n", ": ", "- ", "? ", "  ", "&a ", "*a", "!!int ", "---\n", "chips: ", "clock_hz: ", "dram:\n  "]
PARTS += ["0x", "1:30", "1e999", "9" * 400, "<<"]
HOSTILE = (
    *(mark * (MAX_PROFILE_BYTES // len(mark)) for mark in MARKS),
    *(f"{start}{'[' * 65_000}" for start in ('{"a":', "a: ", "{a: ")),
    *(f"{start}{'9' * 65_000}" for start in ('{"chips":', "chips: ", "chips: 0x", "chips: 1.", "chips: 1e", "9: ")),
    "[" + "a," * 32_000 + "]",
    "\n".join(f"{number:x}:" for number in range(9000)),
    "{" + ",".join(f'"{number:x}":1' for number in [*range(6000), 5999]) + "}",
    "\n".join(f"{'nram_capacity_bytes_' * 6}{number}: 1" for number in range(480)),
    "a:\n" + "".join(f"{' ' * depth}a:\n" for depth in range(1, 355)),
    '{"\\ud800": "\\ud800", "name": "\\udfff"}',
)


@pytest.mark.matrix(first=28, rest=28)
@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
@pytest.mark.parametrize("text", HOSTILE, ids=[f"{number}" for number in range(len(HOSTILE))])
def test_hostile_texts_of_the_greatest_length_take_little_time(
    text: str, loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured in the processor's time, ten times what the slowest took; `[` by the thousand took seconds."""
    monkeypatch.setattr(plain_yaml, "_LOADER", loader)
    started = time.process_time()
    assert str(refused(text.encode()[:MAX_PROFILE_BYTES]))
    assert time.process_time() - started < 1.0


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(PARTS)), max_size=30).map("".join))
def test_any_text_gives_the_error_of_a_profile(text: str) -> None:
    refused(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200))
def test_any_bytes_give_the_error_of_a_profile(data: bytes) -> None:
    refused(data)
