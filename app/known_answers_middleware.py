"""Gives known answers again, before the application is asked: no routing, no validation, one read of the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http import has_tag
from app.known_answers import KnownAnswer, target_of
from compiler.errors import TesseraError

if TYPE_CHECKING:
    from app.context import Context


class KnownAnswersMiddleware:
    """Answers from memory what its sender may see and what is as it was; everything else is for the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        answer = await _valid(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = answer.route
        if answer.again is not None:
            answer.again()
        given = None if answer.unchanged is None else Headers(scope=scope).get("if-none-match")
        if given is not None and answer.unchanged is not None and has_tag(given, answer.unchanged.headers["ETag"]):
            await answer.unchanged(scope, receive, send)
        else:
            await answer.whole(scope, receive, send)


async def _valid(scope: Scope) -> KnownAnswer | None:
    """The known answer for a target and its sender, if everything that it follows from is as it was."""
    context: Context = scope["app"].state.context
    target = target_of(scope)
    if not context.known.has(target):
        return None
    try:
        owner = await context.gate.sender(scope)
        answer = context.known.get(target, owner.name)
        if answer is None:
            return None
        basis = answer.basis
        if await context.broker_exchanges.ask(*basis.command) != basis.found:
            return None
    except (TesseraError, redis.RedisError):  # the application says so
        return None
    if basis.digest is not None and context.store.state(basis.digest) != basis.state:
        return None
    return answer
