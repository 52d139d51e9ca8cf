"""Answers that were given and may be given again, with what each follows from (decision 0015)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fastapi import Request
from fastapi.responses import Response
from starlette.types import Scope

from app.http import unchanged

Target: TypeAlias = tuple[str, bytes]

# Of an answer beside its body, roughly: the record that it follows from has some forty fields.
_ENTRY_BYTES: Final = 8000
# What takes a larger part than this is not worth the others that it would displace.
_LARGEST_PART: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What an answer follows from: what a command to the broker finds, and a blob in a state (`BlobStore.state`)."""

    command: tuple[str, ...]
    found: Any
    digest: str | None = None
    state: Hashable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswer:
    """A whole answer, that to a caller who has it, the route that made it, and what is done when it is given again."""

    basis: Basis
    whole: Response
    unchanged: Response | None
    route: Any
    again: Callable[[], None] | None = None

    @property
    def size_bytes(self) -> int:
        """How much it counts."""
        return len(self.whole.body) + _ENTRY_BYTES


class KnownAnswers:
    """Answers to GET by target and owner, at most `limit_bytes` together.

    The target that was asked for least recently goes first. An answer must follow from its target, its owner and its
    basis alone. Any thread may ask.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._known: OrderedDict[Target, dict[str, KnownAnswer]] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, target: Target) -> bool:
        """Whether there is an answer for anybody."""
        return target in self._known

    def get(self, target: Target, owner: str) -> KnownAnswer | None:
        """The answer for an owner, if it is still known; whether it still holds is for the caller to see."""
        with self._lock:
            found = self._known.get(target, {}).get(owner)
            if found is not None:
                self._known.move_to_end(target)
            return found

    def remember(
        self, request: Request, owner: str, basis: Basis, answer: Response, again: Callable[[], None] | None = None
    ) -> None:
        """Remembers a whole answer in place of an earlier one, if it is not too large."""
        known = KnownAnswer(
            basis=basis,
            whole=answer,
            unchanged=unchanged(answer) if "ETag" in answer.headers else None,
            route=request.scope["route"],
            again=again,
        )
        if known.size_bytes > self._limit_bytes // _LARGEST_PART:
            return
        target = target_of(request.scope)
        with self._lock:
            answers = self._known.setdefault(target, {})
            self._size_bytes += known.size_bytes - (answers[owner].size_bytes if owner in answers else 0)
            answers[owner] = known
            self._known.move_to_end(target)
            while self._size_bytes > self._limit_bytes:
                _, gone = self._known.popitem(last=False)
                self._size_bytes -= sum(one.size_bytes for one in gone.values())


def target_of(scope: Scope) -> Target:
    """What a request asks for."""
    return scope["path"], scope["query_string"]
