"""API-4: keys and their use, on a real Redis."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
import redis
from anyio import create_task_group, fail_after, run, sleep, to_thread

from app.cache_losses import CacheLosses
from app.errors import KeyRequiredError, QuotaError
from app.keys.keys import Keys, SentKey
from app.keys.owners import Limits, Owner
from app.keys.use import RequestRates, UploadPlaces
from app.settings import Settings
from app.shared_exchanges import SharedExchanges
from tests.service.harness import PATIENCE_S


@pytest.fixture
def keys(client: redis.Redis) -> Keys:
    return Keys(client, Settings(key_uploads=4, key_waiting_jobs=7))


def holder(keys: Keys, client: redis.Redis, text: str) -> Owner:
    sent = SentKey.of(text)
    return keys.holder(sent, cast(dict[str, str], client.hgetall(sent.record)))


def test_a_key_says_its_owner_and_limits_and_the_settings_give_the_others(keys: Keys, client: redis.Redis) -> None:
    key, text = keys.create("ci", "ann", {"waiting_jobs": 2})
    found = holder(keys, client, text)
    assert (found.name, found.key) == ("ann", key.id)
    assert (found.limits.waiting_jobs, found.limits.uploads) == (2, 4)


def test_limits_of_another_version_are_left_alone(keys: Keys, client: redis.Redis) -> None:
    key, text = keys.create("ci", None, {})
    client.hset(f"tessera:key:{key.id}", "limits", json.dumps({"moon_phases": 3, "uploads": 1}))
    assert holder(keys, client, text).limits.uploads == 1


def test_a_secret_is_compared_in_constant_time_whether_the_key_is_there_or_not(
    keys: Keys, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text = keys.create("ci", None, {})
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def counted(a: Any, b: Any) -> bool:
        compared.append((len(a), len(b)))
        return compare(a, b)

    monkeypatch.setattr("app.keys.keys.hmac.compare_digest", counted)
    refusals = set()
    for wrong in (f"tessera_{key.id}_{'0' * 64}", f"tessera_{'1' * 16}_{text[-64:]}", "nonsense", ""):
        with pytest.raises(KeyRequiredError) as refused:
            holder(keys, client, wrong)
        refusals.add(str(refused.value))
    assert compared == [(64, 64)] * 4
    assert len(refusals) == 1


def test_the_record_of_a_key_has_the_digest_of_its_secret_alone(keys: Keys, client: redis.Redis) -> None:
    key, text = keys.create("ci", None, {})
    record = client.hgetall(f"tessera:key:{key.id}")
    assert set(record) == {"owner", "name", "sha256", "created_ms", "limits"}
    assert text[-64:] not in str(record)


def of(key: str, **limits: int) -> Owner:
    return Owner(name="ann", key=key, limits=Limits(**limits))


@asynccontextmanager
async def rates_of(url: str, client: redis.Redis) -> AsyncIterator[RequestRates]:
    cache = SharedExchanges(url, 0.5)
    try:
        yield RequestRates(cache, CacheLosses(client))
    finally:
        await cache.aclose()


async def refusal(rates: RequestRates, key: str) -> int:
    """Takes requests until one is refused (a slow machine gains some meanwhile); in how many seconds there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await rates.take(of(key, requests_per_minute=60))
            except QuotaError as error:
                return error.retry_after_s


def test_requests_are_counted_by_key_and_come_back_with_time(redis_url: str, client: redis.Redis) -> None:
    async def main() -> None:
        async with rates_of(redis_url, client) as rates:
            for _ in range(60):
                await rates.take(of("a", requests_per_minute=60))
            assert await refusal(rates, "a") == 1
            await rates.take(of("b", requests_per_minute=60))
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with suppress(QuotaError):
                        await rates.take(of("a", requests_per_minute=60))
                        return

    asyncio.run(main())


def test_a_clock_that_goes_back_gives_no_requests_and_takes_none(redis_url: str, client: redis.Redis) -> None:
    async def main() -> None:
        async with rates_of(redis_url, client) as rates:
            client.hset("tessera:rate:a", mapping={"left": "1.5", "at": str(2**52)})
            await rates.take(of("a", requests_per_minute=60))
            with pytest.raises(QuotaError):
                await rates.take(of("a", requests_per_minute=60))

    asyncio.run(main())


def test_a_clock_that_goes_back_stops_a_key_for_no_longer(redis_url: str, client: redis.Redis) -> None:
    """The bucket began to fill only when the old time came again."""

    async def main() -> None:
        async with rates_of(redis_url, client) as rates, asyncio.timeout(10):
            client.hset("tessera:rate:a", mapping={"left": "0.5", "at": str(2**52)})
            while True:
                with suppress(QuotaError):
                    await rates.take(of("a", requests_per_minute=60))
                    return

    asyncio.run(main())


def test_without_the_cache_no_request_is_refused_and_the_loss_is_counted(client: redis.Redis) -> None:
    async def main() -> None:
        async with rates_of("redis://127.0.0.1:1/0", client) as rates:
            for _ in range(3):
                await rates.take(of("a", requests_per_minute=1))

    asyncio.run(main())
    assert client.hget("tessera:counts", "cache_failures") == "1"


def test_a_place_for_an_upload_is_given_back_when_it_fails() -> None:
    places, owner = UploadPlaces(), of("a", uploads=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"), places.place(owner):
            raise ValueError("broken")
    with places.place(owner), pytest.raises(QuotaError), places.place(owner):
        pass
    with places.place(owner), places.place(Owner(name="bob", limits=Limits(uploads=1))):
        pass


def test_uploads_on_their_way_to_the_store_take_no_thread_of_requests() -> None:
    """Forty that a bucket took slowly stopped every answer."""
    go_on = threading.Event()

    async def scene() -> None:
        places = UploadPlaces()
        async with create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(places.put, go_on.wait)
            await sleep(0)  # each asks for its thread
            try:
                assert to_thread.current_default_thread_limiter().borrowed_tokens == 0
                with fail_after(10):
                    assert await to_thread.run_sync(lambda: "answer") == "answer"
            finally:
                go_on.set()

    run(scene)
