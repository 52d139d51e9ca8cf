"""What every command of a program takes: start-up, amount, its own rate, and the shared resources it passes (SIM-2).

A *resource* has a rate that all who pass it at one time share: the DRAM of a chip, each port of a memory that has a
rate, each direction of each link. A command moves its amount at one rate; of every resource it passes it takes `weight`
times that rate. The amount of a call is what it moves through the port of its core that it keeps most, so that sharing
a port is fair by bytes; where no port has a rate it is its cycles. All are whole numbers, in the units of `ticks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from compiler.cost.rates import copying_bytes_per_cycle, dram_startup_cycles, engine_startup_cycles
from compiler.errors import InternalError
from compiler.profile.schema import Engine, Memory, Profile
from compiler.program.engines import CORE_LEVELS
from compiler.program.program import Level, Opcode, Place, Program
from compiler.program.timing.network import Network
from compiler.program.timing.ticks import (
    MAX_RATE,
    WEIGHT_BITS,
    Ints,
    check_lengths,
    grains_of_bytes,
    grains_of_call,
    stated_steps,
    steps_of,
    ticks_of,
    weight_of,
)
from compiler.program.timing.work import CallWork, CallWorks
from compiler.units import element_bytes

_LARGEST: Final = np.iinfo(np.int64).max
# Above every rate, in steps: that of a command that passes no resource.
_NO_BOUND: Final = _LARGEST


@dataclass(frozen=True, slots=True)
class Resource:
    """What those who move at one time share: `name` is `dram`, `link`, or that of the level whose port it is.

    `where` tells resources of one name apart: cores of a link, or number and direction of a port.
    """

    name: str
    where: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demands:
    """Per command, in program order: ticks of its start-up and of its move if nothing shares its resources (durations),
    amount in grains of 2 to the power of its shift, own rate in steps, and the number of its kind.

    A kind passes the resources `resources[offsets[kind]:offsets[kind + 1]]`, with their `weights`; `capacities` are by
    resource, in parts of a step as weights are. `moved`: bytes that a transfer moves to each target, 0 of calls.
    `works`: by kind, what a call does, None of transfers. `names`: by resource.
    """

    startups: Ints
    durations: Ints
    amounts: Ints
    shifts: Ints
    rates: Ints
    moved: Ints
    kinds: Ints
    offsets: Ints
    resources: Ints
    weights: Ints
    capacities: Ints
    works: tuple[CallWork | None, ...]
    names: tuple[Resource, ...]

    def ordered(self, order: Ints) -> Demands:
        """Those of the same commands in another order."""
        return replace(
            self,
            startups=self.startups[order],
            durations=self.durations[order],
            amounts=self.amounts[order],
            shifts=self.shifts[order],
            rates=self.rates[order],
            moved=self.moved[order],
            kinds=self.kinds[order],
        )


@dataclass(slots=True, kw_only=True)
class _Resources:
    """The shared resources of a chip, numbered as they are met."""

    profile: Profile
    numbers: dict[Resource, int] = field(default_factory=dict)
    capacities: list[int] = field(default_factory=list)

    def dram(self) -> int:
        """The DRAM, reads and writes together."""
        return self._number(Resource("dram"), self.profile.dram_bytes_per_cycle)

    def port(self, place: Place, *, is_read: bool) -> int | None:
        """The port of a memory; None if it has no rate of its own."""
        memory = _memory(place.level, self.profile)
        if memory is None or memory.bytes_per_cycle is None:
            return None
        way = () if memory.ports == "shared" else ("read",) if is_read else ("write",)
        return self._number(Resource(place.level.value, (place.number, *way)), memory.bytes_per_cycle)

    def link(self, hop: tuple[int, int]) -> int:
        """One direction of the link between two cores."""
        link = self.profile.engines.link
        assert link is not None
        return self._number(Resource("link", hop), link.bytes_per_cycle)

    def _number(self, key: Resource, capacity: float) -> int:
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.capacities)
            self.capacities.append(stated_steps(_words(key.name), capacity) << WEIGHT_BITS)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """What commands of one kind have in common: start-up in ticks, own rate in steps, resources with weights.

    `ticks` and `work`: of a call, how long it takes alone; a transfer takes as long as what it moves.
    """

    rate: int
    startup: int = 0
    passes: tuple[tuple[int, int], ...] = ()
    ticks: int = 0
    work: CallWork | None = None


def demands_of(program: Program, profile: Profile) -> Demands:
    """The demands of all commands of a program on a chip of the profile."""
    commands = program.commands
    opcodes = commands["opcode"].astype(np.int64)
    calling = opcodes == Opcode.COMPUTE
    gathering = opcodes == Opcode.GATHER
    works, work_of = _works(program, profile, np.flatnonzero(calling))
    moved = commands["run_bytes"] * np.prod(commands["counts"], axis=1)
    moved = np.where(calling | (opcodes == Opcode.BARRIER), 0, moved)
    moved[gathering] = _gathered_bytes(program, np.flatnonzero(gathering))
    # commands of one kind differ in their amounts only
    columns = [
        opcodes,
        *(commands[name].astype(np.int64) for name in ("queue", "source", "target", "targets")),
        work_of,
    ]
    keys = np.stack(columns, axis=1)
    firsts, kinds = _distinct(keys)
    resources = _Resources(profile=profile)
    network = None
    if profile.engines.link is not None:
        network = Network(topology=profile.engines.link.topology, cores=profile.cores)
    maker = _Routes(program, profile, resources, network, works)
    routes = [maker.of(*keys[row].tolist()) for row in firsts.tolist()]
    offsets = np.zeros(len(routes) + 1, dtype=np.int64)
    np.cumsum([len(route.passes) for route in routes], out=offsets[1:])
    rates = _ints(route.rate for route in routes)
    startups = _ints(route.startup for route in routes)[kinds]
    resource_of, weights = (_ints(one[part] for route in routes for one in route.passes) for part in (0, 1))
    capacities = _ints(resources.capacities)
    amounts, shifts = grains_of_bytes(moved)
    of_calls = [grains_of_call(route.ticks, route.rate) for route in routes]
    amounts, shifts = (
        np.where(calling, _ints(one[part] for one in of_calls)[kinds], of_moves)
        for part, of_moves in enumerate((amounts, shifts))
    )
    bounds = np.minimum(rates, _bounds(offsets, resource_of, weights, capacities))
    alone = -(-amounts // np.maximum(1, bounds[kinds] >> shifts))
    # calls that pass nothing have no amount that 64 bits hold; nothing slows them
    free_calls = calling & (offsets[1:] == offsets[:-1])[kinds]
    durations = np.where(free_calls, _ints(route.ticks for route in routes)[kinds], alone)
    check_lengths(startups, durations, moved)
    return Demands(
        startups=startups,
        durations=durations,
        amounts=amounts,
        shifts=shifts,
        rates=rates[kinds],
        moved=moved,
        kinds=kinds,
        offsets=offsets,
        resources=resource_of,
        weights=weights,
        capacities=capacities,
        works=tuple(route.work for route in routes),
        names=tuple(resources.numbers),
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _bounds(offsets: Ints, resources: Ints, weights: Ints, capacities: Ints) -> Ints:
    """Per kind the steps at which it moves if it has its resources for itself."""
    found = np.full(len(offsets) - 1, _NO_BOUND)
    kinds = np.repeat(np.arange(len(found)), np.diff(offsets))
    np.minimum.at(found, kinds, capacities[resources] // weights)
    result: Ints = np.maximum(1, found)
    return result


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """The first row of each distinct one, in ascending order of rows, and the number of each row's."""
    numbers, span = np.zeros(len(keys), dtype=np.int64), 1
    for column in keys.T:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if span * (high - low + 1) > _LARGEST:
            # as few numbers as there are rows
            (_, numbers), (_, column) = (np.unique(its, return_inverse=True) for its in (numbers, column))
            low, high, span = 0, len(keys) - 1, len(keys)
        numbers = numbers * (high - low + 1) + (column - low)
        span *= high - low + 1
    _, firsts, kinds = np.unique(numbers, return_index=True, return_inverse=True)
    return firsts.astype(np.int64), kinds.astype(np.int64)


