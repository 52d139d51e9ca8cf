"""Errors of the client: problems that a service reports, and services that do not answer.

This module needs no HTTP library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import TesseraError


class ServiceError(TesseraError):
    """The service refused a request or a job failed; carries the problem it gave."""

    def __init__(self, problem: Mapping[str, Any], status: int) -> None:
        super().__init__(
            str(problem.get("detail", "the service gave no reason")),
            code=str(problem.get("code", "error")),
            stage=problem.get("stage"),
            node=problem.get("node"),
            op_type=problem.get("op_type"),
            actual=problem.get("actual"),
            limit=problem.get("limit"),
            hint=problem.get("hint"),
        )
        self.status = status
        self.request_id = problem.get("request_id")


class UnreachableError(TesseraError):
    """No Tessera service answers at the URL."""

    default_code = "service_unreachable"
    default_hint = "Check the URL, and whether `tessera serve` runs there"
