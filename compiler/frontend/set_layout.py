"""The memory order of feature maps, for a whole graph (SPEC section 13, ADDR-1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.ir.graph import Graph
from compiler.ir.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLayout:
    """Pass: feature maps lie in `layout`, on the chip and in DRAM; planning and lowering take it from the graph."""

    name: str = "set-layout"
    layout: Layout

    def run(self, graph: Graph) -> Graph:
        """The graph with this layout; ops and tensors stay."""
        return graph if graph.layout == self.layout else replace(graph, layout=self.layout)
