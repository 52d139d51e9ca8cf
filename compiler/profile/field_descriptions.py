"""Describes each field of a profile as `schema.py` states it: type, unit, meaning and default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeGuard, get_args

import msgspec
from msgspec import inspect

from compiler.profile.quantities import UNITS, amount_text, quantity
from compiler.profile.schema import Profile
from compiler.units import DTYPE_NAMES

ABSENT = msgspec.NODEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A field of a part.

    `kind` is its type without None, `type` the whole annotated type. `default` is ABSENT for a required field. If the
    field is a part, `entries` holds its fields and `about` the first line of its docstring. If it is a table by element
    type, `each` describes the entry of one type.
    """

    name: str
    kind: inspect.Type
    type: Any
    unit: str
    meaning: str
    default: Any
    about: str
    entries: tuple[Entry, ...]
    each: Entry | None

    @property
    def may_be_left_out(self) -> bool:
        """Whether a profile may omit the field."""
        return self.default is not ABSENT

    @property
    def words(self) -> tuple[str, ...]:
        """The words that the field accepts, empty for other fields."""
        return tuple(map(str, self.kind.values)) if isinstance(self.kind, inspect.LiteralType) else ()

    @property
    def allowed(self) -> str:
        """The values that the field accepts, in words."""
        if isinstance(self.kind, inspect.StrType) and self.kind.pattern is not None:
            return f"text of {self.meaning}"
        return _allowed(self.kind, self.unit)

    def below(self, path: str) -> Iterator[tuple[str, Entry]]:
        """The fields with values at and below this one, by path; a table gives one per element type."""
        if self.each is not None:
            for dtype in DTYPE_NAMES:
                yield from self.each.below(f"{path}.{dtype}")
        elif self.entries:
            for entry in self.entries:
                yield from entry.below(f"{path}.{entry.name}")
        else:
            yield path, self


def json_schema(part: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a part; a number with a unit may also be text such as 256KiB."""
    schema = msgspec.json.schema(part)
    _admit_amounts(schema)
    return schema


def _entries(part: type[msgspec.Struct]) -> tuple[Entry, ...]:
    """The fields of a part, in the order of the schema."""
    return tuple(
        _entry(info.name, info.type, info.default if info.default_factory is ABSENT else info.default_factory())
        for info in msgspec.structs.fields(part)
    )


def _entry(name: str, annotated: Any, default: Any) -> Entry:
    kind, noted = _plain_kind(inspect.type_info(annotated))
    each = None
    if isinstance(kind, inspect.DictType):
        each = replace(_entry("", get_args(get_args(annotated)[0])[1], ABSENT), meaning=noted["description"])
    part = kind.cls if isinstance(kind, inspect.StructType) else None
    return Entry(
        name=name,
        kind=kind,
        type=annotated,
        unit=noted.get("unit", ""),
        meaning=noted.get("description", ""),
        default=default,
        about="" if part is None else (part.__doc__ or "").partition("\n")[0],
        entries=() if part is None else _entries(part),
        each=each,
    )


def _plain_kind(kind: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """A type without None and metadata, and the metadata found on the way to it."""
    if isinstance(kind, inspect.Metadata):
        inner, noted = _plain_kind(kind.type)
        return inner, {**noted, **(kind.extra_json_schema or {})}
    if isinstance(kind, inspect.UnionType):
        (kind,) = (one for one in kind.types if not isinstance(one, inspect.NoneType))
        return _plain_kind(kind)
    return kind, {}


def _is_number(kind: inspect.Type) -> TypeGuard[inspect.IntType | inspect.FloatType]:
    return isinstance(kind, inspect.IntType | inspect.FloatType)


def _allowed(kind: inspect.Type, unit: str) -> str:
    if _is_number(kind):
        return _allowed_number(kind, unit)
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.LiteralType):
        *first, last = map(str, kind.values)
        return f"{', '.join(first)} or {last}" if first else last
    if isinstance(kind, inspect.VarTupleType):
        inner = kind.item_type
        return (
            "a list of lists of " + _allowed(inner.item_type, "")
            if isinstance(inner, inspect.VarTupleType)
            else ("a list of " + _allowed(inner, ""))
        )
    if isinstance(kind, inspect.DictType):
        return "a table with an entry for each element type"
    if isinstance(kind, inspect.StructType):
        return "an object with the fields " + ", ".join(field.name for field in kind.fields)
    assert isinstance(kind, inspect.StrType)
    return "text" if kind.max_length is None else f"text of at most {kind.max_length} characters"


def _allowed_number(kind: inspect.IntType | inspect.FloatType, unit: str) -> str:
    text = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    if unit:
        text += f" of {UNITS[unit].words}"
    least, most = (None if bound is None else _bound(bound, unit) for bound in (kind.ge, kind.le))
    if kind.gt is not None:
        text += f" above {_bound(kind.gt, unit)}" + ("" if most is None else f" and at most {most}")
    elif least is not None:
        text += f" of at least {least}" if most is None else f" from {least} to {most}"
    has_example = bool(unit) and kind.le is not None and quantity(UNITS[unit].example, unit) <= kind.le
    return text + (f", such as {UNITS[unit].example}" if has_example else "")


def _bound(bound: float, unit: str) -> str:
    return amount_text(bound, unit, " ") if unit == "B" else f"{bound:.12g}"


def _admit_amounts(schema: Any) -> None:
    """Permits text wherever a number has a unit, throughout a schema."""
    if isinstance(schema, dict):
        unit = schema.get("unit")
        if isinstance(unit, str) and isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "string"]
        for value in schema.values():
            _admit_amounts(value)
    elif isinstance(schema, list):
        for value in schema:
            _admit_amounts(value)


# The fields of a profile, in the order of the schema.
FIELDS: Final = _entries(Profile)
# All fields that hold a value rather than a part, by path.
VALUES: Final[Mapping[str, Entry]] = MappingProxyType(
    {path: entry for top in FIELDS for path, entry in top.below(top.name)}
)
