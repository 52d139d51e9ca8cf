"""Loading profiles: built-ins and users' own, validated (PROF-1, PROF-4)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib import resources
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from compiler.errors import ProfileError, RequestError, printable
from compiler.profile.schema import Array, NonNegative, Profile
from compiler.units import DTYPE_NAMES, element_bytes

MAX_PROFILE_BYTES: Final = 65_536
_MAX_DEPTH: Final = 16
_WIDEST_ELEMENT_BYTES: Final = max(element_bytes(dtype) for dtype in DTYPE_NAMES)
_UNKNOWN_FIELD: Final = re.compile(r"unknown field `(.*)`")
# YAML 1.1 reads 1e9 as text; profiles mean the number, as JSON does.
_NUMBER: Final = re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$")

# A field's path, its value (None: absent) and what was expected.
_Fault: TypeAlias = tuple[str, object, str]


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases (which can expand without bound) and without duplicate keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed in a profile")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=deep)
            if not isinstance(name, str):
                raise yaml.YAMLError(f"field {printable(repr(name), 60)} is no text")
            if name in seen:
                raise yaml.YAMLError(f"field {printable(name, 60)!r} is given twice")
            seen.add(name)
        return super().construct_mapping(node, deep=deep)


_PlainLoader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))


def builtin_names() -> tuple[str, ...]:
    """The names of the built-in profiles, sorted."""
    folder = resources.files("compiler.profile") / "builtin"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def builtin_profile(name: str) -> Profile:
    """A built-in profile; raises RequestError for an unknown name, listing those that exist."""
    names = builtin_names()
    if name not in names:
        raise RequestError(
            f"unknown profile {printable(name, 80)!r}",
            code="unknown_profile",
            actual=printable(name, 80),
            hint=f"Built-in profiles: {', '.join(names)}; or give a profile file",
        )
    data = (resources.files("compiler.profile") / "builtin" / f"{name}.yaml").read_bytes()
    return parse_profile(data, origin=name)


def parse_profile(data: bytes, *, origin: str = "profile") -> Profile:
    """A profile from YAML or JSON; raises ProfileError with the field's path, value and what was expected."""
    if len(data) > MAX_PROFILE_BYTES:
        raise ProfileError(
            f"{origin}: the profile is too large", stage="profile", actual=len(data), limit=MAX_PROFILE_BYTES
        )
    try:
        values = _read(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ProfileError(
            f"{origin}: neither YAML nor JSON: {printable(' '.join(str(error).split()), 200)}",
            stage="profile",
        ) from None
    if not isinstance(values, dict):
        raise ProfileError(
            f"{origin}: a profile is an object", stage="profile", actual=type(values).__name__, limit="object"
        )
    return profile_from_values(values, origin=origin)


def _read(data: bytes) -> object:
    """The values of a JSON or YAML text; JSON first, for YAML forbids the tabs that JSON may be indented with."""
    if data.lstrip()[:1] == b"{":
        try:
            return json.loads(data, object_pairs_hook=_unique)
        except json.JSONDecodeError:
            pass  # YAML's flow style begins with a brace too
    return yaml.load(data, Loader=_PlainLoader)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise ValueError(f"field {printable(twice, 60)!r} is given twice")
    return values


def profile_from_values(values: dict[str, Any], *, origin: str = "profile") -> Profile:
    """A profile from plain values; raises ProfileError as parse_profile does."""
    try:
        profile = msgspec.convert(values, Profile, strict=True)
    except msgspec.ValidationError as error:
        expected, _, path = str(error).partition(" - at `")
        path = path.rstrip("`").removeprefix("$").removeprefix(".")
        unknown = _UNKNOWN_FIELD.search(expected)
        if unknown:
            path = f"{path}.{unknown.group(1)}".removeprefix(".")
            expected = "a known field (this one is unknown)"
        path = _named(values, path)
        raise _field_error(origin, path, _value_at(values, path), expected) from None
    except RecursionError:
        raise ProfileError(f"{origin}: nested too deeply", stage="profile", limit=_MAX_DEPTH) from None
    _check(profile, origin)
    return profile


def profile_json(profile: Profile) -> bytes:
    """The profile's canonical form: JSON with sorted keys and every default written out."""
    return json.dumps(msgspec.to_builtins(profile), sort_keys=True, separators=(",", ":")).encode()


def profile_digest(profile: Profile) -> str:
    """SHA-256 of the canonical form: the profile's identity (PROF-1)."""
    return hashlib.sha256(profile_json(profile)).hexdigest()


def _check(profile: Profile, origin: str) -> None:
    """What one field alone cannot say; raises the first fault."""
    for path, value, expected in chain(_memory_faults(profile), _matrix_faults(profile), _transfer_faults(profile)):
        raise _field_error(origin, path, value, expected)


def _memory_faults(profile: Profile) -> Iterator[_Fault]:
    for level, memory in (("sram", profile.sram), ("nram", profile.nram), ("wram", profile.wram)):
        if memory is None:
            continue
        if memory.capacity_bytes < _WIDEST_ELEMENT_BYTES:
            expected = f"at least one element ({_WIDEST_ELEMENT_BYTES} bytes)"
            yield f"{level}.capacity_bytes", memory.capacity_bytes, expected
        parts = {"capacity_bytes": memory.capacity_bytes, "weight_bytes": memory.weight_bytes}
        for part, size_bytes in parts.items():
            if size_bytes is not None and memory.access_bytes > size_bytes:
                expected = f"at most {level}.{part} ({size_bytes} bytes)"
                yield f"{level}.access_bytes", memory.access_bytes, expected


def _matrix_faults(profile: Profile) -> Iterator[_Fault]:
    matrix = profile.matrix
    for table in ("arrays", "pj_per_mac"):
        for dtype in getattr(matrix, table):
            if dtype not in DTYPE_NAMES:
                yield f"matrix.{table}", printable(dtype, 60), f"element types: {', '.join(DTYPE_NAMES)}"
    if not matrix.arrays:
        yield "matrix.arrays", "{}", "an array for at least one element type"
    for dtype in matrix.arrays:
        if dtype not in matrix.pj_per_mac:
            yield f"matrix.pj_per_mac.{dtype}", None, "an energy for every array's element type"
    # there is an array and its type is known: the first fault raises, so with one of those above nothing goes on here
    widest = max(matrix.arrays, key=element_bytes)
    operand_bytes = element_bytes(widest)
    one_operand = f"at least one element of the array for {widest} ({operand_bytes} bytes)"
    if matrix.accumulator_bytes is not None and matrix.accumulator_bytes < operand_bytes:
        yield "matrix.accumulator_bytes", matrix.accumulator_bytes, one_operand
    buffers = matrix.buffers
    for name, buffer in (("weight", buffers.weight), ("input", buffers.input)):
        if buffer is not None and buffer.capacity_bytes < operand_bytes:
            yield f"matrix.buffers.{name}.capacity_bytes", buffer.capacity_bytes, one_operand
    if buffers.output is not None and buffers.output.capacity_bytes < profile.partial_sum_bytes:
        expected = f"at least one partial sum ({profile.partial_sum_bytes} bytes)"
        yield "matrix.buffers.output.capacity_bytes", buffers.output.capacity_bytes, expected


def _transfer_faults(profile: Profile) -> Iterator[_Fault]:
    needed = ("gdma", "mvdma") if profile.sram is not None else ("iodma",)
    for engine in needed:
        if getattr(profile.engines, engine) is None:
            reason = "the profile has an SRAM" if profile.sram is not None else "the profile has no SRAM"
            yield f"engines.{engine}", None, f"an engine, for without it data does not reach the cores ({reason})"
    for engine in () if profile.sram is not None else ("gdma", "mvdma", "cdma", "bus"):
        if getattr(profile.engines, engine) is not None:
            yield f"engines.{engine}", "an engine", "none, for it moves what lies in an SRAM and the profile has none"
    if profile.dram.ports == "mesh-sides":
        link = profile.engines.link
        if link is None or link.topology != "mesh":
            found = "no links" if link is None else f"topology {link.topology}"
            expected = f"every-core, for mesh-sides needs engines.link with topology mesh (the profile has {found})"
            yield "dram.ports", profile.dram.ports, expected
        if profile.sram is not None:
            expected = "every-core, for with an SRAM data comes to the clusters and not over the cores' mesh"
            yield "dram.ports", profile.dram.ports, expected


def _field_error(origin: str, path: str, value: object, expected: str) -> ProfileError:
    field = printable(path or "(root)", 120)
    return ProfileError(
        f"{origin}: field {field} is not valid: {printable(expected)}",
        stage="profile",
        actual="absent" if value is None else printable(str(value), 120),
        limit=printable(expected),
        hint=f"Correct the field {field} of the profile",
    )


def _named(values: object, path: str) -> str:
    """The path with the key that `[...]` stands for: the first entry of the object that is not as expected."""
    before, dots, after = path.partition("[...]")
    found = _value_at(values, before)
    if not dots or not isinstance(found, dict):
        return path
    for key in found:
        try:
            msgspec.convert(found[key], Array if before.endswith("arrays") else NonNegative)
        except msgspec.ValidationError:
            return f"{before}.{key}{after}"
    return path


def _value_at(values: object, path: str) -> object:
    for part in filter(None, path.replace("[", ".[").split(".")):
        if isinstance(values, dict):
            values = values.get(part)
        elif isinstance(values, list) and part.startswith("[") and part[1:-1].isdigit():
            values = values[int(part[1:-1])]
        else:
            return None
    return values
