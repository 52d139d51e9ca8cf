"""Goes back where dimensions turn out to be equal to others, and compiles with these as one (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm
from typing import TypeVar

import msgspec

from compiler.errors import RequestError, printable
from compiler.ir.symbol import Expression
from compiler.ir.ties import UnequalExtentsError, equal_dimensions
from compiler.options import DimRange, Options

Result = TypeVar("Result")
# The dimensions that others say, by name.
Tied = Mapping[str, Expression]


def with_tied_dimensions(options: Options, compilation: Callable[[Options, Tied], Result]) -> Result:
    """The result of `compilation` for the dimensions that are left when those that ops force to be equal are one.

    It is called again as long as it is refused for extents that differ below the maxima only. Raises what it raises,
    and RequestError where the ranges of equal dimensions have no extent in common.
    """
    tied: Tied = {}
    while True:
        try:
            return compilation(_narrowed(options, tied), tied)
        except UnequalExtentsError as error:
            found = equal_dimensions(error.ties, tied)
            if len(found) == len(tied):
                raise
            tied = found


def _narrowed(options: Options, tied: Tied) -> Options:
    """The options without the dimensions that others say; one that others are equal to has the range of all."""
    dims = dict(options.dims)
    for name in tied:
        dims.pop(name, None)
    tables = list(options.tables)
    for name, expression in tied.items():
        given, same = options.dims.get(name), expression.symbols
        if given is not None and expression == Expression(terms=((min(same), 1),)) and min(same) in dims:
            dims[min(same)] = _common(name, min(same), given, dims[min(same)])
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
    return low if len(both) == 1 else DimRange(min=low, max=both[-1], step=step)


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
