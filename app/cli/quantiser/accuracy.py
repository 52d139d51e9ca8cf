"""The difference between the outputs of a float model and those of its quantised form, over several samples."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, log10
from typing import Any

import numpy as np

from app.cli.quantiser.report import OutputAccuracy


@dataclass(slots=True, kw_only=True)
class Accuracy:
    """Sums of one output's errors; `add` takes the values of one sample in both models."""

    name: str
    type: str = ""
    elements: int = 0
    equal: int = 0
    max_error: float = 0.0
    error_sum: float = 0.0
    error_energy: float = 0.0
    signal_energy: float = 0.0
    rows: int | None = 0
    same_rows: int = 0
    reason: str | None = None

    def add(self, expected: Any, found: Any) -> None:
        """Adds a sample; an output without numbers, or of another shape in the two models, has a `reason` instead."""
        if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "biuf":
            self.reason = "it is no tensor of numbers"
            return
        self.type = expected.dtype.name
        if not isinstance(found, np.ndarray) or found.shape != expected.shape:
            self.reason = "its shape differs between the two models"
            return
        same = expected == found
        if expected.dtype.kind == "f":
            same |= np.isnan(expected) & np.isnan(found)
        self.elements += expected.size
        self.equal += int(np.count_nonzero(same))
        self._add_errors(expected[~same].astype(np.float64), found[~same].astype(np.float64))
        with np.errstate(all="ignore"):
            self.signal_energy += float(np.sum(np.square(expected.astype(np.float64))))
        self._add_rows(expected, found)

    def _add_errors(self, expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> None:
        with np.errstate(all="ignore"):
            errors = np.abs(expected - found)
            errors[np.isnan(errors)] = inf
            self.max_error = max(self.max_error, float(np.max(errors, initial=0.0)))
            self.error_sum += float(np.sum(errors))
            self.error_energy += float(np.sum(np.square(errors)))

    def _add_rows(self, expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> None:
        """Counts equal classes if the output looks like a row of class scores per image: floats of two axes."""
        if self.rows is None or expected.dtype.kind != "f" or expected.ndim != 2 or expected.shape[1] < 2:
            self.rows = None
            return
        self.rows += len(expected)
        self.same_rows += int(np.count_nonzero(expected.argmax(axis=1) == found.argmax(axis=1)))

    def result(self) -> OutputAccuracy:
        """What is reported; errors that are not finite are None."""
        if self.reason is not None or not self.elements:
            return OutputAccuracy(tensor=self.name, type=self.type, reason=self.reason or "it has no elements")
        is_float = self.type.startswith("float")
        ratio = self.signal_energy / self.error_energy if self.error_energy else inf
        return OutputAccuracy(
            tensor=self.name,
            type=self.type,
            equal_share=self.equal / self.elements,
            max_error=_finite(self.max_error),
            mean_error=_finite(self.error_sum / self.elements),
            snr_db=10 * log10(ratio) if is_float and ratio > 0 and isfinite(ratio) else None,
            same_class_share=self.same_rows / self.rows if self.rows else None,
        )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
