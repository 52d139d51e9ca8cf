"""A real Redis for the tests of the records, one per test process, emptied between tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from app.redis_urls import connect
from app.supervisor.redis_server import RedisServer, Role


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that lives as long as this test process."""
    directory = tmp_path_factory.mktemp("redis")
    with (directory / "lock").open("w") as lock:
        server = RedisServer(Role.BROKER, directory, directory, lock.fileno())
        server.start()
        server.wait_until_ready()
        yield server.url
        server.child.wait(0)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A connection to an empty Redis."""
    connection = connect(redis_url)
    connection.flushall()
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def lasting_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that gave a sign of life lives for the time of a test, however busy the machine is."""
    monkeypatch.setattr("app.jobs.records.HEARTBEAT_TTL_S", 600)
