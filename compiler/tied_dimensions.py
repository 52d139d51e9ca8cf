"""Goes back where dimensions turn out to be equal to others, and compiles with these as one (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite, lcm
from typing import TypeVar

import msgspec

from compiler.errors import RequestError, printable
from compiler.ir.symbol import Dim, Expression, bounds_of
from compiler.ir.ties import UnequalExtentsError, equal_dimensions
from compiler.options import DimRange, Options

Result = TypeVar("Result")
# The dimensions that others say, by name.
Tied = Mapping[str, Expression]


def with_tied_dimensions(options: Options, compilation: Callable[[Options, Tied], Result]) -> Result:
    """The result of `compilation` for the dimensions that are left when those that ops force to be equal are one.

    It is called again as long as it is refused for extents that ties make equal. An import tells most ties at once: an
    extent that is known if its ties hold has ties of its own. Raises what `compilation` raises, and RequestError
    where the ranges of equal dimensions have one extent in common or none, and where a dimension that others say takes
    extents that the options do not give it.
    """
    tied: Tied = {}
    while True:
        try:
            return compilation(_narrowed(options, tied), tied)
        except UnequalExtentsError as error:
            found = equal_dimensions(error.ties, tied)
            if len(found) == len(tied):
                if tied:
                    raise _with_ties(error, tied) from error
                raise
            tied = found


def _with_ties(error: UnequalExtentsError, tied: Tied) -> UnequalExtentsError:
    """The error of dimensions that are left, with those that others say."""
    said = ", ".join(f"{name} = {one}" for name, one in sorted(tied.items()))
    return UnequalExtentsError(
        f"{error.message}, where other ops force {printable(said, 200)}",
        ties=error.ties,
        code=error.code,
        stage=error.stage,
        node=error.node,
        op_type=error.op_type,
        actual=error.actual,
        limit=error.limit,
        hint=error.hint,
    )


def _narrowed(options: Options, tied: Tied) -> Options:
    """The options without the dimensions that others say; one that others are equal to has the range of all."""
    dims = dict(options.dims)
    for name in tied:
        dims.pop(name, None)
    tables = list(options.tables)
    for name, expression in tied.items():
        given, same = options.dims.get(name), min(expression.symbols)
        if given is not None and expression == _alone(same) and same in dims:
            dims[same] = _common(name, same, given, dims[same])
    for name, expression in tied.items():
        if name in options.dims and expression.symbols <= dims.keys() and expression != _alone(min(expression.symbols)):
            _refuse_others(name, expression, options.dims[name], dims)
    for number, shape in enumerate(tables):
        for name in tied:
            if name in shape and tied[name].symbols <= shape.keys() and tied[name].value(shape) != shape[name]:
                raise RequestError(
                    f"option tables gives dimension {printable(name, 80)!r} another extent than"
                    f" {printable(str(tied[name]), 80)}, and ops of the model force them to be equal",
                    code="contradicting_extents",
                    stage="import",
                    actual=f"{shape[name]} and {tied[name].value(shape)}",
                    limit="equal extents in each table",
                    hint=f"Leave {printable(name, 80)!r} out of option tables, or correct its extent",
                )
        tables[number] = {name: extent for name, extent in shape.items() if name not in tied}
    return msgspec.structs.replace(options, dims=dims, tables=tuple(tables)) if tied else options


def _common(name: str, other: str, one: int | DimRange, two: int | DimRange) -> int | DimRange:
    """The extents that are in both ranges; raises RequestError if none is."""
    mine, its = _extents(one), _extents(two)
    step = lcm(mine.step, its.step)
    first = max(mine.start, its.start)
    low = next((e for e in mine[len(range(mine.start, first, mine.step)) :][: its.step] if e in its), None)
    if low is None:
        raise _no_extent(name, other, one, two)
    both = range(low, min(mine.stop, its.stop), step)
    if len(both) == 1 and len(mine) > 1 and len(its) > 1:
        raise RequestError(
            f"dimension {printable(name, 80)!r} must be equal to {printable(other, 80)} for the ops of the model, and"
            f" the ranges that option dims gives have the extent {low} alone in common",
            code="contradicting_extents",
            stage="import",
            actual=f"{_text(one)} and {_text(two)}",
            limit="several extents in both",
            hint=f"Give both dimensions the same range, or the one extent {low}",
        )
    return low if len(both) == 1 else DimRange(min=low, max=both[-1], step=step)


def _alone(name: str) -> Expression:
    return Expression(terms=((name, 1),))


def _refuse_others(
    name: str, expression: Expression, given: int | DimRange, dims: Mapping[str, int | DimRange]
) -> None:
    """Raises RequestError where a dimension that others say takes extents that option dims does not give it."""
    asked = _extents(given)
    found = said_bounds(expression, {other: _extents(dims[other]) for other in expression.symbols}, asked)
    if found is None:
        return
    low, high, is_in_steps = found
    if high < asked[0] or low > asked[-1]:
        raise _no_extent(name, str(expression), given, low if low == high else DimRange(min=low, max=high))
    if low < asked[0] or high > asked[-1] or not is_in_steps:
        others = ", ".join(printable(other, 40) for other in sorted(expression.symbols))
        raise RequestError(
            f"dimension {printable(name, 80)!r} must be equal to {printable(str(expression), 80)} for the ops of the"
            " model, which takes other extents too than option dims gives it",
            code="contradicting_extents",
            stage="import",
            actual=f"{low} to {high}",
            limit=_text(given) + (f" in steps of {asked.step}" if asked.step > 1 else ""),
            hint=f"Narrow the ranges of {others}"
            + (f", or {printable(name, 80)!r} the range {low} to {high}" if low > 0 else ""),
        )


def said_bounds(expression: Expression, extents: Mapping[str, range], steps: range) -> tuple[int, int, bool] | None:
    """The least and the greatest extent that an expression takes, and whether all are in the steps of a range.

    None where this cannot be told.
    """
    parts = {
        name: one[0] + one.step * Dim.symbol(name, len(one) - 1, 0) if len(one) > 1 else one[0]
        for name, one in extents.items()
    }
    try:
        value = expression.value(parts)
        (low, high), off = bounds_of(value), bounds_of((value - steps[0]) % steps.step)
    except ZeroDivisionError:
        return None
    return (int(low), int(high), off == (0, 0)) if isfinite(low) and isfinite(high) else None


def _extents(given: int | DimRange) -> range:
    return range(given.min, given.max + 1, given.step) if isinstance(given, DimRange) else range(given, given + 1)


def _no_extent(name: str, other: str, one: int | DimRange, two: int | DimRange) -> RequestError:
    return RequestError(
        f"dimension {printable(name, 80)!r} must be equal to {printable(other, 80)} for the ops of the model, and no"
        " extent that option dims gives is",
        code="contradicting_extents",
        stage="import",
        actual=f"{_text(one)} and {_text(two)}",
        limit="an extent in both",
        hint="Give both dimensions the same extents; for a dimension of 1 that is repeated give this one extent alone",
    )


def _text(given: int | DimRange) -> str:
    extents = _extents(given)
    return f"{extents[0]} to {extents[-1]}" if len(extents) > 1 else str(extents[0])
