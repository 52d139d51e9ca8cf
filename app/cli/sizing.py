"""`tessera size`: the smallest value of a field that reaches a target, here or on a service (SIM-5)."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from app.cli.sweep_table import value_text
from app.cli.sweeping import Sweeper
from app.sweeps.grid import VariedField
from app.sweeps.report import PointReport, SweepReport
from app.sweeps.sizing import Amount, CurvePoint, Range, SizeReport, curve_of, is_interrupted, range_of, smallest
from app.sweeps.target import Target
from compiler.errors import LimitError
from compiler.profile.fields import Field


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


def _above(point: CurvePoint) -> float:
    """A point's distance from the target, as a ratio."""
    assert point.actual is not None
    return point.actual / point.limit if point.limit else inf


def raise_unless_reached(report: SizeReport) -> None:
    """Raises LimitError with the nearest value if no value that was tried reaches the target."""
    if report.smallest is not None:
        return
    best = next((point for point in report.curve if point.value == report.best), None)
    raise LimitError(
        f"no value of {report.field} that was tried reaches {report.target}",
        code="target_not_reached",
        stage="size",
        actual=None if best is None else best.actual,
        limit=None if best is None else best.limit,
        hint="No value of the range compiles"
        if best is None
        else f"Nearest is {value_text(report.field, best.value)}; widen --from and --to, or vary another field",
    )
