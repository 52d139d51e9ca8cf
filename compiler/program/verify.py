"""The verifier of programs: nothing leaves its memory, nothing is read before it is there, all is waited for (PROG-4).

Three kinds of proof, each of which relies on the ones before it:

1. Fields name something and are within reason (`fields.py`), calls fit their units and hold what they need
   (`pieces.py`), every access lies inside its memory and is its engine's to make (`accesses.py`, `engines.py`). These
   are judged for all commands at once.
2. What happens before what (`clocks.py`).
3. Access by access (`judge.py`): reads find what was written, reads and writes of the same bytes are ordered, what
   must stay is not overwritten. Where it does not show in their places (`meetings.py`), on a shadow of each memory
   (`shadow.py`).

What it does not judge: whether values are right. A table may cover too little of a tensor, or twice the same. Of an
address table it proves that it fits, and that its place has been written: by which words the simulator sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.program.accesses import Accesses, Areas, Kind, accesses_of, areas_of
from compiler.program.addressed import Addressed, addressed_of
from compiler.program.calls import CallBook
from compiler.program.clocks import clocks_of
from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, check_fields, is_call
from compiler.program.judge import Judge
from compiler.program.pieces import Pieces, pieces_of
from compiler.program.program import Level, Opcode, Program, Resident
from compiler.program.shadow import NOTHING, Shadow, Windows
from compiler.program.strided import Ints, Normal, distinct, granularity, normalise, spans
from compiler.units import element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedProgram:
    """What the verifier found of a program that is fit to run.

    `peak_bytes`: per place one past the highest byte touched (of the DRAM: that regions take). `commands`: how many
    there are of each opcode. `touched_bytes`: what all commands read and write together.
    """

    program: Program
    peak_bytes: tuple[int, ...]
    commands: tuple[tuple[Opcode, int], ...]
    touched_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckedProgram:
    """A program of which every access is known to lie inside its memory; nothing is known of their order."""

    program: Program
    book: CallBook
    pieces: Pieces | None
    addressed: Addressed | None
    areas: Areas
    accesses: Accesses
    residents: tuple[tuple[int, int, int], ...]


def check(program: Program, limits: ProgramLimits = DEFAULT_LIMITS, shared: Engines = ()) -> CheckedProgram:
    """The first kind of proof alone: fields, bounds, alignment, engines, calls. Raises ProgramError."""
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


def verify(program: Program, limits: ProgramLimits = DEFAULT_LIMITS, shared: Engines = ()) -> VerifiedProgram:
    """What the verifier knows of a program that is fit to run; raises ProgramError for any other.

    `shared` are the profile's engines that are one component. `limits` bound what verifying may cost.
    """
    # the calls' pieces are among the accesses, and large
    checked = replace(check(program, limits, shared), pieces=None)
    accesses = checked.accesses
    shadows = _Shadows(checked, limits)
    opcodes, queues = program.commands["opcode"], program.commands["queue"]
    judge = Judge(
        clocks=clocks_of(program),
        queues=np.concatenate([[0], queues]).astype(np.int32),
        calls=np.concatenate([[False], is_call(opcodes)]),
    )
    judge.run(accesses.kinds, accesses.commands, shadows.windows(), shadows.results())
    shadows.check_results()
    peaks = np.zeros(len(program.places), dtype=np.int64)
    np.maximum.at(peaks, accesses.places, accesses.highs)
    for index, _, high in checked.residents:
        peaks[index] = max(int(peaks[index]), high)
    for number, place in enumerate(program.places):
        if place.level == Level.DRAM:
            peaks[number] = max((region.address + region.size_bytes for region in program.regions), default=0)
    counts = np.bincount(program.commands["opcode"], minlength=len(Opcode)).tolist()
    return VerifiedProgram(
        program=program,
        peak_bytes=tuple(peaks.tolist()),
        commands=tuple((opcode, counts[opcode]) for opcode in Opcode if counts[opcode]),
        touched_bytes=int(accesses.normal.touched_bytes.sum()),
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


def normal_residents(checked: CheckedProgram) -> dict[int, list[Normal]]:
    """By place the residents that lie there; raises ProgramError for one whose elements lie on one another."""
    found: dict[int, list[Normal]] = {}
    program = checked.program
    # all at once, with as many axes as any of them has
    count = len(program.residents)
    width = max((len(resident.lengths) for resident in program.residents), default=0)
    counts, strides = np.ones((count, width), dtype=np.int64), np.zeros((count, width), dtype=np.int64)
    for number, resident in enumerate(program.residents):
        counts[number, : len(resident.lengths)] = resident.lengths
        strides[number, : len(resident.strides)] = resident.strides
    lows = np.array([low for _, low, _ in checked.residents], dtype=np.int64)
    sizes = np.array([element_bytes(program.regions[resident.region].dtype) for resident in program.residents])
    normal = normalise(lows, counts, strides, sizes.astype(np.int64))
    if normal.repeats.any() or normal.tangles.any():
        raise ProgramError("a resident's elements lie on one another", violation="twice")
    for number, (place, _, _) in enumerate(checked.residents):
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


class _Shadows:
    """The shadows of all memories that a program writes, and the windows of its accesses in them."""

    def __init__(self, checked: CheckedProgram, limits: ProgramLimits) -> None:
        self._checked = checked
        self._limits = limits
        self._left_bytes = limits.shadow_bytes
        program, accesses = checked.program, checked.accesses
        # a shadow per place on the chip, then one per area of the DRAM that is written
        self._numbers = np.where(accesses.areas >= 0, len(program.places) + accesses.areas, accesses.places)
        self._residents = normal_residents(checked)
        self._shadows: dict[int, Shadow] = {}
        self._area_names = {
            area: f"region {region.name!r}"
            for region, area in reversed(list(zip(program.regions, checked.areas.of_region, strict=True)))
        }
        is_read = (accesses.kinds == Kind.READ) | (accesses.kinds == Kind.LATE)
        keys = self._numbers * len(program.queues) + program.commands["queue"][accesses.commands]
        readers: dict[int, list[int]] = {}
        for key in np.unique(keys[is_read]).tolist():
            readers.setdefault(key // len(program.queues), []).append(key % len(program.queues))
        rows = np.argsort(self._numbers, kind="stable")
        numbers, firsts = np.unique(self._numbers[rows], return_index=True)
        pieces = np.split(rows, firsts[1:]) if len(rows) else []
        for number, of in zip(numbers.tolist(), pieces, strict=True):
            shadow = self._shadow(number, of, readers.get(number, []))
            if shadow is not None:
                self._shadows[number] = shadow

    def _shadow(self, number: int, rows: Any, readers: list[int]) -> Shadow | None:
        """The shadow of a place or area; None where nothing is written, so that nothing can go wrong."""
        checked, program = self._checked, self._checked.program
        area = number - len(program.places)
        if area >= 0:
            if checked.areas.is_given[area]:
                return None
            begin, stop = int(checked.areas.starts[area]), int(checked.areas.stops[area])
            name = self._area_names[area]
        else:
            place = program.places[number]
            name = f"{place.level.value} {place.number}"
            begin = int(checked.accesses.lows[rows].min())
            stop = int(checked.accesses.highs[rows].max())
        residents = self._residents.get(number, [])
        for normal in residents:
            begin = min(begin, int(normal.low[0]))
            reach = ((normal.counts - 1) * normal.strides).sum() + 1
            stop = max(stop, int(normal.low[0] + reach))
        word = granularity(checked.accesses.normal, rows, begin)
        for normal in residents:
            word = int(np.gcd(word, granularity(normal, slice(None), begin)))
        word = word or 1
        size = -(-(stop - begin) // word)
        # of what is written once nobody keeps who read it last
        self._left_bytes -= 4 * size * (1 if area >= 0 else 1 + len(readers))
        if self._left_bytes < 0:
            raise ProgramError(
                "the memories touched are too large to be verified",
                violation="size",
                actual=f"{name} of {stop - begin} bytes, in words of {word}",
                limit=self._limits.shadow_bytes,
            )
        shadow = Shadow(
            name=name,
            begin=begin,
            word_bytes=word,
            writers=np.full(size, NOTHING, dtype=np.int32),
            readers=None if area >= 0 else {queue: np.zeros(size, dtype=np.int32) for queue in readers},
        )
        for normal in residents:
            window = shadow.window(int(normal.low[0]), normal.counts[0].tolist(), normal.strides[0].tolist())
            if window.writers.max() >= 0:
                raise ProgramError("residents lie on one another", violation="twice", actual=name)
            window.writers[...] = 0
        if residents:
            ends = [int(normal.low[0] + ((normal.counts - 1) * normal.strides).sum()) + 1 for normal in residents]
            shadow.residents = (min(int(normal.low[0]) for normal in residents), max(ends))
        return shadow

    def results(self) -> list[int]:
        """The numbers, among those that there are, of the shadows of areas that have to be complete."""
        first, is_result = len(self._checked.program.places), self._checked.areas.is_result
        return [place for place, number in enumerate(self._shadows) if number >= first and is_result[number - first]]

    def windows(self) -> Windows:
        """A window for all accesses that touch the same words."""
        normal = self._checked.accesses.normal
        order = {number: position for position, number in enumerate(self._shadows)}
        known = np.full(int(self._numbers.max(initial=0)) + 1, -1, dtype=np.int64)
        known[list(order)] = list(order.values())
        memories = known[self._numbers]
        judged = np.flatnonzero(memories >= 0)
        used = np.flatnonzero((normal.counts > 1).any(axis=0))
        columns = [memories, normal.low, *(part[:, axis] for part in (normal.counts, normal.strides) for axis in used)]
        first, of_judged = distinct([column[judged] for column in columns])
        rows = judged[first]
        of_access = np.full(len(memories), -1, dtype=np.int64)
        of_access[judged] = of_judged
        return Windows(
            shadows=list(self._shadows.values()),
            of_access=of_access,
            memories=memories[rows],
            low=normal.low[rows],
            counts=normal.counts[np.ix_(rows, used)],
            strides=normal.strides[np.ix_(rows, used)],
        )

    def check_results(self) -> None:
        """Every byte of every output's elements has been written."""
        program, areas = self._checked.program, self._checked.areas
        for region, area in zip(program.regions, areas.of_region, strict=True):
            if not areas.is_result[area] or areas.is_given[area] or 0 in region.shape:
                continue
            shadow = self._shadows.get(len(program.places) + area)
            if shadow is not None:
                size = np.array([element_bytes(region.dtype)])
                low = np.array([region.address])
                shape = np.array([region.shape], dtype=np.int64)
                strides = np.array([region.strides], dtype=np.int64)
                normal = normalise(low, shape, strides, size)
                words = shadow.writers
                if shadow.word_bytes and granularity(normal, slice(None), shadow.begin) % shadow.word_bytes:
                    # elements that are smaller than words share them: a word is written whole or not at all
                    is_complete = bool((words != NOTHING).all())
                else:
                    window = shadow.window(region.address, normal.counts[0].tolist(), normal.strides[0].tolist())
                    is_complete = bool((window.writers != NOTHING).all())
                if is_complete:
                    continue
            raise ProgramError(f"region {region.name!r} is not written completely", violation="incomplete")
