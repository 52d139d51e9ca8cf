"""Groups under tilings stated by hand, lowered, proved and run, and their results beside the reference's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from onnx import TensorProto

from compiler.cost.model import price
from compiler.frontend.constant_values import materialise
from compiler.frontend.dequantised import stored_constant
from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.layout import DEFAULT_LAYOUT, Layout
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Options
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.decode import Decoders
from compiler.program.loops.proof import ProvedProgram, prove
from compiler.program.lower import handed_out
from compiler.program.program import Level, Opcode, Program, Role
from compiler.program.segment import PlannedGroup
from compiler.program.steps.group_columns import LISTED_MAX
from compiler.program.steps.segment import SegmentSteps
from compiler.simulator.compare import compare
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import reference_of_graph
from compiler.simulator.values import Chip
from compiler.tiling.exact import figures_of
from compiler.tiling.figures import PHYSICAL
from compiler.tiling.finished import Priced, finished
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import LevelMemory, allocation_check, memory_of
from compiler.tiling.tile import HaloMode, Tiling
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from tests.compiler.program.loops.expander import expanded
from tests.compiler.tiling.tilings import along, configuration
from tests.models import Model, import_graph
from tests.profiles import profile_values


class Network:
    """An imported model with seeded inputs and the reference of all its tensors."""

    def __init__(self, model: Model, *, seed: int = 0, layout: Layout = DEFAULT_LAYOUT) -> None:
        self.data = data = model.data()
        self.source = ModelSource.from_bytes(data)
        self.facts: GraphFacts = graph_facts(replace(import_graph(data), layout=layout))
        self._seed = seed

    @property
    def ops(self) -> tuple[int, ...]:
        """All ops of the graph."""
        return tuple(range(len(self.facts.ops)))

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Every tensor that is no constant: inputs at random, the others as the reference computes them."""
        graph = self.facts.graph
        inputs = {name: value for name, value in random_inputs(graph, self._seed).items() if name in graph.inputs}
        return {**inputs, **reference_of_graph(graph, self.source, inputs)}

    def constant(self, name: str) -> Any:
        """The values of a constant, as they are stored."""
        constant = self.facts.graph.tensors[name].constant
        assert constant is not None
        return materialise(stored_constant(constant), self.source)

    def resident_bytes(self, profile: Profile, ops: Sequence[int] = ()) -> int:
        """What stationary weights of ops (by default of all) take of a core."""
        return SegmentCompilers(profile, Options()).of(self.facts).resident_bytes(tuple(ops) or self.ops)


def tiling_of(group: TiledGroup, levels: Iterable[LevelMemory]) -> Tiling:
    """The tiling of a plan that says what a group under its choices is."""
    priced = Priced(group=group, figures=figures_of(group), cost=price(traffic_of(group), group.profile))
    return finished(priced, levels).tiling


def fits(group: TiledGroup) -> bool:
    """True if the planner calls the tiling fitting: by its figures, and by where its buffers come to lie."""
    if group.profile.sram is not None and not group.is_nested and not group.stages:
        return False
    figures = figures_of(group)
    return all(bool(rule(figures).holds) for rule in PHYSICAL) and allocation_check(memory_of(group)) is None


