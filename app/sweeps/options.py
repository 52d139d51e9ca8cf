"""Options of a sweep, as its record holds them."""

from __future__ import annotations

from typing import Any

import msgspec

from app.sweeps.grid import Grid
from compiler.report.plan import ProfileRef


class SweepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles by name and digest, the grid by paths of fields, and the options of every point."""

    profiles: tuple[ProfileRef, ...]
    grid: Grid
    options: dict[str, Any]
