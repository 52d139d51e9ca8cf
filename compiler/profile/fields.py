"""Names the fields of a profile, and makes profiles with some fields changed (SIM-5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from compiler.errors import ProfileError, RequestError, near_names, printable
from compiler.profile.field_descriptions import VALUES
from compiler.profile.load import profile_from_values
from compiler.profile.quantities import quantity
from compiler.profile.schema import Profile

Value: TypeAlias = bool | int | float | str

# Short names of the fields that users vary most.
SHORT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clock": "clock_hz",
        "clusters": "clusters_per_chip",
        "cores": "cores_per_cluster",
        "dram": "dram.capacity_bytes",
        "dram_bandwidth": "dram.bandwidth_bytes_per_s",
        "sram": "sram.capacity_bytes",
        "sram_weights": "sram.weight_bytes",
        "nram": "nram.capacity_bytes",
        "nram_weights": "nram.weight_bytes",
        "wram": "wram.capacity_bytes",
        "gdma": "engines.gdma.bytes_per_cycle",
        "iodma": "engines.iodma.bytes_per_cycle",
        "mvdma": "engines.mvdma.bytes_per_cycle",
        "cdma": "engines.cdma.bytes_per_cycle",
        "bus": "engines.bus.bytes_per_cycle",
        "link": "engines.link.bytes_per_cycle",
        "host_link": "host_link_bytes_per_s",
        "chip_link": "chip_link_bytes_per_s",
        "lanes": "vector.lanes",
    }
)
# The name of a profile is no property of the accelerator.
_NAMES: Final = frozenset(("schema", "name", "description"))
_VARIED: Final = "-varied"
_NAME_LENGTH_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: its path with dots, the kind of its value, and its unit, "" for a plain number."""

    path: str
    kind: Literal["integer", "number", "word", "flag"]
    unit: str

    def parsed(self, value: object) -> Value:
        """Converts a given value to the field's unit; raises RequestError for an invalid amount."""
        if self.kind == "flag" and value in ("true", "false"):
            return value == "true"
        if self.kind in ("flag", "word"):
            return value if isinstance(value, bool | int | float) else printable(str(value), 120)
        return quantity(value, self.unit)


def profile_fields() -> tuple[Field, ...]:
    """All fields that can be varied, in the order of the schema."""
    return tuple(field for field in _fields() if field.path not in _NAMES)


def field_named(name: str) -> Field:
    """Finds a field by its path or short name; raises RequestError with similar names."""
    known = {field.path: field for field in profile_fields()}
    found = known.get(SHORT_NAMES.get(name, name))
    if found is not None:
        return found
    near = near_names(name, [*SHORT_NAMES, *known])
    raise RequestError(
        f"a profile has no field {printable(name, 80)!r}",
        code="unknown_field",
        stage="profile",
        actual=printable(name, 80),
        limit=", ".join(near) or None,
        hint=f"Short names are {', '.join(SHORT_NAMES)}; others are paths such as vector.lanes",
    )


def value_of(profile: Profile, field: Field) -> Value | None:
    """A field's value in a profile; None if it is absent."""
    values: Any = msgspec.to_builtins(profile)
    for part in field.path.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    if values is None or isinstance(values, bool | int | float | str):
        return values
    raise TypeError(field.path)


def with_fields(profile: Profile, changes: Mapping[str, Value]) -> Profile:
    """A copy of the profile with fields changed, by path, checked like any profile; renamed if it differs.

    Raises ProfileError for a part that the profile lacks, or a value that the profile parser refuses.
    """
    values = msgspec.to_builtins(profile)
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        target = values
        for part in parents:
            target = target.get(part)
            if target is None:
                raise no_part(profile, field_named(path))
        target[leaf] = value
    changed = profile_from_values(values, origin=profile.name)
    if changed == profile:
        return profile
    base = profile.name.removesuffix(_VARIED)[: _NAME_LENGTH_MAX - len(_VARIED)]
    return msgspec.structs.replace(changed, name=base + _VARIED)


def on_chip_bytes(profile: Profile) -> int:
    """The capacity of all memories on all chips together: SRAM, NRAM and WRAM with their weight parts."""
    counts = ((profile.sram, profile.clusters_per_chip), (profile.nram, profile.cores), (profile.wram, profile.cores))
    return profile.chips * sum(
        count * (memory.capacity_bytes + (memory.weight_bytes or 0)) for memory, count in counts if memory is not None
    )


def has_part(profile: Profile, field: Field) -> bool:
    """Whether a profile has the part that a field belongs to, so that the field can be varied."""
    values: Any = msgspec.to_builtins(profile)
    for part in field.path.split(".")[:-1]:
        values = values.get(part) if isinstance(values, dict) else None
    return values is not None


def no_part(profile: Profile, field: Field) -> ProfileError:
    """The error about a field of a part that a profile lacks; names fields of the same unit that it has."""
    part = field.path.rpartition(".")[0]
    others = [
        short
        for short, path in SHORT_NAMES.items()
        if (other := field_named(path)).unit == field.unit and value_of(profile, other) is not None
    ]
    return ProfileError(
        f"profile {printable(profile.name, 80)} has no {part}, so {field.path} cannot be varied",
        code="no_such_part",
        stage="profile",
        actual="absent",
        limit=part,
        hint=(f"It has {', '.join(others)}: vary one of them, or" if others else "Vary a part that it has, or")
        + f" give a profile file that has {part}",
    )


def _fields() -> Iterator[Field]:
    kinds: dict[type[msgspec.inspect.Type], Literal["integer", "number", "word", "flag"]] = {
        msgspec.inspect.IntType: "integer",
        msgspec.inspect.FloatType: "number",
        msgspec.inspect.StrType: "word",
        msgspec.inspect.LiteralType: "word",
        msgspec.inspect.BoolType: "flag",
    }
    for path, entry in VALUES.items():
        if type(entry.kind) in kinds:
            yield Field(path=path, kind=kinds[type(entry.kind)], unit=entry.unit)
