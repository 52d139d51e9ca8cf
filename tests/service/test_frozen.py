"""API-8: a server of ours that hangs, or a part that is lost, is answered soon and by its name."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from app.jobs import events
from app.redis_urls import connect, connect_async
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, conv_chain, kill, until
from tests.service.models import images
from tests.service.test_tables import packaged

pytestmark = pytest.mark.service

Start = Callable[..., tuple[EmbeddedService, Api]]
# What the service promises, and what a loaded machine takes beside.
SOON_S = 2.0 + 2.0


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def soon(call: Callable[[], httpx.Response]) -> httpx.Response:
    started = time.monotonic()
    answer = call()
    assert time.monotonic() - started < SOON_S, answer.text
    return answer


def unavailable(answer: httpx.Response, location: str) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Retry-After"]
    assert answer.headers["Location"] == location


@pytest.mark.slow
def test_a_frozen_broker_is_answered_503_within_two_seconds(start: Start) -> None:
    """A job was waited for for 51 s, and /readyz for longer than 80 s."""
    service, api = start()
    job = api.submit(api.upload(conv_chain(1)))
    api.finished(job)
    with frozen(service.pids["redis"]):
        unavailable(soon(lambda: api.http.get(f"/v1/jobs/{job}")), f"/v1/jobs/{job}")
        ready = soon(lambda: api.http.get("/readyz"))
        assert ready.json()["actual"] == "broker, worker"
        with ThreadPoolExecutor(100) as pool:  # more than there are threads in the API
            started = time.monotonic()
            for answer in pool.map(lambda _: api.http.get(f"/v1/jobs/{job}"), range(100)):
                unavailable(answer, f"/v1/jobs/{job}")
            assert time.monotonic() - started < 2 * SOON_S
    assert until(lambda: api.http.get(f"/v1/jobs/{job}").status_code == 200, "the job again")
    until(lambda: api.http.get("/readyz").status_code == 200, "the service to be ready again")


def test_who_waits_for_a_job_is_told_that_the_broker_hangs(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    model = api.upload(conv_chain(1))
    os.kill(service.pids["worker"], signal.SIGSTOP)
    job = api.submit(model)
    ended: dict[str, float] = {}

    def wait() -> httpx.Response:
        return api.http.get(f"/v1/jobs/{job}", headers={"Prefer": "wait=30"})

    def follow() -> int:
        with api.http.stream("GET", f"/v1/jobs/{job}/events") as answer:
            following.set()
            for _ in answer.iter_lines():
                pass
        ended["stream"] = time.monotonic()
        return answer.status_code

    following = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        waiting, stream = pool.submit(wait), pool.submit(follow)
        following.wait(30)
        with connect(service.broker_url) as broker:
            until(lambda: sum(client["cmd"] == "xread" for client in broker.client_list()) == 2, "both to wait", 30)
        with frozen(service.pids["redis"]):
            frozen_at = time.monotonic()
            unavailable(waiting.result(30), f"/v1/jobs/{job}")
            assert time.monotonic() - frozen_at < SOON_S
            assert stream.result(30) == 200
            assert ended["stream"] - frozen_at < SOON_S
    os.kill(service.pids["worker"], signal.SIGCONT)
    until(lambda: api.http.get(f"/v1/jobs/{job}").status_code == 200, "the job again")
    api.finished(job)


def test_followers_that_leave_give_their_connections_to_redis_back(spare: tuple[EmbeddedService, Api]) -> None:
    """After 400 followers 444 connections stayed."""
    service, api = spare
    model = api.upload(conv_chain(1))
    os.kill(service.pids["worker"], signal.SIGSTOP)
    job = api.submit(model)
    process = psutil.Process(service.pids["api"])
    before = process.num_fds()
    with httpx.Client(base_url=service.url, limits=httpx.Limits(max_connections=None), trust_env=False) as http:
        streams = [http.stream("GET", f"/v1/jobs/{job}/events") for _ in range(60)]
        pieces = [stream.__enter__().iter_bytes() for stream in streams]
        for piece in pieces:
            next(piece)
        assert process.num_fds() > before + 100
        for stream in streams:
            stream.__exit__(None, None, None)
    until(lambda: process.num_fds() < before + 30, "connections to close", 30)
    os.kill(service.pids["worker"], signal.SIGCONT)
    api.finished(job)


def works_without_cache(api: Api, model: str) -> None:
    ready = soon(lambda: api.http.get("/readyz"))
    assert (ready.status_code, ready.json()["degraded"]) == (200, "cache")
    shapes = {"profile": "edge4", "shape": "x:1x3x13x14"}
    table = soon(lambda: api.http.get(f"/v1/models/{model}/tables", params=shapes))
    assert table.status_code == 200
    assert table.json()["cache"] == "miss"
    again = soon(lambda: api.http.get(f"/v1/models/{model}/tables", params=shapes))
    assert again.json()["routines"] == table.json()["routines"]
    job = api.submit(api.upload(conv_chain(1)))
    assert api.finished(job)["state"] == "succeeded"
    assert not api.job(job).get("cached", False)
    body = {"model": api.upload(conv_chain(1)), "profiles": ["edge4"], "grid": {"nram": ["128KiB", "256KiB", "512KiB"]}}
    sweep = soon(lambda: api.http.post("/v1/sweeps", json=body))
    assert sweep.status_code == 202, sweep.text
    api.finished(sweep.json()["id"])
    found = [line for line in api.http.get("/metrics").text.splitlines() if line.startswith("tessera_cache_failures")]
    assert float(found[0].split()[1]) > 0


@pytest.mark.slow
def test_what_may_be_lost_is_done_without_while_it_hangs_and_while_it_is_gone(start: Start) -> None:
    """API-1: with the cache down, every POST and every table was 503."""
    service, api = start()
    model, _ = packaged(api, images())
    with frozen(service.pids["cache"]):
        works_without_cache(api, model)
    until(lambda: "degraded" not in api.http.get("/readyz").json(), "the cache again")
    folder = service.data_dir / "cache"
    folder.rename(folder.with_name("away"))  # it cannot be started again
    kill(service.pids["cache"])
    until(lambda: "degraded" in api.http.get("/readyz").json(), "the end of the cache")
    works_without_cache(api, model)
    folder.with_name("away").rename(folder)
    until(lambda: "degraded" not in api.http.get("/readyz").json(), "the cache again")


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize(
    "damage",
    [b"\xff\xfe", b"no JSON", b"{}", b'{"state":"succeeded"}', b'{"state":"succeeded","report":"../../etc"}', None],
)
def test_a_damaged_result_is_unknown_and_goes(spare: tuple[EmbeddedService, Api], damage: bytes | None) -> None:
    """It was answered 500 for as long as it was kept."""
    service, api = spare
    model = api.upload(conv_chain(1))
    first = api.finished(api.submit(model))
    client = redis.Redis.from_url(service.cache_url)
    (key,) = client.keys("tessera:result:*")
    if damage is None:
        client.delete(key)
        client.rpush(key, "a list")
    else:
        client.set(key, damage)
    os.kill(service.pids["worker"], signal.SIGSTOP)
    job = api.submit(model)
    assert api.job(job)["state"] == "queued"
    assert not client.exists(key)
    os.kill(service.pids["worker"], signal.SIGCONT)
    again = api.finished(job)
    assert again["state"] == "succeeded"
    assert api.http.get(again["links"]["plan"]).content == api.http.get(first["links"]["plan"]).content
    client.close()


def test_a_connection_that_is_not_answered_is_given_up_in_the_same_time(tmp_path: Path) -> None:
    """Its handshake was tried three times, each for as long as an answer is waited for."""
    path = tmp_path / "mute.sock"

    async def ask() -> None:
        client = connect_async(f"unix://{path}?db=0", events.ANSWER_S)
        try:
            await events.anything_after(client, "job", "0-0")
        finally:
            await client.aclose()

    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()  # connections are made, and nothing is ever read
        started = time.monotonic()
        with pytest.raises(redis.TimeoutError):
            asyncio.run(ask())
        assert time.monotonic() - started < SOON_S


def test_a_broker_that_may_lose_records_is_named_by_readyz(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    client: Any = redis.Redis.from_url(service.broker_url)
    assert "degraded" not in api.http.get("/readyz").json()
    lossy = {"appendfsync": "everysec", "maxmemory-policy": "allkeys-lru"}
    safe = {name: client.config_get(name)[name] for name in lossy}
    for name, value in lossy.items():
        client.config_set(name, value)
    ready = api.http.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["degraded"] == "appendfsync is everysec, maxmemory-policy is allkeys-lru"
    for name, value in safe.items():
        client.config_set(name, value)
    client.close()
