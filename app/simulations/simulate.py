"""Reads, verifies, runs and describes an untrusted executable (PROG-4, SIM-1).

The command line and the worker call this; the API process does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from mmap import mmap
from typing import Any, Final

import numpy as np

from app.simulations.arrays import Array, plain_tensors
from app.simulations.inputs import fitted_inputs, made_up_inputs
from app.simulations.report import ComparisonReport, SimulationReport, TensorReport, VerifiedSegment
from compiler.errors import CompilationCancelledError, RequestError, printable
from compiler.frontend.source import ModelSource
from compiler.profile import profile_digest
from compiler.program.errors import ProgramError
from compiler.program.executable import DEFAULT_LIMIT_BYTES, ChipSegment, Executable, HostSegment, check_flow, read
from compiler.program.loops.proof import ProvedProgram, prove
from compiler.report.plan import ModelRef, ProfileRef
from compiler.report.programs import output_check
from compiler.simulator.compare import compare
from compiler.simulator.external_files import refuse_outside
from compiler.simulator.reference import run_reference
from compiler.simulator.run import run_executable
from compiler.version import COMPILER_VERSION

ASSUMPTIONS: Final = (
    "Values only: commands are executed in the order of the program on flat byte memories; time is not simulated.",
    "Every program was proved safe before its first command ran (PROG-4).",
)
PHASES: Final = ("read", "verify", "run", "compare")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The original model, and by output the limit that its compilation stated and whether it is random."""

    source: ModelSource
    limits: Mapping[str, float]
    skipped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The result of a simulation: the outputs by name, and the report on them."""

    outputs: Mapping[str, Any]
    report: SimulationReport


class Watcher:
    """An observer of phases: called before each phase, and asked whether to continue."""

    def __init__(self, phase: Callable[[str, int, int], None], cancelled: Callable[[], bool]) -> None:
        self._phase = phase
        self._cancelled = cancelled

    def begin(self, name: str) -> None:
        """Phase `name` begins; raises CompilationCancelledError if the work should stop."""
        if self._cancelled():
            raise CompilationCancelledError(name)
        self._phase(name, PHASES.index(name) + 1, len(PHASES))


def silent() -> Watcher:
    """A watcher that ignores phases and never cancels."""
    return Watcher(lambda *_: None, lambda: False)


def simulate(
    data: bytes | mmap,
    sha256: str,
    *,
    given: Mapping[str, Array] | None,
    seed: int,
    judge: Judge | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    watcher: Watcher | None = None,
) -> Simulation:
    """Runs an executable file on given inputs, or on inputs generated from the seed.

    Raises ExecutableError or ProgramError (naming segment, command and violation) for a file that is damaged or unsafe,
    RequestError for inputs that do not fit, ModelError naming a host node that no runtime can run, LimitError, and
    CompilationCancelledError.
    """
    watch = watcher or silent()
    watch.begin("read")
    executable = checked_read(data, limit_bytes=limit_bytes)
    return run_and_describe(executable, sha256, given=given, seed=seed, judge=judge, watcher=watch)


def run_and_describe(
    executable: Executable,
    sha256: str,
    *,
    given: Mapping[str, Array] | None,
    seed: int,
    judge: Judge | None = None,
    watcher: Watcher | None = None,
) -> Simulation:
    """As `simulate`, for an executable that was read or made in this process."""
    watch = watcher or silent()
    watch.begin("verify")
    segments = tuple(_verified(executable))
    inputs = made_up_inputs(executable, seed) if given is None else fitted_inputs(executable, given)
    watch.begin("run")
    outputs = run_executable(executable, inputs)
    watch.begin("compare")
    comparison = None if judge is None else _comparison(judge, inputs, outputs)
    report = SimulationReport(
        schema="tessera.simulation/1",
        mode="values",
        executable_sha256=sha256,
        model=ModelRef(name=executable.model_name, sha256=executable.model_digest),
        profile=ProfileRef(name=executable.profile.name, digest=profile_digest(executable.profile)),
        executable_compiler_version=executable.compiler_version,
        simulator_version=COMPILER_VERSION,
        seed=seed if given is None else None,
        segments=segments,
        inputs=tuple(_figures(inputs)),
        outputs=tuple(_figures(outputs)),
        comparison=comparison,
        assumptions=ASSUMPTIONS,
    )
    return Simulation(outputs=outputs, report=report)


def checked_read(data: bytes | mmap, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Executable:
    """An executable from a file.

    Raises ExecutableError if it is damaged, reads tensors that nothing makes, or would make the host open files.
    """
    executable = read(data, limit_bytes=limit_bytes)
    check_flow(executable)
    refuse_outside(executable)
    return executable


def proved_program(executable: Executable, segment: ChipSegment) -> ProvedProgram:
    """The proof of one segment's program; raises ProgramError naming the segment beside command and violation."""
    try:
        return prove(segment.program, shared=executable.profile.engines.shared)
    except ProgramError as error:
        named = ProgramError(
            f"segment {segment.id}: {error.message}",
            violation=error.violation,
            actual=error.actual,
            limit=error.limit,
            hint=error.hint,
        )
        named.command, named.tile = error.command, error.tile
        raise named from None


