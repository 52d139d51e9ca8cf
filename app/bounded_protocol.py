"""HTTP connections within limits: time of a head, progress of bodies, size of a head, connections at once (API-4).

uvicorn bounds none of these, so a caller that sends nothing, or one byte a minute, would hold a connection for ever.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.access import SECURITY_HEADERS
from app.problems import MEDIA_TYPE, problem
from app.settings import Settings

# Connections that the kernel completes before they are accepted; all of them may be accepted at one moment.
BACKLOG = 100
# Descriptors for anything but connections: Redis, blobs, child processes, and a backlog's worth of connections that
# are closed at once.
_RESERVED_DESCRIPTORS = BACKLOG + 60

_Parts: TypeAlias = Mapping[str, object]
_MALFORMED: Final[_Parts] = {
    "code": "malformed_request",
    "stage": "request",
    "message": "the request is not HTTP/1.1",
}
_LARGE_HEAD: Final[_Parts] = {
    "code": "head_too_large",
    "stage": "request",
    "message": "the target and the headers of the request are too large",
    "hint": "Send options in the body",
}
_LATE_HEAD: Final[_Parts] = {
    "code": "request_timeout",
    "stage": "request",
    "message": "the head of a request did not arrive in time",
}
_LATE_BODY: Final[_Parts] = {
    "code": "request_timeout",
    "stage": "request",
    "message": "no more of the request's body arrived",
}
_BUSY: Final[_Parts] = {
    "code": "too_many_connections",
    "stage": "service",
    "message": "all connections of the service are busy",
    "hint": "Try again in a few seconds",
}


@dataclass(slots=True, eq=False)
class Connections:
    """What the connections of a server share: the limits, which of them wait for a request, longest first, and how
    many were refused, by the problem's code."""

    settings: Settings
    most: int
    refusals: Counter[str]
    idle: dict[BoundedProtocol, None] = field(default_factory=dict)


def connections(settings: Settings, refusals: Counter[str]) -> Connections:
    """The connections of a server with as many descriptors as this process may open."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # who waits for a job has a connection to Redis beside
    room = (descriptors - _RESERVED_DESCRIPTORS) // 2
    return Connections(settings=settings, most=max(1, min(settings.max_connections, room)), refusals=refusals)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. It answers 400, 408, 431 or 503 and closes as soon as a limit is reached."""

    def __init__(
        self,
        shared: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._shared = shared
        self._settings = shared.settings
        self._receiving: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0  # of a head, or of chunk extensions and trailers since the last byte of a body
        self._body_bytes = 0  # in the data that is being parsed
        self._received_at = 0.0
        self._fault: tuple[int, _Parts, int] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Makes room for one more connection, if another waits for a request; refuses it otherwise."""
        super().connection_made(transport)
        if len(self.connections) > self._shared.most:
            if not self._shared.idle:
                self._refuse(503, _BUSY, self._shared.most)
                return
            longest = next(iter(self._shared.idle))
            longest.transport.abort()
            self._shared.idle.pop(longest)
        self._shared.idle[self] = None
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the timers."""
        self._shared.idle.pop(self, None)
        self._stop_receiving()
        self._stop_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts the bytes of a head also while its parts are not complete, and those beside a body."""
        if self.transport.is_closing():
            return
        answering = self._is_answering
        if self._receiving is None and not answering:  # empty lines before a head are no head yet
            self._receive_within(self._settings.head_timeout_s, self._head_is_late)
        was_in_body, self._body_bytes = self._in_body, 0
        super().data_received(data)
        if self._in_head or (was_in_body and self._in_body and not self._body_bytes):
            self._head_bytes += len(data) - self._body_bytes
            self._check_head()
            if self._fault is not None:
                self._refuse(*self._fault)

    def on_message_begin(self) -> None:
        """A head begins: the time for it runs from its first byte."""
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        """The head is there: what is limited now is how long no byte of the body comes."""
        self._in_head = False
        self._head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._check_head()
        if self._fault is not None:
            raise ValueError("the head of a request is too large")  # ends the parser, which answers the fault
        self._shared.idle.pop(self, None)
        super().on_headers_complete()
        self._head_bytes = 0
        self._received_at = self.loop.time()
        self._receive_within(self._settings.stall_s, self._check_body)

    def on_body(self, body: bytes) -> None:
        """Notes that a body goes on."""
        self._received_at = self.loop.time()
        self._head_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Nothing more is expected until the answer is sent."""
        self._stop_receiving()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The connection waits for its next request, which uvicorn limits."""
        super().on_response_complete()
        if not self._is_answering and not self.transport.is_closing():
            self._shared.idle[self] = None

    def pause_writing(self) -> None:
        """The caller does not take its answer."""
        super().pause_writing()
        self._sending = self.loop.call_later(self._settings.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The caller takes its answer again."""
        self._stop_sending()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answers a request that cannot be parsed, or one with a fault, as a problem."""
        self._refuse(*(self._fault or (400, _MALFORMED, None)))

    @property
    def _is_answering(self) -> bool:
        """Whether a request has no complete answer yet; before the first one there is no cycle."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def _in_body(self) -> bool:
        """Whether a head is complete and its body is not."""
        return self._receiving is not None and not self._in_head

    def _begin_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._receive_within(self._settings.head_timeout_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._refuse(408, _LATE_HEAD, f"{self._settings.head_timeout_s:g} s")

    def _check_head(self) -> None:
        if self._head_bytes > self._settings.max_head_bytes:
            self._fault = 431, _LARGE_HEAD, self._settings.max_head_bytes

    def _check_body(self) -> None:
        """Refuses a body of which no byte came for too long, unless it is we who do not read."""
        waited_s = self.loop.time() - self._received_at
        if self.flow.read_paused:
            self._receive_within(self._settings.stall_s, self._check_body)
        elif waited_s < self._settings.stall_s:
            self._receive_within(self._settings.stall_s - waited_s, self._check_body)
        else:
            self._refuse(408, _LATE_BODY, f"{self._settings.stall_s:g} s")

    def _receive_within(self, seconds: float, on_time: Callable[[], None]) -> None:
        self._stop_receiving()
        self._receiving = self.loop.call_later(seconds, on_time)

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _refuse(self, status: int, parts: _Parts, limit: int | str | None) -> None:
        """Answers a problem and closes; if an answer has begun, the connection only closes behind it."""
        self._stop_receiving()
        if self.transport.is_closing():
            return
        if self._is_answering:
            if self.cycle.response_started:
                self.cycle.keep_alive = False
                self.flow.pause_reading()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._shared.refusals[str(parts["code"])] += 1
        body = problem({**parts, "limit": limit}, status, None).model_dump_json(exclude_none=True).encode()
        own = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
        headers = {**SECURITY_HEADERS, **own}
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers["retry-after"] = "1"
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.close()
