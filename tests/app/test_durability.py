"""API-2: a broker that is not ours is asked whether what it answers is on its disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from app.errors import UnavailableError
from app.jobs.durability import BrokerDurability, Durability
from app.redis_urls import connect
from app.settings import Settings
from tests.app.test_leases import Clock
from tests.app.test_records import Bench
from tests.app.waiting_redis import Door, door


@contextmanager
def configured(client: redis.Redis, **settings: str) -> Iterator[None]:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    before = {name: str(client.config_get(name)[name]) for name in named}
    for name, value in named.items():
        client.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            client.config_set(name, value)


@pytest.fixture
def waiting(client: redis.Redis, redis_url: str, tmp_path: Path) -> Iterator[Door]:
    """A broker that syncs each second and has WAITAOF."""
    with (
        configured(client, appendfsync="everysec"),
        door(Path(redis_url[7:].partition("?")[0]), tmp_path / "s") as open_,
    ):
        yield open_


def test_a_broker_that_syncs_before_each_answer_needs_no_wait_and_raises_no_concern(client: redis.Redis) -> None:
    assert BrokerDurability(client).ask() == Durability(waits=False, concerns=())


def test_each_setting_that_loses_records_is_named(client: redis.Redis) -> None:
    with configured(client, appendfsync="everysec"):
        assert BrokerDurability(client).ask().concerns == ("appendfsync is everysec",)
    with configured(client, appendonly="no", maxmemory_policy="allkeys-lru"):
        assert BrokerDurability(client).ask().concerns == ("appendonly is no", "maxmemory-policy is allkeys-lru")


def test_of_a_broker_that_tells_no_settings_the_durability_is_unknown(client: redis.Redis, redis_url: str) -> None:
    client.execute_command("ACL", "SETUSER", "managed", "on", ">secret", "~*", "&*", "+@all", "-config")  # type: ignore[no-untyped-call]
    managed = redis.Redis.from_url(redis_url, username="managed", password="secret", decode_responses=True)
    try:
        with configured(client, maxmemory_policy="volatile-lru"):
            assert BrokerDurability(managed).ask() == Durability(
                waits=False, concerns=("durability unknown", "maxmemory-policy is volatile-lru")
            )
        with configured(client, appendonly="no"):
            assert BrokerDurability(managed).ask().concerns == ("appendonly is no",)
    finally:
        managed.close()
        client.execute_command("ACL", "DELUSER", "managed")  # type: ignore[no-untyped-call]


def test_settings_that_change_are_noticed_after_a_while(client: redis.Redis) -> None:
    clock = Clock()
    durability = BrokerDurability(client, clock)
    assert durability.present().concerns == ()
    with configured(client, appendfsync="no"):
        assert durability.present().concerns == ()
        clock.now += 31
        assert durability.present().concerns == ("appendfsync is no",)


def test_a_promise_waits_for_the_disk_on_the_connection_that_wrote_it(waiting: Door) -> None:
    """51 of 61 accepted jobs were lost with a broker that answers before it syncs."""
    outside = connect(waiting.url)
    bench = Bench(outside, Settings())
    assert bench.records.durability.present() == Durability(waits=True, concerns=())
    waiting.commands.clear()
    bench.submit()
    (wrote, _), (waited, _) = [command for command in waiting.commands if command[1] in ("EVALSHA", "WAITAOF")]
    assert wrote == waited
    waiting.commands.clear()
    bench.lease()
    assert "WAITAOF" not in [name for _, name in waiting.commands]  # nobody was promised anything
    outside.close()


def test_what_is_not_on_disk_in_time_is_not_acknowledged(waiting: Door) -> None:
    outside = connect(waiting.url)
    bench = Bench(outside, Settings())
    waiting.synced = 0
    with pytest.raises(UnavailableError) as caught:
        bench.submit()
    assert caught.value.code == "records_not_saved"
    with pytest.raises(UnavailableError):
        bench.records.register_profile("d" * 64, "p")
    waiting.synced = 1
    assert bench.records.accept(bench.request("job0")).answer == "accepted"  # recorded by the first call
    outside.close()
