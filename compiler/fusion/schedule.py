"""A pinned schedule on a partitioned graph: which ops its groups are, what may not be together (TILE-9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.errors import RequestError, printable
from compiler.fusion.greedy import group_order
from compiler.fusion.handing import handed_wrongly
from compiler.fusion.pinned import Pin
from compiler.fusion.segment_graph import SegmentGraph, bits, mask_of
from compiler.ops.op_facts import GraphFacts
from compiler.partition.segments import PartitionedGraph, SegmentKind
from compiler.rules import called
from compiler.schedule import PinnedGroup, PinnedOp, PinnedTensor, Schedule
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import NOTHING_HANDED, Handed, Handover, WeightLoads


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSchedule:
    """What a schedule pins in one segment: groups as bit sets, each with its pin, and pairs of sets to keep apart."""

    pins: Mapping[int, Pin] = field(default_factory=dict)
    apart: tuple[tuple[int, int], ...] = ()

    @property
    def fixed(self) -> tuple[int, ...]:
        """The pinned groups, by their first op."""
        return tuple(sorted(self.pins, key=lambda group: group & -group))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A group on its way: its ops, its pin, and whether a forced fusion made it what it is."""

    mask: int
    pin: Pin
    forced: bool = False


def resolve(
    schedule: Schedule, partitioned: PartitionedGraph, graphs: Mapping[int, SegmentGraph], units: int
) -> dict[int, SegmentSchedule]:
    """What the schedule pins, by the number of the segment; `graphs` are those of the chip segments, `units` its count.

    Raises RequestError, naming the node, for nodes that do not exist, do not run on the chip, lie in two segments or
    in two groups, for groups that something outside runs in between, and for forced and forbidden fusions that
    contradict each other.
    """
    names = _Names(partitioned)
    items: dict[int, list[_Item]] = {number: [] for number in graphs}
    homes: dict[int, int] = {}
    for group in schedule.groups:
        members = names.members(group)
        number = names.segment_of(members)
        for op in members:
            if op in homes:
                raise names.wrong(op, "stands in two groups of the schedule", "one group for each node")
            homes[op] = number
        handover = names.handover(group, graphs[number].facts, members)
        pin = Pin.of(group, names.loads(group, members), handover)
        items[number].append(_Item(mask=mask_of(members), pin=pin))
    for first, second in schedule.fuse:
        members = sorted({*names.on_chip(first), *names.on_chip(second)})
        number = names.segment_of(members)
        if len(members) > 1:
            items[number] = _fused(names, graphs[number], items[number], mask_of(members))
    apart = [(names.known(first), names.known(second)) for first, second in schedule.apart]
    result = {}
    for number, graph in graphs.items():
        pairs = _pairs(names, graph, apart)
        for item in items[number]:
            _check_group(names, graph, item, pairs)
        if group_order(graph, [item.mask for item in items[number]]) is None:
            raise names.wrong(
                next(bits(items[number][0].mask)),
                "is of pinned groups that wait for each other in a circle",
                "groups that can run one after another",
            )
        _check_handover(names, graph, items[number], units)
        if items[number] or pairs:
            result[number] = SegmentSchedule(pins={item.mask: item.pin for item in items[number]}, apart=pairs)
    return result


def _fused(names: _Names, graph: SegmentGraph, items: list[_Item], mask: int) -> list[_Item]:
    """The items with one that holds `mask`, all that runs in between, and every item that it then meets."""
    kept, pin = list(items), Pin()
    while True:
        mask |= _between(graph, mask)
        met = [item for item in kept if item.mask & mask]
        if not met:
            return [*kept, _Item(mask=mask, pin=pin, forced=True)]
        for item in met:
            if item.pin.handover != NOTHING_HANDED:
                raise names.wrong(
                    next(bits(item.mask)),
                    "is of a pinned group that hands a tensor over on the chip, and a forced fusion makes it larger",
                    "forced fusions of other nodes",
                )
            if not item.pin.is_open and not pin.is_open:
                raise names.wrong(
                    next(bits(item.mask)),
                    "is of a pinned group that a forced fusion joins with another one whose tiling is pinned too",
                    "the tiling of one of them",
                )
            pin = pin if item.pin.is_open else _moved(item, mask)
            mask |= item.mask
        kept = [item for item in kept if item not in met]


