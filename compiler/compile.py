"""The one entry: a model, a profile and options in, a compilation out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.address.stored import StoredAddressTables
from compiler.default_ranges import with_default_ranges
from compiler.frontend.source import ModelSource
from compiler.options import Options
from compiler.pipeline import (
    Observer,
    Pass,
    PassTiming,
    SilentObserver,
    build_package_pipeline,
    build_pipeline,
    build_shape_pipeline,
    run_passes,
)
from compiler.profile import Profile
from compiler.program.executable import Executable
from compiler.report.plan import Plan, Report
from compiler.shapes.model import ShapeModel
from compiler.shapes.prepared import PreparedModel
from compiler.shapes.stored_units import NoStoredUnits, StoredUnits
from compiler.threads import one_thread
from compiler.tied_dimensions import Tied, with_tied_dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """The answer: plan and report (deterministic), and how long each pass took (not part of either).

    `pictures` are the tilings as SVG text by group id, if they were asked for. `executable` is None where the profile
    describes what programs cannot do; its weights are read from the model's source when it is written or run.
    """

    plan: Plan
    report: Report
    timings: tuple[PassTiming, ...]
    pictures: Mapping[str, str]
    executable: Executable | None


def compile_shapes(
    model: bytes | ModelSource,
    profile: Profile,
    options: Options | None = None,
    *,
    observer: Observer | None = None,
    stored: StoredUnits | None = None,
) -> ShapeModel:
    """Compile an ONNX model for all extents of its dynamic dimensions (option `dims`), to units and their costs.

    Without option `dims` free dimensions get default ranges. Units that `stored` holds are not made again; the result
    is the same with and without it. Raises as `compile_model`, and ModelError for what is known at the maxima of the
    dimensions only.
    """
    source = model if isinstance(model, ModelSource) else ModelSource.from_bytes(model)
    with one_thread():
        asked = options or Options()
        chosen = with_default_ranges(source, asked, observer)

        def compiled(options: Options, tied: Tied) -> object:
            units, by_default = stored or NoStoredUnits(), chosen is not asked
            passes = build_shape_pipeline(source, profile, options, units, by_default=by_default, tied=tied)
            return run_passes(passes, source, observer or SilentObserver())[0]

        found = with_tied_dimensions(chosen, compiled)
    assert isinstance(found, ShapeModel)
    return found


def compile_package(
    model: bytes | ModelSource,
    profile: Profile,
    options: Options | None = None,
    *,
    observer: Observer | None = None,
    stored: StoredUnits | None = None,
) -> PreparedModel:
    """As `compile_shapes`, with the tables that option `tables` asks for: what a package carries."""
    source = model if isinstance(model, ModelSource) else ModelSource.from_bytes(model)
    with one_thread():
        asked = options or Options()
        chosen = with_default_ranges(source, asked, observer)

        def compiled(options: Options, tied: Tied) -> object:
            units, by_default = stored or NoStoredUnits(), chosen is not asked
            passes = build_package_pipeline(source, profile, options, units, by_default=by_default, tied=tied)
            return run_passes(passes, source, observer or SilentObserver())[0]

        found = with_tied_dimensions(chosen, compiled)
    assert isinstance(found, PreparedModel)
    return found


def compile_model(
    model: bytes | ModelSource,
    profile: Profile,
    options: Options | None = None,
    *,
    observer: Observer | None = None,
    announce: Callable[[Plan], None] | None = None,
    pictures: bool = False,
    addresses: StoredAddressTables | None = None,
) -> Compilation:
    """Compile an ONNX model for an accelerator.

    Without option `dims` free dimensions get default ranges (`default_ranges.py`), and the plan is for
    their maxima. `model` is the file's bytes, or a source over a buffer that the caller has opened or memory-mapped.
    With `pictures` the tiling of every group is drawn too. `announce` is called with the plan as soon as it is known
    (`provisional`: times are estimates), long before programs, values and simulated times are. Address tables that
    `addresses` holds are not made again; the result is the same with and without. Raises a TesseraError (model,
    profile, request, limit or internal) or CompilationCancelledError.
    """
    source = model if isinstance(model, ModelSource) else ModelSource.from_bytes(model)
    with one_thread():
        asked = options or Options()
        chosen = with_default_ranges(source, asked, observer)
        passes = build_pipeline(
            source,
            profile,
            chosen,
            pictures=pictures,
            announce=announce,
            by_default=chosen is not asked,
            addresses=addresses,
        )
    return _compilation(passes, source, observer)


def plan_model(
    model: bytes | ModelSource,
    profile: Profile,
    options: Options | None = None,
    *,
    observer: Observer | None = None,
    pictures: bool = False,
) -> Compilation:
    """As `compile_model`, but without programs: the plan is `provisional`, nothing is simulated or verified.

    A segment whose program would be too long is not cut (PART-3).
    """
    source = model if isinstance(model, ModelSource) else ModelSource.from_bytes(model)
    with one_thread():
        asked = options or Options()
        chosen = with_default_ranges(source, asked, observer)
        passes = build_pipeline(
            source, profile, chosen, pictures=pictures, only_plan=True, by_default=chosen is not asked
        )
    return _compilation(passes, source, observer)


def _compilation(passes: tuple[Pass, ...], source: ModelSource, observer: Observer | None) -> Compilation:
    with one_thread():
        documents, timings = run_passes(passes, source, observer or SilentObserver())
    return Compilation(
        plan=documents.plan,
        report=documents.report,
        timings=timings,
        pictures=documents.pictures,
        executable=documents.executable,
    )
