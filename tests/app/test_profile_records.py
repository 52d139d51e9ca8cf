"""The records of users' profiles on a real Redis: whole or not there, whoever else writes or dies meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from redis.connection import AbstractConnection

from app.jobs.identity import Identity
from app.jobs.records import Records
from app.keys.owners import Owner
from app.profiles import service
from app.redis_urls import connect
from app.settings import Settings
from app.store import document_store
from compiler.profile import builtin_profile, profile_json


class CrashError(BaseException):
    """The process dies here."""


def uploaded(**changes: Any) -> bytes:
    values = {**json.loads(profile_json(builtin_profile("edge4"))), "name": "mine", **changes}
    return json.dumps(values).encode()


def context_on(client: redis.Redis, folder: Path) -> Any:
    return SimpleNamespace(
        broker=client,
        records=Records(client, Settings(), Identity(version="0", store="here")),
        store=document_store(folder),
        owner=Owner(),
    )


def check_agreement(client: redis.Redis) -> int:
    """Every profile has a name, a time and its place in the list; a name means one of them. Returns their number."""
    keys = {str(key).removeprefix("tessera:profile:") for key in client.scan_iter("tessera:profile:*")}
    rows = cast(list[tuple[str, float]], client.zrange("tessera:profiles", 0, -1, withscores=True))
    listed = dict(rows)
    assert keys == set(listed)
    for digest, score in listed.items():
        fields = client.hgetall(f"tessera:profile:{digest}")
        assert fields == {"name": "mine", "created_ms": str(int(score))}
    names = client.hgetall("tessera:profile-names")
    assert names.keys() == ({"mine"} if keys else set())
    assert set(names.values()) <= keys
    return len(keys)


@pytest.mark.parametrize("sent", range(5))
def test_a_crash_while_a_profile_is_recorded_leaves_all_of_it_or_nothing(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    context = context_on(client, tmp_path)
    send: Callable[..., None] = AbstractConnection.send_packed_command
    left = [sent]

    def counted(self: AbstractConnection, *arguments: Any, **named: Any) -> None:
        if not left[0]:
            raise CrashError
        left[0] -= 1
        send(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(AbstractConnection, "send_packed_command", counted)
        try:
            service.create(context, uploaded())
        except CrashError:
            client.connection_pool.disconnect()
    check_agreement(client)
    assert service.create(context, uploaded())[0].name == "mine"
    assert check_agreement(client) == 1


def test_profiles_of_one_name_that_come_and_go_at_once_leave_records_that_agree(
    redis_url: str, client: redis.Redis, tmp_path: Path
) -> None:
    def come_and_go(number: int) -> None:
        connection = connect(redis_url)
        context = context_on(connection, tmp_path)
        for turn in range(40):
            summary, _ = service.create(context, uploaded(clock_hz=1e9 + turn % 2))
            if (number + turn) % 3 == 0:
                context.records.delete_profile(summary.digest)
        connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(come_and_go, range(4)))
    check_agreement(client)


def test_a_profile_is_new_once_and_keeps_its_time(client: redis.Redis, tmp_path: Path) -> None:
    context = context_on(client, tmp_path)
    (first, is_new), (again, is_new_again) = (service.create(context, uploaded()) for _ in range(2))
    assert (is_new, is_new_again) == (True, False)
    assert first == again
    service.create(context, uploaded(clock_hz=1e9))
    assert check_agreement(client) == 2
