"""What options and pinned schedules ask of a tiling (TILE-9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compiler.tiling.split import Split
from compiler.tiling.tile import NOTHING_HANDED, Configuration, HaloMode, Handover, Order, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a tiling is chosen for, and what options or a pinned schedule ask of it (TILE-9).

    halo and placement: a mode, or `auto`. sizes and core: extents of the SRAM tile and the core tile by axis, as far
    as they are pinned. modes: the halo mode by axis, None: not pinned. fixed: pinned fields of the configuration.
    split: how the SRAM tile of a configuration is found, along the axes that are not pinned. handover: what stays on
    the chip between the group and others; `spread`: the only one that then is tried.
    """

    objective: str
    halo: str = "auto"
    placement: str = "auto"
    sizes: Mapping[str, int] = field(default_factory=dict)
    core: Mapping[str, int] = field(default_factory=dict)
    modes: Mapping[str, HaloMode] | None = None
    fixed: Mapping[str, object] = field(default_factory=dict)
    split: Split = field(default_factory=Split)
    handover: Handover = NOTHING_HANDED
    spread: Spread | None = None

    def marked(self, choices: Iterable[Configuration]) -> tuple[Configuration, ...]:
        """Configurations that hand on and take what is asked for."""
        if self.handover == NOTHING_HANDED:
            return tuple(choices)
        return tuple(
            replace(choice, handover=self.handover) for choice in choices if self.spread in (None, choice.spread)
        )

    @property
    def is_pinned(self) -> bool:
        """True if anything of the tiling is pinned."""
        return bool(self.sizes or self.core or self.fixed) or self.modes is not None

    def pins_tile(self, axes: Sequence[str], shape: Sequence[int]) -> bool:
        """True if the SRAM tile of such an output is pinned along every axis; its channels follow from slices."""
        cut = [axis for axis, extent in zip(axes, shape, strict=True) if extent > 1 and axis != "C"]
        return bool(self.sizes) and all(axis in self.sizes for axis in cut)


def as_pinned(choices: tuple[Configuration, ...], wishes: Wishes) -> tuple[Configuration, ...]:
    """Configurations with the pinned fields as pinned, each once; those that contradict themselves are left out."""
    if not wishes.is_pinned:
        return choices
    fixed: dict[str, Any] = dict(wishes.fixed)
    if wishes.sizes and not wishes.core:
        # a pinned tile is what ops go over one after another; a finer depth-first cut would have to be pinned too
        fixed.setdefault("order", Order.BREADTH_FIRST)
    if wishes.modes is not None:
        fixed["halo"] = tuple(sorted((a, m) for a, m in wishes.modes.items() if m is not HaloMode.RECOMPUTE))
    changed = [replace(choice, **fixed) for choice in choices]
    if "core_spread" not in fixed:
        # one core shares nothing
        changed = [replace(c, core_spread=Spread.SINGLE) if c.cores == 1 else c for c in changed]
    return tuple(dict.fromkeys(choice for choice in changed if _is_consistent(choice)))


def _is_consistent(choice: Configuration) -> bool:
    """False where pinned fields contradict each other: one unit or core shares nothing, sums wait for one slice."""
    inside = choice.channel_slices > 1 and not choice.slices_outer
    alone = (choice.units == 1) == (choice.spread is Spread.SINGLE)
    alone &= (choice.cores == 1) == (choice.core_spread is Spread.SINGLE)
    return alone and not (inside and choice.input_slices > 1)