def _works(program: Program, profile: Profile, calling: Ints) -> tuple[tuple[CallWork, ...], Ints]:
    """The different works of a program's calls, and the number of each command's."""
    work_of = np.full(len(program.commands), -1, dtype=np.int64)
    if not len(calling):
        return (), work_of
    calls = program.calls[program.commands["call"][calling]]
    firsts, inverse = _distinct(np.stack([calls["table"], calls["entry"]], axis=1).astype(np.int64))
    book = CallWorks(program, profile)
    rows = zip(calls["table"][firsts].tolist(), calls["entry"][firsts].tolist(), strict=True)
    numbers = _ints(book.number_of(table, entry) for table, entry in rows)
    work_of[calling] = numbers[inverse]
    return tuple(book.works), work_of


def _gathered_bytes(program: Program, gathering: Ints) -> Ints:
    """Bytes of the rows that each gather brings: those of its result."""
    calls = program.calls[program.commands["call"][gathering]]
    found = []
    for table, entry in zip(calls["table"].tolist(), calls["entry"].tolist(), strict=True):
        rows = program.tables[table]
        lengths = rows.entries["lengths"][entry][: len(rows.shape)]
        found.append(int(np.prod(lengths)) * element_bytes(program.units[rows.unit].output.stored_dtype))
    return np.array(found, dtype=np.int64)


def _duration(work: CallWork) -> int:
    use = work.use
    return use.call_cycles


def _words(name: str) -> str:
    """A resource as messages name it."""
    return {"dram": "the DRAM", "link": "links"}.get(name, f"the ports of {name}")


