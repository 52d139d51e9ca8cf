"""Actions and statements as rows of a program: commands, calls, bindings (PROG-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.program.program import BINDING, CALL, COMMAND, Rows
from compiler.program.steps.action import Call, Copy, Numbers

# The number of an entry of a table: of a table, a box, and the rest of the entry.
EntryOf = Callable[[int, tuple[tuple[int, int], ...], Numbers], int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommandRows:
    """Rows of COMMAND, CALL and BINDING."""

    commands: Rows
    calls: Rows
    bindings: Rows


def rows_of(its: Iterable[tuple[Copy | Call, Numbers]], entry_of: EntryOf) -> CommandRows:
    """The rows of what has these keys and numbers; buffers are the first of their rings."""
    given = list(its)
    commands = np.zeros(len(given), dtype=COMMAND)
    calls: list[tuple[int, ...]] = []
    bindings: list[tuple[object, ...]] = []
    for row, (key, numbers) in zip(commands, given, strict=True):
        row["opcode"], row["queue"], row["step"] = key.opcode, key.queue, key.step
        row["source"] = row["target"] = row["call"] = -1
        row["counts"] = 1
        if isinstance(key, Copy):
            row["source"], row["target"], row["targets"] = key.source, key.target, key.targets
            row["run_bytes"], row["counts"], row["source_strides"], row["target_strides"] = key.runs
            row["source_address"], row["target_address"] = numbers
            continue
        at = len(key.lengths)
        box = tuple((start, start + length) for start, length in zip(numbers, key.lengths, strict=False))
        row["call"], row["run_bytes"], row["counts"] = len(calls), 0, 0
        calls.append((key.table, entry_of(key.table, box, key.rest), len(bindings), len(key.bound)))
        for operand, place, lengths, strides, _ in key.bound:
            rest = (0,) * (MAX_AXES - len(lengths))
            starts = (*numbers[at + 1 : at + 1 + len(lengths)], *rest)
            bindings.append((operand, place, numbers[at], starts, (*lengths, *rest), (*strides, *rest)))
            at += 1 + len(lengths)
    return CommandRows(commands=commands, calls=np.array(calls, dtype=CALL), bindings=np.array(bindings, dtype=BINDING))
