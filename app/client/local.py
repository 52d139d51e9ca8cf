"""Compiling in this process, with the arguments and the result of a client."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.client.arguments import chosen_options, hardware, model_source
from app.client.document import document
from app.client.results import Compilation, Executable, OnPhase, OnPlan, Plan, Report
from compiler.errors import InternalError, RequestError
from compiler.options import Options
from compiler.report import plan as documents

if TYPE_CHECKING:
    from app.client.arguments import ModelInput, OptionsInput, ProfileInput


def compile(  # noqa: A001 - the public name, used as tessera.compile
    model: ModelInput,
    profile: ProfileInput,
    options: OptionsInput = None,
    *,
    on_plan: OnPlan | None = None,
    on_phase: OnPhase | None = None,
) -> Compilation:
    """Compiles a model for a profile in this process; no service is needed.

    `model` is the path of an ONNX file (or of a zip or tar of one), its bytes, or a ModelProto; `profile` a name, the
    path of a YAML or JSON file, its bytes, a mapping, or a Profile. `on_plan` is called with the provisional plan as
    soon as it is known, `on_phase` at the begin of each phase. Raises a TesseraError whose class says who can fix the
    cause.
    """
    from compiler.compile import compile_model

    chosen = chosen_options(options)
    profile_here = hardware(profile)
    source = model_source(model)

    raised: list[Exception] = []

    def announce(plan: documents.Plan) -> None:
        if on_plan is not None:
            try:
                on_plan(_plan(plan))
            except Exception as error:
                raised.append(error)
                raise

    try:
        with _bounds(chosen):
            made = compile_model(source, profile_here, chosen, observer=_Phases(on_phase), announce=announce)
    except InternalError:
        if raised:  # the caller's own error, which the compiler takes for a defect of a pass
            raise raised[0] from None
        raise
    program = made.executable
    return Compilation(
        plan=_plan(made.plan),
        report=document(documents.report_json(made.report), Report, "the report"),
        executable=None if program is None else Executable(lambda: program),
    )


def _plan(plan: documents.Plan) -> Plan:
    """A plan exactly as a service gives it."""
    return document(documents.plan_json(plan), Plan, "the plan")


@dataclass(frozen=True, slots=True)
class _Phases:
    """Reports phases to a caller; never cancels."""

    tell: OnPhase | None

    def phase(self, name: str, step: int, total: int) -> None:
        """A phase begins."""
        if self.tell is not None:
            self.tell(name, step, total)

    def cancelled(self) -> bool:
        """Never; Ctrl-C raises KeyboardInterrupt."""
        return False


def _bounds(options: Options) -> AbstractContextManager[None]:
    """The time and memory limits, which apply to the process: they use signals and its address space."""
    if options.time_limit_s is None and options.memory_limit_bytes is None:
        return nullcontext()
    if threading.current_thread() is not threading.main_thread():
        raise RequestError(
            "limits of time and memory hold for a compilation in the main thread alone",
            code="invalid_request",
            actual="time_limit_s or memory_limit_bytes in another thread",
            hint="Compile in the main thread, or on a service",
        )
    from app.limits import bounded

    return bounded(options.time_limit_s, options.memory_limit_bytes)
