"""The report of a simulation: simulation.json, its types and canonical bytes."""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from compiler.report.execution import OutputCheck, Part
from compiler.report.plan import ModelRef, ProfileRef


class TensorReport(Part, frozen=True, kw_only=True):
    """A tensor in figures: `mean` and `rms` cover its finite elements; None for text and without any.

    `finite` is the number of elements that are neither infinite nor NaN, None for text. A sequence is given by its
    parts.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    finite: int | None
    min: float | None
    max: float | None
    mean: float | None
    rms: float | None


class VerifiedSegment(Part, frozen=True, kw_only=True):
    """The verifier's figures for a chip segment's program before it ran (PROG-4); a host segment has its nodes only.

    `statements` are stored, `commands` run: one for each tile of a statement; `opcodes` counts them by opcode.
    `touched_bytes` is the total that all commands read and write. `used_bytes` is by memory level, in the fullest
    memory.
    """

    id: str
    kind: Literal["chip", "host"]
    chip: int | None
    nodes: int
    statements: int
    commands: int
    opcodes: dict[str, int]
    touched_bytes: int
    used_bytes: dict[str, int]
    capacity_bytes: dict[str, int]


class ComparisonReport(Part, frozen=True, kw_only=True):
    """Comparison of the outputs with those of the original model; `reason` says why nothing was compared."""

    judge: str | None
    reason: str | None
    holds: bool | None
    outputs: tuple[OutputCheck, ...]
    skipped: tuple[str, ...]


class SimulationReport(Part, frozen=True, kw_only=True):
    """simulation.json: the executable that ran, its inputs, and its outputs.

    `mode` is `values`: time is not simulated. `seed` is None for given inputs. `comparison` is None if the original
    model is unknown.
    """

    schema: Literal["tessera.simulation/1"]
    mode: Literal["values"]
    executable_sha256: str
    model: ModelRef
    profile: ProfileRef
    executable_compiler_version: str
    simulator_version: str
    seed: int | None
    segments: tuple[VerifiedSegment, ...]
    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    comparison: ComparisonReport | None
    assumptions: tuple[str, ...]


def simulation_json(report: SimulationReport) -> bytes:
    """The report's canonical bytes: UTF-8 JSON, fields in schema order, indented by two."""
    values = msgspec.to_builtins(report)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
