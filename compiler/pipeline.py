"""The ordered passes, and the runner that alone verifies, times, reports progress and honours cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, Protocol

from compiler.address.stored import AddressTables, StoredAddressTables
from compiler.check_shapes import CheckShapes
from compiler.degraded import DEFECTS, DefectError, Degradations
from compiler.errors import CompilationCancelledError, InternalError, RequestError, TesseraError
from compiler.frontend.batch import Rebatch
from compiler.frontend.integers import RunInIntegers
from compiler.frontend.lower import LowerModel
from compiler.frontend.normalise import FoldBatchNorm
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.precision import SetPrecision
from compiler.frontend.read import ReadModel
from compiler.frontend.set_layout import SetLayout
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments, verify_fused
from compiler.fusion.groups import FusedGraph
from compiler.fusion.map_chips import MapToChips
from compiler.garbage import collection_paused
from compiler.ir.graph import Graph
from compiler.ir.layout import DEFAULT_LAYOUT
from compiler.ir.symbol import Expression
from compiler.ir.verify import verify_graph
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.partition.attention import FuseAttention
from compiler.partition.broadcasts import FoldChannels
from compiler.partition.dilations import SplitDilations
from compiler.partition.float_products import LeaveProductsToHost
from compiler.partition.leave_to_host import LeaveToHost
from compiler.partition.normalisations import SplitNormalisations
from compiler.partition.pads import SplitPads
from compiler.partition.partition import CandidateFactory, PartitionGraph
from compiler.partition.positions import SplitPositions
from compiler.partition.products import TurnProducts
from compiler.partition.reductions import SplitReductions
from compiler.partition.rows import LeaveRowsToHost
from compiler.partition.segments import PartitionedGraph, verify_partition
from compiler.partition.spelled_out import SpellOut
from compiler.partition.tied import UntieWeights
from compiler.partition.weights import SplitWeights
from compiler.partition.wide_products import WidenProducts
from compiler.profile.schema import Profile
from compiler.program.choose import ChoosePlans
from compiler.program.lower import LowerSegments, SegmentTooLongError
from compiler.report.describe import AnnouncePlan, Describe, LeaveOutPrograms
from compiler.report.plan import Plan
from compiler.shapes.agreement import CheckExtents
from compiler.shapes.make_tables import MakeTables
from compiler.shapes.make_units import MakeUnits, ranges_of
from compiler.shapes.reach import FindReach
from compiler.shapes.segments import UnitCompiler
from compiler.shapes.stored_units import StoredUnits
from compiler.simulator.value_check import CheckValues

# Passes that only improve a graph or a plan: where one fails by a defect of ours, compilation goes on without it
# (IMPORT-7).
_IMPROVING: Final = (
    FoldBatchNorm,
    RecognisePatterns,
    RunInIntegers,
    SpellOut,
    SplitNormalisations,
    SplitPositions,
    SplitReductions,
    SplitPads,
    FoldChannels,
    SplitDilations,
    TurnProducts,
    UntieWeights,
    ChoosePlans,
)
# How often a graph is partitioned anew at most: each time some segment is cut whose program was too long.
_CUTS_MAX: Final = 64


class Pass(Protocol):
    """One step of the compilation: a frozen dataclass with a name, its options as fields, and `run`."""

    @property
    def name(self) -> str:
        """The pass's name, as progress and errors show it."""

    def run(self, value: Any, /) -> Any:
        """The next stage's value; the runner verifies it."""


def build_pipeline(
    source: ModelSource,
    profile: Profile,
    options: Options,
    *,
    pictures: bool = False,
    announce: Callable[[Plan], None] | None = None,
    only_plan: bool = False,
    by_default: bool = False,
    addresses: StoredAddressTables | None = None,
) -> tuple[Pass, ...]:
    """The way of the data, top to bottom; each pass takes what the one before it returned.

    `announce` is told the plan before its programs are made; with `only_plan` none are made. `by_default`: option
    `dims` was not given, its ranges are defaults. `addresses`: where address tables of earlier compilations are found.
    """
    compilers = SegmentCompilers(profile, options)
    degradations = Degradations(allowed=options.may_degrade)
    describe = Describe(
        source=source,
        profile=profile,
        options=options,
        compilers=compilers,
        pictures=pictures,
        degradations=degradations,
        only_plan=only_plan,
        by_default=by_default,
    )
    lower = LowerSegments(source=source, profile=profile, compilers=compilers, tables=AddressTables(addresses))
    lowering: tuple[Pass, ...] = (
        ChoosePlans(profile=profile, options=options, lowering=lower),  # MappedGraph -> MappedGraph
        lower,  # MappedGraph -> LoweredGraph
        CheckValues(source=source, profile=profile, options=options),  # LoweredGraph -> CheckedGraph
    )
    return (
        # after a definition was wrong compilation goes on from `LowerModel`
        *_imported(
            source,
            profile,
            options,
            LowerModel(dims=options.maxima, plain=options.plain, strict=options.strict, degradations=degradations),
        ),
        SetPrecision(precision=None if options.precision == "model" else options.precision),  # Graph -> Graph
        SetLayout(layout=options.layout),  # Graph -> Graph
        LeaveToHost(degradations=degradations),  # Graph -> Graph; compilation goes on from here after a defect
        WidenProducts(profile=profile),  # Graph -> Graph
        LeaveProductsToHost(profile=profile, strict=options.strict),  # Graph -> Graph
        FuseAttention(source=source, candidates=compilers.of),  # Graph -> Graph
        *_taken_apart(profile, options, compilers.of),
        LeaveToHost(name="leave-parts-to-host", degradations=degradations),  # Graph -> Graph; ops made since then
        PartitionGraph(  # Graph -> PartitionedGraph; compilation goes on from here where a program is too long
            profile=profile, options=options, candidates=compilers.of, facts_of=compilers.facts_of
        ),
        FuseSegments(  # PartitionedGraph -> FusedGraph
            options=options, compilers=compilers, degradations=degradations
        ),
        MapToChips(profile=profile, options=options),  # FusedGraph -> MappedGraph
        *((AnnouncePlan(describe=describe, announce=announce),) if announce is not None else ()),
        *((LeaveOutPrograms(),) if only_plan else lowering),  # MappedGraph -> CheckedGraph
        describe,  # CheckedGraph -> Documents
    )