def _verified(executable: Executable) -> Iterator[VerifiedSegment]:
    for segment in executable.segments:
        if isinstance(segment, HostSegment):
            yield VerifiedSegment(
                id=segment.id,
                kind="host",
                chip=None,
                nodes=len(segment.nodes),
                statements=0,
                commands=0,
                opcodes={},
                touched_bytes=0,
                used_bytes={},
                capacity_bytes={},
            )
            continue
        proved = proved_program(executable, segment)
        used: dict[str, int] = {}
        for place, peak in zip(segment.program.places, proved.peak_bytes, strict=True):
            used[place.level.value] = max(used.get(place.level.value, 0), peak)
        yield VerifiedSegment(
            id=segment.id,
            kind="chip",
            chip=segment.chip,
            nodes=len({node for step in segment.program.steps for node in step.nodes}),
            statements=len(segment.program.commands),
            commands=sum(count for _, count in proved.commands),
            opcodes={opcode.name.lower(): count for opcode, count in proved.commands},
            touched_bytes=proved.touched_bytes,
            used_bytes=used,
            capacity_bytes={place.level.value: place.capacity_bytes for place in segment.program.places},
        )


def _comparison(judge: Judge, inputs: Mapping[str, Array], outputs: Mapping[str, Any]) -> ComparisonReport:
    """Compares the outputs with the original model's, by the compilation's limits or by those of each type."""
    try:
        reference = run_reference(judge.source, inputs, zeros_for_missing=True)
    except RequestError as error:  # the model was changed to another batch
        return _not_compared(str(error))
    if not reference.has_run:
        return _not_compared(reference.reason)
    unknown = next((name for name in outputs if name not in reference.values), None)
    if unknown is not None:
        return _not_compared(f"the model has no output {printable(unknown, 120)!r}")
    compared, skipped = [], []
    for name, value in outputs.items():
        if name in judge.skipped:
            skipped.append(name)
        else:
            compared.append(compare(name, value, reference.values[name], limit=judge.limits.get(name)))
    return ComparisonReport(
        judge=reference.judge,
        reason=None if compared else "every output depends on random nodes",
        holds=all(comparison.holds for comparison in compared) if compared else None,
        outputs=tuple(output_check(comparison) for comparison in compared),
        skipped=tuple(skipped),
    )


def _not_compared(reason: str) -> ComparisonReport:
    return ComparisonReport(judge=None, reason=reason, holds=None, outputs=(), skipped=())


def _figures(values: Mapping[str, Any]) -> Iterator[TensorReport]:
    for name, array in plain_tensors(values).items():
        is_text = array.dtype.kind in "SU"
        is_number = not is_text and array.dtype.kind != "c"
        numbers = array.astype(np.float64).reshape(-1) if is_number else np.zeros(0)
        finite = numbers[np.isfinite(numbers)]
        has = is_number and len(finite) > 0
        yield TensorReport(
            name=name,
            dtype="string" if is_text else array.dtype.name,
            shape=array.shape,
            bytes=array.nbytes,
            finite=len(finite) if is_number else None,
            min=float(finite.min()) if has else None,
            max=float(finite.max()) if has else None,
            mean=_figure(float(finite.mean())) if has else None,
            rms=_figure(float(np.sqrt(np.mean(np.square(finite))))) if has else None,
        )


def _figure(value: float) -> float | None:
    return value if isfinite(value) else None
