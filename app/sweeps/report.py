"""The answer of a sweep: sweep.json, its types and canonical bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from app.jobs.records import State
from app.sweeps.figures import Figures
from app.sweeps.front import pareto_front
from app.sweeps.grid import Grid
from compiler.profile.fields import Value
from compiler.report.execution import Part
from compiler.report.plan import ModelRef, ProfileRef

# The criteria of the front, besides latency.
_CRITERIA: Final = ("energy_j", "dram_bytes", "on_chip_bytes")


class PointReport(Part, frozen=True, kw_only=True):
    """A row of the table: the profile of that name with `values` in its fields, and its result.

    `figures` are those of a point that succeeded, `problem` is the reason of a failure. `job` is its job on a service.
    """

    profile: str
    values: dict[str, Value]
    job: str | None
    state: State
    figures: Figures | None
    problem: dict[str, Any] | None


class SweepReport(Part, frozen=True, kw_only=True):
    """sweep.json: one model for many profiles.

    Rows stand in grid order, also while only `done` of them are final. `front` holds the numbers of the rows, from 0,
    that no other row beats in latency, energy, DRAM bytes and on-chip bytes. Equal rows are all in it, rows of degraded
    plans are not. `latency` says which latency that is: `simulated` if all rows with figures have a simulation, else
    `estimated`; None without any figures. `values_checked` says whether values were compared too.
    """

    schema: Literal["tessera.sweep/1"]
    state: State
    model: ModelRef
    profiles: tuple[ProfileRef, ...]
    grid: Grid
    options: dict[str, Any]
    compiler_version: str
    values_checked: bool
    done: int
    total: int
    latency: Literal["simulated", "estimated"] | None
    front: tuple[int, ...]
    points: tuple[PointReport, ...]


class SweepHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a sweep's report, known before any of its points."""

    model: ModelRef
    profiles: tuple[ProfileRef, ...]
    grid: Grid
    options: dict[str, Any]
    compiler_version: str


def sweep_report(head: SweepHead, state: State, points: Sequence[PointReport]) -> SweepReport:
    """The report over the rows as they are now."""
    known = [
        (number, point.figures)
        for number, point in enumerate(points)
        if point.figures is not None and not point.figures.degraded
    ]
    simulated = all(figures.simulated_latency_s is not None for _, figures in known)
    latencies = [figures.latency_s if simulated else figures.estimated_latency_s for _, figures in known]
    rows = [
        (latency, *(getattr(figures, name) for name in _CRITERIA))
        for latency, (_, figures) in zip(latencies, known, strict=True)
    ]
    front = pareto_front(np.array(rows, dtype=np.float64).reshape(len(rows), 1 + len(_CRITERIA)))
    return SweepReport(
        schema="tessera.sweep/1",
        state=state,
        model=head.model,
        profiles=head.profiles,
        grid=head.grid,
        options=head.options,
        compiler_version=head.compiler_version,
        values_checked=head.options["verify"] == "values",
        done=sum(point.state in ("succeeded", "failed", "cancelled") for point in points),
        total=len(points),
        latency=None if not known else "simulated" if simulated else "estimated",
        front=tuple(known[index][0] for index in front),
        points=tuple(points),
    )


def sweep_json(report: SweepReport) -> bytes:
    """The report's canonical bytes: UTF-8 JSON, fields in schema order, indented by two."""
    values = msgspec.to_builtins(report)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
