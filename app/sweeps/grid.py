"""A grid of profiles and fields, and its points: each a profile, checked like any other (SIM-5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final, TypeVar

from compiler.errors import RequestError, TesseraError, printable
from compiler.profile import Profile
from compiler.profile.fields import Value, field_named, with_fields
from compiler.report.execution import Part

MAX_POINTS: Final = 1024
MAX_FIELDS: Final = 8

T = TypeVar("T")


class VariedField(Part, frozen=True, kw_only=True):
    """A field of the profile by its path, and its values."""

    field: str
    values: tuple[Value, ...]


Grid = tuple[VariedField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One profile of a sweep: a base with fields changed, or the problem that makes it invalid."""

    base: Profile
    values: Mapping[str, Value]
    profile: Profile | TesseraError


def parse_grid(given: Mapping[str, object]) -> Grid:
    """The grid of field names and their values, as paths and numbers.

    Raises RequestError for an unknown or repeated field, a value that is not an amount in the field's unit, or a field
    without values.
    """
    if len(given) > MAX_FIELDS:
        raise _too_many("fields", len(given), MAX_FIELDS)
    grid: dict[str, VariedField] = {}
    for name, values in given.items():
        field = field_named(name)
        if field.path in grid:
            raise _invalid(f"the grid varies {field.path} twice", actual=printable(name, 80))
        if not isinstance(values, list | tuple) or not values:
            raise _invalid(f"the grid has no list of values for {field.path}", actual=printable(str(values), 80))
        if len(values) > MAX_POINTS:
            raise _too_many("points", len(values), MAX_POINTS)
        parsed = tuple(field.parsed(value) for value in values)
        grid[field.path] = VariedField(field=field.path, values=parsed)
        if len(set(parsed)) < len(parsed):
            raise _invalid(f"the grid gives a value of {field.path} twice", actual=printable(str(values), 120))
    return tuple(grid.values())


def parse_words(words: Sequence[str]) -> Grid:
    """The grid of `field=value,value` words; raises as `parse_grid`."""
    given: dict[str, Any] = {}
    for word in words:
        name, separator, values = word.partition("=")
        if not separator or not values:
            raise _invalid(f"{printable(word, 80)!r} is not of the form field=value,value", actual=printable(word, 80))
        if name in given:
            raise _invalid(f"the grid varies {printable(name, 80)} twice", actual=printable(word, 80))
        given[name] = values.split(",")
    return parse_grid(given)


def places_of(bases: Sequence[T], grid: Grid) -> Iterator[tuple[T, dict[str, Value]]]:
    """All combinations in grid order: the bases outermost, then the fields, the last one changing first."""
    for base in bases:
        for chosen in product(*(varied.values for varied in grid)):
            yield base, {varied.field: value for varied, value in zip(grid, chosen, strict=True)}


def points_of(profiles: Sequence[Profile], grid: Grid, most: int = MAX_POINTS) -> list[Point]:
    """All points in grid order; raises RequestError for more than `most` or MAX_POINTS."""
    count = len(profiles) * prod(len(varied.values) for varied in grid)
    if count > min(most, MAX_POINTS):
        raise _too_many("points", count, min(most, MAX_POINTS))
    return [
        Point(base=base, values=values, profile=_varied(base, values)) for base, values in places_of(profiles, grid)
    ]


def _varied(profile: Profile, values: Mapping[str, Value]) -> Profile | TesseraError:
    try:
        return with_fields(profile, values)
    except TesseraError as error:
        return error


def _too_many(what: str, actual: int, limit: int) -> RequestError:
    return RequestError(
        f"a sweep has at most {limit} {what}",
        code=f"too_many_{what}",
        stage="sweep",
        actual=actual,
        limit=limit,
        hint="Split it into several sweeps",
    )


def _invalid(message: str, *, actual: str) -> RequestError:
    return RequestError(
        message,
        code="invalid_grid",
        stage="sweep",
        actual=actual,
        hint="A grid is field=value,value, such as nram=128KiB,256KiB",
    )
