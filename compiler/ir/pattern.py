"""Recognised patterns: ops that stay together, or several nodes that became one op."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A recognised pattern.

    `kind` names it ("gelu", "layer-norm", "attention"...). `ops` are the output tensors of its ops in execution
    order: one if an op replaced the pattern, several if its ops should stay together. `nodes` are the ONNX nodes of
    the pattern, in execution order.
    """

    kind: str
    ops: tuple[str, ...]
    nodes: tuple[str, ...]
