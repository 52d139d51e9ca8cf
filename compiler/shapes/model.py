"""A model for a range of shapes: its routines, their units, and what a shape makes of them (SHAPE-9).

Groups are fixed, tables vary: which ops run together and which units there are was decided once, at the largest
extents. A shape asks for a parameter table per routine and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from compiler.errors import RequestError, printable
from compiler.ir.graph import Graph
from compiler.shapes.cost import CallCost
from compiler.shapes.extents import InputShape, Range, check_dims, dims_of, parse_shapes
from compiler.shapes.legal import Doubts, shape_at
from compiler.shapes.routine import Calls
from compiler.shapes.served import check_served
from compiler.shapes.simple import SimpleChooser
from compiler.shapes.table import ShapeTable, expand
from compiler.shapes.unit_library import Library, LibraryUse

# Choosers of one model that are kept: routines may have axes that no table divides, and that vary.
MAX_CHOOSERS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Ops that one side runs: the host, or a chip by routines (numbers of libraries, in order)."""

    is_host: bool
    ops: tuple[int, ...]
    routines: tuple[int, ...]
    chip: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeModel:
    """A compiled model with dynamic dimensions.

    `graph` is at the maxima of `ranges`, for which units were chosen; what it says holds within `reach`, and shapes are
    served there as far as units go (`served.py`). `has_default_ranges`: the compilation was given none. `profile` is
    the profile's canonical form, in JSON. `uses` say which stored library each of `libraries` is. `choosers` are
    made as they are asked for, each from the first of its routine; they are no part of the model.
    """

    graph: Graph
    profile: bytes
    ranges: Mapping[str, Range]
    reach: Mapping[str, Range]
    parts: tuple[Part, ...]
    libraries: tuple[Library, ...]
    uses: tuple[LibraryUse, ...]
    model_name: str
    model_digest: str
    has_default_ranges: bool = False
    choosers: dict[tuple[int, tuple[int, ...]], SimpleChooser] = field(default_factory=dict, repr=False)
    first_choosers: dict[int, SimpleChooser] = field(default_factory=dict, repr=False)

    @cached_property
    def profile_digest(self) -> str:
        """SHA-256 of the profile that the units were made for."""
        return hashlib.sha256(self.profile).hexdigest()

    @cached_property
    def profile_name(self) -> str:
        """What that profile is called."""
        return str(json.loads(self.profile)["name"])

    @cached_property
    def cores(self) -> int:
        """Cores that share the calls of a table."""
        profile = json.loads(self.profile)
        return int(profile["clusters_per_chip"]) * int(profile["cores_per_cluster"])

    @cached_property
    def chips(self) -> int:
        """Chips that segments run on."""
        return int(json.loads(self.profile)["chips"])

    @cached_property
    def resident(self) -> frozenset[str]:
        """The tensors that routines read, where constants among them lie on the chips before a program runs."""
        if json.loads(self.profile)["weights"]["mode"] != "stationary":
            return frozenset()
        ops = (self.graph.ops[op] for library in self.libraries for op in library.routine.ops)
        return frozenset(name for op in ops for name in op.inputs)

    @cached_property
    def inputs(self) -> tuple[InputShape, ...]:
        """The inputs with the expressions of their extents, those that no op needs last."""
        read = (InputShape.of(self.graph.tensors[name]) for name in self.graph.inputs)
        return (*read, *(InputShape.of(tensor, is_read=False) for tensor in self.graph.unread))

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """Per routine the first one that has the same units at the same costs: a table of one is one of the other."""
        first: dict[str, int] = {}
        texts = (json.dumps(_identity(one), sort_keys=True) for one in self.libraries)
        return tuple(first.setdefault(text, number) for number, text in enumerate(texts))

    def table_identity(self, number: int) -> Mapping[str, object]:
        """What the tables of a routine depend on beside the problem and the compiler version, as plain values."""
        return {**_identity(self.libraries[number]), "profile": self.profile_digest}

    @cached_property
    def doubts(self) -> Doubts:
        """What of the graph some dimensions that are served may make impossible."""
        return Doubts.of(self.graph, {name: (one.low, one.high) for name, one in self.reach.items()})

    def check(self, dims: Mapping[str, int]) -> None:
        """Raise RequestError for dimensions that are not served, and for such at which the model is none."""
        check_dims(dims, self.reach)
        self._check_known(dims)

    def beyond(self, dims: Mapping[str, int]) -> tuple[str, ...]:
        """The dimensions that lie outside the ranges for which the model was compiled."""
        return tuple(name for name, one in self.ranges.items() if dims[name] not in one)

    def _check_known(self, dims: Mapping[str, int]) -> None:
        self.doubts.check(dims)
        if self.beyond(dims):
            check_served(self, dims)

    def dims_of(self, shapes: Mapping[str, Sequence[int]], *, partial: bool) -> dict[str, int]:
        """The dimensions that shapes of inputs say; raises RequestError as `check`, and for shapes that cannot be."""
        dims = dims_of(self.inputs, self.reach, shapes, partial=partial, tied=self.graph.tied)
        self._check_known(dims)
        return dims

    def dims_of_words(self, words: Sequence[str]) -> dict[str, int]:
        """The dimensions that shapes of inputs in words such as `x:1x3x225x199` say.

        Raises RequestError for words and shapes that cannot be, and as `check`.
        """
        return self.dims_of(parse_shapes(words, self.inputs, self.reach), partial=True)

    def problem(self, number: int, dims: Mapping[str, int]) -> tuple[int, ...]:
        """What tables of a routine are made for: its result's shape, then the dimensions that its calls sum over."""
        library = self.libraries[number]
        result = self.graph.ops[library.routine.ops[-1]].output
        return (*shape_at(self.graph.tensors[result], dims), *(dims[name] for name in library.summed))

    def result_shape(self, number: int, problem: Sequence[int]) -> tuple[int, ...]:
        """The shape of what a library's routine makes."""
        return tuple(problem[: len(problem) - len(self.libraries[number].summed)])

    def simple_table(
        self, number: int, problem: Sequence[int], units: Sequence[int] | None = None
    ) -> ShapeTable | None:
        """The table of identical units for a problem; None for a routine that makes all in one call.

        With `units` (numbers) only these are used: those that have room, where not all do.
        """
        library = self.libraries[number]
        tiled = library.routine.tiled
        if not tiled:
            return None
        shape = tuple(problem[axis] for axis in tiled)
        if units is None:
            return self.chooser(number, problem).table(shape)
        cost = self.cost_at(number, problem)
        table = SimpleChooser.build(library.units.chosen(units), cost, self.cores, library.loaders).table(shape)
        runs = table.runs.copy()
        runs["unit"] = np.array(units, dtype=np.int64)[runs["unit"]]
        return replace(table, units=library.units.ids, runs=runs)

    def chooser(self, number: int, problem: Sequence[int]) -> SimpleChooser:
        """What makes simple tables, for the extents of the axes of which every call makes or sums over all."""
        key = (number, tuple(self._whole(number, problem).values()))
        found = self.choosers.get(key)
        if found is None:
            if len(self.choosers) >= MAX_CHOOSERS:
                # the one that was made first goes; it is made again in little more time than a table takes. Other
                # threads ask as well: a copy is taken in one step, and does not change while it is looked at
                self.choosers.pop(next(iter(self.choosers.copy())), None)
            library = self.libraries[number]
            cost = self.cost_at(number, problem)
            first = self.first_choosers.get(number)
            if first is None:
                first = self.first_choosers[number] = SimpleChooser.build(
                    library.units, cost, self.cores, library.loaders
                )
            found = self.choosers[key] = first.with_amounts(cost)
        return found

    def one_call_cycles(self, number: int, problem: Sequence[int]) -> float:
        """What the only call of a routine costs that no table divides: one core works, the others wait."""
        cost = self.cost_at(number, problem)
        return cost.work_cycles((), 0) * self.cores + cost.once_cycles

    def cost_at(self, number: int, problem: Sequence[int]) -> CallCost:
        """The costs of a routine's calls over its tiled axes, for a problem."""
        return self.libraries[number].cost.at(self._whole(number, problem))

    def _whole(self, number: int, problem: Sequence[int]) -> dict[int, int]:
        """The extents of the axes of which every call makes or sums over all."""
        tiled = self.libraries[number].routine.tiled
        return {axis: extent for axis, extent in enumerate(problem) if axis not in tiled}

    def calls(self, number: int, shape: Sequence[int], table: ShapeTable | None) -> Calls:
        """The calls of a table over the whole result; raises RequestError for one of another shape or other units."""
        library = self.libraries[number]
        routine = library.routine
        wanted = tuple(shape[axis] for axis in routine.tiled)
        if (table is None) != (not wanted) or (table is not None and table.shape != wanted):
            raise RequestError(
                "a table is of another shape than what it is to make",
                code="wrong_table",
                stage="shapes",
                actual="none" if table is None else "x".join(map(str, table.shape)),
                limit="x".join(map(str, wanted)) or "none",
            )
        unknown = [] if table is None else sorted(set(table.units) - set(library.units.ids))
        if unknown:
            raise RequestError(
                "a table calls units that the routine does not have",
                code="wrong_table",
                stage="shapes",
                actual=", ".join(printable(one, 80) for one in unknown[:3]),
                limit=library.units.signature,
            )
        if table is None:
            starts = np.zeros((1, len(shape)), dtype=np.int64)
            lengths = np.array([shape], dtype=np.int64).reshape(1, len(shape))
            return Calls(routine=routine, units=np.zeros(1, dtype=np.int64), starts=starts, lengths=lengths)
        entries = expand(table)
        starts, lengths = routine.whole_box(entries.starts, entries.lengths, shape)
        numbers = np.array([library.units.ids.index(one) for one in table.units], dtype=np.int64)
        return Calls(routine=routine, units=numbers[entries.units], starts=starts, lengths=lengths)


def _identity(library: Library) -> dict[str, object]:
    """What the tables of a routine depend on beside the problem and the profile."""
    units, cost = library.units, library.cost
    numbers = [
        units.extents,
        units.lows,
        *cost.compute,
        *(factor for operand in cost.operands for factor in operand.factors if factor is not None),
    ]
    return {
        "cycles": [
            [cost.call_cycles, cost.variable_cycles, cost.compute_cycles],
            *([one.start_cycles, one.move_cycles, *one.axes] for one in cost.operands),
        ],
        "dtype": units.dtype,
        "loaders": library.loaders,
        "numbers": [[len(array), hashlib.sha256(array.tobytes()).hexdigest()] for array in numbers],
        "signature": units.signature,
        "tiled": library.routine.tiled,
        "units": units.ids,
    }
