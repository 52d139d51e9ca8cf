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
    """Declare torchvision's operators; the library that holds them must stay alive."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
