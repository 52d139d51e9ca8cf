"""Rules about what fits: FUSE-12 to FUSE-16 and FUSE-18, FUSE-11 on halo traffic, and rules that a user adds.

Each takes the figures of a tiling, or of many at once, and answers with actual value and limit. FUSE-10 and FUSE-17 are
the memory checks `weights_fit` and `core_fits` (`tiling/figures.py`), which have no switch.
"""

from __future__ import annotations

import numpy as np

from compiler.linear_rules import FIGURES, LinearRule, Sum
from compiler.tiling.figures import Check, Figure, Figures, Truth


def fuse_11(figures: Figures, limit: float) -> Check:
    """FUSE-11: partial-map mode: (bytes read with halos and re-reads − without) / without, in per cent."""
    percent = 100.0 * np.maximum(figures.loaded - figures.needed, 0) / max(1, figures.needed)
    holds = np.logical_or(figures.whole_map, percent <= limit)
    return Check(rule="FUSE-11", holds=_truth(holds), actual=_plain(percent), limit=limit)


def fuse_12(figures: Figures) -> Check:
    """FUSE-12: IN + OUT ≤ S, or max(IN, OUT) ≤ S where the two may share space."""
    together = np.where(figures.shared, np.maximum(figures.inputs, figures.outputs), figures.inputs + figures.outputs)
    return _check("FUSE-12", together, figures.capacity)


def fuse_13(figures: Figures) -> Check:
    """FUSE-13: whole-map mode: W_i + IN1 + IN2 ≤ S for every step i."""
    actual = figures.step_weights.max(axis=0, initial=0) + figures.inputs + figures.staging
    return _check("FUSE-13", actual, figures.capacity, only_if=figures.whole_map)


def fuse_14(figures: Figures) -> Check:
    """FUSE-14: whole-map mode: SubIN_i + W_i + IN2 ≤ S for every step i."""
    actual = (figures.step_inputs + figures.step_weights).max(axis=0, initial=0) + figures.staging
    return _check("FUSE-14", actual, figures.capacity, only_if=figures.whole_map)


def fuse_15(figures: Figures) -> Check:
    """FUSE-15: whole-map mode: SubOUT_i + W_(i+1) + IN2 ≤ S for every step i."""
    steps = figures.step_outputs.copy()
    steps[:-1] += figures.step_weights[1:]
    actual = steps.max(axis=0, initial=0) + figures.staging
    return _check("FUSE-15", actual, figures.capacity, only_if=figures.whole_map)


def fuse_16(figures: Figures) -> Check:
    """FUSE-16: whole-map mode: W_i + W_(i+1) ≤ WRAM, so that the next weights load while these compute."""
    pairs = figures.core_weights[:-1] + figures.core_weights[1:]
    return _check("FUSE-16", pairs.max(axis=0, initial=0), figures.weight_memory, only_if=figures.whole_map)


def fuse_18(figures: Figures, limit: float) -> Check:
    """FUSE-18: whole-map mode: feature maps in one SRAM tile ≤ limit."""
    return _check("FUSE-18", figures.images, limit, only_if=figures.whole_map)


def added(figures: Figures, rule: LinearRule) -> Check:
    """A rule that a user added: one sum of figures is at most, or at least, another."""
    left, right = (_value(figures, side) for side in (rule.left, rule.right))
    holds = left >= right if rule.at_least else left <= right
    return Check(rule=rule.name, holds=_truth(np.asarray(holds)), actual=_plain(left), limit=_plain(right))


def _value(figures: Figures, side: Sum) -> np.ndarray:
    """A sum of figures: a number, or one for each candidate."""
    total = np.asarray(side.constant)
    for name, factor in side.terms:
        value = np.asarray(getattr(figures, FIGURES[name].field))
        if FIGURES[name].fold == "count":
            value = np.asarray(len(value))
        elif FIGURES[name].fold == "max":
            value = value.max(axis=0, initial=0)
        total = total + factor * value
    return total


def _check(rule: str, actual: Figure, limit: Figure, *, only_if: Truth = True) -> Check:
    holds = np.asarray(actual <= limit)
    if only_if is not True:
        holds = np.logical_or(np.logical_not(only_if), holds)
    return Check(rule=rule, holds=_truth(holds), actual=_plain(actual), limit=_plain(limit))


def _truth(value: np.ndarray) -> Truth:
    return value if value.ndim else bool(value)


def _plain(value: object) -> Figure:
    if isinstance(value, int | float):
        return value
    array = np.asarray(value)
    return array if array.ndim else array.item()
