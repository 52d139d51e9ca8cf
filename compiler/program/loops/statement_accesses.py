"""What the statements of a program touch at all their tiles, from a few of their commands (PROG-4, PROG-6).

Fields of a statement are sums over counters, so what holds of a number at the tiles where it is least and greatest
holds in between. `check` judges each statement at its first tile, at the next one along each counter, and where each
of its addresses and starts is least and greatest: these are real commands, so whatever is refused there is refused
rightly. That the others need no look has to be shown: boxes that calls need keep their distance from those that are
bound, as no tensor's end cuts them at some tiles only (`call_boxes.py`), addresses move by whole elements, no access
goes from one region to another, and operands lie where results do at all tiles or at none. Statements of which this
does not show are judged at all their tiles; lowering makes none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.address.table import ENTRY_BYTES
from compiler.program.accesses import Accesses, Areas, Kind
from compiler.program.checked import CheckedProgram, check
from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits, is_call
from compiler.program.loops.call_boxes import uneven_calls
from compiler.program.loops.changing_fields import extreme_tiles, fields_of
from compiler.program.loops.instances import Instances, Window
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS
from compiler.program.loops.shapes import over_tiles, shapes_of
from compiler.program.program import ADDRESSES, OUTPUT, Program
from compiler.program.strided import FAR, Flags, Ints, distinct
from compiler.units import element_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatementAccesses:
    """One row per part of a statement and access, by part and within it by Kind.

    A part is a statement, or one tile of a statement whose tiles are judged apart: `first_parts`, `tile_counts` by
    statement, `part_offsets` of the rows. At places p of its runs an access begins at low + Σ slope·p + size·((turn + Σ
    turn slope·p) mod modulus). `least` and `most`: the first byte that any of its `tiles` touches, and one past the
    last. `counts` and `strides`: its normal form. `areas` is -1 on the chip. `peaks`: one past the last byte by place.
    """

    first_parts: Ints
    are_apart: Flags
    tile_counts: Ints
    part_offsets: Ints
    statements: Ints
    kinds: Ints
    places: Ints
    areas: Ints
    lows: Ints
    slopes: Ints
    moduli: Ints
    sizes: Ints
    turns: Ints
    turn_slopes: Ints
    least: Ints
    most: Ints
    tiles: Ints
    counts: Ints
    strides: Ints
    peaks: Ints
    region_areas: Areas
    program: Program
    residents: tuple[tuple[int, int, int], ...]

    @property
    def touched_bytes(self) -> float:
        """What all commands read and write together."""
        # what is read late is overwritten, too
        once = np.where(self.kinds == Kind.LATE, 0, self.tiles)
        return float((np.prod(self.counts.astype(np.float64), axis=1) * once).sum())


def accesses_of_statements(instances: Instances, limits: ProgramLimits, shared: Engines) -> StatementAccesses:
    """What all commands touch; raises ProgramError if one of them is not fit by itself (PROG-4)."""
    return _Statements(instances, limits, shared).found()


class _Statements:
    """Statements, the tiles at which they are judged, and what they touch there."""

    def __init__(self, instances: Instances, limits: ProgramLimits, shared: Engines) -> None:
        self.program, self.instances, self.limits, self.shared = instances.program, instances, limits, shared
        self.tile_counts = instances.tile_counts
        self.count, self.width = self.tile_counts.shape
        self.fields = fields_of(self.program, self.width)
        self.apart = np.zeros(self.count, dtype=np.bool_)
        self.peaks = np.zeros(len(self.program.places), dtype=np.int64)

    def found(self) -> StatementAccesses:
        """All accesses."""
        window = self._probes()
        checked = self._checked(window)
        accesses = checked.accesses
        sizes = np.bincount(accesses.commands, minlength=len(window))
        starts = np.cumsum(sizes) - sizes
        rows = slice(0, int(sizes[: self.count].sum()))
        owners = accesses.commands[rows]
        of_fields = self.fields.rows(owners, accesses.fields[rows])
        none = np.zeros((len(owners), self.width), dtype=np.int64)
        bases = accesses.lows[rows] - self.fields.offsets(of_fields, none)
        slopes = none.copy()
        least, most = accesses.lows[rows].copy(), accesses.highs[rows].copy()
        loop = np.flatnonzero(self.tile_counts.prod(axis=1, dtype=np.float64) > 1)
        if len(loop):
            self._follow(window, accesses, (starts, sizes), of_fields, bases, slopes, least, most)
            self._look_at_ends(accesses, rows, of_fields, bases, slopes, least, most)
            self.apart |= uneven_calls(self.fields, self.tile_counts, checked, window)
            self._alignment()
            self._regions(accesses, rows, of_fields, slopes, checked.areas)
            self._in_place(accesses, rows, of_fields, bases, slopes)
        return self._put_together(checked, rows, of_fields, bases, slopes, least, most)

    # --- the tiles at which statements are judged ---------------------------------------------------------------------

    def _probes(self) -> Window:
        """The first tile of each statement; the next ones along counters; the ends of its fields."""
        none = np.zeros((self.count, self.width), dtype=np.int64)
        numbers = np.arange(self.count)
        if not self.width:
            return _window(numbers, none)
        owners, counters = np.nonzero(self.tile_counts > 1)
        steps = np.zeros((len(owners), self.width), dtype=np.int64)
        steps[np.arange(len(owners)), counters] = 1
        of, ends = self._ends(self.fields.statements, self.fields.slopes, np.arange(len(self.fields.keys)))
        statements = np.concatenate([numbers, owners, of])
        places = np.concatenate([none, steps, ends])
        kept = np.sort(distinct([statements, *places.T])[0])
        return _window(statements[kept], places[kept])

    def _ends(self, statements: Ints, slopes: Ints, of_fields: Ints) -> tuple[Ints, Ints]:
        """Statement and places where what moves by `slopes`, with the rings of some fields, is least and greatest."""
        fields, counts = self.fields, self.tile_counts[statements]
        if not len(fields.keys):
            ends = np.where(slopes > 0, 0, counts - 1), np.where(slopes > 0, counts - 1, 0)
            return np.concatenate([statements, statements]), np.concatenate(ends)
        has_ring = (of_fields >= 0) & (fields.sizes[of_fields] != 0)
        moduli = np.where(has_ring, fields.moduli[of_fields], 1)
        turn_slopes = np.where(has_ring[:, None], fields.turn_slopes[of_fields], 0)
        periods = moduli[:, None] // np.gcd(moduli[:, None], turn_slopes)
        looked = np.minimum(2 * periods, counts).prod(axis=1, dtype=np.float64)[has_ring].sum()
        if looked > self.limits.commands:
            raise ProgramError(
                "the rings of addresses are too long to be verified",
                violation="size",
                actual=float(looked),
                limit=self.limits.commands,
            )
        found = extreme_tiles(
            slopes, moduli, np.where(has_ring, fields.sizes[of_fields], 0), fields.turns[of_fields], turn_slopes, counts
        )
        return np.repeat(statements, 2), found

    def _checked(self, window: Window) -> CheckedProgram:
        """The commands at some tiles, each fit by itself."""
        program, limits = self.instances.expanded(window, self.limits), self.limits
        # what limits count are statements and all their commands, not the tiles that are looked at
        most = max(len(window) * (len(program.queues) + 1), limits.clock_entries)
        limits = replace(limits, commands=most, clock_entries=most, touched_bytes=FAR)
        try:
            found = check(program, limits, self.shared)
        except ProgramError as error:
            raise self.instances.at(error, window) from None
        np.maximum.at(self.peaks, found.accesses.places, found.accesses.highs)
        return found

    # --- whether accesses are sums over counters ----------------------------------------------------------------------

    def _follow(
        self,
        window: Window,
        accesses: Accesses,
        parts: tuple[Ints, Ints],
        of_fields: Ints,
        bases: Ints,
        slopes: Ints,
        least: Ints,
        most: Ints,
    ) -> None:
        """Find by how much accesses move per place of each run; the statements whose do not move evenly are apart."""
        starts, sizes = parts
        probes = np.arange(self.count, len(window))
        statements = window.statements[probes]
        unlike = sizes[probes] != sizes[statements]
        self.apart[statements[unlike]] = True
        probes, statements = probes[~unlike], statements[~unlike]
        owners = np.repeat(np.arange(len(probes)), sizes[probes])
        slot = np.arange(len(owners)) - np.repeat(np.cumsum(sizes[probes]) - sizes[probes], sizes[probes])
        rows, base_rows = starts[probes][owners] + slot, starts[statements][owners] + slot
        places = window.places[probes][owners]
        self.apart[statements[owners[self._differ(accesses, rows, accesses, base_rows)]]] = True
        moved = accesses.lows[rows] - self.fields.offsets(of_fields[base_rows], places) - bases[base_rows]
        is_step = np.flatnonzero(places.sum(axis=1) == 1)
        slopes[base_rows[is_step], places[is_step].argmax(axis=1)] = moved[is_step]
        uneven = (slopes[base_rows] * places).sum(axis=1) != moved
        self.apart[statements[owners[uneven]]] = True
        np.minimum.at(least, base_rows, accesses.lows[rows])
        np.maximum.at(most, base_rows, accesses.highs[rows])

    @staticmethod
    def _differ(some: Accesses, rows: Ints, others: Accesses, other_rows: Ints) -> Flags:
        """Which pairs of accesses differ in more than where they lie."""
        found: Flags = np.zeros(len(rows), dtype=np.bool_)
        for one, other in (
            (some.kinds, others.kinds),
            (some.places, others.places),
            (some.areas, others.areas),
            (some.fields, others.fields),
        ):
            found |= one[rows] != other[other_rows]
        for one, other in ((some.normal.counts, others.normal.counts), (some.normal.strides, others.normal.strides)):
            found |= (one[rows] != other[other_rows]).any(axis=1)
        return found

    def _look_at_ends(
        self, accesses: Accesses, rows: slice, of_fields: Ints, bases: Ints, slopes: Ints, least: Ints, most: Ints
    ) -> None:
        """Judge the ends of accesses that move otherwise than their addresses, as boxes move too."""
        owners = accesses.commands[rows]
        own = np.where(of_fields[:, None] >= 0, self.fields.slopes[of_fields], 0) if len(self.fields.keys) else 0
        moving = np.flatnonzero((slopes != own).any(axis=1) & ~self.apart[owners])
        if not len(moving):
            return
        statements, places = self._ends(owners[moving], slopes[moving], of_fields[moving])
        kept = np.sort(distinct([statements, *places.T])[0])
        window = _window(statements[kept], places[kept])
        found = self._checked(window).accesses
        sizes = np.bincount(found.commands, minlength=len(window))
        base_sizes = np.bincount(owners, minlength=self.count)
        base_starts = np.cumsum(base_sizes) - base_sizes
        unlike = sizes != base_sizes[window.statements]
        self.apart[window.statements[unlike]] = True
        its = np.flatnonzero(~unlike[found.commands])
        starts = np.cumsum(sizes) - sizes
        base_rows = base_starts[window.statements[found.commands[its]]] + its - starts[found.commands[its]]
        at = window.places[found.commands[its]]
        moved = found.lows[its] - self.fields.offsets(of_fields[base_rows], at) - bases[base_rows]
        uneven = (slopes[base_rows] * at).sum(axis=1) != moved
        self.apart[window.statements[found.commands[its[uneven]]]] = True
        np.minimum.at(least, base_rows, found.lows[its])
        np.maximum.at(most, base_rows, found.highs[its])

    def _alignment(self) -> None:
        """Apart are statements whose bindings move by less than elements."""
        program, fields = self.program, self.fields
        bound, part = np.divmod(fields.fields - BINDING_ADDRESS, BINDING_FIELDS)
        rows = np.flatnonzero((bound >= 0) & (part == 0))
        if not len(rows):
            return
        calls = program.calls[program.commands["call"][fields.statements[rows]]]
        operands = program.bindings["operand"][calls["first"] + bound[rows]]
        keys, of = np.unique(np.stack([calls["table"], operands]), axis=1, return_inverse=True)
        known = [_most_element_bytes(program, int(table), int(operand)) for table, operand in keys.T]
        sizes = np.array(known, dtype=np.int64)[of.reshape(-1)]
        bad = (fields.slopes[rows] % sizes[:, None] != 0).any(axis=1) | (fields.sizes[rows] % sizes != 0)
        self.apart[fields.statements[rows[bad]]] = True

    def _regions(self, accesses: Accesses, rows: slice, of_fields: Ints, slopes: Ints, areas: Areas) -> None:
        """Apart are statements whose boxes in the DRAM do not nest with their tiles, or follow rings."""
        its = np.flatnonzero(accesses.areas[rows] >= 0)
        its = its[~areas.is_given[accesses.areas[rows][its]]]
        owners = accesses.commands[rows][its]
        ringed = (of_fields[its] >= 0) & (self.fields.sizes[of_fields[its]] != 0) if len(self.fields.keys) else False
        self.apart[owners[np.flatnonzero(ringed)]] = True
        writes = np.flatnonzero(accesses.kinds[rows][its] == Kind.WRITE)
        its, owners = its[writes], owners[writes]
        shapes = shapes_of(accesses.normal.counts[its], accesses.normal.strides[its])
        self.apart[owners[~over_tiles(shapes, self.tile_counts[owners], slopes[its])[0].is_nested]] = True

    def _in_place(self, accesses: Accesses, rows: slice, of_fields: Ints, bases: Ints, slopes: Ints) -> None:
        """Mark for judging at every tile the calls that work in place at some tiles but not at others."""
        owners, kinds, places = accesses.commands[rows], accesses.kinds[rows], accesses.places[rows]
        loops = self.tile_counts.prod(axis=1, dtype=np.float64) > 1
        calls = is_call(self.program.commands["opcode"])[owners] & loops[owners] & ~self.apart[owners]
        results = np.flatnonzero(calls & (kinds == Kind.WRITE))
        operands = np.flatnonzero(calls & (kinds <= Kind.OVERWRITTEN))
        first = np.searchsorted(owners[results], owners[operands])
        stop = np.searchsorted(owners[results], owners[operands], side="right")
        pairs = np.repeat(operands, stop - first)
        others = results[
            np.arange(len(pairs))
            - np.repeat(np.cumsum(stop - first) - (stop - first), stop - first)
            + np.repeat(first, stop - first)
        ]
        normal = accesses.normal
        alike = places[pairs] == places[others]
        alike &= (normal.counts[pairs] == normal.counts[others]).all(axis=1)
        alike &= (normal.strides[pairs] == normal.strides[others]).all(axis=1)
        pairs, others = pairs[alike], others[alike]
        moves = slopes[pairs] - slopes[others]
        spans = self.tile_counts[owners[pairs]] - 1
        low = bases[pairs] - bases[others] + np.minimum(0, moves * spans).sum(axis=1)
        high = bases[pairs] - bases[others] + np.maximum(0, moves * spans).sum(axis=1)
        step = np.gcd.reduce(moves, axis=1) if self.width else np.zeros(len(pairs), dtype=np.int64)
        for at, (pair, other) in enumerate(zip(pairs.tolist(), others.tolist(), strict=True)):
            one, two = (self._ring(int(of_fields[row])) for row in (pair, other))
            if one == two and not moves[at].any():
                continue
            if self._may_coincide(int(low[at]), int(high[at]), int(step[at]), one[:2], two[:2]):
                self.apart[owners[pair]] = True

    def _ring(self, row: int) -> tuple[int, int, int, tuple[int, ...]]:
        """A field's ring: modulus, size, and how it turns; (1, 0, 0, ()) for none."""
        if row < 0 or not self.fields.sizes[row]:
            return 1, 0, 0, ()
        fields = self.fields
        turn = int(fields.turns[row]), tuple(fields.turn_slopes[row].tolist())
        return int(fields.moduli[row]), int(fields.sizes[row]), *turn

    def _may_coincide(self, low: int, high: int, step: int, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """True if a difference between low and high, in such steps, may be made up by what two rings add."""
        if one[0] * other[0] > self.limits.commands:
            return True
        by_ring = np.add.outer(np.arange(one[0]) * one[1], -np.arange(other[0]) * other[1]).ravel()
        near = (by_ring + low <= 0) & (by_ring + high >= 0)
        return bool((near & ((by_ring + low) % max(1, step) == 0)).any())

    # --- the table ----------------------------------------------------------------------------------------------------

    def _put_together(
        self, checked: CheckedProgram, rows: slice, of_fields: Ints, bases: Ints, slopes: Ints, least: Ints, most: Ints
    ) -> StatementAccesses:
        accesses, fields = checked.accesses, self.fields
        tiles = self.tile_counts.prod(axis=1, dtype=np.float64)
        apart = np.flatnonzero(self.apart)
        many = tiles[apart].sum()
        if many > self.limits.commands:
            raise ProgramError(
                "too many commands whose accesses do not move evenly over the tiles",
                violation="size",
                command=int(apart[tiles[apart].argmax()]),
                actual=float(many),
                limit=self.limits.commands,
            )
        parts = np.where(self.apart, tiles.astype(np.int64), 1)
        first_parts = np.cumsum(parts) - parts
        even = np.flatnonzero(~self.apart[accesses.commands[rows]]) if len(apart) else slice(None)
        ringed = (of_fields >= 0) & (fields.sizes[of_fields] != 0) if len(fields.keys) else of_fields >= 0
        ring = np.where(ringed, of_fields, 0)
        ones, none = np.ones(len(of_fields), dtype=np.int64), np.zeros(len(of_fields), dtype=np.int64)
        columns: dict[str, list[Any]] = {
            "parts": [first_parts[accesses.commands[rows]][even]],
            "statements": [accesses.commands[rows][even]],
            "kinds": [accesses.kinds[rows][even]],
            "places": [accesses.places[rows][even]],
            "areas": [accesses.areas[rows][even]],
            "lows": [bases[even]],
            "slopes": [slopes[even]],
            "moduli": [(np.where(ringed, fields.moduli[ring], 1) if len(fields.keys) else ones)[even]],
            "sizes": [(np.where(ringed, fields.sizes[ring], 0) if len(fields.keys) else none)[even]],
            "turns": [(np.where(ringed, fields.turns[ring], 0) if len(fields.keys) else none)[even]],
            "turn_slopes": [
                (np.where(ringed[:, None], fields.turn_slopes[ring], 0) if len(fields.keys) else slopes * 0)[even]
            ],
            "least": [least[even]],
            "most": [most[even]],
            "tiles": [tiles[accesses.commands[rows]][even].astype(np.int64)],
            "counts": [accesses.normal.counts[rows][even]],
            "strides": [accesses.normal.strides[rows][even]],
        }
        if len(apart):
            self._add_apart(columns, apart, first_parts)
        axes = max(part.shape[1] for part in columns["counts"])
        columns["counts"] = [_wide(part, axes, 1) for part in columns["counts"]]
        columns["strides"] = [_wide(part, axes, 0) for part in columns["strides"]]
        of_part = np.concatenate(columns.pop("parts"))
        order = np.argsort(of_part, kind="stable")
        sizes = np.bincount(of_part, minlength=int(parts.sum()))
        return StatementAccesses(
            first_parts=first_parts,
            are_apart=self.apart,
            tile_counts=self.tile_counts,
            part_offsets=np.append(0, np.cumsum(sizes)).astype(np.int64),
            peaks=self.peaks,
            region_areas=checked.areas,
            program=self.program,
            residents=checked.residents,
            # one after another: together they take as much again
            **{name: np.concatenate(columns.pop(name))[order] for name in list(columns)},
        )

    def _add_apart(self, columns: dict[str, list[Any]], apart: Ints, first_parts: Ints) -> None:
        """Add the accesses of all tiles of some statements."""
        tiles = [np.indices(self.tile_counts[statement]).reshape(self.width, -1).T for statement in apart.tolist()]
        statements = np.repeat(apart, [len(its) for its in tiles])
        places = np.concatenate(tiles)
        window = _window(statements, places)
        found = self._checked(window).accesses
        number = np.concatenate([np.arange(len(its)) for its in tiles])
        of = found.commands
        count = len(of)
        none = np.zeros((count, self.width), dtype=np.int64)
        columns["parts"].append((first_parts[statements] + number)[of])
        columns["statements"].append(statements[of])
        columns["kinds"].append(found.kinds)
        columns["places"].append(found.places)
        columns["areas"].append(found.areas)
        columns["lows"].append(found.lows)
        columns["slopes"].append(none)
        columns["moduli"].append(np.ones(count, dtype=np.int64))
        columns["sizes"].append(np.zeros(count, dtype=np.int64))
        columns["turns"].append(np.zeros(count, dtype=np.int64))
        columns["turn_slopes"].append(none)
        columns["least"].append(found.lows)
        columns["most"].append(found.highs)
        columns["tiles"].append(np.ones(count, dtype=np.int64))
        columns["counts"].append(found.normal.counts)
        columns["strides"].append(found.normal.strides)


def _window(statements: Ints, places: Ints) -> Window:
    return Window(first=0, statements=statements, iterations=np.zeros(len(statements), dtype=np.int64), places=places)


def _wide(rows: Ints, axes: int, fill: int) -> Ints:
    more = axes - rows.shape[1]
    return np.concatenate([rows, np.full((len(rows), more), fill)], axis=1) if more else rows


def _most_element_bytes(program: Program, table: int, operand: int) -> int:
    """What addresses of a binding are multiples of: at most the bytes of an element, or of one of partial sums."""
    unit = program.units[program.tables[table].unit]
    if operand <= ADDRESSES:
        return ENTRY_BYTES
    if operand == OUTPUT:
        return max(element_bytes(dtype) for dtype in (unit.output.dtype, unit.accumulator_dtype or unit.output.dtype))
    found = unit.operands[operand]
    assert found is not None
    return element_bytes(found.stored_dtype)
