"""Which bytes each command reads and writes: one range per operand, from its first byte to its last (SIM-2).

A range covers what lies between the rows of a strided access too. For who waits for whom, and for how long a buffer is
used, that is near enough; the proof of a program (`accesses.py`) goes by the byte. All commands of a statement have
ranges of the same lengths, which begin where the tile's addresses say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.address.table import ENTRY_BYTES
from compiler.program.fields import is_call, is_transfer
from compiler.program.loops.changing_fields import extreme_tiles, fields_of
from compiler.program.loops.instances import Instances
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS, SOURCE_ADDRESS, TARGET_ADDRESS
from compiler.program.program import ADDRESSES, OUTPUT, Level, Program, Role
from compiler.program.strided import spans
from compiler.program.timing.ticks import Flags, Ints
from compiler.units import element_bytes

_WEIGHT_LEVELS: Final = (Level.SRAM_WEIGHTS, Level.NRAM_WEIGHTS, Level.WRAM)
_WEIGHT_ROLES: Final = (Role.WEIGHT, Role.ADDRESSES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Touches:
    """One row per range, by command: rows offsets[c]:offsets[c + 1] are command c's.

    Bytes `lows` to `highs` (half-open) of `places`; `writes`: else read. `of_weights`: what is known to hold weights or
    address tables: constant operands, memories for weights, regions of weights.
    """

    commands: Ints
    places: Ints
    lows: Ints
    highs: Ints
    writes: Flags
    of_weights: Flags
    offsets: Ints


class StatementTouches:
    """The ranges of all commands that the statements of a program stand for.

    By range of a statement, those of one statement together: its place, and whether it is written (`places`, `writes`).
    """

    def __init__(self, instances: Instances) -> None:
        self._program = instances.program
        count = len(self._program.commands)
        parts = (_transfers(self._program), _calls(self._program))
        columns = [np.concatenate([part[column] for part in parts]) for column in range(7)]
        order = np.argsort(columns[0], kind="stable")
        its, self.places, self._lows, self._highs, self.writes, constant, fields = (one[order] for one in columns)
        self.offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(its, minlength=count), out=self.offsets[1:])
        self._statements = its
        self._constant = constant | _weight_places(self._program)[self.places]
        self._regions = _WeightRegions.of(self._program)
        self._tile_counts = instances.tile_counts
        self._fields = fields_of(instances.program, self._tile_counts.shape[1])
        self._of_fields = self._fields.rows(its, fields)

    def of(self, statements: Ints, tiles: Ints, chosen: Flags | None = None) -> Touches:
        """The ranges of commands, given by statements and places in their runs; `chosen`: of these ranges alone."""
        owners, number = _repeated(np.diff(self.offsets)[statements])
        rows = self.offsets[statements][owners] + number
        if chosen is not None:
            kept = chosen[rows]
            owners, rows = owners[kept], rows[kept]
        moved = self._moved(rows, tiles[owners])
        places, lows = self.places[rows], self._lows[rows] + moved
        offsets = np.zeros(len(statements) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners, minlength=len(statements)), out=offsets[1:])
        return Touches(
            commands=owners,
            places=places,
            lows=lows,
            highs=self._highs[rows] + moved,
            writes=self.writes[rows],
            of_weights=self._constant[rows] | self._regions.hold(places, lows),
            offsets=offsets,
        )

    def used(self) -> Ints:
        """By place one past the highest byte in a range of any command."""
        fields, rows = self._fields, np.flatnonzero(self._of_fields >= 0)
        of = self._of_fields[rows]
        most = np.zeros(len(self.places), dtype=np.int64)
        if len(rows):
            counts = self._tile_counts[self._statements[rows]]
            columns = (fields.slopes, fields.moduli, fields.sizes, fields.turns, fields.turn_slopes)
            tiles = extreme_tiles(*(column[of] for column in columns), counts)[1::2]
            most[rows] = self._moved(rows, tiles)
        found = np.zeros(len(self._program.places), dtype=np.int64)
        np.maximum.at(found, self.places, self._highs + most)
        return found

    def _moved(self, rows: Ints, tiles: Ints) -> Ints:
        """How far ranges lie behind where they are where all places are 0, rings left out."""
        of, fields = self._of_fields[rows], self._fields
        if not len(fields.keys):
            return np.zeros(len(rows), dtype=np.int64)
        by_place = np.where(of >= 0, (fields.slopes[of] * tiles).sum(axis=1), 0)
        found: Ints = by_place + fields.offsets(of, tiles)
        return found


# Commands, places, first bytes, ends, written, of weights; the field that says where a range begins.
_Rows = tuple[Ints, Ints, Ints, Ints, Flags, Flags, Ints]


def _transfers(program: Program) -> _Rows:
    """The source, and each of the targets."""
    moves: Ints = np.flatnonzero(is_transfer(program.commands["opcode"]))
    rows = program.commands[moves]
    copies, number = _repeated(rows["targets"].astype(np.int64))
    sources = spans(rows["source_address"], rows["counts"], rows["source_strides"], rows["run_bytes"])
    targets = spans(rows["target_address"], rows["counts"], rows["target_strides"], rows["run_bytes"])
    writes = np.repeat([False, True], [len(moves), len(copies)])
    return (
        np.concatenate([moves, moves[copies]]),
        np.concatenate([rows["source"], rows["target"][copies] + number]).astype(np.int64),
        np.concatenate([sources.low, targets.low[copies]]),
        np.concatenate([sources.high, targets.high[copies]]),
        writes,
        np.zeros(len(writes), dtype=np.bool_),
        np.where(writes, TARGET_ADDRESS, SOURCE_ADDRESS),
    )


def _calls(program: Program) -> _Rows:
    """Every binding of calls; a result that adds to sums is read too."""
    calling: Ints = np.flatnonzero(is_call(program.commands["opcode"]))
    calls = program.calls[program.commands["call"][calling]]
    owners, number = _repeated(calls["count"].astype(np.int64))
    bindings = program.bindings[calls["first"][owners] + number]
    units = np.array([table.unit for table in program.tables], dtype=np.int64)[calls["table"]]
    sizes, of_weights = _operands(program, units[owners], bindings["operand"].astype(np.int64))
    begins, ends = _sums(program, calls)
    is_result = bindings["operand"] == OUTPUT
    # sums are larger than results, at strides that are larger by as much
    scales = np.array([_scale(program, unit) for unit in range(len(program.units))], dtype=np.int64)
    scale = np.where(is_result & ~(begins & ends)[owners], scales[units[owners]], 1)
    lengths = np.maximum(bindings["lengths"], 1)
    hulls = spans(bindings["address"], lengths, bindings["strides"] * scale[:, None], sizes * scale)
    again = np.flatnonzero(is_result & ~begins[owners])
    rows = np.concatenate([np.arange(len(bindings)), again])
    return (
        calling[owners][rows],
        bindings["place"].astype(np.int64)[rows],
        hulls.low[rows],
        hulls.high[rows],
        np.concatenate([is_result, np.zeros(len(again), dtype=np.bool_)]),
        of_weights[rows],
        (BINDING_ADDRESS + BINDING_FIELDS * number)[rows],
    )


def _repeated(counts: Ints) -> tuple[Ints, Ints]:
    """Rows repeated so many times: the row of each, and its number among its row's."""
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return rows, np.arange(len(rows), dtype=np.int64) - (np.cumsum(counts) - counts)[rows]


