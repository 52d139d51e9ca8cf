"""Independent recomputation, element by element or tile by tile, of what the compiler computes in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from compiler.fusion.bounds import dram_floor_bytes, needed_positions
from compiler.ops.op_facts import GraphFacts
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry

Range = tuple[int, int]
Box = tuple[Range, ...]
Bools = NDArray[np.bool_]


def session_of(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """One-threaded, unoptimised reference."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def dependencies(
    proto: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], name: str, bump: float = 1e6
) -> list[Bools]:
    """Per graph output: [output element, element of input `name`], true where changing the one changes the other."""
    session = session_of(proto)
    base = [np.asarray(v).ravel() for v in session.run(None, dict(feeds))]
    size = feeds[name].size
    result = [np.zeros((value.size, size), dtype=np.bool_) for value in base]
    for element in range(size):
        changed = feeds[name].copy()
        changed.reshape(-1)[element] += bump
        for number, value in enumerate(session.run(None, {**feeds, name: changed})):
            result[number][:, element] = np.asarray(value).ravel() != base[number]
    return result


def needed_mask(dependence: Bools, output_shape: Sequence[int], input_shape: Sequence[int], box: Box) -> Bools:
    """Input elements that the elements of an output box depend on."""
    chosen = np.zeros(tuple(output_shape), dtype=np.bool_)
    chosen[tuple(slice(*r) for r in box)] = True
    return np.asarray(dependence[chosen.ravel()].any(axis=0).reshape(tuple(input_shape)))


def mask_hull(mask: Bools) -> Box | None:
    """The smallest box around the true elements; None if there is none."""
    if not mask.any():
        return None
    if mask.ndim == 0:
        return ()
    return tuple((int(axis.min()), int(axis.max()) + 1) for axis in np.nonzero(mask))


def union(a: Box | None, b: Box) -> Box:
    """The smallest box around both; an empty box adds nothing."""
    if a is None or volume(a) == 0:
        return b
    if volume(b) == 0:
        return a
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b, strict=True))


def volume(box: Box) -> int:
    """Elements of a box."""
    return prod(max(0, stop - start) for start, stop in box)


def tiles(shape: Sequence[int], tile: Sequence[int]) -> Iterator[Box]:
    """All boxes of a grid, clipped at the end."""
    axes = [
        [(start, min(start + size, extent)) for start in range(0, extent, size)]
        for extent, size in zip(shape, tile, strict=True)
    ]
    yield from product(*axes)


def project_group(facts: GraphFacts, geometry: GroupGeometry, box: Box) -> dict[str, Box]:
    """Boxes of every tensor (weights too) for one box of the group's only output, op by op (TILE-1)."""
    boxes: dict[str, Box] = {geometry.primary: box}
    for op in reversed(geometry.ops):
        made = boxes[op.output]
        for operand in op.operands:
            shape = facts.tensors[operand.tensor].shape
            need = tuple(
                (0, extent) if m.axis is None else m.project_one(*made[m.axis], extent)
                for m, extent in zip(operand.access, shape, strict=True)
            )
            if volume(made) == 0:
                need = tuple((0, 0) for _ in shape)
            boxes[operand.tensor] = union(boxes.get(operand.tensor), need)
    return boxes


def floor_of(facts: GraphFacts, profile: Profile | None = None) -> int:
    """The compiler's floor of a graph; weights count unless a profile is given that keeps them on the chip."""
    return dram_floor_bytes(facts, needed_positions(facts), profile or builtin_profile("edge4"))
