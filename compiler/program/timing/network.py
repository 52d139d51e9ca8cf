"""Core-to-core links as a network: which links a transfer crosses (PROF-2, SIM-2).

A ring is crossed the shorter way round, a mesh along its row first and then along its column. Each direction of a link
is a link of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler.cost.rates import mesh_columns

Hop = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """The links between the cores of one chip; `topology` is `ring` or `mesh`."""

    topology: str
    cores: int
    _known: dict[Hop, tuple[Hop, ...]] = field(default_factory=dict)

    def route(self, source: int, target: int) -> tuple[Hop, ...]:
        """The links from one core to another, in order; none to itself."""
        found = self._known.get((source, target))
        if found is None:
            cores = self._ring(source, target) if self.topology == "ring" else self._mesh(source, target)
            found = self._known[source, target] = tuple(itertools.pairwise(cores))
        return found

    def tree(self, source: int, targets: Iterable[int]) -> tuple[Hop, ...]:
        """The links that reach all targets, each crossed once."""
        return tuple(dict.fromkeys(hop for target in targets for hop in self.route(source, target)))

    def depth(self, source: int, targets: Iterable[int]) -> int:
        """Links on the longest way to a target."""
        return max((len(self.route(source, target)) for target in targets), default=0)

    def nearest_port(self, core: int) -> int:
        """The core at the side of the mesh from which the DRAM reaches a core: of its row, the nearer end."""
        columns = mesh_columns(self.cores)
        row, column = divmod(core, columns)
        return row * columns + (0 if 2 * column < columns else columns - 1)

    def _ring(self, source: int, target: int) -> list[int]:
        ahead = (target - source) % self.cores
        step = 1 if 2 * ahead <= self.cores else -1
        return [(source + step * hop) % self.cores for hop in range(min(ahead, self.cores - ahead) + 1)]

    def _mesh(self, source: int, target: int) -> list[int]:
        columns = mesh_columns(self.cores)
        (row, column), (last_row, last_column) = divmod(source, columns), divmod(target, columns)
        along = range(column, last_column, 1 if last_column > column else -1)
        down = range(row, last_row, 1 if last_row > row else -1)
        return [*(row * columns + c for c in along), *(r * columns + last_column for r in down), target]
