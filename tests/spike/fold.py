"""A streaming fold: bytes, work, memory and price of one candidate schedule, without a row written out (SCHED-3, 6).

For chains of windowed ops on a chip without SRAM, tiles dealt out in bands of rows. Along each axis the tiles of one
unit are cut into runs of equal lengths (fresh and needed, of all tensors); quantities are sums over products of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled
from compiler.ops.op_facts import GraphFacts
from compiler.program.program import Opcode, Program

_RUNS: Final = 64
_TENSORS: Final = 16
# What a fold finds, in this order.
FOUND: Final = ("loaded", "stored", "kept", "macs", "peak", "cycles")


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of ops as arrays: extents of its tensors along H and W, windows, channels, work."""

    extents: Any
    windows: Any
    channels: Any
    work: Any


def chain_of(facts: GraphFacts) -> Chain:
    """The chain that a graph is: convolutions, poolings and element-wise ops of one operand."""
    graph = facts.graph
    names = [graph.inputs[0], *(op.output for op in graph.ops)]
    shapes = [graph.tensors[name].shape for name in names]
    windows, work = [], []
    for op, facts_of in zip(graph.ops, facts.ops, strict=True):
        weights = [graph.tensors[name].shape for name in op.inputs[1:2] if name]
        window = facts_of.window
        if window is None:
            windows.append([[1, 1, 0], [1, 1, 0]])
        else:
            windows.append([[k, s, p] for k, s, p in zip(window.kernel, window.strides, window.pads, strict=True)])
        work.append(prod(weights[0][1:]) if weights else 1)
    return Chain(
        np.array([shape[2:] for shape in shapes], dtype=np.int64),
        np.array(windows, dtype=np.int64),
        np.array([shape[1] for shape in shapes], dtype=np.int64),
        np.array(work, dtype=np.int64),
    )


