"""A group of a segment on its way to a program: what the plan says of it, and who lowers it (PROG-7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.program.context import Context
from compiler.program.flat import FlatLowering
from compiler.program.group import GroupLowering
from compiler.program.nested import NestedLowering
from compiler.program.staged import StagedLowering
from compiler.tiling.tile import Tiling
from compiler.tiling.tiled import TiledGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """A group of a segment as the plan has it: its name, its ops and its tiling."""

    name: str
    ops: tuple[int, ...]
    tiling: Tiling


def lowering_of(context: Context, group: TiledGroup, steps: Mapping[int, int]) -> GroupLowering:
    """The lowering of a group, by how its chip and its tiling have it worked on; arguments as `GroupLowering` has."""
    kind: type[GroupLowering] = FlatLowering if group.is_flat else StagedLowering if group.is_staged else NestedLowering
    return kind(context, group, steps)
