"""Runs calls of units on memories: gathers the operands' boxes, computes, writes the result (SHAPE-3, SIM-1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.address.unit import UnitTable, words_of
from compiler.degraded import reason_of
from compiler.errors import TesseraError
from compiler.ops.base import Call
from compiler.ops.contraction import Product
from compiler.ops.slab import Box, Slab, lengths
from compiler.program.addressed import Addressed, addressed_of
from compiler.program.calls import HOSTILE, CallBook, TableGeometry, box_of
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.pieces import Pieces, pieces_of
from compiler.program.program import Decode, OperandType, Program
from compiler.simulator.gather import WindowGather, as_windows, empty_met, met_bytes
from compiler.units import numpy_dtype

Memory = Callable[[int], NDArray[np.uint8]]
Settled = Callable[[Box, NDArray[Any]], NDArray[Any]]
# Limit on the operands gathered for one call.
_LARGEST_MET_BYTES: Final = 1 << 28
_PLACE_BYTES: Final = 8


class _Piece(NamedTuple):
    """A part of an operand's box in memory: its place, address and layout.

    `table` is the address table through which it is read; -1: it is read by its strides.
    """

    place: int
    base: int
    address: int
    strides: tuple[int, ...]
    box: Box
    scale: int
    gathered: bool
    table: int


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Converts stored numbers to values: (stored − zero)·scale, arrays that broadcast to the tensor."""

    scale: NDArray[Any]
    zero: NDArray[Any]
    dtype: str

    def __call__(self, stored: NDArray[Any], index: tuple[Any, ...]) -> NDArray[Any]:
        """The values of a part of the tensor; `index` selects it along each axis."""
        along = tuple(
            slice(None) if extent == 1 else part for part, extent in zip(index, self.scale.shape, strict=True)
        )
        moved = stored.astype(np.int32) - self.zero[along].astype(np.int32)
        return np.asarray((moved.astype(self.scale.dtype) * self.scale[along]).astype(numpy_dtype(self.dtype)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Commands:
    """The commands of a window, and what their calls touch; that they stay in their memories is known before."""

    program: Program
    book: CallBook
    pieces: Pieces | None
    addressed: Addressed | None

    @classmethod
    def of(cls, program: Program, limits: ProgramLimits) -> Commands:
        """Raises ProgramError where a call's bindings do not fit its unit."""
        book = CallBook(program)
        pieces = pieces_of(program, book, limits)
        addressed = addressed_of(program, book, pieces, limits)
        return cls(program=program, book=book, pieces=pieces, addressed=addressed)


class CallRunner:
    """Runs single calls of one program; `memory` returns the bytes of a place.

    The program comes window by window (`take`), with all its tables, whose entries are those of the window.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # what holds for all windows, by table or address table
        self._scales: dict[tuple[int, int], Scale | None] = {}
        self._windows: dict[int, WindowGather] = {}
        self._words: dict[int, bytes] = {}
        self._units: tuple[UnitTable, ...] | None = None

    def take(self, commands: Commands) -> None:
        """Take up the commands of the next window."""
        self._program: Program = commands.program
        self._book = commands.book
        program, pieces = commands.program, commands.pieces
        # the rows of pieces of each command: from its own number to the next
        self._first = np.zeros(0, dtype=np.int64)
        self._rows = np.zeros((0, 0), dtype=np.int64)
        self._addressed = addressed = commands.addressed
        self._first_table = np.zeros(0, dtype=np.int64)
        if addressed is not None:
            self._first_table = np.searchsorted(addressed.commands, np.arange(len(program.commands) + 1))
            self._units = self._units or addressed.tables
        if pieces is not None:
            of_piece = addressed.of_piece if addressed is not None else np.full(len(pieces.commands), -1)
            self._first = np.searchsorted(pieces.commands, np.arange(len(program.commands) + 1))
            columns = (pieces.slots, pieces.places, pieces.bases, pieces.addresses, pieces.scales, pieces.gathered)
            heads = np.stack([column.astype(np.int64) for column in (*columns, of_piece)], axis=1)
            self._rows = np.concatenate([heads, pieces.starts, pieces.stops, pieces.strides], axis=1)

    def run(self, command: int, settled: Settled | None = None) -> None:
        """Runs the call of a command; `settled` gets its result, and returns what is stored in its place.

        Its result may be partial sums. Raises ProgramError naming the command.
        """
        call = self._program.calls[self._program.commands["call"][command]]
        table, entry = int(call["table"]), int(call["entry"])
        geometry = self._book.geometry(table)
        try:
            self._run(command, table, entry, geometry, settled or _unchanged)
        except ProgramError:
            raise
        except (TesseraError, *HOSTILE) as error:
            raise ProgramError(
                f"{geometry.unit.kind} cannot be computed: {reason_of(error)}"[:300],
                violation="call",
                command=command,
                actual=type(error).__name__,
            ) from error

    def _run(self, command: int, table: int, entry: int, geometry: TableGeometry, settled: Settled) -> None:
        unit, call = geometry.unit, geometry.call
        by_slot = self._pieces(command, geometry)
        box = _box(geometry, 0, entry, by_slot[0])
        slabs: list[Slab | None] = []
        for number, operand in enumerate(unit.operands):
            mine, met = by_slot[number + 1], None
            if number == 0 and operand is not None and mine and mine[0].table >= 0:
                met = self._met(command, table, geometry, box, operand, mine)
            if met is not None:
                call = replace(call, met=met)
                slabs.append(None)
            elif operand is None or not mine or mine[0].gathered:
                slabs.append(None)
            else:
                needed = _box(geometry, number + 1, entry, mine)
                slabs.append(self._slab(table, number, operand, needed, mine, call))
        if geometry.kind.constant_inputs:
            call = _with_values(geometry, slabs)
        if geometry.partial[entry]:
            row = self._program.tables[table].entries[entry]
            self._sum(geometry, call, box, slabs, by_slot[0], bool(row["begins"]), bool(row["ends"]), settled)
            return
        gathered: Slab | None = None
        if unit.gathers >= 0 and any(piece.gathered for piece in by_slot[unit.gathers + 1]):
            gathered = self._gathered(command, table, geometry, box, by_slot[unit.gathers + 1], slabs)
        found = geometry.kind.compute_box(call, box, tuple(slabs), gathered=gathered)
        values = settled(box, _checked(found, box, unit.output.dtype))
        self._write(by_slot[0], box, values, unit.output.dtype, final=False)

    def _sum(
        self,
        geometry: TableGeometry,
        call: Call,
        box: Box,
        slabs: list[Slab | None],
        results: list[_Piece],
        begins: bool,
        ends: bool,
        settled: Settled,
    ) -> None:
        """Adds one part of a sum to the partial sum at the result's address, and stores or finishes it."""
        unit, kind = geometry.unit, geometry.kind
        assert isinstance(kind, Product)
        name = unit.accumulator_dtype or unit.output.dtype
        accumulator = numpy_dtype(name)
        sums = kind.compute_box(call, box, tuple(slabs), partial=True)
        sums = _checked(sums.astype(accumulator, copy=False), box, name)
        if not begins:
            before = np.zeros(lengths(box), dtype=accumulator)
            for piece in results:
                before[_inside(piece.box, box)] = self._view(piece, accumulator)
            sums = kind.joined(before, sums).astype(accumulator, copy=False)
        if not ends:
            self._write(results, box, settled(box, sums), name, final=False)
            return
        found = kind.finish(call, box, sums, slabs[kind.factors(call) :])
        values = settled(box, _checked(found, box, unit.output.dtype))
        self._write(results, box, values, unit.output.dtype, final=True)

    def _pieces(self, command: int, geometry: TableGeometry) -> list[list[_Piece]]:
        """The memory that a command reads and writes by slot, from `pieces_of`."""
        ranks = geometry.rank_list
        found: list[list[_Piece]] = [[] for _ in ranks]
        for slot, place, base, address, scale, gathered, number, *axes in self._rows[
            self._first[command] : self._first[command + 1]
        ].tolist():
            rank = ranks[slot]
            width = len(axes) // 3
            starts, stops = axes[:rank], axes[width : width + rank]
            strides = tuple(axes[2 * width : 2 * width + rank])
            box = tuple(zip(starts, stops, strict=True))
            found[slot].append(_Piece(place, base, address, strides, box, scale, bool(gathered), number))
        return found

    def _view(self, piece: _Piece, dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray(lengths(piece.box), dtype, self._memory(piece.place), piece.address, piece.strides)

    def _final(self, piece: _Piece, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The view of a finished result in the place of its sums; distances shrink by the ratio of element sizes."""
        address = piece.base + (piece.address - piece.base) // piece.scale
        strides = tuple(stride // piece.scale for stride in piece.strides)
        return np.ndarray(lengths(piece.box), dtype, self._memory(piece.place), address, strides)

    def _write(self, results: list[_Piece], box: Box, values: NDArray[Any], dtype: str, *, final: bool) -> None:
        element = numpy_dtype(dtype)
        for piece in results:
            view = self._final(piece, element) if final else self._view(piece, element)
            view[...] = values[_inside(piece.box, box)]

    def _slab(self, table: int, number: int, operand: OperandType, box: Box, pieces: list[_Piece], call: Call) -> Slab:
        """An operand's box from its pieces, decoded; a single piece is not copied."""
        stored = numpy_dtype(operand.stored_dtype)
        if len(pieces) == 1:
            values = self._view(pieces[0], stored)
        else:
            values = np.empty(lengths(box), dtype=stored)
            for piece in pieces:
                values[_inside(piece.box, box)] = self._view(piece, stored)
        decode = self._scale(table, number, operand, call)
        if decode is not None:
            values = decode(values, tuple(slice(start, stop) for start, stop in box))
        return Slab(box, values)

    def _met(
        self, command: int, table: int, geometry: TableGeometry, box: Box, operand: OperandType, pieces: list[_Piece]
    ) -> NDArray[Any] | None:
        """Gathers the operands at the taps of a call's window through its address tables.

        None if they are too large to hold at once. Then the window slides over the box, which gives the same operands.
        """
        call, kind, units = geometry.call, geometry.kind, self._units
        window = kind.window(call)
        if window is None or units is None or operand.dtype != operand.stored_dtype:
            raise ProgramError("an operand is not what address tables are for", violation="addresses", command=command)
        self._check_words(command)
        gather = self._windows.get(table)
        if gather is None:
            gather = self._windows[table] = WindowGather(window)
        around = kind.enclosing(call, box)
        channels = (min(piece.box[1][0] for piece in pieces), max(piece.box[1][1] for piece in pieces))
        fill, dtype, count = kind.padding_value(call), numpy_dtype(operand.stored_dtype), channels[1] - channels[0]
        # the place of each operand that begins a run takes memory too
        held = met_bytes(around, window.kernel, count, dtype.itemsize) + met_bytes(
            around, window.kernel, 1, _PLACE_BYTES
        )
        if held > _LARGEST_MET_BYTES:
            return None
        met, words = empty_met(around, window.kernel, count, fill, dtype)
        for piece in pieces:
            unit, memory = units[piece.table], self._memory(piece.place)
            gather.fill(words, around, channels[0], piece.box, piece.address, piece.strides, unit, memory)
        return as_windows(met, len(window.kernel))

    def _check_words(self, command: int) -> None:
        """Raises ProgramError unless the address tables lie where a command has bound them."""
        addressed = self._addressed
        if addressed is None:
            return
        for row in range(self._first_table[command], self._first_table[command + 1]):
            number, address = int(addressed.numbers[row]), int(addressed.addresses[row])
            words = self._words.get(number)
            if words is None:
                words = self._words[number] = words_of(addressed.tables[number].table).tobytes()
            if self._memory(int(addressed.places[row]))[address : address + len(words)].tobytes() != words:
                raise ProgramError(
                    f"what is bound as address table {number} is another one", violation="addresses", command=command
                )

    def _scale(self, table: int, number: int, operand: OperandType, call: Call) -> Scale | None:
        key = (table, number)
        if key not in self._scales:
            if operand.decode is None and operand.dtype != operand.stored_dtype:
                raise ProgramError(
                    f"table {table} does not say how operand {number} is decoded",
                    violation="decode",
                    actual=operand.stored_dtype,
                    limit=operand.dtype,
                    hint="A program of a planning what-if has no values",
                )
            self._scales[key] = (
                None if operand.decode is None else scale_of(operand.decode, operand, len(call.tensor(number).shape))
            )
        return self._scales[key]

    def _gathered(
        self,
        command: int,
        table: int,
        geometry: TableGeometry,
        box: Box,
        pieces: list[_Piece],
        slabs: list[Slab | None],
    ) -> Slab:
        """Reads only the table rows that the indices of a box name."""
        number = geometry.unit.gathers
        operand, call = geometry.unit.operands[number], geometry.call
        piece = next((found for found in pieces if found.gathered), None)
        indices = slabs[1] if len(slabs) > 1 else None
        if operand is None or piece is None or indices is None or number != 0:
            raise ProgramError("a table is gathered without indices", violation="call", command=command)
        view = self._view(piece, numpy_dtype(operand.stored_dtype))
        axis, extent = call.axis("axis", 0, view.ndim), call.tensor(0).shape
        count = len(call.tensor(1).shape)
        around = box[axis : axis + count]
        outside = (*box[:axis], *box[axis + count :])
        needed = (*outside[:axis], (0, extent[axis]), *outside[axis:])
        if len(box) != view.ndim - 1 + count or piece.box != needed:
            raise ProgramError("a table that is gathered from is bound in part", violation="call", command=command)
        chosen = indices.cut(around).astype(np.int64)
        bad = (chosen < -extent[axis]) | (chosen >= extent[axis])
        if bad.any():
            raise ProgramError(
                "an index names no row of the table",
                violation="index",
                command=command,
                actual=int(chosen[bad][0]),
                limit=f"-{extent[axis]} to {extent[axis] - 1}",
                hint="Indices are part of the model's inputs",
            )
        rows = chosen.reshape(-1)
        values = np.take(view, rows, axis=axis)
        decode = self._scale(table, number, operand, call)
        if decode is not None:
            index: list[Any] = [slice(start, stop) for start, stop in needed]
            index[axis] = rows
            values = decode(values, tuple(index))
        return Slab(box, values.reshape(lengths(box)))


def _box(geometry: TableGeometry, slot: int, entry: int, pieces: list[_Piece]) -> Box:
    """The box that an entry needs of a slot; a single piece is the whole box."""
    if len(pieces) == 1:
        return pieces[0].box
    return box_of(geometry.starts[slot, entry], geometry.stops[slot, entry], geometry.rank_list[slot])


def _unchanged(box: Box, values: NDArray[Any]) -> NDArray[Any]:
    del box
    return values


def _inside(box: Box, around: Box) -> tuple[slice, ...]:
    return tuple(slice(a[0] - b[0], a[1] - b[0]) for a, b in zip(box, around, strict=True))


def _checked(values: NDArray[Any], box: Box, dtype: str) -> NDArray[Any]:
    """Returns a definition's result after checking that it is the requested box."""
    if values.shape != lengths(box) or values.dtype != numpy_dtype(dtype):
        raise ValueError(f"the result is {values.dtype}{list(values.shape)}, not {dtype}{list(lengths(box))}")
    return values


def _with_values(geometry: TableGeometry, slabs: list[Slab | None]) -> Call:
    """The call with the values of the operands that its definition needs in whole."""
    call = geometry.call
    known = {
        number: slab.values
        for number, slab in enumerate(slabs)
        if slab is not None and number in geometry.kind.constant_inputs
    }
    return replace(call, values=known) if known else call


def scale_of(decode: Decode, operand: OperandType, rank: int) -> Scale:
    """Scale and zero point as arrays of the operand's rank; the zero point is of the stored element type."""
    scale = np.frombuffer(decode.scale, dtype=numpy_dtype(decode.dtype)).astype(np.float32)
    zero = np.frombuffer(decode.zero, dtype=numpy_dtype(operand.stored_dtype)).astype(np.int32)
    shape = (1,) * (rank - len(decode.shape)) + tuple(decode.shape)
    return Scale(
        np.broadcast_to(scale.reshape(shape if scale.size > 1 else (1,) * rank), shape),
        np.broadcast_to(zero.reshape(shape if zero.size > 1 else (1,) * rank), shape),
        operand.dtype,
    )
