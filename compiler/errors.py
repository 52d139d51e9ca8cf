"""The one error base of Tessera: what, where, actual, limit, next step."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class TesseraError(Exception):
    """A failure that a person can act on.

    Subclasses say who can cure it: the model, the profile, the request, a limit, or us. The message reads: what,
    where, actual, limit, next step. `code` is stable and meant for programs, the rest for people. An error without a
    hint of its own has that of its class.
    """

    default_code: ClassVar[str] = "error"
    default_hint: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        stage: str | None = None,
        node: str | None = None,
        op_type: str | None = None,
        actual: object | None = None,
        limit: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.stage = stage
        self.node = node
        self.op_type = op_type
        self.actual = None if actual is None else _plain(actual)
        self.limit = None if limit is None else _plain(limit)
        self.hint = hint or self.default_hint

    def __str__(self) -> str:
        where = [
            part
            for part in (
                f"stage {self.stage}" if self.stage else "",
                f"node {printable(self.node)}" if self.node else "",
                f"op {printable(self.op_type)}" if self.op_type else "",
            )
            if part
        ]
        text = printable(self.message)
        if where:
            text += f" ({', '.join(where)})"
        if self.actual is not None:
            text += f"; actual {printable(str(self.actual))}"
        if self.limit is not None:
            text += f"; limit {printable(str(self.limit))}"
        if self.hint:
            text += f". {printable(self.hint)}"
        return text

    def to_dict(self) -> dict[str, object]:
        """The problem as plain values, with absent parts left out (API-4)."""
        parts = {
            "code": self.code,
            "stage": self.stage,
            "node": self.node,
            "op_type": self.op_type,
            "message": self.message,
            "actual": self.actual,
            "limit": self.limit,
            "hint": self.hint,
        }
        return {name: value for name, value in parts.items() if value is not None}


class ModelError(TesseraError):
    """The model has to change."""

    default_code = "invalid_model"
    default_hint = "Correct what is named and export the model again; onnx.checker.check_model checks the file"


class ProfileError(TesseraError):
    """The hardware profile has to change."""

    default_code = "invalid_profile"
    default_hint = "`tessera profiles check FILE` lists all that is wrong; docs/profiles.md describes every field"


class RequestError(TesseraError):
    """The request (its options, names or form) has to change."""

    default_code = "invalid_request"
    default_hint = "Change what is named; docs/plan.md describes the options, docs/service.md the requests"


class LimitError(TesseraError):
    """A stated limit was reached."""

    default_code = "limit_exceeded"
    default_hint = "Make the model or the request smaller; where the limit is a setting or an option, raise it"


class InternalError(TesseraError):
    """Tessera is at fault: an invariant between two passes does not hold."""

    default_code = "internal_error"
    default_hint = "This is Tessera's fault: report it with the model, the profile and the options"


class CompilationCancelledError(Exception):
    """The observer asked to stop; raised between two passes. Not a failure, hence not a TesseraError."""


def printable(text: str, limit: int = 300) -> str:
    """Text from a model or request as one bounded line without control characters (API-7)."""
    shortened = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shortened)


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that come nearest to one that was mistyped, best first; none if all differ much."""
    return get_close_matches(name[:120], list(known), n=most, cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question that an error asks about a mistyped name, or "" if no known name is near."""
    known = list(known)
    near = near_names(name, known, most=1) or [one for one in known if one.lower() == name.lower()]
    return f"Did you mean {near[0]}?" if near else ""


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) else str(value)
