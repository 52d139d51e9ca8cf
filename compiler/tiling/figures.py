"""The quantities that rules and constraints speak of (SPEC section 5.1), for one tiling or for many at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# A number, or one number per candidate.
Figure = float | NDArray[Any]
Truth = bool | NDArray[np.bool_]

# The smallest core tile has no room in a core; it has, but not with what is kept beside it.
CORE_RULE: Final = "TILE-2:core"
KEPT_RULE: Final = "TILE-2:kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sizes in bytes of a tiling; each figure is a number or an array over candidates.

    capacity: S. inputs, outputs: IN (IN1) and OUT. staging: IN2. leaving: the last tile's results, while they are
    stored. shared: IN and OUT may use the same space.
    step_inputs, step_outputs: SubIN_i and SubOUT_i, one row per step. step_weights: W_i staged in the tile's memory.
    core_weights: per step, the weights in one core's weight memory. weight_memory: WRAM available per core.
    needed_weights: what a core's weight memory holds at once. core_tile: a core tile with all that is live with it.
    core_capacity: NRAM. images: feature maps in one tile. loaded, needed: input bytes read with halos and re-reads, and
    without. peak: the most that is live in the tile's memory.
    """

    whole_map: Truth
    capacity: int
    inputs: Figure
    outputs: Figure
    staging: Figure
    leaving: Figure
    shared: Truth
    step_inputs: NDArray[Any]
    step_outputs: NDArray[Any]
    step_weights: NDArray[Any]
    core_weights: NDArray[Any]
    weight_memory: Figure
    needed_weights: Figure
    core_tile: Figure
    core_capacity: int
    images: Figure
    loaded: Figure
    needed: int
    peak: Figure

    def at(self, row: int) -> Figures:
        """The figures of one candidate, as plain numbers."""

        def one(value: Figure | Truth) -> Any:
            if isinstance(value, np.ndarray):
                item = value[row].item()
                return int(item) if isinstance(item, float) else item
            return value

        return Figures(
            whole_map=one(self.whole_map),
            capacity=self.capacity,
            inputs=one(self.inputs),
            outputs=one(self.outputs),
            staging=one(self.staging),
            leaving=one(self.leaving),
            shared=one(self.shared),
            step_inputs=self.step_inputs[:, row].astype(np.int64),
            step_outputs=self.step_outputs[:, row].astype(np.int64),
            step_weights=self.step_weights[:, row].astype(np.int64),
            core_weights=self.core_weights[:, row].astype(np.int64),
            weight_memory=one(self.weight_memory),
            needed_weights=one(self.needed_weights),
            core_tile=one(self.core_tile),
            core_capacity=self.core_capacity,
            images=one(self.images),
            loaded=one(self.loaded),
            needed=self.needed,
            peak=one(self.peak),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule's verdict: whether it holds, the actual value and the limit, in the rule's unit."""

    rule: str
    holds: Truth
    actual: Figure
    limit: Figure


# A constraint on a tiling: a capacity rule, or what memory enforces.
Constraint = Callable[[Figures], Check]


def tile_fits(figures: Figures) -> Check:
    """TILE-2: what is live in the tile's memory at once fits it, the next tile's inputs and last one's results too."""
    actual = figures.peak + figures.staging + figures.leaving
    return Check(rule="TILE-2:tile", holds=actual <= figures.capacity, actual=actual, limit=figures.capacity)


def core_fits(figures: Figures) -> Check:
    """TILE-2 for one core, which is FUSE-17: the core tile fits the core's activation memory."""
    return Check(
        rule=CORE_RULE,
        holds=figures.core_tile <= figures.core_capacity,
        actual=figures.core_tile,
        limit=figures.core_capacity,
    )


def weights_fit(figures: Figures) -> Check:
    """TILE-2 for weights, which is FUSE-10: what a core has to hold at once fits its weight memory."""
    return Check(
        rule="TILE-2:weights",
        holds=figures.needed_weights <= figures.weight_memory,
        actual=figures.needed_weights,
        limit=figures.weight_memory,
    )


# These bind every tiling, whatever rules are switched off: memory has no switch.
PHYSICAL: tuple[Constraint, ...] = (tile_fits, core_fits, weights_fit)
