"""The figures of a complete tiling: what rules and memory are checked against (SPEC section 5.1)."""

from __future__ import annotations

import numpy as np

from compiler.tiling.figures import Figures
from compiler.tiling.tile import WeightHome
from compiler.tiling.tiled import TiledGroup


def figures_of(group: TiledGroup) -> Figures:
    """The figures of a complete tiling that rules and memory are checked against (SPEC 5.1)."""
    profile, geometry = group.profile, group.geometry
    on_core, nested = group.is_flat, group.is_nested
    inputs, outputs = group.ends_bytes
    in_place = group.weights_in_place
    passing = np.array([w.table_bytes if in_place else w.staged_core_bytes for w in group.weights], dtype=np.int64)
    units = np.array([w.table_bytes if in_place else w.unit_bytes for w in group.weights], dtype=np.int64)
    frustums = group.core_frustums if nested else group.frustums
    sizes = group.volumes(frustums)
    step_inputs = [sum([sizes[name] for name in names]) for names in geometry.read]
    staged = passing if on_core else np.minimum(units, passing * profile.cores_per_cluster)
    if nested or profile.units.weight_part_bytes is not None:
        staged = np.zeros_like(staged)
    waiting = sum(w.unit_bytes for w, home in zip(group.weights, group.homes, strict=True) if home is WeightHome.SRAM)
    waiting += group.passing_line_bytes
    if profile.units.weight_part_bytes is not None:
        waiting = 0
    peak = group.tile_bytes + waiting + max(group.passing_unit_bytes, default=0)
    return Figures(
        whole_map=group.is_whole_map,
        capacity=profile.units.memory.capacity_bytes,
        inputs=inputs,
        outputs=outputs,
        staging=group.staging_bytes,
        leaving=sum(group.leaving.values()),
        shared=geometry.is_in_place,
        step_inputs=np.array(step_inputs, dtype=np.int64),
        step_outputs=np.array([sizes[op.output] for op in geometry.ops], dtype=np.int64),
        step_weights=staged,
        core_weights=passing,
        weight_memory=group.weight_room_bytes,
        needed_weights=group.core_weight_bytes,
        core_tile=group.core_peak_bytes,
        core_capacity=profile.nram.capacity_bytes,
        images=group.tile.get("N", 1),
        loaded=group.loaded_bytes,
        needed=group.needed_bytes,
        peak=peak,
    )
