"""API-2: what a container's health check says."""

from __future__ import annotations

import os
import time

import pytest
import redis

from app.jobs.records import WORKERS_KEY
from tests.app.conftest import client, redis_url  # noqa: F401
from worker import health


@pytest.mark.parametrize(
    ("name", "ends_in_s", "code"),
    [
        ("{}-13-abcd", 3, 0),
        ("{}-13-abcd", -3, 1),
        ("{}-2-13-abcd", 3, 1),  # of another machine
        ("{}-13-abcd", 3600, 1),  # from before the clock was set back
    ],
)
def test_the_worker_of_this_machine_is_healthy_after_a_recent_sign_of_life(
    client: redis.Redis,  # noqa: F811
    redis_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    ends_in_s: float,
    code: int,
) -> None:
    monkeypatch.setenv("TESSERA_BROKER_URL", redis_url)
    monkeypatch.setenv("TESSERA_CACHE_URL", redis_url)
    client.zadd(WORKERS_KEY, {name.format(os.uname().nodename): time.time() + ends_in_s})
    with pytest.raises(SystemExit) as ended:
        health.main()
    assert ended.value.code == code
