"""Compilations that end with the plan, for tests of plans: programs of whole networks take a hundred times as long."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.compile import Compilation
from compiler.frontend.source import ModelSource
from compiler.fusion.map_chips import MappedGraph
from compiler.options import Options
from compiler.pipeline import Observer, Pass, SilentObserver, build_pipeline, run_passes
from compiler.plan import Plan
from compiler.profile.schema import Profile
from compiler.program.lower import LoweredGraph, LoweredSegment, LowerSegments
from compiler.simulator.check import CheckedGraph, CheckValues, ValueCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutPrograms:
    """Pass: a mapped graph as if its profile described what programs cannot do, instead of lowering and checking it."""

    name: str = "without programs"

    def run(self, mapped: MappedGraph) -> CheckedGraph:
        """No program, no executable, nothing compared."""
        none = LoweredSegment(program=None, verified=None, sizes=None)
        reason = "a test of plans"
        return CheckedGraph(
            lowered=LoweredGraph(mapped=mapped, segments=tuple(none for _ in mapped.fused.segments), reason=reason),
            executable=None,
            check=ValueCheck(seed=0, judge="", reason=reason, comparisons=()),
        )


def plan_model(
    model: bytes | ModelSource,
    profile: Profile,
    options: Options | None = None,
    *,
    observer: Observer | None = None,
    pictures: bool = False,
) -> Compilation:
    """As `compile_model`, without programs and values; segments are not cut for what their programs exceed (PART-3)."""
    source = model if isinstance(model, ModelSource) else ModelSource.from_bytes(model)
    passes: list[Pass] = []
    for current in build_pipeline(source, profile, options or Options(), pictures=pictures):
        if isinstance(current, LowerSegments):
            passes.append(WithoutPrograms())
        elif not isinstance(current, CheckValues):
            passes.append(current)
    documents, timings = run_passes(passes, source, observer or SilentObserver())
    return Compilation(
        plan=documents.plan,
        report=documents.report,
        timings=timings,
        pictures=documents.pictures,
        executable=documents.executable,
    )


def objective_of(plan: Plan, objective: str) -> float:
    """The objective's value of a plan: seconds, bytes, joules, or joules times seconds."""
    totals = plan.totals
    return {
        "latency": totals.latency_s,
        "dram_bytes": float(totals.dram_bytes),
        "energy": totals.energy_j,
        "edp": totals.energy_j * totals.latency_s,
    }[objective]
