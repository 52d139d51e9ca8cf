"""Time, rates and amounts of the timed simulator as whole numbers (SIM-2, PROG-6).

An instant or a duration is a whole number of *ticks*, 1024 to a clock cycle. A rate is a whole number of *steps*, 2²⁴
to a byte per cycle. What moves is counted in *grains*: at a rate of one step, one grain moves in a tick, so that a byte
is 2³⁴ grains. A share of a resource is weighed in parts of 2¹⁶.

Rounding has one direction, so that nothing is faster than its profile says: start-ups and durations are rounded up to
whole ticks, rates and shares of them down to whole steps. A command moves all its grains, no more and no fewer: where
the last tick could carry more than what is left, the rest of that tick stays unused.

Bounds, all checked before a program is simulated, keep every product and sum within 64 bits: a program whose commands
one after another take more than 2⁶⁰ ticks (10¹⁵ cycles), a command that moves more than 2⁵⁰ bytes, a rate below 2⁻¹⁴
bytes per cycle (which steps would tell to a thousandth only) raise LimitError. A rate above 2²² bytes per cycle counts
as that. A command of more than 2⁶⁰ grains (64 MiB) is counted in coarser grains of 2ˢ each, s as small as possible, and
so is its rate.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TICKS_PER_CYCLE: Final = 1024
# The most ticks that all commands of a program may take one after another; what they share takes at most twice as long.
MAX_TICKS: Final = 1 << 60
# Steps of a byte per cycle, grains of a byte, parts of a whole share.
RATE_BITS: Final = 24
GRAIN_BITS: Final = RATE_BITS + TICKS_PER_CYCLE.bit_length() - 1
WEIGHT_BITS: Final = 16
# A command has at most 2 to this many grains.
AMOUNT_BITS: Final = 60
MAX_BYTES: Final = 1 << 50
# A capacity, in parts of a step, is at most 2⁶².
MAX_RATE: Final = 1 << (62 - WEIGHT_BITS - RATE_BITS)
LEAST_RATE: Final = 2.0**-14


def ticks_of(cycles: float) -> int:
    """Ticks of a duration in cycles, rounded up; of one too long to be simulated twice MAX_TICKS."""
    return min(ceil(cycles * TICKS_PER_CYCLE), 2 * MAX_TICKS)


def whole_cycles(ticks: int) -> int:
    """Cycles of a duration, rounded up."""
    return -(-ticks // TICKS_PER_CYCLE)


def seconds_of(ticks: float, clock_hz: float) -> float:
    """Seconds of a duration."""
    return ticks / TICKS_PER_CYCLE / clock_hz


def steps_of(bytes_per_cycle: float) -> int:
    """Steps of a rate, rounded down, at least one."""
    return max(1, int(min(bytes_per_cycle, MAX_RATE) * (1 << RATE_BITS)))


def stated_steps(name: str, bytes_per_cycle: float) -> int:
    """Steps of a rate that the profile states for what is named; raises LimitError for one that steps do not tell."""
    if bytes_per_cycle < LEAST_RATE:
        raise LimitError(
            f"the rate of {name} is too low to be simulated",
            stage="simulate",
            actual=f"{bytes_per_cycle:.3g} bytes per cycle",
            limit=f"{LEAST_RATE:.3g} bytes per cycle",
            hint="Raise the rate in the profile, or lower its clock",
        )
    return steps_of(bytes_per_cycle)


def weight_of(share: float) -> int:
    """Parts of a whole share (0 to 1, or a few), rounded up."""
    return ceil(share * (1 << WEIGHT_BITS))


def grains_of_bytes(sizes: Ints) -> tuple[Ints, Ints]:
    """Amounts of transfers of so many bytes, in grains, and s for those counted in grains of 2ˢ; sizes to MAX_BYTES."""
    _, bits = np.frexp(sizes.astype(np.float64))
    shifts = np.maximum(0, bits.astype(np.int64) + GRAIN_BITS - AMOUNT_BITS)
    return sizes << (GRAIN_BITS - shifts), shifts


def grains_of_call(ticks: int, steps: int) -> tuple[int, int]:
    """The amount that takes so many ticks at a rate of so many steps, in grains of 2ˢ, and s."""
    shift = max(0, (ticks * steps).bit_length() - AMOUNT_BITS)
    return ticks * max(1, steps >> shift), shift


def check_lengths(startups: Ints, durations: Ints, moved: Ints, times: Ints | None = None) -> None:
    """Raises LimitError for commands that take longer, one after another, or move more than can be simulated.

    startups, durations: ticks, each at most twice MAX_TICKS. moved: bytes; below zero where they exceed 64 bits. times:
    how often each of them runs, by default once.
    """
    most = int(moved.max(initial=0)) if not (moved < 0).any() else 1 << 63
    if most > MAX_BYTES:
        raise LimitError(
            "a command moves more than can be simulated in time",
            stage="simulate",
            actual=f"{most:.3g} bytes" if most < 1 << 63 else "2⁶³ bytes or more",
            limit=f"{MAX_BYTES:.3g} bytes",
        )
    each = startups.astype(np.float64) + durations
    total = float((each if times is None else each * times).sum())
    if total > MAX_TICKS:
        raise LimitError(
            "the program takes longer than can be simulated",
            stage="simulate",
            actual=f"{total / TICKS_PER_CYCLE:.3g} cycles",
            limit=f"{MAX_TICKS / TICKS_PER_CYCLE:.3g} cycles",
            hint="Make the model or the request smaller, or check the rates and start-ups of the profile",
        )
