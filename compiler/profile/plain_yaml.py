"""Reads the part of YAML that profiles need: objects, lists, texts, numbers, true, false and null, within bounds.

Numbers are written as in JSON; also with a plus sign, without digits before or after the point, or with underscores
between digits. Every other plain word is text: hexadecimal, base 60, dates, yes and no. There are no tags, anchors,
aliases or merge keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import yaml

# A profile nests 5 levels and has some 200 values.
MAX_DEPTH: Final = 16
MAX_VALUES: Final = 4000
# Python would take long to read longer ones, and no field needs them.
MAX_NUMBER_CHARACTERS: Final = 400
# libyaml is ten times as fast as the parser in Python; the bounds suffice for both.
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_WORDS: Final[Mapping[str, bool | None]] = MappingProxyType(
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
)
_DIGITS: Final = r"(?:0|[1-9](?:_?[0-9])*)"
_INTEGER: Final = re.compile(rf"[-+]?{_DIGITS}")
_NUMBER: Final = re.compile(rf"[-+]?(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


class BoundError(ValueError):
    """A text goes beyond one of the bounds above."""

    def __init__(self, message: str, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


def read_yaml(data: bytes) -> object:
    """The value of a text; raises yaml.YAMLError, BoundError, or UnicodeDecodeError."""
    events = yaml.parse(data, Loader=_LOADER)
    values = _Values(events)
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        return None
    value = values.next_value(0)
    next(events)
    if not isinstance(next(events), yaml.StreamEndEvent):
        raise yaml.YAMLError("there is more than one document")
    return value


def integer(text: str) -> int:
    """The value of a number without point and exponent; raises BoundError for one that is too long."""
    return int(_bounded(text))


def number(text: str) -> float:
    """The value of a number; raises BoundError for one that is too long."""
    return float(_bounded(text))


def too_deep() -> BoundError:
    """The error for a text that nests too deeply."""
    return BoundError(f"more than {MAX_DEPTH} levels of nesting", MAX_DEPTH)


class _Values:
    """Makes values of events. The parser makes an event when it is asked for, so bounds stop the parser too."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._made = 0

    def next_value(self, depth: int) -> object:
        """The value that begins with the next event."""
        return self._value(next(self._events), depth)

    def _value(self, event: yaml.Event, depth: int) -> object:
        self._made += 1
        if self._made > MAX_VALUES:
            raise BoundError(f"more than {MAX_VALUES} values", MAX_VALUES)
        if depth > MAX_DEPTH:
            raise too_deep()
        assert isinstance(event, yaml.AliasEvent | yaml.ScalarEvent | yaml.CollectionStartEvent)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
            raise yaml.YAMLError("tags, anchors and aliases are not allowed in a profile")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(depth + 1)
        if isinstance(event, yaml.MappingStartEvent):
            return self._object(depth + 1)
        assert isinstance(event, yaml.ScalarEvent)
        return _scalar(event.value) if not event.style else event.value

    def _list(self, depth: int) -> list[object]:
        values = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, depth))
        return values

    def _object(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._value(event, depth)
            if not isinstance(name, str):
                raise yaml.YAMLError(f"the field {name!r} is no text")
            if name in values:
                raise yaml.YAMLError(f"field {name[:60]!r} is given twice")
            values[name] = self.next_value(depth)
        return values


def _scalar(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return integer(text)
    return number(text) if _NUMBER.fullmatch(text) else text


def _bounded(text: str) -> str:
    if len(text) > MAX_NUMBER_CHARACTERS:
        raise BoundError(f"a number of more than {MAX_NUMBER_CHARACTERS} characters", MAX_NUMBER_CHARACTERS)
    return text
