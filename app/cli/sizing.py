"""`tessera size`: the smallest value of a field that reaches a target, here or on a service (SIM-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from app.cli.sweep_table import is_impossible, short_name, value_text
from app.cli.sweeping import Sweeper, no_point_succeeded
from app.sweeps.grid import VariedField
from app.sweeps.report import PointReport, SweepReport
from app.sweeps.sizing import Amount, CurvePoint, Range, SizeReport, curve_of, is_interrupted, range_of, smallest
from app.sweeps.target import Target, parse_target
from compiler.errors import LimitError
from compiler.profile.fields import Field

# What a target's figure cannot go below, and what to do about a target below it.
_LEAST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dram_bytes": "the minimum (inputs, weights and outputs once)",
        "latency": "the bound (all arithmetic units busy, or the minimum DRAM traffic at full bandwidth)",
    }
)
_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dram_bytes": "A target in bytes is DRAM traffic, not a memory's size; aim at --target 1.05xminimum or more",
        "latency": "Aim higher, or vary what the bound depends on: --field dram_bandwidth, clock or cores",
    }
)


def with_objective(settings: Sequence[str], target: Target) -> list[str]:
    """The settings with the target's figure as the objective, unless they name one."""
    named = any(word.partition("=")[0] == "objective" for word in settings)
    return [*settings, *(() if named else (f"objective={target.figure}",))]


def sized(
    sweeper: Sweeper,
    field: Field,
    target: Target,
    text: str,
    *,
    low: str | None,
    high: str | None,
    granularity: str | None,
) -> SizeReport:
    """Searches a field's values for the smallest that reaches a target; Ctrl-C returns the finished values."""
    within = range_of(sweeper.profiles()[0], field, low=low, high=high, granularity=granularity)
    sweeps: list[SweepReport] = []

    def evaluate(values: Sequence[Amount]) -> Sequence[PointReport]:
        sweep = sweeper.run((VariedField(field=field.path, values=tuple(values)),))
        sweeps.append(sweep)
        return sweep.points

    rows = smallest(within, target, evaluate)
    curve = curve_of(within, target, rows)
    return _report(sweeps[0], field, text, within, curve, interrupted=is_interrupted(rows))


def _report(
    sweep: SweepReport,
    field: Field,
    text: str,
    within: Range,
    curve: tuple[CurvePoint, ...],
    *,
    interrupted: bool,
) -> SizeReport:
    reaching = [point.value for point in curve if point.reached]
    known = [point for point in curve if point.actual is not None]
    return SizeReport(
        schema="tessera.size/1",
        state="cancelled" if interrupted else "succeeded",
        model=sweep.model,
        profile=sweep.profiles[0],
        options=sweep.options,
        compiler_version=sweep.compiler_version,
        field=field.path,
        target=text,
        granularity=within.granularity,
        smallest=min(reaching, default=None),
        best=min(known, key=lambda point: (point.actual, point.value)).value if known else None,
        larger_misses=tuple(
            point.value for point in curve if reaching and point.value > min(reaching) and not point.reached
        ),
        curve=curve,
    )


def raise_unless_reached(report: SizeReport) -> None:
    """Raises LimitError that says why no value that was tried reaches the target."""
    if report.smallest is not None:
        return
    target, name = parse_target(report.target), short_name(report.field)
    best = next((point for point in report.curve if point.value == report.best), None)
    if best is None or best.row.figures is None or best.actual is None:
        raise no_point_succeeded([point.row for point in report.curve], "size")
    limit = target.text(target.limit_for(best.row.figures))
    if is_impossible(report):
        least = target.text(target.least(best.row.figures))
        raise LimitError(
            f"no value of {name} reaches {target.words}: {_LEAST[target.figure]} is {least}",
            code="target_impossible",
            stage="size",
            actual=f"at least {least}",
            limit=limit,
            hint=_REMEDIES[target.figure],
        )
    raise LimitError(
        f"no value of {name} that was tried reaches {target.words}",
        code="target_not_reached",
        stage="size",
        actual=target.text(best.actual),
        limit=limit,
        hint=f"Nearest is {value_text(report.field, best.value)}; widen --from and --to, or vary another field",
    )