def _moved(item: _Item, mask: int) -> Pin:
    """The pin of a group that grows; places of ops are those in the grown group."""
    old, new = list(bits(item.mask)), list(bits(item.mask | mask))
    loads = tuple((new.index(old[place]), kind) for place, kind in item.pin.loads)
    return replace(item.pin, loads=loads)


def _between(graph: SegmentGraph, mask: int) -> int:
    """What depends on one op of the group and is needed by another."""
    after = before = 0
    for op in bits(mask):
        after |= graph.descendants[op]
        before |= graph.ancestors[op]
    return after & before & ~mask


def _pairs(
    names: _Names, graph: SegmentGraph, apart: Iterable[tuple[list[int], list[int]]]
) -> tuple[tuple[int, int], ...]:
    pairs = []
    for first, second in apart:
        common = set(first) & set(second)
        if common:
            raise names.wrong(
                min(common), "cannot be kept apart from the other node: both became one op", "nodes of different ops"
            )
        masks = mask_of(first) & graph.all, mask_of(second) & graph.all
        if all(masks):
            pairs.append(masks)
    return tuple(pairs)


def _check_group(names: _Names, graph: SegmentGraph, item: _Item, pairs: tuple[tuple[int, int], ...]) -> None:
    between = _between(graph, item.mask)
    if between:
        raise names.wrong(
            next(bits(between)),
            "runs between the nodes of a pinned group and is not of it",
            "groups that contain all that runs in between",
        )
    for first, second in pairs:
        if item.mask & first and item.mask & second:
            how = "forced fusions put it" if item.forced else "a pinned group puts it"
            raise names.wrong(
                next(bits(item.mask & second)),
                f"is kept apart from {printable(names.node(next(bits(item.mask & first))), 80)}, and {how} together "
                "with it",
                f"either together or apart ({called('TILE-9:apart')})",
            )


def _check_handover(names: _Names, graph: SegmentGraph, items: list[_Item], units: int) -> None:
    """RequestError where groups cannot hand each other what the schedule says."""
    pins = {item.mask: item.pin for item in items}
    if all(pin.handover == NOTHING_HANDED for pin in pins.values()):
        return
    ordered = group_order(graph, [*pins])
    assert ordered is not None
    if sum(pins) != graph.all:
        raise names.wrong(
            next(bits(graph.all & ~sum(pins))),
            "is of no pinned group, and others of its segment hand tensors over on the chip",
            "a schedule that pins all nodes of such a segment",
        )
    wrong = handed_wrongly(graph.facts, [(tuple(bits(mask)), pins[mask].handover) for mask in ordered], units)
    if wrong is not None:
        raise names.wrong(next(bits(ordered[wrong[0]])), f"is of a pinned group that {wrong[1]}", "as a plan has it")


