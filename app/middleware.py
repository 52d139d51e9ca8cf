"""The outermost layer of the API: request ids, traces, figures, a log line each, security headers, all exceptions."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from contextlib import nullcontext

import anyio
import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import SECURITY_HEADERS
from app.health.figures import RequestFigures
from app.problems import problem_response, retry_headers
from app.trace_context import TraceContext, enter, leave

log = structlog.get_logger(__name__)

# As an answer of ASGI has them.
_SECURITY_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestMiddleware:
    """Gives each request its id (the caller's `X-Request-ID` if it is a plain word) and logs it."""

    def __init__(self, app: ASGIApp, *, figures: RequestFigures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["tessera.request_id"] = request_id
        trace = TraceContext.after(headers.get("traceparent", ""))
        traced = trace.log_fields
        status, started, begun = 500, False, time.monotonic()
        received_bytes = sent_bytes = 0
        headed = scope["method"] == "HEAD"
        body = anyio.CancelScope() if headed else None
        # HEAD is GET without the body (RFC 9110): the body is not made, and the rest of the answer is cancelled
        answered = {**scope, "method": "GET"} if headed else scope

        async def receive_counted() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status, started, sent_bytes
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                headers = list(message.get("headers", ()))
                own = {name for name, _ in headers}
                headers.append((b"x-request-id", request_id.encode()))
                headers.append((b"traceresponse", trace.text.encode()))
                headers += [header for header in _SECURITY_HEADERS if header[0] not in own]
                message["headers"] = headers
            if not headed:
                sent_bytes += len(message.get("body", b""))
                await send(message)
            elif message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                assert body is not None
                body.cancel()

        structlog.contextvars.bind_contextvars(request_id=request_id, **traced)
        entered = enter(trace)
        try:
            with body or nullcontext():
                await self._app(answered, receive_counted, send_with_id)
        except ClientDisconnect:
            status = 499  # nobody is there to read an answer
        except asyncio.CancelledError:  # only the server cancels, when it stops and waited for long enough
            if started:
                raise
            parts = {
                "code": "stopping",
                "stage": "service",
                "message": "the service stops before it has an answer",
                "hint": "Ask again in a few seconds; accepted jobs go on when it runs again",
            }
            await problem_response(parts, 503, request_id, retry_headers(scope))(scope, receive, send_with_id)
        except Exception:
            log.exception("request_failed", method=scope["method"], path=scope["path"])
            if started:
                raise  # too late for an error answer: the server closes the connection
            parts = {
                "code": "internal_error",
                "stage": "service",
                "message": "Tessera failed in an unexpected way; this is our fault",
                "hint": "Report it with the request_id",
            }
            await problem_response(parts, 500, request_id)(scope, receive, send_with_id)
        finally:
            duration_s = time.monotonic() - begun
            self._figures.count(answered, status, duration_s, received_bytes, sent_bytes)
            if scope["path"] not in ("/livez", "/readyz", "/metrics"):
                log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    duration_s=round(duration_s, 4),
                )
            leave(entered)
            structlog.contextvars.unbind_contextvars("request_id", "key", "job", *traced)
