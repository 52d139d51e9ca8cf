"""Two convolutions whose maps lie in bands over many cores, which pass halos both ways, image after image (TILE-3).

Today's halos pass one way only, from earlier tiles to later ones. Here neighbours send each other their outermost rows
when both have made a map, so that they advance in step. The loop is over images.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from compiler.ir.layout import memory_order, strides_of
from compiler.profile.schema import Profile
from compiler.program.context import Context
from compiler.program.decode import Decoders
from compiler.program.emitter import Box, Held, machine_of
from compiler.program.program import OUTPUT, Level, Opcode
from compiler.program.rounds import Job
from compiler.program.slots import Slot
from tests.compiler.program.lowered import Network, chip
from tests.models import Model
from tests.spike.actions import Action, Family, FlatActions, Recorder, Unit

_CHANNELS: Final = 4
_WIDTH: Final = 6
_ELEMENT: Final = 4


def network(images: int, rows: int) -> Network:
    """Two 3×3 convolutions that keep the extents."""
    model = Model()
    x = model.input([images, _CHANNELS, rows, _WIDTH], "x")
    model.output(model.conv(model.conv(x, _CHANNELS, _CHANNELS, pad=1), _CHANNELS, _CHANNELS, pad=1))
    return Network(model)


class HaloActions(FlatActions):
    """What cores do with an image: load their band, pass halos, make a map, pass halos, make the next, store it."""

    def __init__(self, net: Network, cores: int, profile: Profile | None = None) -> None:
        """Each of `cores` cores has an equal band of the rows."""
        profile = profile or chip(cores=cores)
        facts = net.facts
        graph = facts.graph
        self.cores = cores
        machine = machine_of(profile)
        made = frozenset(op.output for op in graph.ops)
        outputs = frozenset(graph.outputs)
        self.context = context = Context(facts, machine, made, outputs, Decoders(graph, net.source))
        self.recorder = Recorder(machine, self._entry)
        context.emitter = self.recorder  # type: ignore[assignment]
        ops = [facts.ops[index] for index in range(len(graph.ops))]
        self.group: Any = SimpleNamespace(profile=profile, geometry=SimpleNamespace(ops=ops))
        self.lowering: Any = SimpleNamespace(machine=machine)
        images, _, rows, _ = graph.tensors[graph.inputs[0]].shape
        self.axes, self.channels = ("N",), -1
        self.units = {unit: Unit((0,), (images,), 0) for unit in range(cores)}
        self.rounds = [[(unit, {"N": image}) for unit in range(cores)] for image in range(images)]
        self._known: dict[tuple[int, int], list[Action]] = {}
        self._band, self._rows = rows // cores, rows
        self._names = [graph.inputs[0], *(op.output for op in ops)]
        self._place()
        self.families = self._families()

    def _box(self, unit: int, image: int, halo: int) -> Box:
        low, high = unit * self._band - halo, (unit + 1) * self._band + halo
        return (image, image + 1), (0, _CHANNELS), (max(0, low), min(self._rows, high)), (0, _WIDTH)

    def _place(self) -> None:
        order = memory_order(("N", "C", "H", "W"))
        self._strides = strides_of((1, _CHANNELS, self._band + 2, _WIDTH), order, _ELEMENT)
        size = _CHANNELS * (self._band + 2) * _WIDTH * _ELEMENT
        self._slots: dict[tuple[int, int], Slot] = {}
        self._weights: dict[tuple[int, int], list[tuple[int, Held]]] = {}
        for unit in range(self.cores):
            place = self.context.machine.place_of[Level.NRAM, unit]
            at = 0
            for tensor in range(3):
                # each has two buffers: neighbours are an image apart at most
                first, second = Slot(place, at, size), Slot(place, at + size, size)
                self._slots[unit, tensor] = first
                for slot in (first, second):
                    self.recorder.rings[slot] = first, (size, (1,), 0)
                at += 2 * size
            for step in range(2):
                held = self._weights[unit, step] = []
                for operand in self.context.operands(step):
                    if operand.constant:
                        shape = self.context.shape(operand.tensor)
                        whole = tuple((0, extent) for extent in shape)
                        strides = strides_of(shape, self.context.weight_order(operand.tensor), _ELEMENT)
                        region = self.context.region(operand.tensor)
                        slot = Slot(place, at, region.slot.size_bytes)
                        held.append((operand.number, Held(slot, at, (0,) * len(shape), strides, whole)))
                        at += slot.size_bytes

    def _held(self, tensor: int, unit: int, image: int, halo: int) -> Held:
        slot = self._slots[unit, tensor]
        origin = tuple(start for start, _ in self._box(unit, image, 1))
        return Held(slot, slot.address, origin, self._strides, self._box(unit, image, halo))

    def _families(self) -> list[Family]:
        found: list[Family] = []

        def add(name: str, emit: Callable[[int, int], None], *, before: bool = False, ahead: bool = False) -> None:
            def every(jobs: list[Job]) -> None:
                for unit, index in jobs:
                    emit(unit, index["N"])

            found.append(Family(name=name, number=len(found), emit=every, before=before, ahead=ahead))

        queue = self.context.machine.queue_of

        def bring(unit: int, image: int) -> None:
            held = self._held(0, unit, image, 0)
            region = self.context.region(self._names[0])
            self.recorder.copy(Opcode.LOAD, queue["iodma", unit], region, held, held.box, _ELEMENT)

        def weights(step: int, unit: int) -> None:
            for number, held in self._weights[unit, step]:
                name = next(o.tensor for o in self.context.operands(step) if o.number == number)
                region = self.context.region(name)
                self.recorder.copy(Opcode.LOAD, queue["iodma", unit], region, held, held.box, _ELEMENT)

        def send(tensor: int, unit: int, image: int) -> None:
            mine = self._held(tensor, unit, image, 0)
            low, high = mine.box[2]
            for other, rows in ((unit - 1, (low, low + 1)), (unit + 1, (high - 1, high))):
                if 0 <= other < self.cores:
                    box = (*mine.box[:2], rows, mine.box[3])
                    target = self._held(tensor, other, image, 1)
                    self.recorder.copy(Opcode.EXCHANGE, queue["link", unit], mine, target, box, _ELEMENT)

        def compute(step: int, unit: int, image: int) -> None:
            result = self._held(step + 1, unit, image, 0)
            table = self.context.table(step)
            entry = self.context.entry(table, result.box)
            bound = [(0, self._held(step, unit, image, 1)), *self._weights[unit, step], (OUTPUT, result)]
            self.recorder.call(queue["core", unit], table, entry, bound, (), ())

        def store(unit: int, image: int) -> None:
            held = self._held(2, unit, image, 0)
            region = self.context.region(self._names[2])
            self.recorder.copy(Opcode.STORE, queue["iodma", unit], held, region, held.box, _ELEMENT)

        add("bring", bring, ahead=True)
        for step in range(2):
            add(f"weights {step}", lambda unit, _, step=step: weights(step, unit), before=True)  # type: ignore[misc]
            add(f"send {step}", lambda unit, image, step=step: send(step, unit, image))  # type: ignore[misc]
            add(f"op {step}", lambda unit, image, step=step: compute(step, unit, image))  # type: ignore[misc]
        add("store", store)
        return found

    def at(self, family: Family, number: int) -> list[Action]:
        """What a family does with an image."""
        if family.before != (number < 0) or number >= len(self.rounds):
            return []
        key = (family.number, number)
        if key not in self._known:
            self.recorder.actions = []
            self.recorder.step = int(family.name[-1]) if family.name[-1].isdigit() else 0
            family.emit(self.rounds[max(0, number)])
            self._known[key] = self.recorder.actions
        return self._known[key]
