"""How boxes come to the buffers of cores and leave them: by which engines, and through which memories (PROG-1).

From DRAM a core's own engine loads them where there is one, else the cluster's does so into the SRAM, from where each
core moves its own; results go back the same way. What several cores need at once is read from DRAM as few times as the
chip's ways allow. Stationary weights come from the cores in which they lie, where there is a way from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from compiler.errors import LimitError
from compiler.ir.layout import strides_of
from compiler.ops.slab import contains, lengths
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.emitter import Box, Held
from compiler.program.larger import cut, smaller
from compiler.program.peers import are_connected, from_peers, share_out, to_cores
from compiler.program.program import Level, Opcode
from compiler.shapes.passing import PassingRoom
from compiler.shapes.ways import saved_by_passing_on


class Routes:
    """The ways of boxes on one chip, for all routines of a program: what passes an SRAM waits for what did before."""

    def __init__(self, context: Context, profile: Profile) -> None:
        self.context = context
        self.profile = profile
        self.machine = context.machine
        self.emitter = context.emitter
        self._rooms: dict[int, PassingRoom] = {}
        # parts of boxes that cores have loaded for each other
        self._loaders = 0
        self._own: dict[tuple[str, int], Held] = {
            (name, core): held for name, parts in context.residents.items() for core, held in parts
        }

    def order(self, name: str) -> tuple[int, ...]:
        """The order of a tensor's axes on the chip."""
        if self._is_weight(name):
            return self.context.weight_order(name)
        return self.context.facts.tensors[name].order

    def in_place(self, core: int, name: str, box: Box) -> Held | None:
        """Where all of a weight's box lies in a core before the program runs; None if it does not."""
        own = self._own.get((name, core))
        return own.part(box) if own is not None and contains(own.box, box) else None

    def bring(self, name: str, box: Box, targets: Mapping[int, Held]) -> None:
        """Copy a box to where it shall lie in some cores."""
        owners = self.context.residents.get(name)
        element = self.context.element_bytes(name)
        if owners is not None and are_connected(self.machine, owners, box, targets):
            from_peers(self.emitter, owners, box, targets, element)
            return
        region, engines = self.context.region(name), self.profile.engines
        if engines.iodma is None:
            self._through_sram(name, box, targets)
        elif self.profile.dram.multicast:
            for together in _consecutive(targets):
                first, *rest = together.values()
                queue = self.machine.queue_of["iodma", next(iter(together))]
                self.emitter.copy(Opcode.LOAD, queue, region, first, box, element, [held.slot for held in rest])
        elif engines.gdma is not None and engines.bus is not None:
            for mine in self._by_cluster(targets):
                if self._is_read_once(name, box, len(mine)):
                    self._through_sram(name, box, mine)
                else:
                    self._to_each(name, box, mine)
        elif engines.link is not None and self._is_read_once(name, box, len(targets)):
            loading, sending = (
                [self.machine.queue_of[engine, core] for core in targets] for engine in ("iodma", "link")
            )
            them = list(targets.values())
            self._loaders += share_out(self.emitter, region, them, loading, sending, box, element, self._loaders)
        else:
            self._to_each(name, box, targets)

    def _to_each(self, name: str, box: Box, targets: Mapping[int, Held]) -> None:
        """Load a box by the engine of each core that needs it."""
        region, element = self.context.region(name), self.context.element_bytes(name)
        for core, held in targets.items():
            self.emitter.copy(Opcode.LOAD, self.machine.queue_of["iodma", core], region, held, box, element)

    def _is_read_once(self, name: str, box: Box, count: int) -> bool:
        """Whether a box of DRAM is read once for some cores: weights of several always, else where that is sooner."""
        if count > 1 and self._is_weight(name):
            return True
        size = prod(lengths(box)) * self.context.element_bytes(name)
        return saved_by_passing_on(self.profile, size, count) >= 0

    def _by_cluster(self, targets: Mapping[int, Held]) -> list[dict[int, Held]]:
        found: dict[int, dict[int, Held]] = {}
        for core, held in sorted(targets.items()):
            found.setdefault(core // self.profile.cores_per_cluster, {})[core] = held
        return [mine for _, mine in sorted(found.items())]

    def store(self, name: str, core: int, held: Held) -> None:
        """A result's box from a core to DRAM."""
        region, element = self.context.region(name), self.context.element_bytes(name)
        if self.machine.has("iodma"):
            self.emitter.copy(Opcode.STORE, self.machine.queue_of["iodma", core], held, region, held.box, element)
            return
        cluster = core // self.profile.cores_per_cluster
        for piece in self._pieces(name, held.box):
            staged = self._in_sram(cluster, name, piece)
            self.emitter.copy(Opcode.MOVE, self.machine.queue_of["mvdma", core], held, staged, piece, element)
            self.emitter.copy(Opcode.STORE, self.machine.queue_of["gdma", cluster], staged, region, piece, element)

    def _through_sram(self, name: str, box: Box, targets: Mapping[int, Held]) -> None:
        """Load a box into the SRAM of each cluster that has cores which need it, once, and from there to these."""
        region, element = self.context.region(name), self.context.element_bytes(name)
        for piece in self._pieces(name, box):
            for mine in self._by_cluster(targets):
                cluster = next(iter(mine)) // self.profile.cores_per_cluster
                staged = self._in_sram(cluster, name, piece)
                queue = self.machine.queue_of["gdma", cluster]
                self.emitter.copy(Opcode.LOAD, queue, region, staged, piece, element)
                for together in _consecutive(mine):
                    to_cores(self.emitter, cluster, staged, together, piece, element)

    def _pieces(self, name: str, box: Box) -> list[Box]:
        """A box in pieces that pass an SRAM, so large that the next one finds room beside each."""
        room, element = self._room(0, name), self.context.element_bytes(name)
        for extents in smaller(lengths(box), self.order(name)):
            if prod(extents) * element <= room.largest_bytes:
                return cut(box, extents)
        field = "weight_bytes" if self.machine.places[room.place].level is Level.SRAM_WEIGHTS else "capacity_bytes"
        raise LimitError(
            "not one element of a tensor passes the SRAM on its way to a core",
            code="no_room_to_pass",
            stage="shapes",
            node=name,
            actual=f"{element} bytes",
            limit=f"{room.largest_bytes} bytes",
            hint=f"Raise sram.{field} in the profile",
        )

    def _in_sram(self, cluster: int, name: str, box: Box) -> Held:
        """Where a box passes a cluster's SRAM."""
        sides, element = lengths(box), self.context.element_bytes(name)
        slot = self._room(cluster, name).take(prod(sides) * element)
        slot.begin((name, box) if self._is_weight(name) else None)
        strides = strides_of(sides, self.order(name), element)
        return Held(slot, slot.address, tuple(start for start, _ in box), strides, box)

    def _room(self, cluster: int, name: str) -> PassingRoom:
        """The part of a cluster's SRAM that a tensor passes: that of the weights where it is split."""
        is_apart = self.profile.units.weight_part_bytes is not None and self._is_weight(name)
        place = self.machine.place_of[Level.SRAM_WEIGHTS if is_apart else Level.SRAM, cluster]
        if place not in self._rooms:
            capacity = self.machine.places[place].capacity_bytes
            self._rooms[place] = PassingRoom(place=place, capacity_bytes=capacity)
        return self._rooms[place]

    def _is_weight(self, name: str) -> bool:
        """True for constants and address tables."""
        return name in self.context.address_tables or self.context.facts.tensors[name].constant


def _consecutive(targets: Mapping[int, Held]) -> Iterator[dict[int, Held]]:
    """Cores in runs whose numbers follow one another and whose buffers lie alike: one command reaches a run."""
    run: dict[int, Held] = {}
    for core in sorted(targets):
        held, before = targets[core], run.get(core - 1)
        if run and (before is None or (held.address, held.strides) != (before.address, before.strides)):
            yield run
            run = {}
        run[core] = held
    if run:
        yield run
