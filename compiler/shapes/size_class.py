"""Size classes: the few maxima that libraries of shape units are made for, so that ranges of similar size share them.

A library depends on the extents of its routine through these classes alone (SHAPE-1). Up to 64 there are two classes
per power of two, beyond it eight: a class is at most a third, then an eighth larger than an extent in it. Up to 64 the
classes are lengths that tiles are tried with anyway, so a library of a class has no more candidates than one of an
extent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from compiler.ir.graph import Graph
from compiler.shapes.extents import Range
from compiler.units import ceil_div

# Up to this extent classes are powers of two and one and a half times these.
_FEW: Final = 64
_PER_OCTAVE: Final = 8
# Stationary weights beside a routine count in this part of the memory that they lie in.
_RESIDENT_PARTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sized:
    """A routine without names at the maxima of some ranges: all that a library is made from, beside the profile."""

    graph: Graph
    ranges: Mapping[str, Range]
    in_place: frozenset[str]
    is_class: bool

    @property
    def text(self) -> str:
        """The ranges as keys and lists show them: maxima of a class, or a model's own ranges."""
        if self.is_class:
            return ",".join(f"<={one.high}" for one in self.ranges.values())
        return ",".join(f"{one.low}..{one.high}/{one.step}" for one in self.ranges.values())


def size_class(extent: int) -> int:
    """The least class that is no smaller than an extent of 1 or more."""
    if extent <= 2:
        return extent
    octave = 1 << ((extent - 1).bit_length() - 1)
    step = max(1, octave // 2) if extent <= _FEW else octave // _PER_OCTAVE
    return octave + ceil_div(extent - octave, step) * step


def resident_class(resident_bytes: int, capacity_bytes: int) -> int:
    """Bytes of stationary weights in every core, rounded up to a 64th of the memory that they lie in."""
    step = max(1, capacity_bytes // _RESIDENT_PARTS)
    return ceil_div(resident_bytes, step) * step
