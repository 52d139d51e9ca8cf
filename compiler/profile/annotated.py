"""Profiles for people: annotated YAML with the unit and meaning of each field, and the reference page of all fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from compiler.profile.field_descriptions import FIELDS, Entry
from compiler.profile.quantities import UNITS, amount_text
from compiler.profile.schema import Profile

# The column of trailing comments; the comment of a longer line stands above it.
_COLUMN: Final = 40
_HEADING: Final = (
    "# A hardware profile of Tessera. Comments give the unit and meaning of each field. Amounts may have a unit",
    "# (2MiB, 12.8GB/s, 1.2GHz, 150ns); a number without one is in the unit of the comment. Fields that begin with",
    "# `# ` are absent: to add one, remove these two characters and give a value.",
)
# Text that YAML reads without quotes.
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z][\w .,;/()-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of annotated YAML; an absent field is written as a comment."""

    depth: int
    text: str
    comment: str
    left_out: bool

    def __str__(self) -> str:
        hidden = "# " if self.left_out else ""
        code = f"{hidden}{'  ' * self.depth}{self.text}"
        if not self.comment:
            return code
        if len(code) >= _COLUMN:
            return f"{'  ' * self.depth}# {self.comment}\n{code}"
        return f"{code:<{_COLUMN}}# {self.comment}"


def annotated(profile: Profile) -> str:
    """Writes a profile as YAML with a comment on each field; it reads back as the same profile."""
    lines = _lines(FIELDS, msgspec.to_builtins(profile), 0, left_out=False)
    return "\n".join((*_HEADING, *map(str, lines))) + "\n"


def reference() -> str:
    """Writes all fields of a profile as Markdown: a table per part with unit, values, default and meaning."""
    places: dict[str, list[str]] = {}
    parts: dict[str, Entry] = {}
    for path, entry in _parts(FIELDS, ""):
        places.setdefault(entry.about, []).append(f"`{path}`")
        parts.setdefault(entry.about, entry)
    sections = [_table("The profile itself", "", FIELDS)]
    sections += [_table(", ".join(places[about]), about, part.entries) for about, part in parts.items()]
    return "\n\n".join(sections)


def _lines(entries: Iterable[Entry], values: Mapping[str, Any], depth: int, *, left_out: bool) -> Iterator[_Line]:
    for entry in entries:
        value = values.get(entry.name)
        yield from _lines_of(entry, value, depth, left_out=left_out or _is_absent(value))


def _lines_of(entry: Entry, value: Any, depth: int, *, left_out: bool) -> Iterator[_Line]:
    if entry.entries:
        yield _Line(depth=depth, text=f"{entry.name}:", comment=entry.meaning, left_out=left_out)
        yield from _lines(entry.entries, value or {}, depth + 1, left_out=left_out)
    elif entry.each is not None:
        yield _Line(depth=depth, text=f"{entry.name}:", comment=_comment(entry.each), left_out=left_out)
        for field in entry.each.entries:
            yield _Line(depth=depth + 1, text=f"# {field.name}: {_comment(field)}", comment="", left_out=False)
        for dtype, held in value.items():
            yield _Line(depth=depth + 1, text=f"{dtype}: {_held(entry.each, held)}", comment="", left_out=left_out)
    else:
        text = f"{entry.name}: {'' if value is None else _scalar(value, entry.unit)}".rstrip()
        yield _Line(depth=depth, text=text, comment=_comment(entry), left_out=left_out)


def _is_absent(value: Any) -> bool:
    """Whether the value is absent, or is a part whose fields are all absent."""
    return value is None or (isinstance(value, dict) and all(map(_is_absent, value.values())))


def _held(each: Entry, value: Any) -> str:
    if not each.entries:
        return _scalar(value, each.unit)
    return "{" + ", ".join(f"{entry.name}: {_scalar(value[entry.name], entry.unit)}" for entry in each.entries) + "}"


def _comment(entry: Entry) -> str:
    """Unit, meaning and permitted words of a field."""
    unit = f"{UNITS[entry.unit].words}: " if entry.unit else ""
    words = f" ({', '.join(entry.words)})" if len(entry.words) > 1 else ""
    return f"{unit}{entry.meaning}{words}"


def _scalar(value: Any, unit: str) -> str:
    """A value as YAML; long amounts get a unit prefix."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        plain, text = amount_text(value, ""), amount_text(value, unit)
        return plain if text == plain + unit else text
    if isinstance(value, str):
        if _PLAIN_TEXT.fullmatch(value) and yaml.safe_load(value) == value:
            return value
        return yaml.safe_dump(value, default_style='"', width=1_000_000).strip()
    return yaml.safe_dump(value, default_flow_style=True, width=1_000_000).strip()


def _parts(entries: Iterable[Entry], prefix: str) -> Iterator[tuple[str, Entry]]:
    """The parts of a profile by path; a table by element type gives the part of each type."""
    for entry in entries:
        path = f"{prefix}{entry.name}"
        held = entry if entry.each is None else entry.each
        if held.entries:
            path = path if entry.each is None else f"{path}.TYPE"
            yield path, held
            yield from _parts(held.entries, f"{path}.")


def _table(title: str, about: str, entries: Iterable[Entry]) -> str:
    rows = ["| field | unit | values | default | meaning |", "|---|---|---|---|---|"]
    for entry in entries:
        held = entry if entry.each is None else entry.each
        values = "see below" if held.entries else held.allowed
        cells = (f"`{entry.name}`", held.unit, values, _default(entry), entry.meaning)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n\n".join(filter(None, (f"### {title}", about, "\n".join(rows))))


def _default(entry: Entry) -> str:
    if not entry.may_be_left_out:
        return "required"
    if entry.default is None or entry.entries or entry.default in ("", ()):
        return "absent"
    return f"`{_scalar(entry.default, entry.unit)}`"
