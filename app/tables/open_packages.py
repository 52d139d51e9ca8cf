"""Keeps packages open: each process reads a package once and closes the least recently used first (SHAPE-10)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from app.store import BlobStore
from app.tables.table_encoding import StoredTable, prepared
from compiler.cache_key import routine_key, table_key
from compiler.ops.op_facts import graph_facts
from compiler.shapes.instance import Values, graph_at
from compiler.shapes.model import ShapeModel
from compiler.shapes.package import Package, read_package, stored_values
from compiler.shapes.served import units_with_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A requested table: the number of its routine and its problem; `key` names its content.

    A problem is the shape of the routine's result, followed by the dimensions that its calls sum over. `units` are
    those with room for what their tiles need, where not all of the routine's have: beyond the ranges only.
    """

    routine: int
    problem: tuple[int, ...]
    key: str
    units: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenPackage:
    """A package by its digest, and data derived from it once."""

    digest: str
    package: Package
    values: Values

    @property
    def model(self) -> ShapeModel:
        """The model for ranges of shapes."""
        return self.package.model

    @cached_property
    def routine_keys(self) -> tuple[str, ...]:
        """Per routine a key of everything that its tables depend on, except the shape."""
        return tuple(routine_key(self.model, number) for number in range(len(self.model.libraries)))

    @cached_property
    def largest(self) -> tuple[tuple[int, ...], ...]:
        """Per routine its problem at the maxima of the dimensions."""
        dims = {name: one.high for name, one in self.model.ranges.items()}
        return tuple(self.model.problem(number, dims) for number in range(len(self.model.libraries)))

    @cached_property
    def nodes(self) -> tuple[tuple[str, ...], ...]:
        """Per routine the names of its ops."""
        graph = self.model.graph
        return tuple(tuple(graph.ops[op].node for op in library.routine.ops) for library in self.model.libraries)

    @cached_property
    def prepared(self) -> Mapping[str, StoredTable]:
        """The tables in the package by key: they need no cache."""
        found: dict[str, StoredTable] = {}
        for one in self.package.tables:
            for asked, table, cycles in zip(self.asked(one.dims), one.tables, one.simple_cycles, strict=True):
                if asked.key not in found:
                    found[asked.key] = prepared(table, cycles)
        return found

    def asked(self, dims: Mapping[str, int]) -> tuple[Asked, ...]:
        """The tables that the model needs at given dimensions, one per routine.

        Raises LimitError for dimensions beyond the ranges at which no unit of a routine has room.
        """
        model, numbers = self.model, range(len(self.model.libraries))
        facts = graph_facts(graph_at(model.graph, dims, self.values)) if model.beyond(dims) else None
        return tuple(
            self.table_of(
                number,
                model.problem(number, dims),
                None if facts is None else units_with_room(model, number, facts),
            )
            for number in numbers
        )

    def table_of(self, number: int, problem: tuple[int, ...], units: tuple[int, ...] | None = None) -> Asked:
        """A routine's table for one problem, by these units (None: all)."""
        if units is not None and len(units) == len(self.model.libraries[number].units):
            units = None
        key = table_key(self.routine_keys[number], problem, units)
        return Asked(routine=number, problem=problem, key=key, units=units)


class OpenPackages:
    """Keeps at most `limit` packages of a store open."""

    def __init__(self, store: BlobStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[OpenPackage, ExitStack]] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}

    @property
    def limit(self) -> int:
        """The limit on open packages."""
        return self._limit

    def get(self, digest: str) -> OpenPackage:
        """The package of this digest, opened if necessary; other packages stay available meanwhile.

        Raises FileNotFoundError if the store lacks it, and the errors of `read_package`.
        """
        with self._lock:
            found = self._known(digest)
            if found is not None:
                return found
            opening = self._opening.setdefault(digest, threading.Lock())
        with opening:
            with self._lock:
                found = self._known(digest)
            if found is not None:
                return found
            try:
                opened, resources = self._read(digest)
                with self._lock:
                    self._open[digest] = (opened, resources)
                    while len(self._open) > self._limit:
                        _, (_, closing) = self._open.popitem(last=False)
                        closing.close()
                return opened
            finally:
                with self._lock:
                    self._opening.pop(digest, None)

    def _known(self, digest: str) -> OpenPackage | None:
        """An open package, marked as used now; call it under the lock."""
        if digest not in self._open:
            return None
        self._open.move_to_end(digest)
        return self._open[digest][0]

    def close(self) -> None:
        """Closes all packages; callers that still use one keep its bytes until they finish."""
        with self._lock:
            for _, resources in self._open.values():
                resources.close()
            self._open.clear()

    def _read(self, digest: str) -> tuple[OpenPackage, ExitStack]:
        with ExitStack() as stack:
            data = stack.enter_context(self._store.mapped(digest))
            # our own workers wrote it, under this digest; constants are not read here, tables not proved again
            package = read_package(memoryview(data), is_ours=True)
            opened = OpenPackage(digest=digest, package=package, values=stored_values(package.data))
            return opened, stack.pop_all()