@compiled()
def _axis(
    extents: Any, windows: Any, axis: int, tile: int, first: int, stop: int, is_kept: bool, counts: Any, lengths: Any
) -> int:
    """The runs of a unit's tiles [first, stop) along one axis: how many tiles each, fresh and needed lengths."""
    tensors, runs = len(extents), 0
    reached, shifts = np.zeros(_TENSORS, dtype=np.int64), np.empty(_TENSORS, dtype=np.int64)
    shifts[tensors - 1] = tile
    for tensor in range(tensors - 1, 0, -1):
        shifts[tensor - 1] = shifts[tensor] * windows[tensor - 1, axis, 1]
    number = first
    while number < stop:
        low, high = number * tile, min((number + 1) * tile, extents[tensors - 1, axis])
        is_same = runs > 0
        place = runs if runs < _RUNS else _RUNS - 1
        for tensor in range(tensors - 1, -1, -1):
            begin = max(low, reached[tensor]) if is_kept and number > first else low
            fresh, needed = high - begin, high - low
            reached[tensor] = high
            if is_same and (lengths[runs - 1, tensor, 0] != fresh or lengths[runs - 1, tensor, 1] != needed):
                is_same = False
            lengths[place, tensor, 0], lengths[place, tensor, 1] = fresh, needed
            if tensor:
                kernel, stride, pad = windows[tensor - 1, axis]
                # what is made anew of a result is all that its operand is needed for
                low = max(0, begin * stride - pad)
                high = min(extents[tensor - 1, axis], (high - 1) * stride - pad + kernel)
        number += 1
        if not is_same:
            counts[place] = 1
            runs = place + 1
            continue
        # tiles go on alike until one reaches an end
        ahead = stop - number
        for tensor in range(tensors):
            ahead = min(ahead, (extents[tensor, axis] - reached[tensor]) // shifts[tensor])
        ahead = max(0, ahead - 1)
        counts[runs - 1] += 1 + ahead
        number += ahead
        for tensor in range(tensors):
            reached[tensor] += ahead * shifts[tensor]
    return runs


@compiled(
    "float64[:, ::1](int64[:, ::1], int64[:, :, ::1], int64[::1], int64[::1], int64[:, ::1], float64[::1], int64)"
)
def fold(extents: Any, windows: Any, channels: Any, work: Any, candidates: Any, rates: Any, element: int) -> Any:
    """What schedules take; shape (candidates, 6), as `FOUND` says.

    candidates: rows of (rows of a tile, columns, units, whether halos are kept). rates: bytes a cycle of a unit's DRAM
    engine, of the DRAM, of moves in a core, multiply-accumulates a cycle (lanes of K, lanes of C), start-up cycles.
    """
    found = np.zeros((len(candidates), 6))
    tensors = len(extents)
    last = tensors - 1
    rows, columns = np.empty((_RUNS, _TENSORS, 2), dtype=np.int64), np.empty((_RUNS, _TENSORS, 2), dtype=np.int64)
    row_counts, column_counts = np.empty(_RUNS, dtype=np.int64), np.empty(_RUNS, dtype=np.int64)
    for c in range(len(candidates)):
        height, width, units, kept = candidates[c]
        bands = -(-extents[last, 0] // height)
        across = _axis(extents, windows, 1, width, 0, -(-extents[last, 1] // width), kept != 0, column_counts, columns)
        slowest, begin = 0.0, 0
        for unit in range(min(units, bands)):
            its = bands // units + (1 if unit < bands % units else 0)
            down = _axis(extents, windows, 0, height, begin, begin + its, kept != 0, row_counts, rows)
            begin += its
            cycles = fill = 0.0
            for i in range(down):
                for j in range(across):
                    count = row_counts[i] * column_counts[j]
                    loaded = rows[i, 0, 0] * columns[j, 0, 0] * channels[0] * element
                    stored = rows[i, last, 0] * columns[j, last, 0] * channels[last] * element
                    busy, macs, moved, peak = 0.0, 0, 0, 0
                    for t in range(tensors):
                        fresh = rows[i, t, 0] * columns[j, t, 0]
                        held = rows[i, t, 1] * columns[j, t, 1] * channels[t] * element
                        if t:
                            macs += fresh * channels[t] * work[t - 1]
                            taps = work[t - 1] / max(1, channels[t - 1])
                            busy += fresh * np.ceil(channels[t] / rates[3]) * np.ceil(channels[t - 1] / rates[4]) * taps
                            before = rows[i, t - 1, 1] * columns[j, t - 1, 1] * channels[t - 1] * element
                            peak = max(peak, held + before)
                        if t < last:
                            moved += held - fresh * channels[t] * element
                    move = (loaded + stored) / min(rates[0], rates[1] / units) + rates[5]
                    busy += moved / rates[2]
                    cycles += count * max(busy, move)
                    fill = max(fill, loaded / rates[0] + rates[5])
                    found[c, 0] += count * loaded
                    found[c, 1] += count * stored
                    found[c, 2] += count * moved
                    found[c, 3] += count * macs
                    found[c, 4] = max(found[c, 4], peak)
            slowest = max(slowest, cycles + fill)
        found[c, 5] = slowest
    return found


def expanded_figures(program: Program, given: Sequence[str], results: Sequence[str], work: Sequence[int]) -> list[int]:
    """The same of an expanded program: bytes of inputs loaded, bytes stored, multiply-accumulates."""
    rows = program.commands
    bytes_of = rows["run_bytes"] * rows["counts"].prod(axis=1)
    found = []
    for names, opcode, side in ((given, Opcode.LOAD, "source"), (results, Opcode.STORE, "target")):
        total = 0
        for region in program.regions:
            if region.name in names:
                at = rows[f"{side}_address"]
                inside = (at >= region.address) & (at < region.address + region.size_bytes)
                total += int(bytes_of[(rows["opcode"] == opcode) & inside].sum())
        found.append(total)
    macs = 0
    for row in rows[rows["opcode"] == Opcode.COMPUTE]:
        call = program.calls[row["call"]]
        table = program.tables[call["table"]]
        macs += int(np.prod(table.entries["lengths"][call["entry"]][: len(table.shape)])) * work[int(row["step"])]
    return [*found, macs]