class _Names:
    """From ONNX nodes to ops, and errors that name them."""

    def __init__(self, partitioned: PartitionedGraph) -> None:
        self.graph = partitioned.graph
        self.segments = {op: n for n, segment in enumerate(partitioned.segments) for op in segment.ops}
        self.hosts = {n for n, segment in enumerate(partitioned.segments) if segment.kind is SegmentKind.HOST}
        self.named: dict[str, list[int]] = {}
        self.contributed: dict[str, list[int]] = {}
        for index, op in enumerate(self.graph.ops):
            for place, node in enumerate(dict.fromkeys(op.origin)):
                (self.named if place == 0 else self.contributed).setdefault(node, []).append(index)

    def node(self, op: int) -> str:
        """The name of an op."""
        return self.graph.ops[op].node

    def known(self, node: str) -> list[int]:
        """The ops that a node became: those named after it, else those that it is a part of."""
        ops = self.named.get(node) or self.contributed.get(node)
        if ops is None:
            folded = node in self.graph.folded
            raise RequestError(
                "the schedule names a node that was evaluated at compile time or is needed by no output"
                if folded
                else "the schedule names a node that the model does not have",
                code="invalid_schedule" if folded else "unknown_node",
                stage="fusion",
                node=printable(node, 120),
                actual=printable(node, 120),
                hint="Plans name each node; nodes without a name are called OpType_index",
            )
        return ops

    def on_chip(self, node: str) -> list[int]:
        """The ops that a node became; RequestError if any of them is the host's."""
        ops = self.known(node)
        for op in ops:
            if self.segments[op] in self.hosts:
                raise self.wrong(op, "runs on the host", "nodes that the chip runs")
        return ops

    def part(self, op: PinnedOp) -> list[int]:
        """The ops that one entry of `ops` means."""
        ops = self.on_chip(op.node)
        if op.part is None:
            return ops
        if op.part >= len(ops):
            raise self.wrong(
                ops[0], f"became {len(ops)} ops, and part {op.part} is named", f"parts 0 to {len(ops) - 1}"
            )
        return [ops[op.part]]

    def members(self, group: PinnedGroup) -> list[int]:
        """The ops of a group: of each node all ops, or the parts named."""
        in_parts = {op.node for op in group.ops if op.part is not None}
        found = {index for op in group.ops if op.part is not None for index in self.part(op)}
        plain = [node for node in group.nodes if node not in in_parts]
        for node in plain:
            if node in self.named:
                found.update(self.on_chip(node))
        for node in plain:
            # a node that is a mere part of ops: nothing to add where one of them is in the group already
            if node not in self.named and not found.intersection(self.known(node)):
                found.update(self.on_chip(node))
        return sorted(found)

    def loads(self, group: PinnedGroup, members: list[int]) -> tuple[tuple[int, WeightLoads], ...]:
        """The weight loads asked for, by place of the op in the group; those without weights have none to read."""
        place = {op: number for number, op in enumerate(members)}
        return tuple(
            sorted(
                (place[index], WeightLoads(op.weight_mode))
                for op in group.ops
                if op.weight_mode is not None
                for index in self.part(op)
            )
        )

    def handover(self, group: PinnedGroup, facts: GraphFacts, members: list[int]) -> Handover:
        """What stays on the chip between a group and others, its tensors by place."""
        asked = group.handover
        if asked is None:
            return NOTHING_HANDED
        geometry = GroupGeometry(facts, members)

        def placed(tensor: PinnedTensor, among: Sequence[str]) -> Handed:
            if tensor.tensor not in among or tensor.axis not in facts.tensors[tensor.tensor].axes:
                raise self.wrong(
                    members[0],
                    f"is of a pinned group whose handover names {printable(tensor.tensor, 80)} and axis {tensor.axis}",
                    f"a tensor of {', '.join(printable(name, 80) for name in among)}, and one of its axes",
                )
            place = among.index(tensor.tensor)
            return Handed(place=place, axis=tensor.axis, share=tensor.share, before_end=tensor.before_end)

        if len({tensor.tensor for tensor in asked.takes}) < len(asked.takes):
            raise self.wrong(members[0], "is of a pinned group that takes a tensor twice", "each tensor once")
        hands = None if asked.hands is None else placed(asked.hands, geometry.outputs)
        takes = tuple(placed(tensor, geometry.inputs) for tensor in asked.takes)
        return Handover(hands=hands, takes=takes, held_bytes=asked.held_bytes)

    def segment_of(self, members: list[int]) -> int:
        """The one segment of ops; RequestError naming the first op of another one."""
        number = self.segments[members[0]]
        for op in members:
            if self.segments[op] != number:
                raise self.wrong(
                    op,
                    f"lies in segment s{self.segments[op]}, and {printable(self.node(members[0]), 80)} of the same "
                    f"pinned group in s{number}",
                    "groups within one segment",
                )
        return number

    def wrong(self, op: int, what: str, limit: str) -> RequestError:
        """The error for a node of the schedule."""
        node = self.graph.ops[op]
        return RequestError(
            f"node {printable(node.node, 80)} {what}",
            code="invalid_schedule",
            stage="fusion",
            node=node.node,
            op_type=node.kind,
            actual=node.node,
            limit=limit,
        )
