"""Opens the model libraries of the export environment.

torchvision is installed without its compiled operators, which need an accelerator's libraries; its Python part, and
the libraries above it, import once the names of those operators are known.
"""
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from functools import cache
from typing import Any

import torch


@cache
def operators() -> Any:
    """Declare torchvision's operators, and write the one that detectors need; their library must stay alive."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _suppress, "CPU")
    from torchvision import extension

    extension._has_ops = lambda: True
    return library


def _suppress(boxes: Any, scores: Any, threshold: float) -> Any:
    """Indices of the boxes that no better one overlaps by more than the threshold, best first."""
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for index in scores.argsort(descending=True).tolist():
        low = torch.maximum(boxes[index, :2], boxes[kept, :2])
        high = torch.minimum(boxes[index, 2:], boxes[kept, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        if bool((shared <= threshold * (areas[index] + areas[kept] - shared)).all()):
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)
