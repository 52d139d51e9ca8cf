"""Quantised weights: what lies in memory, and how it becomes numbers (IMPORT-5)."""

from __future__ import annotations

import numpy as np

from compiler.frontend.dequantised import scale_and_zero
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.program.program import Decode


class Decoders:
    """How the constants of a graph are decoded whose elements are stored in another type than they are read as."""

    def __init__(self, graph: Graph, source: ModelSource) -> None:
        self._graph = graph
        self._source = source
        self._known: dict[str, Decode] = {}

    def of(self, name: str) -> Decode | None:
        """The decoding of a tensor; None if its elements are stored as they are read."""
        tensor = self._graph.tensors[name]
        if tensor.constant is None or tensor.stored_dtype == tensor.dtype:
            return None
        found = self._known.get(name)
        if found is None:
            scale, zero = scale_and_zero(tensor.constant, self._source)
            found = self._known[name] = Decode(
                scale=np.ascontiguousarray(scale).tobytes(),
                zero=np.ascontiguousarray(zero).tobytes(),
                shape=tuple(scale.shape),
                dtype=scale.dtype.name,
            )
        return found
