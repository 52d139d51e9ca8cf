"""Trace context of W3C: who asked, through all processes that work for him (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Final, Self

# Later versions may append more; version ff and ids of zeros are invalid.
_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?"
)
_VERSION: Final = "00"
_LONGEST: Final = 512
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """One step of a trace; `parent` is the span that caused it, "" if none did."""

    trace_id: str
    span_id: str
    sampled: bool = False
    parent: str = ""

    @classmethod
    def after(cls, text: str) -> Self:
        """A new step after the one in a `traceparent`; of a trace of its own if the text is none."""
        match = _PARENT.fullmatch(text) if len(text) <= _LONGEST else None
        if match is None or (match[1] == _VERSION and match[5] is not None):
            made = secrets.token_hex(24)
            return cls(trace_id=made[:32], span_id=made[32:])
        return cls(
            trace_id=match[2],
            span_id=secrets.token_hex(8),
            sampled=bool(int(match[4], 16) & _SAMPLED),
            parent=match[3],
        )

    @property
    def text(self) -> str:
        """As `traceparent` says it."""
        return f"{_VERSION}-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"

    @property
    def log_fields(self) -> dict[str, str]:
        """What each line of the log says of it."""
        fields = {"trace_id": self.trace_id, "span_id": self.span_id}
        return fields | {"parent_span_id": self.parent} if self.parent else fields


_current: ContextVar[TraceContext | None] = ContextVar("trace_context", default=None)


def enter(context: TraceContext) -> Token[TraceContext | None]:
    """Makes it the context of what this request does from now on."""
    return _current.set(context)


def leave(token: Token[TraceContext | None]) -> None:
    """Ends what `enter` began."""
    _current.reset(token)


def current_traceparent() -> str:
    """The `traceparent` for what is caused here; "" outside of a request."""
    context = _current.get()
    return "" if context is None else context.text
