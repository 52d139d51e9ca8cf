"""Streams the events of a job from Redis, from the start or from a reader's last position."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import redis
import redis.asyncio

from app.jobs.records import FINAL_STATES, events_key
from compiler.errors import RequestError, printable

# Reads block for less time than a server that hangs is waited for.
_BLOCK_MS = 500
ANSWER_S = 1.8
# Reads without events, after which the record says whether the job is still there.
_READS = 10
ID_PATTERN: Final = "^[0-9]{1,20}-[0-9]{1,20}$"


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a job's stream; `data` is JSON."""

    id: str
    state: str
    data: str


def checked_event_id(text: str) -> str:
    """The id of an event as a client sent it back; raises RequestError for any other text."""
    if not re.fullmatch(ID_PATTERN, text) or any(int(part) >= 2**64 for part in text.split("-")):
        raise RequestError(
            "Last-Event-ID is not the id of an event of this service",
            code="invalid_event_id",
            stage="request",
            actual=printable(text, 60),
        )
    return text


async def follow(client: redis.asyncio.Redis, job: str, after: str = "0-0") -> AsyncIterator[Event]:
    """Yields the events after an id until the job is final or forgotten."""
    key = events_key(job)
    ended, empty = False, 0
    while True:
        answer: Any = await _within_time(client.xread({key: after}, count=200, block=None if ended else _BLOCK_MS))
        for _, entries in answer or ():
            for event_id, fields in entries:
                after = event_id
                yield Event(event_id, fields["state"], fields["data"])
                if fields["state"] in FINAL_STATES:
                    return
        empty = 0 if answer else empty + 1
        if not answer and (ended or empty >= _READS):
            empty = 0
            # an id ahead of the stream would wait for ever: after one more read the record ends it
            if ended or not await _within_time(client.exists(key)):
                return
            ended = await _within_time(client.hget(f"tessera:job:{job}", "state")) in FINAL_STATES


async def anything_after(client: redis.asyncio.Redis, job: str, after: str) -> bool:
    """Whether events after an id exist already."""
    return bool(await _within_time(client.xrange(events_key(job), min=f"({after}", count=1)))


async def wait_until_final(client: redis.asyncio.Redis, job: str, timeout_s: float) -> None:
    """Returns when the job is final or the time is up."""
    try:
        async with asyncio.timeout(timeout_s):
            async for _ in follow(client, job):
                pass
    except TimeoutError:
        return


async def _within_time(answer: Any) -> Any:
    """What Redis answers; raises redis.TimeoutError after ANSWER_S, connections and their retries included."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await answer
    except TimeoutError:
        raise redis.TimeoutError("Redis did not answer in time") from None
