"""The bytes of a plan above its floor, each with its kind, its cause and the profile field that would have to grow.

Plan and floor are compared tensor by tensor and op by op, so that the kinds add up to their difference exactly. Sums
in parts stay with their tile and never leave the chip, so there is no kind for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from compiler.cost.rates import reads_are_shared
from compiler.fusion.bounds import floor_by_tensor, needed_by_reader, union_bytes
from compiler.fusion.gap_fields import Cause, Merged, halo_cause, intermediate_cause, weight_cause
from compiler.fusion.groups import Boundary, FusedGraph, Group
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.loads import input_reads
from compiler.tiling.price import group_of
from compiler.tiling.stationary import WeightTable
from compiler.tiling.tiled import TiledGroup

# The tiling of a group of ops, given with all ops of its segment: what decides a boundary by cost.
Tilings = Callable[[tuple[int, ...], tuple[int, ...]], Choice | Refusal]


class GapKind(StrEnum):
    """Why bytes cross the DRAM's ports that the floor does not count.

    Intermediates: made on the chip, written by one group and read by others. Weights: one op reads its weights again.
    Inputs: one group reads again what its tiles share. Shared: several groups or ops read the same. Unneeded: read,
    though no output needs it (positions between strides, dead ends).
    """

    INTERMEDIATES = "intermediates"
    WEIGHTS = "weights"
    INPUTS = "inputs"
    SHARED = "shared"
    UNNEEDED = "unneeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapEntry:
    """One tensor, or one op's weights: bytes above the floor, and why.

    `groups` are ids of the plan's groups that move it, `times` how often it is read. `fields` are the fields of the
    profile that would all have to grow; none where no growth of a memory is known to help, `why` says what then.
    """

    kind: GapKind
    name: str
    op: int | None
    groups: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    times: int
    fields: tuple[str, ...]
    why: str

    @property
    def size_bytes(self) -> int:
        """Bytes read and written above the floor."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """All bytes of a plan above its floor, the largest entries first."""

    entries: tuple[GapEntry, ...]

    @property
    def kinds(self) -> Mapping[GapKind, int]:
        """Bytes by kind, kinds in their order; they add up to DRAM bytes − floor."""
        return {kind: sum(e.size_bytes for e in self.entries if e.kind is kind) for kind in GapKind}

    @property
    def above_floor_bytes(self) -> int:
        """DRAM bytes − floor."""
        return sum(entry.size_bytes for entry in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A group with its id, its segment's ops, the tiling as a group, and the reasons at its boundary."""

    id: str
    segment: tuple[int, ...]
    group: Group
    tiled: TiledGroup
    boundaries: tuple[Boundary, ...]


def gap_of(fused: FusedGraph, profile: Profile, tilings: Tilings | None = None) -> Gap:
    """What lies between a plan's DRAM bytes and its floor.

    `tilings` tells the tiling of merged groups, for boundaries that cost decides; without it no field is named there.
    """
    entries = _Accounts(fused, profile, tilings).entries()
    filled = [entry for entry in entries if entry.size_bytes]
    return Gap(entries=tuple(sorted(filled, key=lambda e: (-e.size_bytes, e.kind.value, e.name, e.op or 0))))


