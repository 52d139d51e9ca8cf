"""Reads of concurrent requests in shared exchanges, over a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis

from app.redis_urls import SkippedError
from app.shared_exchanges import SharedExchanges


@asynccontextmanager
async def reads(url: str) -> AsyncIterator[SharedExchanges]:
    shared = SharedExchanges(url, 5.0)
    try:
        yield shared
    finally:
        await shared.aclose()


def exchanged(client: redis.Redis) -> int:
    return int(client.info("stats")["total_reads_processed"])


def test_reads_of_one_moment_go_in_one_exchange(redis_url: str, client: redis.Redis) -> None:
    for number in range(50):
        client.hset(f"h{number}", "field", number)

    async def main() -> None:
        async with reads(redis_url) as shared:
            await shared.ask("HGET", "h0", "field")
            before = exchanged(client)
            found = await asyncio.gather(*(shared.ask("HGETALL", f"h{number}") for number in range(50)))
            assert found == [{"field": str(number)} for number in range(50)]
            assert exchanged(client) - before <= 2  # ours, and the question itself

    asyncio.run(main())


def test_a_refused_read_fails_alone(redis_url: str, client: redis.Redis) -> None:
    client.set("text", "no hash")
    client.hset("hash", "field", "value")

    async def main() -> None:
        async with reads(redis_url) as shared:
            asked = (("HGETALL", "text"), ("HGET", "hash", "field"), ("HGETALL", "none"))
            wrong, right, none = await asyncio.gather(*(shared.ask(*one) for one in asked), return_exceptions=True)
            assert isinstance(wrong, redis.ResponseError)
            assert (right, none) == ("value", {})
            assert await shared.ask("HGETALL", "hash") == {"field": "value"}

    asyncio.run(main())


def test_a_lost_connection_is_made_anew_and_the_read_sent_again(redis_url: str, client: redis.Redis) -> None:
    client.hset("hash", "field", "value")

    async def main() -> None:
        async with reads(redis_url) as shared:
            assert await shared.ask("HGET", "hash", "field") == "value"
            client.client_kill_filter(_type="normal", skipme=True)
            assert await shared.ask("HGET", "hash", "field") == "value"

    asyncio.run(main())


def test_a_request_that_ends_early_takes_no_answer_from_the_others(redis_url: str, client: redis.Redis) -> None:
    for number in range(3):
        client.hset(f"h{number}", "field", number)

    async def main() -> None:
        async with reads(redis_url) as shared:
            tasks = [asyncio.create_task(shared.ask("HGET", f"h{number}", "field")) for number in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert (found[0], found[2]) == ("0", "2")
            assert isinstance(found[1], asyncio.CancelledError)
            assert await shared.ask("HGET", "h1", "field") == "1"

    asyncio.run(main())


def test_a_server_that_is_not_there_is_not_asked_again_for_a_while() -> None:
    async def main() -> None:
        shared = SharedExchanges("redis://127.0.0.1:1", 0.2)
        with pytest.raises(redis.RedisError):
            await shared.ask("HGETALL", "hash")
        with pytest.raises(SkippedError):
            await shared.ask("HGETALL", "hash")
        await shared.aclose()

    asyncio.run(main())
