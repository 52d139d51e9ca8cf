"""Walks the tiles of a group one by one and keeps sets of elements: what closed forms are judged by.

Nothing here goes axis by axis or uses `Frustums`. A tile asks for its box of the group's outputs; op by op, from the
last to the first, the elements that it has to make are those needed and not at hand, and what they need of the op's
operands is the box around what the op's own access maps say. What was made when, by whom, and when it is last used is
kept per element.

Where neighbours pass halos both ways (`both_ways`) their tiles are in step: op by op each element that several of them
need is made by the one in whose part of the tensor it lies, or by the next one to that which needs it.

What waits for later tiles waits in a store per axis of the walk. A tile that needs an element takes it from the store
of the axis along which it comes, and puts it into those of the axes along which a later tile needs it: the store of an
outer axis is overwritten as the walk goes on inside it, so an element that came out of it has to wait in the store of
an inner axis as well if the next tile there needs it too (the corner).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from math import ceil

import numpy as np

from compiler.ir.box import Ints
from compiler.ops.base import OpClass
from compiler.ops.op_facts import Operand
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.placement import Placement, assign
from compiler.tiling.tile import Configuration, HaloMode, Spread
from tests.compiler.brute import Bools, Box, mask_hull, union, volume
from tests.compiler.brute import tiles as grid

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One tile of a walk: its range per axis of the output, who works on it, when, and what it may use.

    `index` is its number along each axis, `runs` the number of the run of tiles that it belongs to. Slices of one
    tile by output channels have one `slot`: time counts tiles.
    """

    ranges: Mapping[str, tuple[int, int]]
    index: Mapping[str, int]
    runs: Mapping[str, int]
    unit: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Tiles in the order in which they are walked, with the halo mode of each axis.

    `held` are axes along whose tiles what does not follow them is made once (inner slices of the output channels).
    `both_ways`: the axes along which units, or cores, have one tile each and pass halos both ways.
    """

    visits: tuple[Visit, ...]
    modes: Mapping[str, HaloMode]
    held: frozenset[str] = frozenset()
    both_ways: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class Log:
    """What was seen, in elements or bytes by tensor, or in bytes.

    loads: input bytes of each tile in walking order. waiting: by unit and tensor, what the unit holds of it between
    each slot and the next for later ones; kept: the most of that. stored: by tensor and axis, the most that lies in a
    unit's store along the axis. peak: the most that one unit holds of all tensors at any step. largest: the most that
    one tile makes. received: bytes that a unit needed and another had made, once. working: the most that one op reads
    and makes at once for one tile. reads: by op and operand, bytes read box by box; boxes: by op, what each tile makes
    of its result, if anything.
    """

    made: dict[str, int] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    stored: dict[tuple[str, str], int] = field(default_factory=dict)
    largest: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    loads: list[int] = field(default_factory=list)
    coverage: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    waiting: dict[tuple[int, str], Ints] = field(default_factory=dict)
    reads: dict[tuple[int, int], int] = field(default_factory=dict)
    boxes: dict[int, list[Box]] = field(default_factory=dict)
    peak: int = 0
    working: int = 0


def followed_axes(geometry: GroupGeometry) -> dict[str, list[set[str]]]:
    """Per tensor and axis, the axes of the group's output that its boxes follow."""
    output = geometry.output
    found: dict[str, list[set[str]]] = {}
    for name in geometry.outputs or (geometry.primary,):
        tensor = geometry.facts.tensors[name]
        found[name] = [{axis} if axis in output.axes else set() for axis in tensor.axes]
    for op in reversed(geometry.ops):
        made = found.setdefault(op.output, [set() for _ in geometry.facts.tensors[op.output].shape])
        for operand in op.operands:
            shape = geometry.facts.tensors[operand.tensor].shape
            known = found.setdefault(operand.tensor, [set() for _ in shape])
            for number, axis_map in enumerate(operand.access):
                if axis_map.axis is not None:
                    known[number] |= made[axis_map.axis]
    return found


def is_simple(geometry: GroupGeometry) -> bool:
    """True if every axis of every tensor follows at most one axis of the output, and no two follow the same."""
    for axes in followed_axes(geometry).values():
        if any(len(axis) > 1 for axis in axes):
            return False
        flat = [name for axis in axes for name in axis]
        if len(flat) != len(set(flat)):
            return False
    return True


