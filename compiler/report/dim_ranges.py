"""The ranges of dynamic dimensions as plans and answers for tables have them (SHAPE-9)."""

from __future__ import annotations

from compiler.report.execution import Part


class DimRangeDoc(Part, frozen=True, kw_only=True):
    """The extents that a dynamic dimension may have: `min` to `max` in steps.

    `is_default`: option `dims` was not given, and the range follows from the model (docs/packages.md).
    """

    min: int
    max: int
    step: int
    is_default: bool
