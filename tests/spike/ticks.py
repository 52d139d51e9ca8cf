"""Time in integer ticks of 1/1024 cycle: one event loop over statements or commands, and a jump where states recur.

As the simulator (SIM-2): an engine keeps its order, prepares one command while another moves, and what moves shares the
resources that it passes max-min fair. All times and amounts are integers, so that equal states are equal exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from typing import Any, Final

from compiler.profile.schema import Profile
from compiler.program.program import Program
from compiler.program.timing.demands import Demands, demands_of
from tests.spike.expand import target_of
from tests.spike.statements import Looped, Position
from tests.spike.walks import Walks

TICKS: Final = 1024
# Parts of an amount, so that rates per tick are whole numbers.
_PARTS: Final = 1 << 24
_WHOLE: Final = 1 << 10
# An engine that waits for fewer iterations than this is one of those that go on together.
_SOON: Final = 8
# Of how many earlier iterations in the same state the period is tried.
_CANDIDATES: Final = 64


@dataclass(frozen=True, slots=True)
class Load:
    """What a command takes: ticks to prepare, parts to move, parts a tick, and resources with weights."""

    startup: int
    amount: int
    rate: int
    passes: tuple[tuple[int, int], ...]


def loads_of(demands: Demands) -> tuple[list[Load], list[int]]:
    """The loads of all commands of a program, and the capacities of resources in parts a tick."""
    found = []
    columns = zip(demands.startups, demands.amounts, demands.rates, demands.kinds, strict=True)
    for startup, amount, rate, kind in columns:
        its = slice(int(demands.offsets[kind]), int(demands.offsets[kind + 1]))
        pairs = zip(demands.resources[its].tolist(), demands.weights[its].tolist(), strict=True)
        passes = tuple((number, max(1, round(weight * _WHOLE))) for number, weight in pairs)
        per_tick = max(1, int(min(rate, 1e12) * _PARTS / TICKS))
        found.append(Load(ceil(startup * TICKS), round(amount * _PARTS), per_tick, passes))
    return found, [max(1, int(c * _PARTS / TICKS)) for c in demands.capacities.tolist()]


@dataclass(slots=True)
class _Command:
    """A command on its way: its name in its source, its position, its load, when it is prepared, what is left."""

    name: Any
    position: Any
    load: Load
    ready: int = 0
    rest: int = 0
    rate: int = 0


@dataclass(slots=True)
class _Engine:
    issued: _Command | None = None
    active: _Command | None = None


class Expanded:
    """The commands of a program, one by one."""

    def __init__(self, program: Program, loads: Sequence[Load]) -> None:
        queues = program.commands["queue"].tolist()
        self.engines = sorted(set(queues))
        self._lists: dict[int, list[int]] = {queue: [] for queue in self.engines}
        for number, queue in enumerate(queues):
            self._lists[queue].append(number)
        self._next = dict.fromkeys(self.engines, 0)
        self._loads = loads
        offsets, waits = program.wait_offsets.tolist(), program.waits.tolist()
        self._waits = [waits[a:b] for a, b in pairwise(offsets)]
        self._ended = [False] * len(queues)

    def peek(self, queue: int) -> _Command | None:
        """The next command of an engine."""
        at, its = self._next[queue], self._lists[queue]
        return _Command(its[at], None, self._loads[its[at]]) if at < len(its) else None

    def take(self, queue: int) -> None:
        """Go on behind it."""
        self._next[queue] += 1

    def is_ready(self, command: _Command, engines: dict[int, _Engine]) -> bool:
        """True if all that it waits for has ended."""
        del engines
        return all(self._ended[number] for number in self._waits[command.name])

    def end(self, command: _Command) -> None:
        """Note that it has ended."""
        self._ended[command.name] = True


class Statements:
    """The same commands from statements: of each engine no more is kept than how far it is."""

    def __init__(self, found: Looped, loads: dict[int, Load]) -> None:
        self.walks = Walks(found)
        self.engines = sorted(self.walks.queues)
        self._loads = loads
        self.at = dict.fromkeys(self.engines, (found.iterations.start, 0))
        self._stop = found.iterations.stop
        for queue in self.engines:
            self._skip(queue)

    def _skip(self, queue: int) -> None:
        iteration, place = self.at[queue]
        while iteration < self._stop and place >= len(self.walks.at(queue, iteration)):
            iteration, place = iteration + 1, 0
        self.at[queue] = iteration, place

    def peek(self, queue: int) -> _Command | None:
        """The next command of an engine."""
        iteration, place = self.at[queue]
        if iteration >= self._stop:
            return None
        statement = self.walks.at(queue, iteration)[place]
        position = Position(iteration, statement.order, statement.place)
        return _Command(statement, position, self._loads[id(statement)])

    def take(self, queue: int) -> None:
        """Go on behind it."""
        iteration, place = self.at[queue]
        self.at[queue] = iteration, place + 1
        self._skip(queue)

    def progress(self, queue: int, engines: dict[int, _Engine]) -> Position | None:
        """The first position of an engine that has not ended; None behind the last."""
        engine = engines[queue]
        first = engine.active or engine.issued or self.peek(queue)
        return None if first is None else first.position

    def is_ready(self, command: _Command, engines: dict[int, _Engine]) -> bool:
        """True if all engines have gone past what it waits for."""
        for wait in command.name.waits:
            if wait.queue not in engines:
                continue
            progress = self.progress(wait.queue, engines)
            target = target_of(wait.position, command.position, command.name.stage, self.walks.entry)
            if progress is not None and progress <= target:
                return False
        return True

    def end(self, command: _Command) -> None:
        """Nothing is noted."""


@dataclass(slots=True)
class Timed:
    """Ticks until all is done; of loops how many iterations were jumped over, how often, and from where first."""

    ticks: int
    iterations: int = 0
    jumped: int = 0
    jumps: int = 0
    first_jump: int = -1
    period: int = 0
    events: int = 0


@dataclass(slots=True)
class Loop:
    """The event loop."""

    source: Any
    capacities: Sequence[int]
    jumps: bool = False
    now: int = 0
    engines: dict[int, _Engine] = field(default_factory=dict)

    def run(self) -> Timed:
        """Run all commands."""
        source = self.source
        self.engines = {queue: _Engine() for queue in source.engines}
        result = Timed(0)
        states: dict[Any, list[tuple[int, int]]] = {}
        latest = None
        while True:
            while self._start():
                pass
            if self.jumps:
                first = self._first()
                if first is not None and first != latest:
                    latest = first
                    if self._jump(first, states, result):
                        latest = self._first()
            self._share()
            until = self._until()
            if until == inf:
                break
            result.events += 1
            self._advance(int(until))
        if any(e.active or e.issued or source.peek(q) for q, e in self.engines.items()):
            raise RuntimeError("commands wait in a circle")
        result.ticks = self.now
        return result

    def _start(self) -> bool:
        """Let engines begin and issue what they can; False if none could."""
        found = False
        for queue, engine in self.engines.items():
            if engine.issued is not None and engine.active is None and engine.issued.ready <= self.now:
                engine.active, engine.issued = engine.issued, None
                engine.active.rest = engine.active.load.amount
                found = True
            if engine.issued is None:
                command = self.source.peek(queue)
                if command is not None and self.source.is_ready(command, self.engines):
                    command.ready = self.now + command.load.startup
                    engine.issued = command
                    self.source.take(queue)
                    found = True
        return found

    def _share(self) -> None:
        """Max-min fair rates of all that moves."""
        moving = [e.active for e in self.engines.values() if e.active is not None]
        users: dict[int, int] = {}
        for command in moving:
            for number, weight in command.load.passes:
                users[number] = users.get(number, 0) + weight
        left = {number: self.capacities[number] for number in users}
        while moving:
            rates = []
            for command in moving:
                rate = command.load.rate
                for number, _ in command.load.passes:
                    rate = min(rate, max(1, left[number] * _WHOLE // users[number]))
                rates.append(rate)
            least = min(rates)
            rest = []
            for command, rate in zip(moving, rates, strict=True):
                if rate > least:
                    rest.append(command)
                    continue
                command.rate = least
            for command, rate in zip(moving, rates, strict=True):
                if rate == least:
                    for number, weight in command.load.passes:
                        left[number] = max(0, left[number] - least * weight // _WHOLE)
                        users[number] -= weight
            moving = rest

    def _until(self) -> float:
        """The next tick at which something ends."""
        found: float = inf
        for engine in self.engines.values():
            if engine.active is not None:
                found = min(found, self.now - (-engine.active.rest // engine.active.rate))
            elif engine.issued is not None:
                found = min(found, max(engine.issued.ready, self.now))
        return found

    def _advance(self, until: int) -> None:
        passed, self.now = until - self.now, until
        for engine in self.engines.values():
            command = engine.active
            if command is not None:
                command.rest -= passed * command.rate
                if command.rest <= 0:
                    self.source.end(command)
                    engine.active = None

    # --- recurrence ---------------------------------------------------------------------------------------------------

    def _first(self) -> int | None:
        """The first iteration that an engine has not gone past."""
        found = [p.iteration for q in self.engines if (p := self.source.progress(q, self.engines)) is not None]
        return min(found, default=None)

    def _room(self, queue: int, seen: tuple[int, ...] = ()) -> int:
        """For how many iterations an idle engine surely goes on waiting; 0 if it may soon go on."""
        engine, source = self.engines[queue], self.source
        command = source.peek(queue)
        if engine.issued is not None or engine.active is not None or command is None:
            return 0
        found = 0
        for wait in command.name.waits:
            progress = source.progress(wait.queue, self.engines) if wait.queue in self.engines else None
            target = target_of(wait.position, command.position, command.name.stage, source.walks.entry)
            if progress is not None and progress <= target:
                found = max(found, target.iteration - progress.iteration - 1)
                if wait.queue not in seen:
                    # what it waits for may wait itself
                    found = max(found, self._room(wait.queue, (*seen, queue)))
        return found if found > _SOON else 0

    def _state(self, first: int) -> Any:
        found = []
        for queue, engine in self.engines.items():
            iteration, place = self.source.at[queue]
            entry: list[Any] = [iteration - first, place] if iteration < self.source.walks.iterations.stop else []
            if self._room(queue):
                entry = [iteration, place]
            if engine.issued is not None:
                its = engine.issued
                entry += [its.position.iteration - first, its.position[1:], max(0, its.ready - self.now)]
            entry.append(None)
            if engine.active is not None:
                its = engine.active
                entry += [its.position.iteration - first, its.position[1:], its.rest]
            found.append(tuple(entry))
        return tuple(found)

    def _jump(self, first: int, states: dict[Any, list[tuple[int, int]]], result: Timed) -> bool:
        """Go on behind all periods that repeat the one that has just ended; False if none do."""
        found = states.setdefault(self._state(first), [])
        walks = self.source.walks
        # engines that are ahead have to find the same as before, too
        stop = walks.iterations.stop
        at = {q: i for q, (i, _) in self.source.at.items() if i < stop}
        # what has not begun yet, or waits for something far off, stays where it is
        late = {q: room for q in at if (room := self._room(q))}
        ahead = max((i - first for q, i in at.items() if q not in late), default=0) + 1
        room = min(late.values(), default=stop)
        shift = ticks = period = 0
        for before, then in found:
            length = first - before
            count = min((walks.alike(before, length) - ahead) // length, room // length)
            if count * length > shift:
                shift, ticks, period = count * length, count * (self.now - then), length
        found.append((first, self.now))
        del found[:-_CANDIDATES]
        if not shift:
            return False
        self.now += ticks
        for queue, engine in self.engines.items():
            iteration, place = self.source.at[queue]
            if iteration < stop and queue not in late:
                self.source.at[queue] = iteration + shift, place
            for command in (engine.issued, engine.active):
                if command is not None:
                    command.position = command.position._replace(iteration=command.position.iteration + shift)
                    command.ready += ticks
        result.jumped += shift
        result.jumps += 1
        result.period = max(result.period, period)
        if result.first_jump < 0:
            result.first_jump = first
        return True


def expanded_ticks(program: Program, profile: Profile) -> Timed:
    """The time of an expanded program."""
    loads, capacities = loads_of(demands_of(program, profile))
    return Loop(Expanded(program, loads), capacities).run()


def looped_ticks(found: Looped, first: Program, profile: Profile, *, jumps: bool = True) -> Timed:
    """The time of statements; `first` is the program of each statement's first command, in the order of statements."""
    loads, capacities = loads_of(demands_of(first, profile))
    by_statement = {id(s): load for s, load in zip(found.statements, loads, strict=True)}
    loop = Loop(Statements(found, by_statement), capacities, jumps=jumps)
    result = loop.run()
    result.iterations = len(found.iterations)
    return result
