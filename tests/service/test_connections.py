"""API-4: no caller holds a connection of the API for long without sending, or takes all of them."""

from __future__ import annotations

import re
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import psutil
import pytest

from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, settings, until

pytestmark = pytest.mark.service

Start = Callable[..., tuple[EmbeddedService, Api]]
HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/profiles HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/yaml\r\nContent-Length: 100\r\n\r\n"


class Caller(socket.socket):
    """A socket to the API that has sent something."""

    def __init__(self, url: str, data: bytes = b"") -> None:
        super().__init__()
        self.settimeout(30)
        self.connect((httpx.URL(url).host, httpx.URL(url).port))
        self.sendall(data)

    def rest(self) -> bytes:
        """What the API sends until it closes; the socket's timeout fails the test."""
        found = b""
        with suppress(ConnectionResetError):
            while piece := self.recv(65536):
                found += piece
        self.close()
        return found


def refused(answer: bytes, status: int, code: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"application/problem+json" in head
    assert f'"code":"{code}"'.encode() in body


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An API with small limits."""
    limits = {"head_timeout_s": 0.6, "idle_timeout_s": 0.6, "stall_s": 0.6, "max_head_bytes": 4096}
    with EmbeddedService(settings(tmp_path_factory.mktemp("limits"), **limits)) as running:
        running.wait_until("/livez")
        yield running.url


@pytest.mark.parametrize("data", [b"", b"\r\n", b"G", HEAD, HEAD + b"X: y"])
def test_a_head_that_does_not_arrive_is_answered_408(url: str, data: bytes) -> None:
    refused(Caller(url, data).rest(), 408, "request_timeout")


def test_connections_that_are_refused_are_counted(url: str) -> None:
    def counted() -> float:
        text = httpx.get(f"{url}/metrics", trust_env=False).text
        return sum(float(count) for count in re.findall(r'_refused_total\{code="head_too_large"\} (\S+)', text))

    before = counted()
    refused(Caller(url, HEAD + b"X: " + b"y" * 5000).rest(), 431, "head_too_large")
    assert counted() == before + 1


def test_a_head_that_arrives_slowly_is_answered_408(url: str) -> None:
    """Each byte is progress, and still the head as a whole has a limit."""
    caller = Caller(url, HEAD)
    while not select.select([caller], [], [], 0.05)[0]:
        caller.sendall(b"X-A: b\r\n")
    refused(caller.rest(), 408, "request_timeout")


@pytest.mark.parametrize("data", [POST, POST + b"schema"])
def test_a_body_that_does_not_go_on_is_answered_408(url: str, data: bytes) -> None:
    refused(Caller(url, data).rest(), 408, "request_timeout")


def test_a_body_that_goes_on_slowly_is_received(url: str) -> None:
    caller = Caller(url, POST)
    for _ in range(10):
        time.sleep(0.1)
        caller.sendall(b"a: 1000000")
    assert b" 422 " in caller.recv(65536).split(b"\r\n")[0]
    caller.close()


def test_an_idle_connection_is_closed(url: str) -> None:
    caller = Caller(url, HEAD + b"\r\n")
    assert caller.rest().endswith(b'{"status":"alive"}')


@pytest.mark.parametrize("data", [b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", HEAD + b"X: " + b"y" * 5000])
def test_a_large_head_is_refused(url: str, data: bytes) -> None:
    refused(Caller(url, data).rest(), 431, "head_too_large")


CHUNKED = POST.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n"


@pytest.mark.parametrize(
    ("begin", "piece"), [(b"0\r\n", b"x: y\r\n" * 300), (b"0\r\nx: ", b"y" * 2000), (b"5;", b"e" * 2000)]
)
def test_what_comes_beside_a_body_is_bounded_as_a_head_is(url: str, begin: bytes, piece: bytes) -> None:
    """Endless trailers filled the memory of the API, with twenty times as much as was sent."""
    caller = Caller(url, CHUNKED + begin)
    while not select.select([caller], [], [], 0.05)[0]:
        caller.sendall(piece)
    refused(caller.rest(), 431, "head_too_large")


def test_a_body_does_not_count_for_the_head_behind_it(url: str) -> None:
    caller = Caller(url, POST.replace(b"100", b"9000"))
    caller.sendall(b"a" * 9000 + HEAD)
    caller.sendall(b"\r\n")
    found = caller.rest()
    assert b" 422 " in found.split(b"\r\n")[0]
    assert found.endswith(b'{"status":"alive"}')


def test_what_is_no_http_is_refused(url: str) -> None:
    refused(Caller(url, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").rest(), 400, "malformed_request")


@pytest.mark.slow
def test_an_answer_that_is_not_taken_ends(start: Start) -> None:
    """What is sent in answer does not fit the buffers of the connection, and nobody reads it."""
    service, api = start(until="/livez", stall_s=0.6, idle_timeout_s=60.0)
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((httpx.URL(service.url).host, httpx.URL(service.url).port))
        lazy.settimeout(30)
        lazy.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        until(lambda: not _open(service, lazy.getsockname()[1]), "the end of the connection", 30)
    assert api.http.get("/livez").status_code == 200


def _open(service: EmbeddedService, port: int) -> bool:
    found = psutil.Process(service.pids["api"]).net_connections()
    return any(getattr(connection.raddr, "port", 0) == port for connection in found)


@pytest.mark.slow
def test_idle_connections_do_not_lock_others_out(start: Start) -> None:
    """With 256 descriptors, 300 sockets that sent nothing made the API unreachable."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        service, _ = start(head_timeout_s=60.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1024), hard))
    with ExitStack() as stack:
        for data in [b"", b"GET", HEAD] * 100:
            stack.enter_context(Caller(service.url, data))
        for path in ("/livez", "/readyz"):
            assert httpx.get(f"{service.url}{path}", timeout=10, trust_env=False).status_code == 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_connections_beyond_the_limit_are_refused_while_all_are_busy(start: Start) -> None:
    service, api = start(until="/livez", max_connections=3)
    api.http.close()
    busy = [Caller(service.url, POST) for _ in range(3)]
    first: Any = until(lambda: _refused_at_once(service.url), "all connections in use", 10)
    refused(first, 503, "too_many_connections")
    assert b"retry-after: 1" in first
    for caller in busy:
        caller.sendall(b"a" * 100)
        assert b" 422 " in caller.recv(65536).split(b"\r\n")[0]
        caller.close()


def _refused_at_once(url: str) -> bytes | None:
    caller = Caller(url)
    caller.settimeout(0.3)
    try:
        return caller.recv(65536)
    except TimeoutError:
        return None
    finally:
        caller.close()
