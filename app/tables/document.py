"""The answer of the service for a shape: tables.json, its types and its bytes (SHAPE-7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from app.tables.counts import REQUESTS, answered
from app.tables.lookup import Found, Hit
from app.tables.open_packages import OpenPackage
from app.tables.table_encoding import Kind, StoredRun
from compiler.report.dim_ranges import DimRangeDoc
from compiler.report.execution import Part
from compiler.report.plan import ModelRef, ProfileRef
from compiler.shapes.legal import shape_at
from compiler.shapes.tails import TailMode
from compiler.shapes.units import UnitSet
from compiler.version import COMPILER_VERSION

Mode = Literal["exact", "full-range", "tail-range", "discard"]
_MODES: Final[dict[int, Mode]] = {
    TailMode.EXACT: "exact",
    TailMode.FULL_RANGE: "full-range",
    TailMode.TAIL_RANGE: "tail-range",
    TailMode.DISCARD: "discard",
}


class AxisRun(Part, frozen=True, kw_only=True):
    """Equal pieces along a tiled axis: the first begins at `start`, each next one `length` further.

    The unit accepts the lengths `low` to `high` there; `mode` is its method for pieces shorter than `high` (SHAPE-4).
    """

    start: int
    length: int
    count: int
    mode: Mode
    low: int
    high: int


class TableRun(Part, frozen=True, kw_only=True):
    """A grid of equal calls of a unit (SHAPE-2): `order` names the tiled axes, the outermost loop first.

    The `shared` outermost loops also run over the calls of the run before it.
    """

    unit: str
    shared: int
    order: tuple[int, ...]
    axes: tuple[AxisRun, ...]


class RoutineTable(Part, frozen=True, kw_only=True):
    """The parameter table of a routine: `shape` is the shape of its result, whose `tiled` axes are divided among calls.

    `summed` are the dimensions that calls sum over and that the shape does not show. Cycles are modelled.
    `optimised_cost_cycles` is null until that table is made. For a `bucket-hit`, which has none, `cost_cycles` is what
    the bucket's table costs, clipped to the shape (SHAPE-5).
    """

    routine: int
    ops: tuple[str, ...]
    signature: str
    dtype: str
    shape: tuple[int, ...]
    summed: dict[str, int]
    tiled: tuple[int, ...]
    cache: Hit
    kind: Kind
    cost_cycles: float
    simple_cost_cycles: float
    optimised_cost_cycles: float | None
    calls: int
    runs: tuple[TableRun, ...]


class TablesDocument(Part, frozen=True, kw_only=True):
    """tables.json: the parameter tables of a model for the shapes of its inputs.

    `beyond` names the dimensions outside the ranges that the model was compiled for: each unit is called within what it
    was built for all the same. `cache` is the worst result among the routines; `kind` is `optimised` if all tables are.
    Costs are sums over the routines; host nodes are not included.
    """

    compiler_version: str
    model: ModelRef
    profile: ProfileRef
    package: str
    inputs: dict[str, tuple[int, ...]]
    dims: dict[str, int]
    ranges: dict[str, DimRangeDoc]
    beyond: tuple[str, ...]
    cache: Hit
    kind: Kind
    cost_cycles: float
    simple_cost_cycles: float
    optimised_cost_cycles: float | None
    routines: tuple[RoutineTable, ...]

    @property
    def counts(self) -> Counter[str]:
        """What an answer with these tables counts as where they were found as they are."""
        return Counter((REQUESTS, *(answered(routine.cache, routine.kind) for routine in self.routines)))

    @property
    def extents(self) -> tuple[int, ...]:
        """The values of the dimensions, by name."""
        return tuple(self.dims[name] for name in sorted(self.dims))


def tables_document(opened: OpenPackage, dims: Mapping[str, int], found: Sequence[Found]) -> TablesDocument:
    """Makes the answer from the tables found."""
    model = opened.model
    optimised = [one.table.optimised_cycles for one in found]
    known = [cycles for cycles in optimised if cycles is not None]
    return TablesDocument(
        compiler_version=COMPILER_VERSION,
        model=ModelRef(name=model.model_name, sha256=model.model_digest),
        profile=ProfileRef(name=model.profile_name, digest=model.profile_digest),
        package=opened.digest,
        inputs={name: shape_at(model.graph.tensors[name], dims) for name in model.graph.inputs},
        dims={name: dims[name] for name in sorted(dims)},
        ranges={
            name: DimRangeDoc(min=one.low, max=one.high, step=one.step, is_default=model.has_default_ranges)
            for name, one in sorted(model.ranges.items())
        },
        beyond=model.beyond(dims),
        cache=max((one.cache for one in found), key=get_args(Hit).index, default="hit"),
        kind="optimised" if all(one.table.kind == "optimised" for one in found) else "simple",
        cost_cycles=sum(one.table.cycles for one in found),
        simple_cost_cycles=sum(one.table.simple_cycles for one in found),
        optimised_cost_cycles=sum(known) if len(known) == len(found) else None,
        routines=tuple(_routine(opened, one) for one in found),
    )


def tables_json(document: TablesDocument) -> bytes:
    """The bytes of tables.json."""
    return msgspec.json.encode(document)


def _routine(opened: OpenPackage, found: Found) -> RoutineTable:
    number, table = found.asked.routine, found.table
    library = opened.model.libraries[number]
    shape = opened.model.result_shape(number, found.asked.problem)
    return RoutineTable(
        routine=number,
        ops=opened.nodes[number],
        signature=library.units.signature,
        dtype=library.units.dtype,
        shape=shape,
        summed=dict(zip(library.summed, found.asked.problem[len(shape) :], strict=True)),
        tiled=library.routine.tiled,
        cache=found.cache,
        kind=table.kind,
        cost_cycles=table.cycles,
        simple_cost_cycles=table.simple_cycles,
        optimised_cost_cycles=table.optimised_cycles,
        calls=table.calls,
        runs=tuple(_run(run, library.units) for run in table.runs),
    )


def _run(run: StoredRun, units: UnitSet) -> TableRun:
    lows, highs = units.lows[run.unit].tolist(), units.extents[run.unit].tolist()
    return TableRun(
        unit=units.ids[run.unit],
        shared=run.shared,
        order=run.order,
        axes=tuple(
            AxisRun(
                start=along.start,
                length=along.length,
                count=along.count,
                mode=_MODES[along.mode],
                low=lows[axis],
                high=highs[axis],
            )
            for axis, along in enumerate(run.axes)
        ),
    )