def _imported(source: ModelSource, profile: Profile, options: Options, lowering: LowerModel) -> tuple[Pass, ...]:
    """The way of a model to a graph, `lowering` among it."""
    return (
        ReadModel(),  # ModelSource -> OnnxModel
        ValidateModel(),  # OnnxModel -> OnnxModel
        lowering,  # OnnxModel -> Graph
        FoldBatchNorm(),  # Graph -> Graph
        RecognisePatterns(source=source),  # Graph -> Graph
        Rebatch(batch=options.batch),  # Graph -> Graph
        RunInIntegers(source=source, arrays=tuple(sorted(profile.matrix.arrays))),  # Graph -> Graph
    )


def _taken_apart(
    profile: Profile, options: Options, candidates: CandidateFactory, minima: Mapping[str, int] | None = None
) -> tuple[Pass, ...]:
    """The way of a graph whose ops come to fit the chip: what is too large is taken apart, or left to the host."""
    return (
        SpellOut(profile=profile, candidates=candidates),  # Graph -> Graph
        SplitNormalisations(profile=profile, candidates=candidates),  # Graph -> Graph
        SplitPositions(profile=profile, candidates=candidates),  # Graph -> Graph
        SplitReductions(profile=profile, candidates=candidates),  # Graph -> Graph
        SplitPads(profile=profile, candidates=candidates),  # Graph -> Graph
        FoldChannels(profile=profile, candidates=candidates),  # Graph -> Graph
        SplitDilations(profile=profile, candidates=candidates),  # Graph -> Graph
        TurnProducts(profile=profile, candidates=candidates),  # Graph -> Graph
        UntieWeights(profile=profile),  # Graph -> Graph
        SplitWeights(profile=profile, candidates=candidates),  # Graph -> Graph
        LeaveRowsToHost(profile=profile, strict=options.strict, minima=minima or {}),  # Graph -> Graph
    )


def build_shape_pipeline(
    source: ModelSource,
    profile: Profile,
    options: Options,
    stored: StoredUnits,
    *,
    by_default: bool = False,
    tied: Mapping[str, Expression] = MappingProxyType({}),
) -> tuple[Pass, ...]:
    """The way of a model with dynamic dimensions to shape units: what was imported, without planning at one shape.

    `tied` are dimensions that others say. Units are taken from `stored` where they are there. Raises RequestError for
    another layout than that of all units.
    """
    if options.layout != DEFAULT_LAYOUT:
        raise RequestError(
            f"option layout cannot be {options.layout} for a package of dynamic shapes: shape units are for one layout",
            code="invalid_option",
            actual=options.layout,
            limit=DEFAULT_LAYOUT,
            hint="Leave option layout out, or compile a job: it is planned in this layout at the maxima of option dims",
        )

    def lowering(minima: Mapping[str, int], maxima: Mapping[str, int]) -> LowerModel:
        return LowerModel(dims=maxima, minima=minima, plain=options.plain, tied=tied, strict=options.strict)

    def import_between(minima: Mapping[str, int], maxima: Mapping[str, int]) -> Graph:
        graph: Any = source
        for each in _imported(source, profile, options, lowering(minima, maxima)):
            graph = each.run(graph)
        assert isinstance(graph, Graph)
        return graph

    def import_at(dims: Mapping[str, int]) -> Graph:
        return import_between(dims, dims)

    def units(facts: GraphFacts) -> UnitCompiler:
        return UnitCompiler(facts, profile, options)

    return (
        *_imported(source, profile, options, lowering(options.minima, options.maxima)),
        CheckExtents(source=source, options=options, import_at=import_at),  # Graph -> Graph
        FindReach(  # Graph -> Graph
            ranges=lambda graph: ranges_of(graph, options), import_between=import_between
        ),
        WidenProducts(profile=profile),  # Graph -> Graph
        LeaveProductsToHost(profile=profile, strict=options.strict),  # Graph -> Graph
        *_taken_apart(profile, options, units, options.minima),
        MakeUnits(  # Graph -> ShapeModel
            source=source, profile=profile, options=options, stored=stored, by_default=by_default
        ),
        CheckShapes(source=source, options=options),  # ShapeModel -> ShapeModel
    )