def _operands(program: Program, units: Ints, operands: Ints) -> tuple[Ints, Flags]:
    """Of bindings the bytes of an element, and whether they hold weights or an address table."""
    keys = np.stack([units, np.maximum(operands, ADDRESSES)], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    sizes, constant = [], []
    for number, operand in distinct.tolist():
        unit = program.units[number]
        kind = unit.output if operand == OUTPUT else None if operand == ADDRESSES else unit.operands[operand]
        sizes.append(ENTRY_BYTES if kind is None else element_bytes(kind.stored_dtype))
        constant.append(kind is None or kind.constant)
    rows = inverse.reshape(-1)
    return np.array(sizes, dtype=np.int64)[rows], np.array(constant, dtype=np.bool_)[rows]


def _scale(program: Program, number: int) -> int:
    """How much larger a partial sum of a unit is than its result."""
    unit = program.units[number]
    own = element_bytes(unit.output.stored_dtype)
    return element_bytes(unit.accumulator_dtype) // own if unit.accumulator_dtype else 1


def _sums(program: Program, calls: np.ndarray) -> tuple[Flags, Flags]:
    """Of calls whether their sums begin, and end, there."""
    counts = np.array([len(table.entries) for table in program.tables], dtype=np.int64)
    rows = (np.cumsum(counts) - counts)[calls["table"]] + calls["entry"]
    flags = [np.zeros(0, dtype=np.bool_)] * 2
    if len(counts):
        flags = [np.concatenate([table.entries[name] for table in program.tables]) != 0 for name in ("begins", "ends")]
    return flags[0][rows], flags[1][rows]


def _weight_places(program: Program) -> Flags:
    return np.array([place.level in _WEIGHT_LEVELS for place in program.places], dtype=np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _WeightRegions:
    """Where the regions of the DRAM begin, ascending, and which of them hold weights or an address table."""

    starts: Ints
    weights: Flags
    is_dram: Flags

    @classmethod
    def of(cls, program: Program) -> _WeightRegions:
        given = sorted(
            (region.address, region.role in _WEIGHT_ROLES) for region in program.regions if region.size_bytes
        )
        return cls(
            starts=np.array([address for address, _ in given], dtype=np.int64),
            weights=np.array([holds_weights for _, holds_weights in given], dtype=np.bool_),
            is_dram=np.array([place.level is Level.DRAM for place in program.places], dtype=np.bool_),
        )

    def hold(self, places: Ints, lows: Ints) -> Flags:
        """Which ranges begin in a region that holds them."""
        if not len(self.starts):
            return np.zeros(len(lows), dtype=np.bool_)
        found = np.maximum(np.searchsorted(self.starts, lows, side="right") - 1, 0)
        result: Flags = self.is_dram[places] & self.weights[found]
        return result
