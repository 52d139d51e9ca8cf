"""Answers that are given again without the application: bounded, to their owners alone, and only while they hold."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import redis
from fastapi import FastAPI, Request, Response

from app.cache_losses import CacheLosses
from app.errors import KeyRequiredError
from app.http import tagged, unless_known
from app.keys.keys import Keys
from app.keys.service import Gate
from app.keys.use import RequestRates
from app.known_answers import Basis, KnownAnswers
from app.known_answers_middleware import KnownAnswersMiddleware
from app.settings import Settings
from app.shared_exchanges import SharedExchanges
from app.store import DirectoryStore, document_store


@dataclass
class Served:
    """An application with one answer, and how often it made or gave it."""

    http: httpx.AsyncClient
    known: KnownAnswers
    store: DirectoryStore
    digest: str
    made: int = 0
    again: int = 0


def serve(
    url: str, client: redis.Redis, folder: Path, act: Callable[[Served], Awaitable[None]], limit_bytes: int = 10**6
) -> None:
    """Acts on an application whose answer follows from a record, a blob and its owner."""

    async def main() -> None:
        settings, store = Settings(data_dir=folder), document_store(folder / "blobs")
        digest = store.put(b'{"plan": 1}')
        broker, known = SharedExchanges(url, 5.0), KnownAnswers(limit_bytes)
        gate = Gate(
            keys=Keys(client, settings),
            broker=broker,
            rates=RequestRates(broker, CacheLosses(client)),
            settings=settings,
        )
        app = FastAPI()
        app.state.context = SimpleNamespace(known=known, gate=gate, broker_exchanges=broker, store=store)
        app.add_middleware(KnownAnswersMiddleware)

        @app.get("/plan")
        async def plan(request: Request) -> Response:
            served.made += 1
            owner = await gate.sender(request.scope)
            record: Any = client.hgetall("record")
            if record.get("owner", "") != owner.name:
                return Response("{}", 404)
            basis = Basis(command=("HGETALL", "record"), found=record, digest=digest, state=store.state(digest))
            answer = tagged(digest, store.read(digest))

            def again() -> None:
                served.again += 1

            known.remember(request, owner.name, basis, answer, again)
            return unless_known(request, answer)

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            served = Served(http=http, known=known, store=store, digest=digest)
            await act(served)
        await broker.aclose()

    client.hset("record", mapping={"state": "succeeded"})
    asyncio.run(main())


def test_an_answer_is_given_again_without_the_application_whole_or_as_unchanged(
    redis_url: str, client: redis.Redis, tmp_path: Path
) -> None:
    async def act(served: Served) -> None:
        first = await served.http.get("/plan")
        second = await served.http.get("/plan")
        assert (second.status_code, second.content, second.headers) == (200, first.content, first.headers)
        for tags in (first.headers["ETag"], f'"other", W/{first.headers["ETag"]}', "*"):
            third = await served.http.get("/plan", headers={"If-None-Match": tags})
            assert (third.status_code, third.content) == (304, b"")
            assert {name: third.headers[name] for name in ("ETag", "Cache-Control")} == {
                name: first.headers[name] for name in ("ETag", "Cache-Control")
            }
        assert (await served.http.get("/plan", headers={"If-None-Match": '"other"'})).status_code == 200
        assert (served.made, served.again) == (1, 5)

    serve(redis_url, client, tmp_path, act)


def test_another_target_is_for_the_application(redis_url: str, client: redis.Redis, tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        for target in ("/plan", "/plan?a=1", "/plan?a=2"):
            assert (await served.http.get(target)).status_code == 200
        assert (await served.http.post("/plan")).status_code == 405
        assert served.made == 3

    serve(redis_url, client, tmp_path, act)


def touched(served: Served, _: redis.Redis) -> None:
    os.utime(served.store.path(served.digest), ns=(1, 1))


def changed(_: Served, client: redis.Redis) -> None:
    client.hset("record", "state", "failed")


@pytest.mark.parametrize("change", [touched, changed])
def test_an_answer_is_made_anew_when_its_record_or_its_blob_changes(
    redis_url: str, client: redis.Redis, tmp_path: Path, change: Callable[[Served, redis.Redis], None]
) -> None:
    async def act(served: Served) -> None:
        for made in (1, 1):
            assert (await served.http.get("/plan")).status_code == 200
            assert served.made == made
        change(served, client)
        for made in (2, 2):
            assert (await served.http.get("/plan")).status_code == 200
            assert served.made == made

    serve(redis_url, client, tmp_path, act)


def test_each_owner_has_answers_of_his_own_and_a_revoked_key_has_none(
    redis_url: str, client: redis.Redis, tmp_path: Path
) -> None:
    keys = Keys(client, Settings(data_dir=tmp_path))
    ann, bob = ({"Authorization": f"Bearer {keys.create(name, None, {})[1]}"} for name in ("ann", "bob"))
    client.hset("record", "owner", "ann")

    async def act(served: Served) -> None:
        for _ in range(2):
            answers = [(await served.http.get("/plan", headers=who)).status_code for who in (ann, bob, {})]
            assert answers == [200, 404, 404]
        made = served.made
        assert (await served.http.get("/plan", headers=ann)).status_code == 200
        assert served.made == made
        with pytest.raises(KeyRequiredError, match="proxy"):  # what the application says to it
            await served.http.get("/plan", headers={"Via": "somebody"})
        made += 1
        keys.revoke("ann")
        with pytest.raises(KeyRequiredError, match="not valid"):
            await served.http.get("/plan", headers=ann)
        assert served.made == made + 1

    serve(redis_url, client, tmp_path, act)


def test_the_target_asked_for_least_recently_goes_first(redis_url: str, client: redis.Redis, tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async def ask(*numbers: int) -> int:
            before = served.made
            for number in numbers:
                assert (await served.http.get(f"/plan?{number}")).status_code == 200
            return served.made - before

        await ask(*range(12))  # each counts some 8,000 bytes
        assert await ask(0) == 0
        await ask(12)
        assert await ask(0, 2) == 0
        assert await ask(1) == 1

    serve(redis_url, client, tmp_path, act, limit_bytes=12 * 8_020)


def test_what_would_displace_many_others_is_not_kept(redis_url: str, client: redis.Redis, tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        for _ in range(2):
            assert (await served.http.get("/plan")).status_code == 200
        assert served.made == 2

    serve(redis_url, client, tmp_path, act, limit_bytes=8 * 8_000)
