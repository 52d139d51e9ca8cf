"""Recognised patterns: ops that belong together, or what several nodes became."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A recognised pattern.

    `kind` names it ("gelu", "layer-norm", "attention"...). `ops` are the output tensors of its ops in execution
    order: one if the pattern was replaced by an op, several if its ops are to stay together. `nodes` are the ONNX
    nodes that it came from, in execution order.
    """

    kind: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
