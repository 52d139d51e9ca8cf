"""The proof of statements, iteration by iteration, with a jump where its state recurs (PROG-4, PROG-6).

The rules are the verifier's: what is read has been written, and whoever touches bytes waits for those who touched them
before, unless both read. The state is clocks and shadows of the memories on the chip. Marks are numbers of commands by
engine; two states are the same if each mark is as far behind its engine's latest command, or did not change at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import gcd
from typing import Any, Final

import numpy as np

from compiler.program.program import OUTPUT, Role
from tests.spike.expand import target_of
from tests.spike.statements import ENTRY, Looped, Position, Statement, with_rings
from tests.spike.walks import Walks

_NOTHING: Final = -1
# Periods tried, in iterations, and in rows of the innermost loops.
_PERIODS: Final = (1, 2, 3, 4)
# How much earlier states may take that are kept to be met again.
_STATE_BYTES: Final = 1 << 29


class RefusedError(Exception):
    """A program that is not safe."""


@dataclass(slots=True)
class Proof:
    """What was found: commands judged one by one, iterations, and how many of these were jumped over."""

    judged: int = 0
    iterations: int = 0
    jumped: int = 0
    period: int = 0
    first_jump: int = -1


@dataclass(slots=True)
class _Place:
    """The shadow of one memory: by byte the queue and number of the last writer, by queue the last reader."""

    writer_queue: Any
    writer: Any
    readers: dict[int, Any]


@dataclass(slots=True)
class _Done:
    """Commands of one engine that others may wait for: positions, clocks; numbers go up by one to `number`.

    `before`: of what is done once, however long ago.
    """

    positions: list[Position] = field(default_factory=list)
    clocks: list[Any] = field(default_factory=list)
    number: int = 0
    before: list[tuple[Position, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _State:
    """Marks with their engines, positions by engine, and how many commands each engine has done."""

    marks: list[tuple[Any, Any]]
    positions: list[list[Position]]
    counts: Any

    @property
    def size_bytes(self) -> int:
        """What keeping it takes."""
        return sum(int(numbers.nbytes) for numbers, _ in self.marks)


Access = tuple[int, int, tuple[int, ...], tuple[int, ...]]  # place, low, counts, strides


class _Judge:
    def __init__(self, found: Looped) -> None:
        self.found = found
        self.walks = Walks(found)
        self.queues = sorted(self.walks.queues)
        self.number_of = {queue: number for number, queue in enumerate(self.queues)}
        self.done = {queue: _Done() for queue in self.queues}
        self.clock = {queue: np.zeros(len(self.queues), dtype=np.int64) for queue in self.queues}
        self._machine = found.actions.lowering.machine
        # as large as all accesses allow
        self._word = 0
        sizes = self._sizes()
        self._word = self._word or 1
        self.places = {
            number: _Place(np.full(size // self._word, _NOTHING, np.int8), np.zeros(size // self._word, np.int32), {})
            for number, size in sorted(sizes.items())
        }

    def _sizes(self) -> dict[int, int]:
        """How many bytes of each memory are touched; raises RefusedError for what lies outside of one."""
        sizes: dict[int, int] = defaultdict(int)
        for statement in self.found.statements:
            for corner in product(*({run.first, run.first + run.step * (run.tiles - 1)} for run in statement.runs)):
                for side in accesses_of(statement, corner):
                    for place, low, counts, strides in side:
                        # double buffers: whichever is the higher one
                        high = low + 1 + sum((c - 1) * s for c, s in zip(counts, strides, strict=True))
                        rings = _ring_bytes(statement)
                        sizes[place] = max(sizes[place], high + rings)
                        steps = (c if s == 1 else s for c, s in zip(counts, strides, strict=True) if c > 1)
                        self._word = gcd(self._word, low, rings, *steps)
                        if low < 0 or high > self._machine.places[place].capacity_bytes:
                            raise RefusedError("address")
        return sizes

    # --- one command --------------------------------------------------------------------------------------------------

    def judge(self, statement: Statement, position: Position) -> None:
        """Judge one command, and leave its marks."""
        queue = statement.queue
        clock, done = self.clock[queue].copy(), self.done[queue]
        mine = self.number_of[queue]
        for wait in statement.waits:
            other = self.done.get(wait.queue)
            if other is None:
                continue
            target = target_of(wait.position, position, statement.stage, self.found.entry)
            if wait.position.iteration <= ENTRY:
                for known, its_clock in other.before:
                    if known <= target:
                        np.maximum(clock, its_clock, out=clock)
                continue
            at = len(other.positions) - 1
            while at >= 0 and other.positions[at] > target:
                at -= 1
            if at >= 0:
                np.maximum(clock, other.clocks[at], out=clock)
        reads, writes = accesses_of(statement, self._local(statement, position))
        done.number += 1
        number = done.number
        for access in reads:
            self._check(access, clock, is_read=True)
        for access in writes:
            self._check(access, clock, is_read=False)
        for access in reads:
            place = self.places[access[0]]
            if mine not in place.readers:
                place.readers[mine] = np.zeros(len(place.writer), np.int32)
            self._window(place.readers[mine], access)[...] = number
        for access in writes:
            place = self.places[access[0]]
            # between the ends of a run a result may come to lie on an operand
            is_new = statement.key[0] == "call" and mine in place.readers and access not in reads
            if is_new and (self._window(place.readers[mine], access) == number).any():
                raise RefusedError("operand")
            self._window(place.writer_queue, access)[...] = mine
            self._window(place.writer, access)[...] = number
        clock[mine] = number
        self.clock[queue] = clock
        done.positions.append(position)
        done.clocks.append(clock)
        if statement.unit is None:
            done.before.append((position, clock))

    def _local(self, statement: Statement, position: Position) -> tuple[int, ...]:
        unit = statement.unit
        return () if unit is None else unit.local(position.iteration + statement.stage - unit.lag)

    def _check(self, access: Access, clock: Any, *, is_read: bool) -> None:
        place = self.places[access[0]]
        size = len(place.writer) * self._word
        reach = sum((c - 1) * s for c, s in zip(access[2], access[3], strict=True))
        if access[1] < 0 or access[1] + reach >= size:
            raise RefusedError("address")
        queues, writers = self._window(place.writer_queue, access), self._window(place.writer, access)
        if is_read and (queues == _NOTHING).any():
            raise RefusedError("unwritten")
        # queue -1 is the last clock: nobody wrote, so number 0 is known
        if (writers > clock[queues]).any():
            raise RefusedError("order")
        if not is_read:
            for number, readers in place.readers.items():
                if (self._window(readers, access) > clock[number]).any():
                    raise RefusedError("order")

    def _window(self, words: Any, access: Access) -> Any:
        _, low, counts, strides = access
        size, word = words.itemsize, self._word
        shape = tuple(c // word if s == 1 and c > 1 else c for c, s in zip(counts, strides, strict=True))
        steps = tuple(size if s == 1 else s // word * size for s in strides)
        return np.ndarray(shape, words.dtype, words, low // word * size, steps)

    # --- states -------------------------------------------------------------------------------------------------------

    def counts(self) -> Any:
        """How many commands each engine has done."""
        return np.array([self.done[queue].number for queue in self.queues], dtype=np.int64)

    def state(self) -> _State:
        """All marks with the engines whose numbers they are, and the positions that can be waited for."""
        every = np.arange(len(self.queues))
        marks: list[tuple[Any, Any]] = [(self.clock[queue].copy(), every) for queue in self.queues]
        marks += [(np.array(self.done[queue].clocks).reshape(-1, len(every)), every) for queue in self.queues]
        for _, place in sorted(self.places.items()):
            marks.append((place.writer.copy(), place.writer_queue.copy()))
            marks += [(its.copy(), np.int8(number)) for number, its in sorted(place.readers.items())]
        return _State(marks, [list(self.done[queue].positions) for queue in self.queues], self.counts())

    def jump(self, before: _State, periods: int, period: int) -> None:
        """Go on so many periods: marks that are as far behind as before move with their engine."""
        live = self.state()
        moved = live.counts - before.counts
        for (old, _), (numbers, engines) in zip(before.marks, live.marks, strict=True):
            is_moving = (numbers - live.counts[engines] == old - before.counts[engines]) & (engines != _NOTHING)
            numbers[...] = np.where(is_moving, numbers + periods * moved[engines], numbers)
        at = iter(live.marks)
        for queue in self.queues:
            self.clock[queue] = next(at)[0]
        for queue, old_positions in zip(self.queues, before.positions, strict=True):
            done = self.done[queue]
            done.number += int(periods * moved[self.number_of[queue]])
            done.clocks = list(next(at)[0])
            done.positions = [
                new if new == old else new._replace(iteration=new.iteration + periods * period)
                for old, new in zip(old_positions, done.positions, strict=True)
            ]
        for _, place in sorted(self.places.items()):
            place.writer = next(at)[0]
            for number in sorted(place.readers):
                place.readers[number] = next(at)[0]

    def forget(self, iteration: int, reach: int) -> None:
        """Leave out commands that nobody waits for by position any more: all but the last of those long ago."""
        for done in self.done.values():
            keep = next((at for at, p in enumerate(done.positions) if p.iteration >= iteration - reach), None)
            first = max(0, (len(done.positions) if keep is None else keep) - 1)
            del done.positions[:first], done.clocks[:first]


def accesses_of(statement: Statement, local: Sequence[int]) -> tuple[list[Access], list[Access]]:
    """What a command reads and writes on the chip."""
    key = statement.key
    numbers = statement.numbers(local) if statement.unit is not None else tuple(statement.base)
    assert numbers is not None
    reads: list[Access] = []
    writes: list[Access] = []
    if key[0] == "copy":
        source, target, targets = key[4:7]
        run, counts, strides, jumps = key[7]
        if source:
            reads.append((source, numbers[0], (*counts, run), (*strides, 1)))
        writes += [(target + n, numbers[1], (*counts, run), (*jumps, 1)) for n in range(targets) if target]
        return reads, writes
    at = len(key[5])
    for operand, place, lengths, strides, _ in key[-1]:
        element = min((stride for stride in strides if stride > 0), default=1)
        access = (place, numbers[at], (*lengths, element), (*strides, 1))
        (writes if operand == OUTPUT else reads).append(access)
        at += 1 + len(lengths)
    return reads, writes


def _ring_bytes(statement: Statement) -> int:
    """How far a second buffer may lie behind the first."""
    rings = statement.key[-2:] if statement.key[0] == "copy" else [bound[-1] for bound in statement.key[-1]]
    return max([0, *(abs(int(ring[0])) for ring in rings if ring is not None)])


def prove(found: Looped, *, jumps: bool = True) -> Proof:
    """Judge a group's statements; raises RefusedError for one that is not safe."""
    judge, walks = _Judge(found), Walks(found)
    iterations = found.iterations
    result = Proof(iterations=len(iterations))
    reach = found.reach + 1
    periods = _candidates(found) if jumps else []
    states: dict[int, _State] = {}
    iteration = iterations.start
    while iteration < iterations.stop:
        if any(walks.alike(iteration, period) >= 2 * period or iteration - period in states for period in periods):
            states[iteration] = now = judge.state()
            for period in periods:
                before = states.get(iteration - period)
                times = walks.alike(iteration - period, period) // period if before is not None else 0
                is_met = before is not None and times > 0 and _is_same(before, now, period)
                if is_met and before is not None and _touch_same(walks, iteration - period, period):
                    judge.jump(before, times, period)
                    result.jumped += times * period
                    result.period = max(result.period, period)
                    result.first_jump = iteration if result.first_jump < 0 else result.first_jump
                    iteration += times * period
                    states.clear()
                    break
            while len(states) > max(2, _STATE_BYTES // now.size_bytes):
                del states[min(states)]
        if iteration >= iterations.stop:
            break
        its = [
            (Position(iteration, s.order, s.place), queue, s)
            for queue in judge.queues
            for s in walks.at(queue, iteration)
        ]
        for position, _, statement in sorted(its, key=lambda entry: entry[:2]):
            judge.judge(statement, position)
            result.judged += 1
        judge.forget(iteration, reach)
        iteration += 1
    _judge_results(found)
    return result


def _candidates(found: Looped) -> list[int]:
    """Periods that may recur: some iterations, some rows of each inner loop."""
    inner = {1}
    for unit in found.actions.units.values():
        inner |= {stride for stride in unit.strides() if stride}
    return sorted({rows * times for rows in inner for times in _PERIODS if rows * times * 3 <= len(found.iterations)})


def _is_same(before: _State, now: _State, period: int) -> bool:
    """True if every mark is as far behind its engine as it was, or has not changed."""
    if [*map(len, before.positions)] != [*map(len, now.positions)] or len(before.marks) != len(now.marks):
        return False
    for olds, news in zip(before.positions, now.positions, strict=True):
        for old, new in zip(olds, news, strict=True):
            if new not in (old, old._replace(iteration=old.iteration + period)):
                return False
    for (old_marks, engines), (marks, others) in zip(before.marks, now.marks, strict=True):
        same = (old_marks == marks) | (old_marks - before.counts[engines] == marks - now.counts[others])
        if not (same & (engines == others)).all():
            return False
    return True


def _touch_same(walks: Walks, begin: int, period: int) -> bool:
    """True if a period's commands touch the same bytes on the chip as the next one's."""
    for iteration in range(begin, begin + period):
        for queue in walks.queues:
            for statement in walks.at(queue, iteration):
                unit = statement.unit
                if unit is None:
                    continue
                number = iteration + statement.stage - unit.lag
                one = accesses_of(statement, unit.local(number))
                if accesses_of(statement, unit.local(number + period)) != one:
                    return False
    return True


def _judge_results(found: Looped) -> None:
    """Results are written once and completely: a statement's box with its counters is one strided access."""
    context = found.actions.context
    regions = sorted(context.region_list, key=lambda region: region.address)
    written = {r.name: np.zeros(r.size_bytes, np.int32) for r in regions if r.role in (Role.OUTPUT, Role.INTERMEDIATE)}
    for statement in found.statements:
        key = statement.key
        if key[0] != "copy" or key[5] or statement.unit is None:
            continue
        run, counts, _, jumps = key[7]
        low = with_rings(key, statement.base, [r.first for r in statement.runs])[1]
        region = next(r for r in reversed(regions) if r.address <= low)
        if region.name not in written:
            raise RefusedError("given")
        dims = [(run, 1), *zip(counts, jumps, strict=True)]
        dims += [(r.tiles, c[1]) for r, c in zip(statement.runs, statement.coefficients, strict=True)]
        offsets = np.array([low - region.address])
        for count, stride in dims:
            offsets = (offsets[:, None] + np.arange(count) * stride).ravel()
        if offsets.min() < 0 or offsets.max() >= region.size_bytes:
            raise RefusedError("address")
        np.add.at(written[region.name], offsets, 1)
    for counts in written.values():
        if (counts > 1).any():
            raise RefusedError("twice")
        if (counts == 0).any():
            raise RefusedError("incomplete")


def mutants(found: Looped, random: Any, count: int) -> Iterator[str]:
    """Change one statement at a time, and undo it when asked for the next: waits that go or come earlier, addresses."""
    for _ in range(count):
        statement = found.statements[int(random.integers(len(found.statements)))]
        waits, base = statement.waits, statement.base
        kind = ("drop", "earlier", "address")[int(random.integers(3))]
        if kind == "address":
            at = int(random.integers(2)) if statement.key[0] == "copy" else len(statement.key[5])
            statement.base = (*base[:at], base[at] + 4 * int(random.integers(1, 9)), *base[at + 1 :])
        elif waits:
            at = int(random.integers(len(waits)))
            wait = waits[at]
            earlier = wait._replace(position=wait.position._replace(iteration=wait.position.iteration - 1))
            statement.waits = (*waits[:at], *([earlier] if kind == "earlier" else []), *waits[at + 1 :])
        yield kind
        statement.waits, statement.base = waits, base