def build_package_pipeline(
    source: ModelSource,
    profile: Profile,
    options: Options,
    stored: StoredUnits,
    *,
    by_default: bool = False,
    tied: Mapping[str, Expression] = MappingProxyType({}),
) -> tuple[Pass, ...]:
    """The same way, to what a package carries."""
    return (
        *build_shape_pipeline(source, profile, options, stored, by_default=by_default, tied=tied),
        MakeTables(options=options),  # ShapeModel -> PreparedModel
    )


class Observer(Protocol):
    """What the caller of a compilation may watch and ask for."""

    def phase(self, name: str, step: int, total: int) -> None:
        """Pass `name` begins; it is number `step` (from 1) of `total`."""

    def cancelled(self) -> bool:
        """True if the compilation should stop before the next pass."""


class SilentObserver:
    """An observer that watches nothing and never cancels."""

    def phase(self, name: str, step: int, total: int) -> None:
        """Ignore the phase."""

    def cancelled(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTiming:
    """How long one pass took, its verification included, in seconds of wall time."""

    name: str
    duration_s: float


@collection_paused()
def run_passes(passes: Sequence[Pass], value: Any, observer: Observer) -> tuple[Any, tuple[PassTiming, ...]]:
    """Run passes in order, verifying what each returns; the collector of reference cycles waits meanwhile.

    Where a step fails by a defect of ours, the passes from the first `LeaveToHost` on (after a wrong definition from
    `LowerModel` on) run again, with what failed planned in a simpler way (IMPORT-7). Where programs are too long for
    the chip, those from the partition on run again, which cuts their segments (PART-3).

    Raises what a pass raises if it is a TesseraError, CompilationCancelledError if the observer asks to stop, and
    InternalError naming the passes that ran for anything else.
    """
    timings: list[PassTiming] = []
    degradations = _degradations(passes)
    # the input of the pass from which compilation goes on after a defect: of a definition, of anything else
    checkpoints: dict[bool, tuple[int, Any]] = {}
    partitioned: tuple[int, Any] = (0, value)
    cuts = step = 0
    while step < len(passes):
        current = passes[step]
        if cuts and isinstance(current, AnnouncePlan):
            # a plan is told once; the last one comes with the result
            step += 1
            continue
        if observer.cancelled():
            raise CompilationCancelledError(current.name)
        observer.phase(current.name, step + 1, len(passes))
        if isinstance(current, LowerModel):
            checkpoints = {True: (step, value)}
        elif isinstance(current, LeaveToHost):
            checkpoints.setdefault(False, (step, value))
        elif isinstance(current, PartitionGraph):
            partitioned = (step, value)
        begin = perf_counter()
        try:
            result = current.run(value)
            verify(result)
        except DefectError as error:
            if error.definition not in checkpoints or not degradations.take(error):
                raise error.plain or error from error.__cause__
            step, value = checkpoints[error.definition]
            continue
        except SegmentTooLongError:
            cuts += 1
            if cuts == _CUTS_MAX:
                raise
            timings.append(PassTiming(name=current.name, duration_s=perf_counter() - begin))
            step, value = partitioned
            continue
        except DEFECTS as error:
            if not isinstance(current, _IMPROVING) or not degradations.leave_out(current.name, error):
                raise _internal(current, timings, error) from error
            result = value
        except (TesseraError, MemoryError):
            raise
        except Exception as error:
            raise _internal(current, timings, error) from error
        value = result
        step += 1
        timings.append(PassTiming(name=current.name, duration_s=perf_counter() - begin))
    return value, tuple(timings)


def _degradations(passes: Sequence[Pass]) -> Degradations:
    """What the pipeline may plan in a simpler way; nothing, if it has no pass for that."""
    found = (current.degradations for current in passes if isinstance(current, LeaveToHost))
    return next(found, Degradations(allowed=False))


def _internal(current: Pass, timings: Sequence[PassTiming], error: Exception) -> InternalError:
    """The error for a pass that failed by a defect of ours; what is such an error already stays itself."""
    if isinstance(error, InternalError):
        return error
    ran = ", ".join(timing.name for timing in timings) or "none"
    return InternalError(
        f"pass {current.name} failed: {type(error).__name__}",
        stage=current.name,
        actual=str(error),
        hint=f"This is a defect of Tessera. Passes that ran before: {ran}",
    )


def verify(value: object) -> None:
    """Check the invariants of a stage's value; raises InternalError where one does not hold."""
    match value:
        case Graph():
            verify_graph(value)
        case PartitionedGraph():
            verify_partition(value)
        case FusedGraph():
            verify_fused(value)