@dataclass(frozen=True, kw_only=True, eq=False)
class Lowered:
    """The program of groups that run one after another, with these, and what the proof found.

    What is asked of single commands is answered by the program command by command (`expanded`).
    """

    network: Network
    groups: tuple[TiledGroup, ...]
    program: Program
    proof: ProvedProgram

    @cached_property
    def expanded(self) -> Program:
        """The program command by command."""
        return expanded(self.program)

    @property
    def group(self) -> TiledGroup:
        """The only group."""
        (group,) = self.groups
        return group

    def commands(self, opcode: Opcode) -> Any:
        """The rows of the commands of one opcode."""
        return self.expanded.commands[self.expanded.commands["opcode"] == opcode]

    def count(self, opcode: Opcode) -> int:
        """How many commands of one opcode there are."""
        return len(self.commands(opcode))

    def levels(self, opcode: Opcode) -> Counter[tuple[Level, Level]]:
        """How many commands of one opcode go from which level to which."""
        places = self.expanded.places
        return Counter((places[r["source"]].level, places[r["target"]].level) for r in self.commands(opcode))

    def dram_bytes(self, opcode: Opcode) -> int:
        """Bytes that LOAD reads of the DRAM or STORE writes to it; a multicast counts once."""
        rows = self.commands(opcode)
        return int((rows["run_bytes"] * rows["counts"].prod(axis=1)).sum())

    def loads_of(self, name: str) -> list[int]:
        """The numbers of the commands that load from one tensor's region."""
        region = next((r for r in self.expanded.regions if r.name == name), None)
        if region is None:
            return []
        rows = self.expanded.commands
        inside = (rows["source_address"] >= region.address) & (
            rows["source_address"] < region.address + region.size_bytes
        )
        return [int(number) for number in np.flatnonzero(inside & (rows["opcode"] == Opcode.LOAD))]

    def loaded_bytes(self, name: str) -> int:
        """Bytes that LOAD reads of one tensor's region."""
        rows = self.expanded.commands[self.loads_of(name)]
        return int((rows["run_bytes"] * rows["counts"].prod(axis=1)).sum())

    @property
    def table_bytes(self) -> int:
        """Bytes that LOAD reads of address tables."""
        return sum(self.loaded_bytes(region.name) for region in self.expanded.regions if region.role is Role.ADDRESSES)

    def places(self, rows: Any, side: str) -> list[tuple[Level, int]]:
        """Level and number of the place on one side (`source` or `target`) of commands."""
        return [(self.expanded.places[row[side]].level, self.expanded.places[row[side]].number) for row in rows]

    def passed_between(self, level: Level) -> set[tuple[int, int]]:
        """Which memories of a level send which others of it something: (sender, receiver)."""
        places, found = self.expanded.places, set()
        for row in [*self.commands(Opcode.EXCHANGE), *self.commands(Opcode.BROADCAST)]:
            for target in range(row["target"], row["target"] + row["targets"]):
                if places[row["source"]].level is level is places[target].level:
                    found.add((places[row["source"]].number, places[target].number))
        return found

    def engines(self, rows: Any) -> set[str]:
        """The engines that commands run on."""
        return {self.expanded.queues[row["queue"]].engine for row in rows}

    def boxes_by_core(self, step: int) -> dict[int, list[tuple[tuple[int, int], ...]]]:
        """The output boxes that each core makes of one op, in order, each as ranges of the output's axes."""
        found: dict[int, list[tuple[tuple[int, int], ...]]] = {}
        rank = len(self.network.facts.tensors[self.group.geometry.ops[step].output].shape)
        for row in self.commands(Opcode.COMPUTE):
            if row["step"] == step:
                call = self.expanded.calls[row["call"]]
                entry = self.expanded.tables[call["table"]].entries[call["entry"]]
                ranges = zip(entry["starts"].tolist(), entry["lengths"].tolist(), strict=True)
                box = tuple((start, start + length) for start, length in ranges)[:rank]
                found.setdefault(self.expanded.queues[row["queue"]].number, []).append(box)
        return found

    def moved(self) -> Counter[tuple[int, int]]:
        """By opcode and bytes how many commands there are."""
        rows = self.expanded.commands
        sizes = rows["run_bytes"] * rows["counts"].prod(axis=1)
        return Counter(zip(rows["opcode"].tolist(), sizes.tolist(), strict=True))

    def entries(self) -> Any:
        """The entries of all tables, in one array."""
        return np.concatenate([table.entries for table in self.expanded.tables])

    def check_values(self, *, order: Iterable[int] | None = None) -> None:
        """Run the program, and compare every tensor that it leaves in DRAM with the reference."""
        chip = Chip(self.expanded if order is not None else self.program)
        for region in self.program.regions:
            if region.role == "weight":
                chip.write(region.name, self.network.constant(region.name))
            elif region.role == "input":
                chip.write(region.name, self.network.values[region.name])
        chip.run(order=order)
        for region in self.program.regions:
            if region.role in ("output", "intermediate"):
                found = compare(region.name, chip.read(region.name), self.network.values[region.name])
                assert found.holds, found

    def check_memory(self) -> None:
        """No place is touched beyond what the plan says, but for twins and what only passes, within the capacity.

        Of each of a plan's buffers there is one twin, of an output's two.
        """
        planned: dict[str, int] = {}
        for group in self.groups:
            for level in memory_of(group):
                planned[level.level] = max(planned.get(level.level, 0), level.allocation.peak_bytes)
        for place, peak in zip(self.program.places, self.proof.peak_bytes, strict=True):
            if place.level is not Level.DRAM:
                assert peak <= place.capacity_bytes
                twins = 3 if place.level is Level.NRAM else 1
                if peak > twins * -(-planned.get(place.level.value, 0) // 64) * 64:
                    assert place.level in self._passed(), (place.level, place.number, peak, planned)

    def _passed(self) -> set[Level]:
        """Memories that hold more than the plan's buffers.

        Weights pass the SRAM, stationary ones lie at the top, and where tensors stay in a core the pieces of a tile
        that is larger than the usual one use what is free there.
        """
        levels = {Level.SRAM, Level.SRAM_WEIGHTS} | {self.program.places[r.place].level for r in self.program.residents}
        staying = any(not group.is_nested and group.core_resident for group in self.groups)
        return levels | ({Level.NRAM} if staying else set())


def segment_of(network: Network, *groups: TiledGroup, resident_bytes: int, profile: Profile) -> tuple[Any, ...]:
    """What a segment of these groups is lowered from."""
    planned = [
        PlannedGroup(name=f"g{number}", ops=group.geometry.indices, tiling=tiling_of(group, memory_of(group)))
        for number, group in enumerate(groups)
    ]
    outputs = handed_out(network.facts, [op for group in groups for op in group.geometry.indices])
    decoders = Decoders(network.facts.graph, network.source)
    return network.facts, profile, "segment", planned, outputs, resident_bytes, decoders


def lower(
    network: Network,
    *groups: TiledGroup,
    resident_bytes: int = 0,
    profile: Profile | None = None,
    listed_max: int = 0,
) -> Lowered:
    """Lower groups that run one after another, and prove their program.

    `profile` is given where it is not the groups' own: theirs is what stationary weights leave of it. Groups of at most
    `listed_max` commands are listed, the others loop.
    """
    profile = profile or groups[0].profile
    steps = SegmentSteps(*segment_of(network, *groups, resident_bytes=resident_bytes, profile=profile))
    program = steps.lowered(listed_max)
    return Lowered(network=network, groups=groups, program=program, proof=prove(program, shared=profile.engines.shared))


def run(network: Network, *groups: TiledGroup, resident_bytes: int = 0, profile: Profile | None = None) -> Lowered:
    """Lower, prove, run and compare groups that run one after another: in loops, which is returned, and listed.

    Of several groups also with all but the largest listed.
    """
    assert all(map(fits, groups)), "the plan does not fit"
    found = lower(network, *groups, resident_bytes=resident_bytes, profile=profile)
    largest = int(np.bincount(found.expanded.group_numbers).max(initial=1))
    others = [
        lower(network, *groups, resident_bytes=resident_bytes, profile=profile, listed_max=listed_max)
        for listed_max in dict.fromkeys([LISTED_MAX, *([largest - 1] if len(groups) > 1 else [])])
    ]
    for lowered in (found, *others):
        assert lowered.moved() == found.moved()
        lowered.check_values()
        lowered.check_memory()
    return found


def chip(
    *, cores: int = 1, clusters: int = 1, sram: int = 0, sram_weights: int = 0, nram: int = 1 << 16, wram: int = 0,
    nram_weights: int = 0, bus: bool = False, multicast: bool = False, stationary: bool = False, iodma: bool = True,
) -> Profile:  # fmt: skip
    """A chip with what a test asks for: without SRAM its cores are linked in a ring, with it clusters by CDMA."""
    values = profile_values("edge4")
    values |= {"name": "small", "clusters_per_chip": clusters, "cores_per_cluster": cores}
    values["dram"]["multicast"] = multicast
    values["nram"]["capacity_bytes"] = nram
    memory = {"read_pj_per_byte": 1.0, "write_pj_per_byte": 1.0}
    engines: dict[str, Any] = {"iodma": {"bytes_per_cycle": 8}} if iodma else {}
    if sram:
        values["sram"] = {"capacity_bytes": sram, **memory} | ({"weight_bytes": sram_weights} if sram_weights else {})
        engines |= {name: {"bytes_per_cycle": 64} for name in ("gdma", "mvdma", "cdma", *(["bus"] if bus else []))}
    else:
        engines["link"] = {"topology": "ring", "bytes_per_cycle": 8}
    values["engines"] = engines
    if wram:
        values["wram"] = {"capacity_bytes": wram, **memory}
    if nram_weights:
        values["nram"]["weight_bytes"] = nram_weights
    if stationary:
        values["weights"] = {"mode": "stationary", "compression": 1.0}
    return profile_from_values(values)


def pair(*, height: int = 12, width: int = 6, channels: int = 3, batch: int = 1) -> Network:
    """Two 3×3 convolutions of a map."""
    model = Model()
    x = model.input([batch, channels, height, width], "x")
    model.output(model.conv(model.conv(x, channels, 4), 4, 4, bias=True))
    return Network(model)


def single(filters: int = 8, *, channels: int = 3, batch: int = 1, height: int = 8) -> Network:
    """One 3×3 convolution of a map."""
    model = Model()
    x = model.input([batch, channels, height, 6], "x")
    model.output(model.conv(x, channels, filters, bias=True))
    return Network(model)


def group(
    network: Network,
    profile: Profile,
    tile: Mapping[str, int],
    mode: HaloMode = HaloMode.RECOMPUTE,
    core: Mapping[str, int] | None = None,
    **changes: Any,
) -> TiledGroup:
    """All ops of a network under a tiling; axes that the tile does not name are whole."""
    geometry = GroupGeometry(network.facts, network.ops)
    whole = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    spatial = tuple((axis, m) for axis, m in along(geometry, mode) if axis != "N")
    how = configuration(**({"halo": () if mode is HaloMode.RECOMPUTE else spatial} | changes))
    tile = {**whole, **tile}
    return TiledGroup(geometry, profile, how, tile, None if core is None else {**tile, **core})


def bytes_of(network: Network, name: str) -> int:
    """Bytes of a tensor."""
    return network.facts.tensor_bytes(name)


def weights_of(network: Network) -> list[str]:
    """The constants that a network's ops read."""
    tensors = network.facts.graph.tensors
    read = {name for op in network.facts.graph.ops for name in op.inputs}
    return [name for name, tensor in tensors.items() if tensor.constant is not None and name in read]


def classifier(dtype: int = TensorProto.FLOAT) -> Network:
    """A matrix product of few rows with large weights, and what follows it."""
    model = Model()
    x = model.input([3, 32], "x", dtype)
    model.output(model.relu(model.node("Add", [model.node("MatMul", [x, model.weight(32, 10)]), model.weight(10)])))
    return Network(model)
