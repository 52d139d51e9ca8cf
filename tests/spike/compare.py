"""What an expanded program and today's have in common: bytes of the DRAM, calls, and bytes that pass between cores."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from compiler.program.program import Level, Opcode, Program


def dram_counts(program: Program, opcode: Opcode) -> dict[str, Any]:
    """By region how often each of its bytes is read (LOAD) or written (STORE); shape (bytes of the region,)."""
    rows = program.commands[program.commands["opcode"] == opcode]
    side = "source" if opcode is Opcode.LOAD else "target"
    found = {region.name: np.zeros(region.size_bytes, dtype=np.int32) for region in program.regions}
    starts = [region.address for region in program.regions]
    names = [region.name for region in program.regions]
    for row in rows:
        if program.places[row[side]].level is not Level.DRAM:
            continue
        address = int(row[f"{side}_address"])
        number = int(np.searchsorted(starts, address, side="right")) - 1
        offsets = np.arange(int(row["run_bytes"]))
        for count, stride in zip(row["counts"].tolist(), row[f"{side}_strides"].tolist(), strict=True):
            offsets = (offsets[:, None] + np.arange(count) * stride).ravel()
        np.add.at(found[names[number]], address - starts[number] + offsets, 1)
    return {name: counts for name, counts in found.items() if counts.any()}


def call_counts(program: Program) -> Counter[tuple[int, ...]]:
    """How often each core makes each box of each op."""
    found: Counter[tuple[int, ...]] = Counter()
    for row in program.commands[program.commands["opcode"] == Opcode.COMPUTE]:
        call = program.calls[row["call"]]
        entry = program.tables[call["table"]].entries[call["entry"]]
        found[int(row["queue"]), int(row["step"]), *entry["starts"].tolist(), *entry["lengths"].tolist()] += 1
    return found


def moved_bytes(program: Program) -> dict[str, int]:
    """Bytes by opcode."""
    rows = program.commands
    bytes_of = rows["run_bytes"] * rows["counts"].prod(axis=1)
    return {opcode.name: int(bytes_of[rows["opcode"] == opcode].sum()) for opcode in Opcode}


def differences(today: Program, ours: Program) -> list[str]:
    """What the two do not have in common."""
    found = []
    for opcode in (Opcode.LOAD, Opcode.STORE):
        one, other = dram_counts(today, opcode), dram_counts(ours, opcode)
        for name in sorted(one.keys() | other.keys()):
            if name not in one or name not in other or not np.array_equal(one[name], other[name]):
                sums = [int(counts[name].sum()) if name in counts else 0 for counts in (one, other)]
                found.append(f"{opcode.name} {name}: {sums[0]} bytes, ours {sums[1]}")
    if call_counts(today) != call_counts(ours):
        found.append("calls")
    return found
