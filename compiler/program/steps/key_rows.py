"""Keys as rows of a program: what a command has at all tiles, without addresses and positions (PROG-1).

Rows are made once for a group. An equal group takes them with steps, tables and operands of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import BINDING, CALL, COMMAND, Rows
from compiler.program.steps.action import Call, Copy, Numbers, touches_of
from compiler.program.steps.commands import Lists
from compiler.program.timing.ticks import Ints

# Dimensions of what one command touches.
_DIMS: Final = 6
# The place that is the DRAM.
DRAM: Final = 0
FORM: Final = np.dtype([("counts", "<i8", (_DIMS,)), ("strides", "<i8", (_DIMS,))])
# Columns of accesses.
_COLUMNS: Final = 5
PLACE, NUMBER, LOW, OF_FORM, IS_WRITE = range(_COLUMNS)
_IS_WRITE: Final = attrgetter("is_write")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyRows:
    """The keys of a group, by key:

    - `commands`, `calls`: its row of COMMAND (addresses are 0; `call` is 0 of a call, -1 of a copy) and of CALL, which
      names its rows of `bindings`.
    - `own`: how many of its numbers belong to a call's entry; they come first. `entries`: lengths and part of that
      entry (`Call`), None of a copy.
    - `fields`: where each number behind those goes: binding x (1 + MAX_AXES), plus 0 for the address or 1 + axis for a
      start.
    - `touched`: the memory accesses, reads before writes, as rows of PLACE, NUMBER (which number is the address), LOW
      (bytes from there to the first one), OF_FORM (an index of `forms`), IS_WRITE.
    - `in_dram`: which of its numbers are addresses in DRAM.
    """

    commands: Rows
    calls: Rows
    bindings: Rows
    fields: Lists
    own: Ints
    entries: Sequence[tuple[Numbers, Numbers] | None]
    touched: Lists
    forms: Rows
    in_dram: Lists

    def __len__(self) -> int:
        return len(self.commands)

    @classmethod
    def of(cls, keys: Sequence[Copy | Call]) -> KeyRows:
        """The rows of these keys."""
        calls, bindings, fields = _calls(keys)
        touched, forms = _touched(keys)
        return cls(
            commands=_commands(keys),
            calls=calls,
            bindings=bindings,
            fields=fields,
            own=np.array([0 if isinstance(key, Copy) else key.own for key in keys], dtype=np.int64),
            entries=[None if isinstance(key, Copy) else (key.lengths, key.part) for key in keys],
            touched=touched,
            forms=forms,
            in_dram=Lists.of([in_dram(key) for key in keys]),
        )


def in_dram(key: Copy | Call) -> list[int]:
    """Which of an action's numbers are addresses in DRAM."""
    if isinstance(key, Copy):
        return [number for number, place in enumerate((key.source, key.target)) if place == DRAM]
    found, at = [], key.own
    for bound in key.bound:
        if bound.place == DRAM:
            found.append(at)
        at += 1 + len(bound.lengths)
    return found


def _commands(keys: Sequence[Copy | Call]) -> Rows:
    """A row for each key, addresses left out; of calls `call` is 0."""
    rows = np.zeros(len(keys), dtype=COMMAND)
    for name in ("opcode", "queue", "step"):
        rows[name] = [getattr(key, name) for key in keys]
    rows["source"] = rows["target"] = -1
    copies = {number: key for number, key in enumerate(keys) if isinstance(key, Copy)}
    if copies:
        its = list(copies)
        for name in ("source", "target", "targets"):
            rows[name][its] = [getattr(key, name) for key in copies.values()]
        columns = zip(*(key.runs for key in copies.values()), strict=True)
        for name, column in zip(("run_bytes", "counts", "source_strides", "target_strides"), columns, strict=True):
            rows[name][its] = column
        rows["call"][its] = -1
    return rows


def _calls(keys: Sequence[Copy | Call]) -> tuple[Rows, Rows, Lists]:
    """Rows of CALL by key (of copies without bindings), rows of BINDING, and `KeyRows.fields`."""
    calls: list[tuple[int, ...]] = []
    bindings: list[tuple[object, ...]] = []
    places: list[list[int]] = []
    # there are few different ones
    known: dict[tuple[int, ...], list[int]] = {(): []}
    for key in keys:
        bound = () if isinstance(key, Copy) else key.bound
        calls.append((0 if isinstance(key, Copy) else key.table, 0, len(bindings), len(bound)))
        for operand, place, lengths, strides, _ in bound:
            rest = (0,) * (MAX_AXES - len(lengths))
            bindings.append((operand, place, 0, (0,) * MAX_AXES, (*lengths, *rest), (*strides, *rest)))
        ranks = tuple([len(its.lengths) for its in bound])
        if ranks not in known:
            known[ranks] = [b * (1 + MAX_AXES) + f for b, rank in enumerate(ranks) for f in range(1 + rank)]
        places.append(known[ranks])
    return np.array(calls, dtype=CALL), np.array(bindings, dtype=BINDING), Lists.of(places)


def _touched(keys: Sequence[Copy | Call]) -> tuple[Lists, Rows]:
    """`KeyRows.touched`, and the forms of these accesses: counts and strides."""
    patterns: dict[tuple[Numbers, Numbers], tuple[int, int]] = {}
    forms: dict[tuple[Numbers, Numbers], int] = {}
    rows: list[tuple[int, ...]] = []
    ends = [0]
    for key in keys:
        for places, is_write, number, counts, strides in sorted(touches_of(key), key=_IS_WRITE):
            pattern = (counts, strides)
            known = patterns.get(pattern)
            if known is None:
                low, form = _form_of(*pattern)
                known = patterns[pattern] = low, forms.setdefault(form, len(forms))
            rows += [(place, number, *known, is_write) for place in places]
        ends.append(len(rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=_COLUMNS * len(rows))
    touched = Lists(offsets=np.array(ends, dtype=np.int64), rows=values.reshape(-1, _COLUMNS))
    return touched, np.array(list(forms), dtype=FORM)


def _form_of(counts: Sequence[int], strides: Sequence[int]) -> tuple[int, tuple[Numbers, Numbers]]:
    """How far before the address the first byte lies, and counts and strides of as many dimensions as a form has.

    Dimensions come by stride, the largest first; those that together are one are one.
    """
    low = sum(min(0, (count - 1) * stride) for count, stride in zip(counts, strides, strict=True))
    dims: list[tuple[int, int]] = []
    for stride, count in sorted(
        ((abs(s), c) for c, s in zip(counts, strides, strict=True) if c > 1 and s), reverse=True
    ):
        if dims and dims[-1][1] == count * stride:
            count *= dims.pop()[0]
        dims.append((count, stride))
    while len(dims) > _DIMS:
        # more than a row holds: the innermost two as one that covers both
        (count, stride), (inner, step) = dims[-2:]
        dims[-2:] = [((count - 1) * stride + (inner - 1) * step + 1, 1)]
    rest = _DIMS - len(dims)
    return low, ((*(c for c, _ in dims), *(1,) * rest), (*(s for _, s in dims), *(0,) * rest))
