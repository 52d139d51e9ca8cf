"""The bound on what the host runs, in the value check and in `run` (IMPORT-6, SIM-1).

A step is one execution of an ONNX node; a node in the body of a Loop or a Scan takes one in every trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from compiler.errors import LimitError


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBound:
    """How long one run of a model or of a host segment may take, if it repeats nodes; others always end.

    What is known to take more than `steps` is not started, so that verdict depends on no clock; 2**27 steps of the
    smallest nodes take about a minute. What takes more than `seconds` of wall time is interrupted.
    """

    steps: int = 2**27
    seconds: float = 300.0


HOST_BOUND: Final = HostBound()


class HostBoundError(LimitError):
    """A host node takes more steps or seconds than the bound allows."""

    default_code: ClassVar[str] = "host_run_too_long"