class _Accounts:
    """What each group moves of each tensor, beside what the floor counts of it."""

    def __init__(self, fused: FusedGraph, profile: Profile, tilings: Tilings | None) -> None:
        self.facts: GraphFacts = fused.facts
        self.profile = profile
        self.tilings = tilings
        self.placed = list(_placed(fused, profile))
        self.homes = {op: placed for placed in self.placed for op in placed.group.ops}
        self.needed = needed_by_reader(self.facts)
        positions = {name: [part for _, part in parts] for name, parts in self.needed.items()}
        self.floor = floor_by_tensor(self.facts, positions, profile)

    def entries(self) -> Iterator[GapEntry]:
        """Every entry, the empty ones too."""
        readers: dict[str, list[tuple[_Placed, int]]] = {}
        for placed in self.placed:
            geometry = placed.tiled.geometry
            reads, shared = input_reads(placed.tiled), reads_are_shared(self.profile)
            for name in geometry.inputs:
                loaded, copied = reads[name]
                read = loaded if shared else copied
                once = min(read, geometry.needed_inputs[name])
                if read > once:
                    yield self._again(placed, name, read, once)
                readers.setdefault(name, []).append((placed, once))
        written = {name: placed for placed in self.placed for name in placed.tiled.geometry.outputs}
        handed = {name for placed in self.placed for name in placed.tiled.handed}
        for name in dict.fromkeys([*written, *readers]):
            if name in handed:
                continue  # it stays on the chip
            if name in written:
                yield from self._intermediate(name, written[name], readers.get(name, []))
            else:
                needed = [self._needed(name, frozenset(placed.group.ops)) for placed, _ in readers[name]]
                ids = tuple(placed.id for placed, _ in readers[name])
                yield from self._floored(name, sum(once for _, once in readers[name]), needed, ids)
        yield from self._weights()

    def _needed(self, name: str, ops: frozenset[int]) -> int:
        """Bytes of a tensor that these ops need so that all outputs can be made."""
        return union_bytes(self.facts, name, [part for op, part in self.needed.get(name, []) if op in ops])

    def _again(self, placed: _Placed, name: str, read: int, once: int) -> GapEntry:
        cause = halo_cause(placed.tiled, placed.group.choice, name)
        return _entry(GapKind.INPUTS, name, (placed.id,), cause, read=read - once, times=-(-read // max(1, once)))

    def _intermediate(self, name: str, writer: _Placed, readers: list[tuple[_Placed, int]]) -> Iterator[GapEntry]:
        """What a group makes, all of it written, and read by others: the floor counts it where it is an output."""
        written = self.facts.tensor_bytes(name) - self.floor.get(name, 0)
        read = sum(once for _, once in readers)
        if not readers:
            yield _entry(GapKind.UNNEEDED, name, (writer.id,), Cause(why="nothing reads it"), written=written)
            return
        edges = [b for b in writer.boundaries if b.tensor == name and b.consumer is not None]
        causes = [intermediate_cause(self.profile, edge, self._merged(writer, edge)) for edge in edges]
        ids = (writer.id, *(placed.id for placed, _ in readers))
        cause = Cause.of_all(causes)
        yield _entry(GapKind.INTERMEDIATES, name, ids, cause, read=read, written=written, times=len(readers))

    def _merged(self, writer: _Placed, edge: Boundary) -> Merged | None:
        """The two groups at an edge as one, where that was found to cost more than the two apart; else None."""
        other = None if edge.consumer is None else self.homes.get(edge.consumer)
        if self.tilings is None or other is None or edge.actual is None or edge.limit is None:
            return None
        if edge.actual <= edge.limit or edge.rule not in (None, "FUSE-20") or other.segment != writer.segment:
            return None
        ops = tuple(sorted((*writer.group.ops, *other.group.ops)))
        choice = self.tilings(writer.segment, ops)
        if isinstance(choice, Refusal):
            return None
        return Merged(
            tiled=group_of(GroupGeometry(self.facts, ops), writer.tiled.profile, choice.tiling),
            choice=choice,
            macs_apart=writer.group.choice.cost.macs + other.group.choice.cost.macs,
        )

    def _floored(self, name: str, once: int, needed: list[int], ids: tuple[str, ...]) -> Iterator[GapEntry]:
        """What the floor counts once: several read it, or more of it is read than any output needs."""
        together = sum(needed) - self.floor.get(name, 0)
        shared = Cause(why=f"{len(needed)} readers are in {len(set(ids))} group{'s' if len(set(ids)) > 1 else ''}")
        groups = tuple(dict.fromkeys(ids))
        yield _entry(GapKind.SHARED, name, groups, shared, read=together, times=len(needed))
        unneeded = Cause(why="no output needs these positions, but they lie in boxes that are read")
        yield _entry(GapKind.UNNEEDED, name, groups, unneeded, read=once - sum(needed))

    def _weights(self) -> Iterator[GapEntry]:
        """Weights read again by their op, and weights that several ops read."""
        if self.profile.is_stationary:
            return
        # by weight those that read it: an op, with those that find it in the cores then
        users: dict[str, list[frozenset[int]]] = {}
        for placed in self.placed:
            read_for = _read_for(placed)
            for entry in placed.group.choice.tiling.weights:
                if entry.loads > 1:
                    yield _entry(
                        GapKind.WEIGHTS,
                        self.facts.graph.ops[entry.op].node,
                        (placed.id,),
                        weight_cause(placed.tiled, entry),
                        op=entry.op,
                        read=entry.size_bytes * (entry.loads - 1),
                        times=entry.loads,
                    )
                if entry.loads:
                    for name in self.facts.weights_of((entry.op,)):
                        users.setdefault(name, []).append(frozenset((entry.op, *read_for.get(entry.op, ()))))
        for name, readers in users.items():
            needed = [self._needed(name, ops) for ops in readers]
            ids = tuple(self.homes[min(ops)].id for ops in readers)
            yield from self._floored(name, self.facts.tensor_bytes(name) * len(readers), needed, ids)


def _read_for(placed: _Placed) -> dict[int, list[int]]:
    """By op that reads its weights the later ones of its group that find them in the cores."""
    found: dict[int, list[int]] = {}
    tiled = placed.tiled
    for step, weights in enumerate(tiled.weights_of_each):
        if weights.like is not None and tiled.finds_weights(step):
            found.setdefault(tiled.geometry.indices[weights.like], []).append(tiled.geometry.indices[step])
    return found


def _placed(fused: FusedGraph, profile: Profile) -> Iterator[_Placed]:
    weights = WeightTable(fused.facts, profile)
    for found in fused.segments:
        beside = profile.beside(weights.resident_bytes_per_core(found.segment.ops))
        for number, (group, boundaries) in enumerate(zip(found.groups, found.boundaries, strict=True)):
            yield _Placed(
                id=f"{found.segment.id}.g{number}",
                segment=found.segment.ops,
                group=group,
                tiled=group_of(GroupGeometry(fused.facts, group.ops), beside, group.choice.tiling),
                boundaries=boundaries,
            )


def _entry(
    kind: GapKind,
    name: str,
    groups: tuple[str, ...],
    cause: Cause,
    *,
    op: int | None = None,
    read: int = 0,
    written: int = 0,
    times: int = 1,
) -> GapEntry:
    return GapEntry(
        kind=kind,
        name=name,
        op=op,
        groups=groups,
        read_bytes=read,
        written_bytes=written,
        times=times,
        fields=cause.fields,
        why=cause.why,
    )
