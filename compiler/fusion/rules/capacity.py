"""Rules about what fits: FUSE-10 and FUSE-12 to FUSE-18, and FUSE-11 on halo traffic.

Each takes the figures of a tiling, or of many at once, and answers with actual value and limit in bytes.
"""

from __future__ import annotations

import numpy as np

from compiler.tiling.figures import Check, Figure, Figures, Truth


def fuse_10(figures: Figures) -> Check:
    """FUSE-10: the largest op's weights for the tile, per core with its Cout split, fit the weight memory."""
    return _check("FUSE-10", figures.core_weights.max(axis=0, initial=0), figures.weight_memory)


def fuse_11(figures: Figures, limit_percent: float) -> Check:
    """FUSE-11: partial-map mode: (bytes read with halos and re-reads − without) / without, in per cent."""
    extra = np.asarray(figures.loaded) - figures.needed
    percent = 100.0 * np.maximum(extra, 0) / max(1, figures.needed)
    holds = figures.whole_map | (percent <= limit_percent)
    return Check(rule="FUSE-11", holds=_truth(holds), actual=_plain(percent), limit=limit_percent)


def fuse_12(figures: Figures) -> Check:
    """FUSE-12: IN + OUT ≤ S, or max(IN, OUT) ≤ S where the two may share space."""
    together = np.where(figures.shared, np.maximum(figures.inputs, figures.outputs), figures.inputs + figures.outputs)
    return _check("FUSE-12", together, figures.capacity)


def fuse_13(figures: Figures) -> Check:
    """FUSE-13: whole-map mode: W_i + IN1 + IN2 ≤ S for every step i."""
    actual = figures.step_weights.max(axis=0, initial=0) + figures.inputs + figures.staging
    return _check("FUSE-13", actual, figures.capacity, unless=~np.asarray(figures.whole_map))


def fuse_14(figures: Figures) -> Check:
    """FUSE-14: whole-map mode: SubIN_i + W_i + IN2 ≤ S for every step i."""
    actual = (figures.step_inputs + figures.step_weights).max(axis=0, initial=0) + figures.staging
    return _check("FUSE-14", actual, figures.capacity, unless=~np.asarray(figures.whole_map))


def fuse_15(figures: Figures) -> Check:
    """FUSE-15: whole-map mode: SubOUT_i + W_(i+1) + IN2 ≤ S for every step i."""
    steps = figures.step_outputs.copy()
    steps[:-1] += figures.step_weights[1:]
    actual = steps.max(axis=0, initial=0) + figures.staging
    return _check("FUSE-15", actual, figures.capacity, unless=~np.asarray(figures.whole_map))


def fuse_16(figures: Figures) -> Check:
    """FUSE-16: whole-map mode: W_i + W_(i+1) ≤ WRAM, so that the next weights load while these compute."""
    pairs = figures.core_weights[:-1] + figures.core_weights[1:]
    return _check("FUSE-16", pairs.max(axis=0, initial=0), figures.weight_memory, unless=~np.asarray(figures.whole_map))


def fuse_17(figures: Figures) -> Check:
    """FUSE-17: a core tile fits in NRAM; skipped in partial-map mode where SRAM = cores × NRAM."""
    skipped = ~np.asarray(figures.whole_map) & figures.sram_is_all_nram
    return _check("FUSE-17", figures.core_tile, figures.core_capacity, unless=skipped)


def fuse_18(figures: Figures, limit_images: float) -> Check:
    """FUSE-18: whole-map mode: feature maps in one SRAM tile ≤ limit."""
    return _check("FUSE-18", figures.images, limit_images, unless=~np.asarray(figures.whole_map))


def _check(rule: str, actual: Figure, limit: Figure, *, unless: object = False) -> Check:
    holds = np.asarray(unless) | (np.asarray(actual) <= np.asarray(limit))
    return Check(rule=rule, holds=_truth(holds), actual=_plain(actual), limit=_plain(limit))


def _truth(value: np.ndarray) -> Truth:
    return value if value.ndim else bool(value)


def _plain(value: object) -> Figure:
    array = np.asarray(value)
    return array if array.ndim else array.item()
