"""Which field of the profile would have to grow for bytes above the floor to vanish, where that can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.amounts import bytes_text, number_text
from compiler.cost.rates import reads_are_shared
from compiler.fusion.groups import Boundary
from compiler.profile.schema import Profile
from compiler.rules import BY_ID, called, named
from compiler.tiling.figures import CORE_RULE, KEPT_RULE, Check
from compiler.tiling.finished import Choice
from compiler.tiling.lowerable import APART_RULE, FALLS_RULE, SUMS_RULE
from compiler.tiling.tile import OpWeights
from compiler.tiling.tiled import TiledGroup

# Rules of the memory that a tile lies in, of a core's activations, and of weights; FUSE-11 counts halos, which larger
# tiles lessen.
_TILE_RULES: Final = frozenset(("FUSE-11", "FUSE-12", "FUSE-13", "FUSE-14", "FUSE-15", "TILE-2:tile"))
_CORE_RULES: Final = frozenset((CORE_RULE, KEPT_RULE))
_WEIGHT_RULES: Final = frozenset(("FUSE-16", "TILE-2:weights"))
# Allocations of a level that do not fit it (PROG-2).
_LEVEL_FIELDS: Final = MappingProxyType(
    {
        "PROG-2:sram": "sram.capacity_bytes",
        "PROG-2:sram-weights": "sram.weight_bytes",
        "PROG-2:nram": "nram.capacity_bytes",
        "PROG-2:nram-weights": "nram.weight_bytes",
        "PROG-2:wram": "wram.capacity_bytes",
    }
)
# Rules whose figures are no bytes: what is needed and what there is, in words.
_IN_WORDS: Final = MappingProxyType(
    {
        SUMS_RULE: ("sums in parts beside what is kept of them, or in pieces through the SRAM", "sums in one part"),
        FALLS_RULE: ("halos kept of ranges that fall from core tile to core tile", "halos recomputed"),
        APART_RULE: ("{} units that pass each other halos", "units without engines.cdma or engines.link work alone"),
        "TILE-4:tiles": ("{} tiles dealt out one by one", "{} tiles"),
        "FUSE-11": ("{} % read more than once", "{} %"),
        "FUSE-18": ("{} feature maps in a tile", "{} feature maps"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why bytes lie above the floor, and the fields that would all have to grow; none where none is known to help."""

    fields: tuple[str, ...] = ()
    why: str

    @classmethod
    def of_all(cls, causes: Sequence[Cause]) -> Cause:
        """The cause of what vanishes only when all of these do: no field helps where one of them has none."""
        fields = tuple(sorted({field for cause in causes for field in cause.fields}))
        known = bool(causes) and all(cause.fields for cause in causes)
        why = "; ".join(dict.fromkeys(cause.why for cause in causes)) or "why it leaves its group is not known"
        return cls(fields=fields if known else (), why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Two groups as one: its tiling, and the multiply-accumulates of the two apart."""

    tiled: TiledGroup
    choice: Choice
    macs_apart: int


def tile_field(profile: Profile) -> str:
    """The capacity of the memory that a tile lies in (S)."""
    return f"{profile.units.level}.capacity_bytes"


def weight_field(profile: Profile) -> str:
    """The capacity of the memory that a core's weights lie in."""
    if profile.wram is not None:
        return "wram.capacity_bytes"
    return "nram.capacity_bytes" if profile.nram.weight_bytes is None else "nram.weight_bytes"


def field_of_rule(rule: str | None, profile: Profile) -> str | None:
    """The field whose growth makes a rule hold sooner or later; None for rules on structure, gain and counts."""
    if rule in _TILE_RULES:
        return tile_field(profile)
    if rule in _CORE_RULES:
        return "nram.capacity_bytes"
    if rule in _WEIGHT_RULES:
        return weight_field(profile)
    return None if rule is None else _LEVEL_FIELDS.get(rule)


def amounts(check: Check) -> tuple[str, str]:
    """What a check that fails asks for, with its rule, and what there is: in bytes, or as the rule counts."""
    if check.rule not in BY_ID:
        return f"{number_text(float(np.max(check.actual)))} ({check.rule})", number_text(float(np.max(check.limit)))
    needed, available = _IN_WORDS.get(check.rule, ("{} bytes needed", "{} bytes available"))
    return (
        f"{needed.format(int(np.max(check.actual)))} ({called(check.rule)})",
        available.format(int(np.max(check.limit))),
    )


def intermediate_cause(profile: Profile, edge: Boundary, merged: Merged | None) -> Cause:
    """Why a tensor leaves its group over one edge: the rule that fails there, or what binds the merged tiling."""
    if merged is not None:
        return merged_cause(merged)
    if edge.rule is None:
        return Cause(why=edge.why)
    field = field_of_rule(edge.rule, profile)
    why = f"{named(edge.rule)} fails"
    if edge.actual is not None and edge.limit is not None:
        why += f": {number_text(edge.actual)} of {number_text(edge.limit)}"
    return Cause(fields=() if field is None else (field,), why=why)


def merged_cause(merged: Merged) -> Cause:
    """What makes two groups dearer as one: weights that do not stay, tiles that overlap, or neither."""
    tiled, choice, profile = merged.tiled, merged.choice, merged.tiled.profile
    again = sum(entry.size_bytes * (entry.loads - 1) for entry in choice.tiling.weights if entry.loads > 1)
    overlap = max(0, int(choice.figures.loaded) - choice.figures.needed)
    made_again = choice.cost.macs - merged.macs_apart
    if not reads_are_shared(profile):
        again = overlap = 0  # units read for themselves, whatever fits
    if again and again >= overlap:
        return Cause(
            fields=(_field_of_loads(tiled),),
            why=f"fusing costs more: {bytes_text(again)} of weights would be read again",
        )
    if overlap and tiled.slices > 1:
        return Cause(
            fields=(_field_of_loads(tiled),),
            why=f"fusing costs more: {bytes_text(overlap)} of inputs would be read again",
        )
    if overlap and choice.tiling.rounds > 1:
        return Cause(
            fields=(tile_field(profile),),
            why=f"fusing costs more: tiles would read {bytes_text(overlap)} of inputs again",
        )
    if made_again > 0 and choice.tiling.rounds > 1:
        why = f"fusing costs more: tiles would repeat {made_again:,} multiply-accumulates"
        return Cause(fields=(tile_field(profile),), why=why)
    return Cause(why=f"fusing costs more: the group would be bound by {choice.cost.bound_by}")


def halo_cause(tiled: TiledGroup, choice: Choice, name: str) -> Cause:
    """Why a group reads an input, or parts of it, more than once."""
    _, shares = tiled.frustums.factors(name)
    slices = shares["C"].made_sum if "C" in shares else 1
    follows_channels = any(axis == "C" for axis, _, _ in tiled.frustums.boxes[name])
    if slices > 1 and not follows_channels and tiled.slices > 1:
        return Cause(fields=(_field_of_loads(tiled),), why=f"it is read for each of {tiled.slices} channel slices")
    if not reads_are_shared(tiled.profile):
        return _unshared()
    tiling = choice.tiling
    if tiling.rounds > 1:
        why = f"{tiling.tiles} tiles, {tiling.rounds} one after another, need the same positions"
        return Cause(fields=(tile_field(tiled.profile),), why=why)
    return Cause(why=f"the tiles of {tiling.configuration.units} units need the same positions")


def weight_cause(tiled: TiledGroup, entry: OpWeights) -> Cause:
    """Why an op reads its weights more than once."""
    copies = 1 if reads_are_shared(tiled.profile) else tiled.walk.units
    if entry.loads <= copies:
        return _unshared()
    return Cause(fields=(_field_of_loads(tiled),), why=f"they do not stay on chip between tiles ({entry.loads} loads)")


def _field_of_loads(tiled: TiledGroup) -> str:
    """The memory for lack of which weights come again, or channels in slices.

    Where all weights would stay in the cores, channels are cut so that a tile's results take less room.
    """
    parts = tiled.slices * tiled.configuration.input_slices
    whole = sum(weights.core_bytes for weights in tiled.weights) * parts
    return tile_field(tiled.profile) if whole <= tiled.weight_room_bytes else weight_field(tiled.profile)


def _unshared() -> Cause:
    """Units that cannot pass on what they read."""
    return Cause(why="each unit reads it for itself: the profile has no way to pass it on (dram.multicast, cdma, link)")
