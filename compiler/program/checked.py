"""Every command of a program is fit by itself: its fields, its call, and all that it touches (PROG-4).

Fields name something and are within reason (`fields.py`), calls fit their units and hold what they need (`pieces.py`,
`addressed.py`), every access lies inside its memory and is its engine's to make (`accesses.py`, `engines.py`). Nothing
is known then of the order of commands, nor of what has been written: `loops/proof.py` proves that.

Whether values are right is judged nowhere. A table may cover too little of a tensor, or twice the same. Of an address
table it is shown that it fits; by which of its words the simulator sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.program.accesses import Accesses, Areas, accesses_of, areas_of
from compiler.program.addressed import Addressed, addressed_of
from compiler.program.calls import CallBook
from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, check_fields
from compiler.program.pieces import Pieces, pieces_of
from compiler.program.program import Program, Resident
from compiler.program.strided import Ints, Normal, normalise, spans
from compiler.units import element_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedProgram:
    """A program whose accesses all lie inside their memories; their order has not been judged."""

    program: Program
    book: CallBook
    pieces: Pieces | None
    addressed: Addressed | None
    areas: Areas
    accesses: Accesses
    residents: tuple[tuple[int, int, int], ...]


def check(program: Program, limits: ProgramLimits = DEFAULT_LIMITS, shared: Engines = ()) -> CheckedProgram:
    """A program's commands, each fit by itself; raises ProgramError for any other program.

    `shared` are the profile's engines that are one component. `limits` bound what a program may ask for.
    """
    check_fields(program, limits)
    areas = areas_of(program)
    book = CallBook(program)
    pieces = pieces_of(program, book, limits)
    addressed = addressed_of(program, book, pieces, limits)
    accesses = accesses_of(program, pieces, addressed, areas, shared, limits)
    return CheckedProgram(
        program=program,
        book=book,
        pieces=pieces,
        addressed=addressed,
        areas=areas,
        accesses=accesses,
        residents=residents_of(program),
    )


def _extents(resident: Resident) -> tuple[Ints, Ints]:
    """Lengths and strides of a resident box as integers, also where it has no axes."""
    return np.array([resident.lengths], dtype=np.int64), np.array([resident.strides], dtype=np.int64)


def residents_of(program: Program) -> tuple[tuple[int, int, int], ...]:
    """Place and hull of each resident; raises ProgramError for one that leaves its place."""
    found = []
    for number, resident in enumerate(program.residents):
        size = element_bytes(program.regions[resident.region].dtype)
        hull = spans(np.array([resident.address]), *_extents(resident), np.array([size]))
        low, high = int(hull.low[0]), int(hull.high[0])
        capacity = program.places[resident.place].capacity_bytes
        if hull.is_far[0] or low < 0 or high > capacity:
            raise ProgramError(f"resident {number} leaves its memory", violation="address", actual=high, limit=capacity)
        found.append((resident.place, low, high))
    return tuple(found)


def normal_residents(program: Program, residents: tuple[tuple[int, int, int], ...]) -> dict[int, list[Normal]]:
    """By place the residents of a program that lie there; raises ProgramError where elements of one overlap."""
    found: dict[int, list[Normal]] = {}
    # all at once, with as many axes as any of them has
    count = len(program.residents)
    width = max((len(resident.lengths) for resident in program.residents), default=0)
    counts, strides = np.ones((count, width), dtype=np.int64), np.zeros((count, width), dtype=np.int64)
    for number, resident in enumerate(program.residents):
        counts[number, : len(resident.lengths)] = resident.lengths
        strides[number, : len(resident.strides)] = resident.strides
    lows = np.array([low for _, low, _ in residents], dtype=np.int64)
    sizes = np.array([element_bytes(program.regions[resident.region].dtype) for resident in program.residents])
    normal = normalise(lows, counts, strides, sizes.astype(np.int64))
    if normal.repeats.any() or normal.tangles.any():
        raise ProgramError("a resident's elements lie on one another", violation="twice")
    for number, (place, _, _) in enumerate(residents):
        row = slice(number, number + 1)
        found.setdefault(place, []).append(
            Normal(
                low=normal.low[row],
                counts=normal.counts[row],
                strides=normal.strides[row],
                repeats=normal.repeats[row],
                tangles=normal.tangles[row],
            )
        )
    return found
