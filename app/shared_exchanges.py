"""Commands of coroutines to a Redis: those of the same time share an exchange."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, TypeAlias

import redis
import redis.asyncio
from redis.asyncio.connection import Connection

from app.redis_urls import SkippedError, connect_async

_Asked: TypeAlias = tuple[tuple[str, ...], asyncio.Future[Any]]
# Exchanges at once: while one is on its way, requests go on.
_AT_ONCE: Final = 2
# A server that is not there is tried again after this time.
_AGAIN_S: Final = 0.05


class SharedExchanges:
    """Sends the commands of concurrent requests together; for commands that may be sent again if a connection is lost.

    What is asked for in one turn of the loop, or while enough exchanges are on their way, goes in the next one, so a
    busy service needs fewer exchanges per request. Raises redis.TimeoutError for an exchange that takes longer than
    `patience_s`, and SkippedError at once for as long after it, as `Patience` does for threads.
    """

    def __init__(self, url: str, patience_s: float) -> None:
        self._client = connect_async(url, patience_s)
        self._patience_s = patience_s
        self._waiting: list[_Asked] = []
        self._exchanges: set[asyncio.Task[None]] = set()
        self._is_due = False
        self._free: list[Connection] = []
        self._silent_until = 0.0

    async def ask(self, *command: str) -> Any:
        """The answer to a command, as redis-py converts it."""
        if time.monotonic() < self._silent_until:
            raise SkippedError("the server did not answer a moment ago")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((command, answer))
        if not self._is_due and len(self._exchanges) < _AT_ONCE:
            self._is_due = True
            loop.call_soon(self._begin)
        return await answer

    async def aclose(self) -> None:
        """Ends what is on its way and closes the connections."""
        for exchange in self._exchanges:
            exchange.cancel()
        for _, future in self._waiting:
            future.cancel()
        await self._client.aclose()

    def _begin(self) -> None:
        """Sends what waits."""
        self._is_due = False
        asked, self._waiting = self._waiting, []
        exchange = asyncio.get_running_loop().create_task(self._exchanged(asked))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._ended)

    def _ended(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        if self._waiting and not self._is_due:
            self._begin()

    async def _exchanged(self, asked: list[_Asked]) -> None:
        answers: list[Any] = []
        try:
            answers = await self._answers([command for command, _ in asked])
        finally:  # cancelled at the end of the service, there are no answers
            for number, (_, future) in enumerate(asked):
                if future.done():  # its request has ended
                    continue
                if number >= len(answers):
                    future.cancel()
                elif isinstance(answers[number], Exception):
                    future.set_exception(answers[number])
                else:
                    future.set_result(answers[number])

    async def _answers(self, commands: list[tuple[str, ...]]) -> list[Any]:
        """The answer to each command, or the error that it was answered with."""
        try:
            async with asyncio.timeout(self._patience_s):
                while True:
                    try:
                        return await self._sent(commands)
                    except redis.ConnectionError as lost:
                        if isinstance(lost, redis.AuthenticationError):
                            raise
                        await asyncio.sleep(_AGAIN_S)  # reads may be sent again
        except TimeoutError:
            error: Exception = redis.TimeoutError("Redis did not answer in time")
        except Exception as other:  # noqa: BLE001 (raised again in each request that waits)
            error = other
        self._silent_until = time.monotonic() + self._patience_s
        return [error] * len(commands)

    async def _sent(self, commands: list[tuple[str, ...]]) -> list[Any]:
        """The answers over one connection; a pipeline of redis-py does this in half as much time again."""
        pool = self._client.connection_pool
        if self._free:
            connection = self._free.pop()
        else:
            connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        answers: list[Any] = []
        try:
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            for command in commands:
                try:
                    answers.append(await self._client.parse_response(connection, command[0]))
                except redis.ResponseError as refusal:
                    answers.append(refusal)
        except BaseException:  # what is still to come would be taken for the answer to something else
            await connection.disconnect(nowait=True)
            await pool.release(connection)
            raise
        self._free.append(connection)
        return answers