def written_over(geometry: GroupGeometry) -> dict[str, str]:
    """Results that lie where an operand lay: each position of it is read for this position of the result only.

    So the op is the operand's only reader, the group does not hand the operand on, and both are of equal size.
    """
    facts = geometry.facts
    readers = [name for op in geometry.ops for name in {operand.tensor for operand in op.operands}]
    found: dict[str, str] = {}
    for op in geometry.ops:
        if not op.in_place or op.op_class is OpClass.VIEW:
            continue
        result = facts.tensors[op.output]
        for operand in op.operands:
            source = facts.tensors[operand.tensor]
            equal = (source.shape, source.element_bytes) == (result.shape, result.element_bytes)
            alone = readers.count(operand.tensor) == 1 and operand.tensor not in geometry.outputs
            if not operand.constant and equal and alone and _reads_the_same_position(operand, result.shape):
                found[op.output] = operand.tensor
                break
    return found


def _reads_the_same_position(operand: Operand, shape: tuple[int, ...]) -> bool:
    return all(
        axis_map.axis == number
        and all(axis_map.project_one(at, at + 1, extent) == (at, at + 1) for at in range(extent))
        for number, (axis_map, extent) in enumerate(zip(operand.access, shape, strict=True))
    )


def unit_plan(geometry: GroupGeometry, configuration: Configuration, tile: Mapping[str, int]) -> Plan:
    """The SRAM tiles of a group in walking order: images, then axes as configured, channel slices inside or outside."""
    axes, shape = geometry.output.axes, geometry.output.shape
    extents = dict(zip(axes, shape, strict=True))
    order = sorted(
        (a for a in axes if a != "C"),
        key=lambda a: (
            a != "N",
            configuration.walk.index(a) if a in configuration.walk else len(configuration.walk),
            axes.index(a),
        ),
    )
    sliced = "C" in extents and tile.get("C", extents["C"]) < extents["C"]
    if sliced:
        order = ["C", *order] if configuration.slices_outer else [*order, "C"]
    spatial = [a for a in axes if a not in ("N", "C") and extents[a] > 1]
    rows = spatial[0] if spatial else None
    columns = spatial[1] if len(spatial) > 1 else None
    cuts = {a: [box[0] for box in grid((extents[a],), (tile[a],))] for a in order}
    counts = {a: len(cut) for a, cut in cuts.items()}
    by_bands = configuration.spread is Spread.BANDS
    high = counts[rows] if rows is not None else 1
    wide = counts[columns] if columns is not None else 1
    owner = assign(configuration.placement, high, wide, configuration.units if by_bands else 1).owner
    row_runs = np.concatenate(([0], np.cumsum((owner[1:] != owner[:-1]).any(axis=1))))
    column_runs = np.concatenate(([0], np.cumsum((owner[:, 1:] != owner[:, :-1]).any(axis=0))))
    per_unit = -(-counts.get("N", 1) // configuration.units) if configuration.spread is Spread.IMAGES else 0
    visits, slot, last = [], -1, None
    for position in product(*(range(counts[a]) for a in order)):
        index = dict(zip(order, position, strict=True))
        row = index.get(rows, 0) if rows is not None else 0
        column = index.get(columns, 0) if columns is not None else 0
        unit = int(owner[row, column]) if by_bands else 0
        runs = dict.fromkeys(order, 0)
        if by_bands and rows is not None:
            runs[rows] = int(row_runs[row])
        if by_bands and columns is not None:
            runs[columns] = int(column_runs[column])
        if per_unit:
            unit = runs["N"] = index["N"] // per_unit
        outside = tuple(i for a, i in index.items() if a != "C" or configuration.slices_outer)
        if outside != last:
            slot, last = slot + 1, outside
        visits.append(
            Visit(ranges={a: cuts[a][i] for a, i in index.items()}, index=index, runs=runs, unit=unit, slot=slot)
        )
    modes = {a: configuration.halo_of(a) if a != "C" else HaloMode.RECOMPUTE for a in order}
    modes |= {a: HaloMode.RECOMPUTE for a in order if counts[a] == 1}
    held = frozenset({"C"}) if sliced and not configuration.slices_outer else frozenset()
    along = {a: len({v.runs[a] for v in visits}) for a in (rows, columns) if a is not None and a in counts}
    passing = {a for a, runs in along.items() if by_bands and runs > 1 and modes[a] is HaloMode.EXCHANGE}
    together = configuration.placement in (Placement.BANDS, Placement.BAND_COLUMNS, Placement.BLOCKS)
    in_step = together and all(along[a] == counts[a] for a in passing)
    both_ways = frozenset(passing if in_step else ())
    return Plan(visits=tuple(visits), modes=modes, held=held, both_ways=both_ways)


def core_plan(
    geometry: GroupGeometry,
    configuration: Configuration,
    tile: Mapping[str, int],
    core: Mapping[str, int],
) -> Plan:
    """Every SRAM tile cut into core tiles, walked before the next SRAM tile; bands of them are the cores'."""
    outer = unit_plan(geometry, configuration, tile)
    axes, shape = geometry.output.axes, geometry.output.shape
    spatial = [a for a, e in zip(axes, shape, strict=True) if a not in ("N", "C") and e > 1]
    band = spatial[0] if spatial and configuration.core_spread is Spread.BANDS else None
    visits: list[Visit] = []
    slot = -1
    for visit in outer.visits:
        inner = {a: r for a, r in visit.ranges.items() if a != "C"}
        cuts = {
            a: [(low + begin, low + end) for ((begin, end),) in grid((high - low,), (core.get(a, tile[a]),))]
            for a, (low, high) in inner.items()
        }
        full = {a: -(-min(tile[a], shape[axes.index(a)]) // core.get(a, tile[a])) for a in inner}
        per_core = -(-full[band] // configuration.cores) if band is not None else 1
        for position in product(*(range(len(cuts[a])) for a in inner)):
            part = dict(zip(inner, position, strict=True))
            slot += 1
            place = part[band] // per_core if band is not None else 0
            ranges = {**visit.ranges, **{a: cuts[a][i] for a, i in part.items()}}
            index = {a: ranges[a][0] for a in visit.ranges}
            runs: dict[str, object] = dict(visit.runs)
            if band is not None:
                runs[band] = visit.index[band] * configuration.cores + place
            visits.append(
                Visit(
                    ranges=ranges,
                    index=index,
                    runs=runs,  # type: ignore[arg-type]
                    unit=visit.unit * configuration.cores + place,
                    slot=slot,
                )
            )
    counts = {a: len({visit.index[a] for visit in visits}) for a in outer.modes}
    modes = {a: configuration.halo_of(a) if a != "C" and counts[a] > 1 else HaloMode.RECOMPUTE for a in outer.modes}
    most = {a: ceil(min(tile[a], shape[axes.index(a)]) / core.get(a, tile[a])) for a in outer.modes if a != "C"}
    fit = {a: configuration.cores if a == band else 1 for a in most}
    both_ways = outer.both_ways if all(most[a] <= fit[a] for a in outer.both_ways) else frozenset()
    one_tile = band is not None and len({visit.index[band] for visit in outer.visits}) == 1
    if band is not None and one_tile and 1 < counts[band] <= configuration.cores and modes[band] is HaloMode.EXCHANGE:
        both_ways |= {band}
    return Plan(visits=tuple(visits), modes=modes, held=outer.held, both_ways=both_ways)


@dataclass(slots=True)
class _Store:
    """Per element of a tensor and key: when and by whom it was made, when it came and is last used."""

    made_by: Ints
    came: Ints
    last: Ints
    last_slot: Ints
    came_slot: Ints


class Oracle:
    """The walk of a plan."""

    def __init__(self, geometry: GroupGeometry, plan: Plan) -> None:
        self.geometry = geometry
        self.plan = plan
        self.log = Log(coverage=np.zeros(geometry.output.shape, dtype=np.int64))
        self._axes = followed_axes(geometry)
        self.follows = {name: set().union(*axes) if axes else set() for name, axes in self._axes.items()}
        self._stores: dict[tuple[str, Key, int], _Store] = {}
        self._made: dict[tuple[str, Key], Ints] = {}
        over = written_over(geometry)
        # an input comes before the first op; what is written over an operand takes space when the op has run
        self._first = dict.fromkeys(geometry.inputs, 0)
        self._first |= {op.output: step + (op.output in over) for step, op in enumerate(geometry.ops)}
        # the next tile's inputs come beside this one's, which lie there until it is done, as does what is written over
        # them: the tile after the next finds its inputs there
        heirs = {source: result for result, source in over.items()}
        self._whole_round: list[str] = []
        for name in geometry.inputs:
            while name in heirs:
                name = heirs[name]
            self._whole_round.append(name)
        self._steps = len(geometry.ops) + 2
        self._touched: dict[tuple[str, Key, int], list[tuple[Visit, Box]]] = {}
        self._turn = 0
        self._read = {operand.tensor for op in geometry.ops for operand in op.operands}

    def run(self) -> Log:
        """Walk all tiles and add up."""
        for name in (*self.geometry.inputs, *self.geometry.made):
            for table in (self.log.made, self.log.needed, self.log.kept, self.log.largest):
                table[name] = 0
            self.log.received[name] = 0
        for turn, visits in enumerate(self._in_step()):
            self._turn = turn
            self._visit(visits)
        self._hold()
        self._fill_stores()
        return self.log

    def _in_step(self) -> list[list[Visit]]:
        """Tiles that are worked on at the same time, op by op, in the order of the first of them."""
        if not self.plan.both_ways:
            return [[visit] for visit in self.plan.visits]
        found: dict[Key, list[Visit]] = {}
        for visit in self.plan.visits:
            key = tuple(number for axis, number in visit.index.items() if axis not in self.plan.both_ways)
            found.setdefault((*key, *(visit.ranges[axis] for axis in self.plan.held)), []).append(visit)
        return list(found.values())

    def _key(self, name: str, visit: Visit) -> Key:
        """What a tile can have at hand of a tensor: made under the same key."""
        parts: list[object] = []
        exchanged = False
        for axis, mode in self.plan.modes.items():
            if mode is HaloMode.RECOMPUTE:
                if axis in self.plan.held and axis not in self.follows[name]:
                    continue
                parts.append((axis, visit.index[axis]))
            elif mode is HaloMode.CACHED:
                parts.append((axis, "run", visit.runs[axis]))
            else:
                exchanged = True
        if not exchanged:
            parts.append(("unit", visit.unit))
        return tuple(parts)

    def _box(self, name: str, visit: Visit) -> Box:
        tensor, primary = self.geometry.facts.tensors[name], self.geometry.output
        box = []
        for axis, extent in zip(tensor.axes, tensor.shape, strict=True):
            if axis not in visit.ranges or axis not in primary.axes:
                box.append((0, extent))
                continue
            basis = primary.shape[primary.axes.index(axis)]
            low, high = visit.ranges[axis]
            box.append((low * extent // basis, high * extent // basis))
        return tuple(box)

    def _visit(self, visits: list[Visit]) -> None:
        facts, geometry = self.geometry.facts, self.geometry
        outputs = geometry.outputs or (geometry.primary,)
        boxes: list[dict[str, Box]] = [{name: self._box(name, visit) for name in outputs} for visit in visits]
        for its in boxes:
            self.log.coverage[tuple(slice(*r) for r in its[geometry.primary])] += 1
        uses: list[tuple[str, Box, Visit, int]] = []
        for step, op in reversed(list(enumerate(geometry.ops))):
            shape = facts.tensors[op.output].shape
            # of some results nobody needs anything now; what nobody reads at all is made whole
            idle = op.output in self._read
            whole = tuple((0, 0 if idle else extent) for extent in shape)
            fresh = self._take(op.output, [its.setdefault(op.output, whole) for its in boxes], visits)
            for visit, its, new in zip(visits, boxes, fresh, strict=True):
                made = mask_hull(new)
                if made is None:
                    continue
                self.log.boxes.setdefault(op.index, []).append(made)
                needs: dict[str, int] = {}
                for number, operand in enumerate(op.operands):
                    if operand.constant:
                        continue
                    extents = facts.tensors[operand.tensor].shape
                    need = tuple(
                        (0, extent) if m.axis is None else m.project_one(*made[m.axis], extent)
                        for m, extent in zip(operand.access, extents, strict=True)
                    )
                    if volume(need) == 0:
                        need = tuple((0, 0) for _ in extents)
                    its[operand.tensor] = union(its.get(operand.tensor), need)
                    uses.append((operand.tensor, need, visit, step))
                    size = volume(need) * facts.tensors[operand.tensor].element_bytes
                    self.log.reads[op.index, number] = self.log.reads.get((op.index, number), 0) + size
                    needs[operand.tensor] = max(size, needs.get(operand.tensor, 0))
                result = 0 if op.in_place else volume(made) * facts.tensors[op.output].element_bytes
                self.log.working = max(self.log.working, sum(needs.values()) + result)
        loads = [0] * len(visits)
        for name in geometry.inputs:
            here = [number for number, its in enumerate(boxes) if name in its]
            fresh = self._take(name, [boxes[number][name] for number in here], [visits[number] for number in here])
            for number, new in zip(here, fresh, strict=True):
                loads[number] += int(new.sum()) * facts.tensors[name].element_bytes
        self.log.loads += loads
        now = self._turn * self._steps
        for name, box, visit, step in uses:
            self._use(name, box, visit, now + step)
        for visit, its in zip(visits, boxes, strict=True):
            for name in outputs:
                self._use(name, its[name], visit, now + self._steps - 2)
            for name in self._whole_round:
                if name in its:
                    self._use(name, its[name], visit, now + self._steps - 2)

    def _take(self, name: str, boxes: list[Box], visits: list[Visit]) -> list[Bools]:
        """Make what boxes lack; the elements that each tile makes."""
        if not visits:
            return []
        tensor = self.geometry.facts.tensors[name]
        size, found = tensor.element_bytes, []
        wanted = []
        for box in boxes:
            wanted.append(np.zeros(tensor.shape, dtype=np.bool_))
            wanted[-1][tuple(slice(*r) for r in box)] = True
        makers = self._makers(name, wanted, visits)
        for number, visit in enumerate(visits):
            key = self._key(name, visit)
            by = self._made.setdefault((name, key), np.full(tensor.shape, -1, dtype=np.int64))
            new = wanted[number] & (by < 0) & (makers == number)
            by[new] = visit.unit
            self.log.needed[name] += int(wanted[number].sum()) * size
            count = int(new.sum()) * size
            self.log.made[name] += count
            self.log.largest[name] = max(self.log.largest[name], count)
            found.append(new)
        for box, want, new, visit in zip(boxes, wanted, found, visits, strict=True):
            key = self._key(name, visit)
            self._touched.setdefault((name, key, visit.unit), []).append((visit, box))
            store, by = self._store(name, key, visit.unit), self._made[name, key]
            begin = self._turn * self._steps + self._first[name]
            coming = want & (store.came < 0)
            received = coming & ~new & (by != visit.unit)
            self.log.received[name] += int(received.sum()) * size
            store.came[coming] = np.where(new, begin, self._turn * self._steps)[coming]
            store.came_slot[coming] = visit.slot
        return found

    def _makers(self, name: str, wanted: list[Bools], visits: list[Visit]) -> Ints:
        """By element which of the tiles that want it makes it if nobody has: the first, or where tiles are in step the
        one in whose part of the tensor it lies, or the next one to that.
        """
        masks = np.array(wanted)
        makers: Ints = masks.argmax(axis=0)
        if len(visits) == 1 or not masks.any() or any(len(axes) > 1 for axes in self._axes[name]):
            return makers
        # the number of the maker along each axis: so many tiles lie before it
        numbers = np.zeros(makers.shape, dtype=np.int64)
        places = [0] * len(visits)
        for axis in sorted(self.plan.both_ways):
            ranges = sorted({visit.ranges[axis] for visit in visits})
            places = [
                place * len(ranges) + ranges.index(v.ranges[axis]) for place, v in zip(places, visits, strict=True)
            ]
            along = [number for number, axes in enumerate(self._axes[name]) if axis in axes]
            wants: list[Bools] = [masks[[v.ranges[axis] == its for v in visits]].max(axis=0) for its in ranges]
            # of what is the same for all of them the first makes it
            mine = _along(along[0], wants, [end for _, end in ranges]) if len(along) == 1 else np.argmax(wants, axis=0)
            numbers = numbers * len(ranges) + mine
        at: Ints = np.argsort(places)
        return at[numbers]

    def _use(self, name: str, box: Box, visit: Visit, at: int) -> None:
        store = self._store(name, self._key(name, visit), visit.unit)
        part = tuple(slice(*r) for r in box)
        store.last[part] = np.maximum(store.last[part], at)
        store.last_slot[part] = visit.slot

    def _store(self, name: str, key: Key, unit: int) -> _Store:
        shape = self.geometry.facts.tensors[name].shape
        found = self._stores.get((name, key, unit))
        if found is None:
            found = self._stores[name, key, unit] = _Store(*(np.full(shape, -1, dtype=np.int64) for _ in range(5)))
        return found

    def _hold(self) -> None:
        """The most held by one unit between tiles and at any step, from when elements come to their last use."""
        slots = max(visit.slot for visit in self.plan.visits) + 2
        turns = len(self.plan.visits) + 1
        between: dict[tuple[int, str], Ints] = {}
        live: dict[int, Ints] = {}
        for (name, _, unit), store in self._stores.items():
            size = self.geometry.facts.tensors[name].element_bytes
            here = store.came >= 0
            # what is made and never read is there while it is made
            last = np.maximum(store.last, store.came)[here]
            change = live.setdefault(unit, np.zeros(turns * self._steps + 1, dtype=np.int64))
            np.add.at(change, store.came[here], size)
            np.subtract.at(change, last + 1, size)
            waits = here & (store.last_slot > store.came_slot)
            change = between.setdefault((unit, name), np.zeros(slots + 1, dtype=np.int64))
            np.add.at(change, store.came_slot[waits], size)
            np.subtract.at(change, store.last_slot[waits], size)
        for (unit, name), change in between.items():
            self.log.waiting[unit, name] = np.cumsum(change)
            self.log.kept[name] = max(self.log.kept[name], int(self.log.waiting[unit, name].max()))
        self.log.peak = max((int(np.cumsum(change).max()) for change in live.values()), default=0)

    def _fill_stores(self) -> None:
        """The most that lies in each unit's store of each tensor along each axis between two tiles."""
        slots = max(visit.slot for visit in self.plan.visits) + 2
        axes = [axis for axis in self.plan.modes if axis not in self.plan.held]
        change: dict[tuple[str, str, int], Ints] = {}
        for (name, _, unit), touched in self._touched.items():
            tensor = self.geometry.facts.tensors[name]
            for number, axis in enumerate(axes):
                total = change.setdefault((name, axis, unit), np.zeros(slots, dtype=np.int64))
                groups: dict[Key, list[tuple[Visit, Box]]] = {}
                for visit, box in touched:
                    groups.setdefault(tuple(visit.index[a] for a in axes[:number]), []).append((visit, box))
                for walk in groups.values():
                    total += _waiting_along(axis, walk, tensor.shape, slots) * tensor.element_bytes
        for (name, axis, _), total in change.items():
            most = int(np.cumsum(total).max())
            self.log.stored[name, axis] = max(most, self.log.stored.get((name, axis), 0))


def _along(dimension: int, wants: list[Bools], ends: list[int]) -> Ints:
    """By element the number of the tile along an axis that makes it; `ends`: where tiles end in the output."""
    rank = wants[0].ndim
    others = tuple(number for number in range(rank) if number != dimension)
    wanted = np.array([want.any(axis=others) for want in wants])
    positions = np.flatnonzero(wanted.any(axis=0)).tolist()
    low, high = positions[0], positions[-1] + 1
    makers = np.zeros(wanted.shape[1], dtype=np.int64)
    for position in positions:
        owner = next(n for n, end in enumerate(ends) if (position - low) * ends[-1] < (high - low) * end)
        those = np.flatnonzero(wanted[:, position]).tolist()
        makers[position] = min(those, key=lambda number: abs(number - owner))
    return makers.reshape([-1 if number == dimension else 1 for number in range(rank)])


def _waiting_along(axis: str, walk: list[tuple[Visit, Box]], shape: tuple[int, ...], slots: int) -> Ints:
    """How many more elements wait from each slot on for the next tile along one axis, those outside it being equal.

    An element waits from when a tile first needs it until the next tile along the axis first does.
    """
    change = np.zeros(slots, dtype=np.int64)
    since = np.full(shape, -1, dtype=np.int64)
    seen: dict[int, Bools] = {}
    for visit, box in walk:
        part = tuple(slice(*r) for r in box)
        before = seen.setdefault(visit.index[axis], np.zeros(shape, dtype=np.bool_))
        first = ~before[part]
        waited = since[part][first & (since[part] >= 0)]
        np.add.at(change, waited, 1)
        change[visit.slot] -= len(waited)
        since[part] = np.where(first, visit.slot, since[part])
        before[part] = True
    return change


def walked(geometry: GroupGeometry, plan: Plan) -> Log:
    """What the walk of a plan makes, needs and holds."""
    return Oracle(geometry, plan).run()
