"""A real Redis for the tests of the records, one per test process, emptied between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from app.redis_urls import connect
from app.supervisor import redis_server


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that lives as long as this test process."""
    directory = tmp_path_factory.mktemp("redis")
    socket = redis_server.socket_path(directory)
    with (directory / "lock").open("w") as lock:
        child = redis_server.create_child(directory, socket, directory / "redis.log", lock.fileno())
        child.start()
        redis_server.wait_until_ready(child, socket)
        yield f"unix://{socket}?db=0"
        child.wait(0)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A connection to an empty Redis."""
    connection = connect(redis_url)
    connection.flushall()
    yield connection
    connection.close()
