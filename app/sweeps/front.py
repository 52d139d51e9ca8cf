"""The Pareto front of a table: the rows that no other row dominates (SIM-5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pareto_front(figures: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """The numbers of the rows that no other dominates, ascending; `figures` is rows × criteria, less is better.

    A row dominates another if it is at most as large everywhere and smaller somewhere, so equal rows all stay.
    """
    no_worse = (figures[:, None, :] <= figures[None, :, :]).all(axis=2)
    better = (figures[:, None, :] < figures[None, :, :]).any(axis=2)
    return np.flatnonzero(~(no_worse & better).any(axis=0))
