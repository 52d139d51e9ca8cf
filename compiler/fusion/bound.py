"""Which rules and memory checks decided a group, and which held anyway.

A check *bound* a group if it is the first that fails
- at one of the group's boundaries, for this group merged with its neighbour, in the order in which checks are asked; or
- for a larger tile of the group: one tile fewer along one axis, or one slice of output channels fewer, all else as
  planned (only where a unit has fewer tiles to work on then).
A check that never comes first in this way *held anyway*: no single one of these steps fails for it. That is cheap to
tell and one-sided: a check that bound may be followed by another that fails as well, so switching it off need not
change the plan; and tilings that differ in more than one step are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from compiler.fusion.evaluate import Evaluator
from compiler.fusion.groups import Boundary
from compiler.fusion.segment_graph import bits
from compiler.tiling.configurations import unit_share
from compiler.tiling.exact import figures_of
from compiler.tiling.figures import PHYSICAL
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import allocation_check, memory_of
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


def rules_at_boundaries(
    groups: Sequence[int], homes: Mapping[int, int], boundaries: Sequence[Sequence[Boundary]]
) -> dict[int, set[str]]:
    """By group the checks that are the first to fail at its boundaries, where others read it or it reads others."""
    found: dict[int, set[str]] = {group: set() for group in groups}
    for group, edges in zip(groups, boundaries, strict=True):
        for edge in edges:
            if edge.rule is not None and edge.consumer is not None:
                found[group].add(edge.rule)
                found[homes[edge.consumer]].add(edge.rule)
    return found


def rules_of_tile(evaluator: Evaluator, group: int, choice: Choice) -> set[str]:
    """The checks that are the first to fail for a larger tile of the group."""
    found = set()
    for larger in _larger_tiles(evaluator, group, choice):
        figures = figures_of(larger)
        checks = (rule(figures) for rule in (*PHYSICAL, *evaluator.constraints(group)))
        failed = next((check for check in checks if not check.holds), None)
        if failed is None:
            failed = allocation_check(memory_of(larger))
        if failed is not None:
            found.add(failed.rule)
    return found


def _larger_tiles(evaluator: Evaluator, group: int, choice: Choice) -> Iterator[TiledGroup]:
    """The group with one tile fewer along an axis, or one channel slice fewer, wherever that leaves less to go over."""
    tiling, configuration = choice.tiling, choice.tiling.configuration
    if tiling.rounds * configuration.channel_slices == 1:
        return
    geometry = GroupGeometry(evaluator.facts, tuple(bits(group)))
    profile = evaluator.profile.holding(configuration.handover.held_bytes)
    tile = dict(zip(tiling.axes, tiling.tile, strict=True))
    core = dict(zip(tiling.axes, tiling.core_tile, strict=True))
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    for axis, extent in extents.items():
        count = ceil_div(extent, tile[axis])
        if axis == "C" or count == 1:
            continue
        wider = {**tile, axis: ceil_div(extent, count - 1)}
        larger = TiledGroup(geometry, profile, configuration, wider, core)
        if larger.walk.rounds < tiling.rounds:
            yield larger
    slices = configuration.channel_slices
    if slices > 1 and "C" in extents:
        parts = unit_share(configuration) * (slices - 1)
        wider = {**tile, "C": min(extents["C"], ceil_div(extents["C"], parts))}
        fewer = replace(configuration, channel_slices=slices - 1)
        if wider["C"] > tile["C"]:
            yield TiledGroup(geometry, profile, fewer, wider, core)