class _Routes:
    """Makes the routes of kinds of commands."""

    def __init__(
        self,
        program: Program,
        profile: Profile,
        resources: _Resources,
        network: Network | None,
        works: Sequence[CallWork],
    ) -> None:
        self._program = program
        self._profile = profile
        self._resources = resources
        self._network = network
        self._works = works

    def of(self, opcode: int, queue: int, source: int, target: int, targets: int, work: int) -> _Route:
        """The route of commands of an opcode on a queue from one place to others, or that do a work."""
        if opcode == Opcode.BARRIER:
            return _Route(rate=steps_of(MAX_RATE))
        if opcode == Opcode.COMPUTE:
            return self._call(queue, self._works[work])
        if opcode == Opcode.GATHER:
            rate = self._rate(self._program.queues[queue].engine)
            passes = ((self._resources.dram(), weight_of(1)),)
            return _Route(startup=ticks_of(dram_startup_cycles(self._profile)), rate=rate, passes=passes)
        places = self._program.places
        return self._transfer(queue, places[source], [places[target + number] for number in range(max(1, targets))])

    def _call(self, queue: int, work: CallWork) -> _Route:
        """A call keeps its core's memories as busy as it reads and writes them."""
        core, duration = self._program.queues[queue].number, _duration(work)
        if not duration:
            return _Route(rate=steps_of(1), work=work)
        taken: dict[int, float] = {}
        level = Level.WRAM if self._profile.wram is not None and work.has_weights else Level.NRAM
        for where, cycles, is_read in (
            (Level.NRAM, work.use.read_port_cycles, True),
            (Level.NRAM, work.use.write_port_cycles, False),
            (level, work.use.weight_port_cycles, True),
        ):
            memory = _memory(where, self._profile)
            if memory is None or memory.bytes_per_cycle is None:
                continue
            number = self._resources.port(Place(level=where, number=core, capacity_bytes=0), is_read=is_read)
            if number is None or not cycles:
                continue
            # a shared port is kept by reads and writes together: both counts say so
            weight = cycles * memory.bytes_per_cycle / duration
            taken[number] = max(taken.get(number, 0.0), weight)
        most = max(taken.values(), default=1.0)
        shares = tuple((number, weight_of(weight / most)) for number, weight in taken.items())
        return _Route(rate=steps_of(most), passes=shares, ticks=ticks_of(duration), work=work)

    def _transfer(self, queue: int, source: Place, targets: list[Place]) -> _Route:
        profile, resources = self._profile, self._resources
        passes: dict[int, int] = {}
        engine = self._program.queues[queue].engine
        levels = {source.level, *(target.level for target in targets)}
        if Level.DRAM in levels:
            startup = dram_startup_cycles(profile)
            passes[resources.dram()] = 1
            cores = [place.number for place in (source, *targets) if place.level in CORE_LEVELS]
            for hop in self._to_dram(cores):
                passes[resources.link(hop)] = 1
        else:
            startup = self._startup(engine)
            if engine == "link" and self._network is not None:
                ends = [place.number for place in targets]
                for hop in self._network.tree(source.number, ends):
                    passes[resources.link(hop)] = 1
                link = profile.engines.link
                startup = self._network.depth(source.number, ends) * (0 if link is None else link.hop_cycles)
        for place, is_read in ((source, True), *((target, False) for target in targets)):
            number = None if place.level is Level.DRAM else resources.port(place, is_read=is_read)
            if number is not None:
                passes[number] = passes.get(number, 0) + 1
        is_local = len({_owner(place) for place in (source, *targets)}) == 1
        is_copy = engine == "core" and is_local
        return _Route(
            startup=ticks_of(startup),
            rate=steps_of(copying_bytes_per_cycle(profile)) if is_copy else self._rate(engine),
            passes=tuple((number, weight_of(count)) for number, count in passes.items()),
        )

    def _to_dram(self, cores: list[int]) -> Sequence[tuple[int, int]]:
        """Links between the DRAM at the sides of a mesh and the cores; nothing where every core has a port."""
        if self._profile.dram.ports != "mesh-sides" or self._network is None:
            return ()
        hops: dict[tuple[int, int], None] = {}
        for core in cores:
            hops.update(dict.fromkeys(self._network.route(self._network.nearest_port(core), core)))
        return tuple(hops)

    def _rate(self, engine: str) -> int:
        found = self._engine(engine)
        return steps_of(MAX_RATE) if found is None else stated_steps(f"engine {engine}", found.bytes_per_cycle)

    def _startup(self, engine: str) -> float:
        found = self._engine(engine)
        return engine_startup_cycles(found, self._profile) if isinstance(found, Engine) else 0.0

    def _engine(self, name: str) -> Any:
        return None if name == "core" else getattr(self._profile.engines, name)


def _owner(place: Place) -> tuple[str, int]:
    return ("core" if place.level in CORE_LEVELS else place.level.value, place.number)


def _memory(level: Level, profile: Profile) -> Memory | None:
    # asked for every end of every kind of command
    if level is Level.SRAM or level is Level.SRAM_WEIGHTS:
        return profile.sram
    if level is Level.NRAM or level is Level.NRAM_WEIGHTS:
        return profile.nram
    if level is Level.WRAM:
        return profile.wram
    raise InternalError("a place of no memory of the chip", stage="simulate", actual=level.value)
