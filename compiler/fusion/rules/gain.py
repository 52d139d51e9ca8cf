"""FUSE-20: a group has to pay for itself."""

from __future__ import annotations

from compiler.tiling.figures import Check


def fuse_20(with_group: float, without_group: float) -> Check:
    """FUSE-20: with this group, and all that is still ungrouped as by `none`, the objective is no worse."""
    return Check(rule="FUSE-20", holds=with_group <= without_group, actual=with_group, limit=without_group)
