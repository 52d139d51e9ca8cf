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
from compiler.program.program import Program
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


def _extents(program: Program) -> tuple[Ints, Ints, Ints]:
    """Lengths and strides of all resident boxes, with as many axes as any of them has, and bytes of an element."""
    residents = program.residents
    width = max((len(resident.lengths) for resident in residents), default=0)
    counts = np.ones((len(residents), width), dtype=np.int64)
    strides = np.zeros((len(residents), width), dtype=np.int64)
    for number, resident in enumerate(residents):
        counts[number, : len(resident.lengths)] = resident.lengths
        strides[number, : len(resident.strides)] = resident.strides
    sizes = [element_bytes(program.regions[resident.region].dtype) for resident in residents]
    return counts, strides, np.array(sizes, dtype=np.int64)


def residents_of(program: Program) -> tuple[tuple[int, int, int], ...]:
    """Place and hull of each resident; raises ProgramError for one that leaves its place."""
    places = [resident.place for resident in program.residents]
    addresses = np.array([resident.address for resident in program.residents], dtype=np.int64)
    capacities = np.array([program.places[place].capacity_bytes for place in places], dtype=np.int64)
    hulls = spans(addresses, *_extents(program))
    outside = np.flatnonzero(hulls.is_far | (hulls.low < 0) | (hulls.high > capacities))
    if len(outside):
        first = outside[0]
        raise ProgramError(
            f"resident {first} leaves its memory",
            violation="address",
            actual=int(hulls.high[first]),
            limit=int(capacities[first]),
        )
    return tuple(zip(places, hulls.low.tolist(), hulls.high.tolist(), strict=True))


def normal_residents(program: Program, residents: tuple[tuple[int, int, int], ...]) -> Normal:
    """The residents of a program in normal form; raises ProgramError where elements of one overlap."""
    lows = np.array([low for _, low, _ in residents], dtype=np.int64)
    normal = normalise(lows, *_extents(program))
    if normal.repeats.any() or normal.tangles.any():
        raise ProgramError("a resident's elements lie on one another", violation="twice")
    return normal
