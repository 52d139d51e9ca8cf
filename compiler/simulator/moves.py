"""What commands move and compare, as rows that machine code follows (`kernels.py`), window by window (SIM-1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.program.fields import is_call, is_transfer, refuse_first
from compiler.program.program import MAX_COUNTS, Program
from compiler.program.strided import Flags
from compiler.simulator.kernels import WORDS, Action, Doing, Rows, order_axes

# The place of a word's size in WORDS, by its size.
_PLACE_OF: Final = np.zeros(max(WORDS) + 1, dtype=np.int64)
_PLACE_OF[list(WORDS)] = np.arange(len(WORDS))
_PLACE_OF.setflags(write=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boxes:
    """Boxes to copy or compare, one per row, by command; addresses and strides in bytes."""

    commands: Ints
    actions: Ints
    words: Ints
    at: Ints
    of: Ints
    counts: NDArray[np.int64]
    at_strides: NDArray[np.int64]
    of_strides: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """The rows of a window's commands: command c has those from firsts[c] to firsts[c + 1].

    `doings` are Doing, `rows` the fields of Rows.
    """

    doings: Ints
    firsts: Ints
    rows: tuple[NDArray[np.int64], ...]

    @property
    def axes(self) -> int:
        """The most axes that a row counts."""
        return int(self.rows[-1].shape[1])

    def check(self, memory_bytes: int, beside_bytes: int) -> None:
        """Raises ProgramError if a row leaves the chip's memories, or what is kept beside them: machine code would not.

        The proof before has shown it of each command and place.
        """
        rows = Rows(*self.rows)
        words = np.array(WORDS, dtype=np.float64)[rows.words]
        inside = (rows.actions == Action.MOVE) | (rows.actions == Action.CHECK_GIVEN)
        for first, steps, size in (
            (rows.at, rows.at_steps, memory_bytes),
            (rows.of, rows.of_steps, np.where(inside, memory_bytes, beside_bytes)),
        ):
            # in floats nothing overflows; axes beyond the last of a row are not gone through
            used = np.arange(self.axes) < rows.dims[:, None]
            reach = np.where(used, (rows.counts - 1.0) * steps, 0.0)
            low, high = (first + np.minimum(reach, 0).sum(axis=1)), (first + np.maximum(reach, 0).sum(axis=1) + 1)
            bad = (low < 0) | (high * words > size)
            commands = np.searchsorted(self.firsts, np.arange(len(bad)), side="right") - 1
            refuse_first(bad, commands, "a command leaves its memory", "address", high * words, size)


def moves_of(program: Program, offsets: Ints, calls: Boxes | None, asks: Flags) -> Moves:
    """The rows of transfers, and these of calls; `offsets`: where each place begins in the chip's memories.

    A command that `asks` does nothing by itself. Transfers onto their own source ask as well.
    """
    transfers, onto_themselves = _transfers(program, offsets)
    found = together([transfers, *([] if calls is None else [calls])])
    opcodes = program.commands["opcode"]
    doings = np.where(is_transfer(opcodes), int(Doing.ROWS), int(Doing.NOTHING))
    doings = np.where(is_call(opcodes), int(Doing.CALL), doings)
    doings[asks | onto_themselves] = Doing.ASK
    sizes = found.words[:, None]
    counts = np.ascontiguousarray(found.counts)
    at_steps, of_steps = found.at_strides // sizes, found.of_strides // sizes
    dims = np.zeros(len(found.commands), dtype=np.int64)
    order_axes(dims, counts, at_steps, of_steps)
    rows = Rows(
        actions=found.actions,
        words=_PLACE_OF[found.words],
        at=found.at // found.words,
        of=found.of // found.words,
        dims=dims,
        counts=counts,
        at_steps=at_steps,
        of_steps=of_steps,
    )
    firsts = np.searchsorted(found.commands, np.arange(len(program.commands) + 1))
    return Moves(doings=doings.astype(np.int64), firsts=firsts.astype(np.int64), rows=tuple(rows))


def _transfers(program: Program, offsets: Ints) -> tuple[Boxes, Flags]:
    """The boxes that transfers copy, one per target; and which commands write where they read."""
    numbers = np.flatnonzero(is_transfer(program.commands["opcode"]))
    rows = program.commands[numbers]
    long = rows["counts"] > 1
    of_strides = np.where(long, rows["source_strides"], 0)
    at_strides = np.where(long, rows["target_strides"], 0)
    # a word as wide as all numbers allow: the lowest bit set of any, at most 8
    marks = rows["run_bytes"] | rows["source_address"] | rows["target_address"]
    marks |= np.bitwise_or.reduce(of_strides | at_strides, axis=1)
    words = np.minimum(max(WORDS), marks & -marks)
    targets = rows["targets"].astype(np.int64)
    owners = np.repeat(np.arange(len(rows)), targets)
    places = rows["target"][owners] + np.arange(len(owners)) - np.repeat(np.cumsum(targets) - targets, targets)
    read, written = (
        _span(rows[f"{side}_address"], rows["counts"], strides, rows["run_bytes"])
        for side, strides in (("source", of_strides), ("target", at_strides))
    )
    meets = (read[0] < written[1]) & (written[0] < read[1])
    at_source = places == rows["source"][owners]
    # nothing changes where each byte goes to its own place
    stays = (rows["source_address"] == rows["target_address"]) & (of_strides == at_strides).all(axis=1)
    onto_themselves = np.zeros(len(program.commands), dtype=np.bool_)
    onto_themselves[numbers[owners[at_source & (meets & ~stays)[owners]]]] = True
    moved = ~(at_source & stays[owners])
    owners, places = owners[moved], places[moved]
    runs = (rows["run_bytes"] // words)[:, None]
    ends = words[:, None]
    return (
        Boxes(
            commands=numbers[owners],
            actions=np.full(len(owners), int(Action.MOVE)),
            words=words[owners],
            at=offsets[places] + rows["target_address"][owners],
            of=offsets[rows["source"][owners]] + rows["source_address"][owners],
            counts=np.concatenate([rows["counts"], runs], axis=1)[owners],
            at_strides=np.concatenate([at_strides, ends], axis=1)[owners],
            of_strides=np.concatenate([of_strides, ends], axis=1)[owners],
        ),
        onto_themselves,
    )


def _span(addresses: Ints, counts: Ints, strides: Ints, run_bytes: Ints) -> tuple[Ints, Ints]:
    """The first byte, and one past the last, of a strided access."""
    reach = (counts - 1) * strides
    low = addresses + np.minimum(reach, 0).sum(axis=1)
    return low, addresses + np.maximum(reach, 0).sum(axis=1) + run_bytes


def together(parts: Sequence[Boxes]) -> Boxes:
    """All boxes by command, with as many axes as any has."""
    width = max(MAX_COUNTS + 1, *(part.counts.shape[1] for part in parts))

    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    def wide(name: str, rest: int) -> Any:
        found = [getattr(part, name) for part in parts]
        padded = [np.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=rest) for one in found]
        return np.concatenate(padded)

    commands = joined("commands")
    order = np.argsort(commands, kind="stable")
    return Boxes(
        commands=commands[order],
        actions=joined("actions")[order],
        words=joined("words")[order],
        at=joined("at")[order],
        of=joined("of")[order],
        counts=wide("counts", 1)[order],
        at_strides=wide("at_strides", 0)[order],
        of_strides=wide("of_strides", 0)[order],
    )
