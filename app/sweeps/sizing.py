"""Searches the smallest value of a field that reaches a target (SIM-5)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from app.sweeps.report import PointReport
from app.sweeps.target import Target
from compiler.errors import RequestError, printable
from compiler.profile import Profile
from compiler.profile.fields import Field, has_part, no_part, value_of
from compiler.profile.quantities import amount_text, quantity
from compiler.report.execution import Part
from compiler.report.plan import ModelRef, ProfileRef

# The default range: from a sixteenth of the profile's value to sixteen times as much, in 64ths of it.
_RANGE: Final = 16
_PARTS: Final = 64

Amount = int | float
# Compiles the model with each of the values in the field, and returns the rows in the same order.
Evaluate = Callable[[Sequence[Amount]], Sequence[PointReport]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The values that may be tried: whole multiples of the granularity, from `first` to `last`."""

    granularity: Amount
    first: int
    last: int

    def value(self, number: int) -> Amount:
        """The value of a multiple."""
        return quantity(number * self.granularity, "")


class CurvePoint(Part, frozen=True, kw_only=True):
    """A value that was tried, its figure, and whether that reaches the target.

    `actual` and `limit` are None if the point failed; `row` says why.
    """

    value: Amount
    actual: float | None
    limit: float | None
    reached: bool
    row: PointReport


class SizeReport(Part, frozen=True, kw_only=True):
    """size.json: the smallest value tried that reaches the target, and the curve of all values tried, ascending.

    `state` is cancelled if the search was interrupted: the curve then holds the finished values. `smallest` is None if
    no value reaches the target; `best` is the value nearest to it, or furthest below it. `larger_misses` lists values
    above `smallest` that miss the target; if there are any, the curve is not monotone. Unless interrupted, `smallest`
    is known to within `granularity`: the next smaller multiple was tried and missed, or is below the range.
    """

    schema: Literal["tessera.size/1"]
    state: Literal["succeeded", "cancelled"] = "succeeded"
    model: ModelRef
    profile: ProfileRef
    options: dict[str, Any]
    compiler_version: str
    field: str
    target: str
    granularity: Amount
    smallest: Amount | None
    best: Amount | None
    larger_misses: tuple[Amount, ...]
    curve: tuple[CurvePoint, ...]


def range_of(profile: Profile, field: Field, *, low: str | None, high: str | None, granularity: str | None) -> Range:
    """The values to try for a field of a profile; raises RequestError for a field without amounts or an empty range."""
    if not has_part(profile, field):
        raise no_part(profile, field)
    base = value_of(profile, field)
    if field.kind not in ("integer", "number") or isinstance(base, bool | str):
        raise _invalid(f"{field.path} has no size", actual=printable(str(base), 80))
    given = [None if text is None else _amount(field, text) for text in (low, high, granularity)]
    if base is None and None in given:
        raise _invalid(
            f"profile {printable(profile.name, 80)} has no {field.path}, so there is no range around it",
            actual="absent",
            hint="Give --from, --to and --granularity",
        )
    own = base or 0
    least = own / _RANGE if given[0] is None else given[0]
    most = own * _RANGE if given[1] is None else given[1]
    step = own / _PARTS if given[2] is None else given[2]
    if field.kind == "integer":
        step = max(1, int(step))
    amounts = (amount_text(amount, field.unit, " ") for amount in (least, most, step))
    nothing = _invalid(f"the range of {field.path} holds nothing", actual="{} to {} by {}".format(*amounts))
    if not (0 < step <= most and least <= most and math.isfinite(most)):
        raise nothing
    found = Range(granularity=quantity(step, ""), first=max(1, math.ceil(least / step)), last=math.floor(most / step))
    if found.first > found.last:
        raise nothing
    return found


def smallest(within: Range, target: Target, evaluate: Evaluate) -> Mapping[int, PointReport]:
    """Tries a ladder of doublings, then halvings below the first rung that reaches the target; rows by multiple.

    A planner's result may not be monotone in a capacity, so untried values stay unknown. The search stops once a row is
    cancelled. It stops after both ends of the range if a bound shows that neither can reach the target.
    """

    def tried(numbers: Sequence[int]) -> dict[int, PointReport]:
        return dict(zip(numbers, evaluate([within.value(number) for number in numbers]), strict=True))

    ladder = [within.first]
    while ladder[-1] < within.last:
        ladder.append(min(2 * ladder[-1], within.last))
    rows: dict[int, PointReport] = {}
    if target.has_bound:
        rows = tried(sorted({ladder[0], ladder[-1]}))
        if is_interrupted(rows) or all(target.impossible(row.figures) for row in rows.values()):
            return rows
    rows |= tried([number for number in ladder if number not in rows])
    reaching = [number for number in ladder if target.reached(rows[number].figures)]
    if not reaching or reaching[0] == ladder[0] or is_interrupted(rows):
        return rows
    above = reaching[0]
    below = ladder[ladder.index(above) - 1]
    while above - below > 1 and not is_interrupted(rows):
        middle = (above + below) // 2
        rows |= tried([middle])
        if target.reached(rows[middle].figures):
            above = middle
        else:
            below = middle
    return rows


def is_interrupted(rows: Mapping[int, PointReport]) -> bool:
    """Whether a row was interrupted."""
    return any(row.state == "cancelled" for row in rows.values())


def curve_of(within: Range, target: Target, rows: Mapping[int, PointReport]) -> tuple[CurvePoint, ...]:
    """The finished rows as a curve, by ascending value."""
    return tuple(
        CurvePoint(
            value=within.value(number),
            actual=None if row.figures is None else target.value(row.figures),
            limit=None if row.figures is None else target.limit_for(row.figures),
            reached=target.reached(row.figures),
            row=row,
        )
        for number, row in sorted(rows.items())
        if row.state != "cancelled"
    )


def size_json(report: SizeReport) -> bytes:
    """The report's canonical bytes: UTF-8 JSON, fields in schema order, indented by two."""
    values = msgspec.to_builtins(report)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _amount(field: Field, text: str) -> Amount:
    value = field.parsed(text)
    assert isinstance(value, int | float)
    return value


def _invalid(message: str, *, actual: str, hint: str = "Such as --field nram --from 64KiB --to 4MiB") -> RequestError:
    return RequestError(message, code="invalid_range", stage="size", actual=actual, hint=hint)
