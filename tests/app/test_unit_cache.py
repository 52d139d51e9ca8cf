"""Shape units in a real Redis: built once, found by all, made again when lost, locks that run out (SHAPE-1)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from app.redis_urls import connect
from app.settings import Settings
from app.units.unit_cache import MAX_LISTED, UnitCache, hits_field, list_key, lock_key, use_key, value_key
from compiler.compile import compile_shapes
from compiler.errors import CompilationCancelledError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.shapes.canonical_routine import canonical_routine
from compiler.shapes.extents import Range
from compiler.shapes.shared_libraries import SharedLibraries, Wanted
from tests.compiler.shapes.dynamic_networks import residual_network
from tests.compiler.shapes.test_canonical_routine import IMAGES
from tests.compiler.shapes.test_shared_libraries import compiled
from tests.models import Model

REQUESTS = 200
WORKERS = 2


def bytes_client(client: redis.Redis) -> redis.Redis:
    """A client of bytes of the same Redis."""
    given = dict(client.connection_pool.connection_kwargs)
    return redis.Redis(
        connection_pool=redis.ConnectionPool(
            connection_class=client.connection_pool.connection_class, **given | {"decode_responses": False}
        )
    )


def settings(**changes: Any) -> Settings:
    return Settings(data_dir=Path("/nonexistent"), **changes)


@pytest.fixture
def units(client: redis.Redis) -> Iterator[UnitCache]:
    connection = bytes_client(client)
    yield UnitCache(connection, client, settings(), ("ann",))
    connection.close()


def counted(client: redis.Redis, name: str) -> int:
    return int(cast(str, client.hget("tessera:counts", name) or 0))


def small() -> Wanted:
    """One small routine."""
    model = Model()
    x = model.input([1, 4, "h", "w"], "x")
    model.output(model.relu(model.conv(x, 4, 4, 3)))
    dims = {"h": {"min": 1, "max": 24}, "w": {"min": 1, "max": 24}}
    made = compile_shapes(ModelSource.from_bytes(model.data()), builtin_profile("edge4"), parse_options({"dims": dims}))
    ranges = {name: Range(low=1, high=24) for name in ("h", "w")}
    return Wanted(routine=canonical_routine(made.graph, range(len(made.graph.ops)), ranges), resident_bytes=0)


def ask_often(url: str, requests: int) -> None:
    """What one worker process does: many threads that want the same library at one time."""
    wanted, text, data = small(), connect(url), connect(url, text=False)

    def ask(_: int) -> tuple[str, ...]:
        shared = SharedLibraries(builtin_profile("edge4"), UnitCache(data, text, settings(unit_lock_s=300.0)))
        return shared.of([wanted])[0][1].units.ids

    with ThreadPoolExecutor(requests) as pool:
        assert len(set(pool.map(ask, range(requests)))) == 1


def hold(url: str, library: str, held: Any) -> None:
    """Take a library's lock and never give it back."""
    with UnitCache(connect(url, text=False), connect(url), settings(unit_lock_s=1.0)).building(library):
        held.set()
        signal.pause()


@pytest.mark.slow
def test_many_requests_of_two_workers_build_a_missing_library_once(client: redis.Redis, redis_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=ask_often, args=(redis_url, REQUESTS // WORKERS)) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * WORKERS
    units = len(list(client.scan_iter(match="tessera:unit:*")))
    assert counted(client, "units:built") == units > 0
    assert counted(client, "units:found") == units * (REQUESTS - 1)
    assert not list(client.scan_iter(match="*:building"))


@pytest.mark.slow
def test_the_lock_of_a_killed_builder_runs_out(client: redis.Redis, redis_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    held = spawn.Event()
    builder = spawn.Process(target=hold, args=(redis_url, "library:1:a", held))
    builder.start()
    assert held.wait(60)
    assert builder.pid is not None
    os.kill(builder.pid, signal.SIGKILL)
    builder.join()
    cache = UnitCache(bytes_client(client), client, settings(unit_lock_s=60.0))
    with cache.building("library:1:a") as is_ours:
        assert is_ours
    assert client.exists(lock_key("library:1:a")) == 0
    assert counted(client, "unit_waits") <= 1


def test_whoever_waited_too_long_builds_and_stores_nothing(client: redis.Redis, units: UnitCache) -> None:
    hurried = UnitCache(bytes_client(client), client, settings(unit_lock_s=0.05))
    client.set(lock_key("library:1:a"), "another", px=60_000)
    with hurried.building("library:1:a") as is_ours:
        assert not is_ours
    assert client.get(lock_key("library:1:a")) == "another"
    client.delete(lock_key("library:1:a"))
    with units.building("library:1:a") as is_ours:
        assert is_ours
    assert client.exists(lock_key("library:1:a")) == 0


def test_a_cancelled_compilation_waits_for_no_other_builder(client: redis.Redis) -> None:
    """It went on waiting, up to 30 s."""
    asked = iter([False, False, True])
    waiting = UnitCache(bytes_client(client), client, settings(unit_lock_s=600.0), (), lambda: next(asked))
    client.set(lock_key("library:1:a"), "another")
    with pytest.raises(CompilationCancelledError), waiting.building("library:1:a"):
        pytest.fail("it holds the lock of another")
    assert next(asked, None) is None
    assert client.get(lock_key("library:1:a")) == "another"


def test_a_lock_that_ran_out_and_is_another_builders_is_left_alone(client: redis.Redis, units: UnitCache) -> None:
    with units.building("library:1:a"):
        client.set(lock_key("library:1:a"), "another")
    assert client.get(lock_key("library:1:a")) == "another"


@pytest.mark.slow
def test_cold_warm_damaged_and_flushed_caches_give_equal_bytes(client: redis.Redis, units: UnitCache) -> None:
    source = ModelSource.from_bytes(residual_network().data())
    without = compiled(source, IMAGES)
    cold, built = compiled(source, IMAGES, units), counted(client, "units:built")
    assert built > 0
    warm = compiled(source, IMAGES, units)
    assert (counted(client, "units:built"), counted(client, "units:found")) == (built, built)
    hurt = next(iter(client.scan_iter(match="tessera:unit:*")))
    client.set(hurt, "no unit")
    damaged = compiled(source, IMAGES, units)
    assert counted(client, "units_damaged") > 0
    assert client.strlen(hurt) > 7
    client.flushall()
    flushed = compiled(source, IMAGES, units)
    assert counted(client, "units:built") == built
    assert without == cold == warm == damaged == flushed


@pytest.mark.slow
def test_a_cache_that_is_gone_costs_time_only(client: redis.Redis, tmp_path: Path) -> None:
    gone = connect(f"redis+socket://{tmp_path}/none", text=False, patience_s=0.05)
    source = ModelSource.from_bytes(residual_network().data())
    assert compiled(source, IMAGES, UnitCache(gone, client, settings())) == compiled(source, IMAGES)
    assert counted(client, "cache_failures") > 0
    gone.close()


def test_uses_are_recorded_for_the_owners_who_asked(client: redis.Redis, units: UnitCache) -> None:
    units.put_many("library:1:a", {"library:1:a": b"1", "unit:1:b": b"22", "unit:1:c": b"333"}, {"op": "Relu"})
    units.used({"library:1:a": 2})
    units.for_owners(["bob"]).used({"library:1:a": 2})
    record = cast(dict[str, str], client.hgetall(use_key("library:1:a")))
    assert (record["units"], record["bytes"]) == ("2", "6")
    assert [record[hits_field(owner)] for owner in ("ann", "bob")] == ["1", "1"]
    assert [client.zrange(list_key(owner), 0, -1) for owner in ("ann", "bob", "")] == [["library:1:a"]] * 2 + [[]]
    assert client.pttl(value_key("unit:1:b")) > 0
    assert counted(client, "units:found") == 4


def test_who_gets_a_package_from_a_cache_or_came_late_sees_its_units(client: redis.Redis, units: UnitCache) -> None:
    units.put_many("library:1:a", {"library:1:a": b"1"}, {"op": "Relu"})
    units.used({"library:1:b": 2})
    units.remember("f" * 64, ["late"])
    units.for_owners(["bob"]).recall("f" * 64)
    units.for_owners(["eve"]).recall("0" * 64)
    for owner in ("ann", "late", "bob"):
        assert client.zrange(list_key(owner), 0, -1) == ["library:1:a", "library:1:b"]
    assert client.zrange(list_key("eve"), 0, -1) == []
    assert client.pttl(f"tessera:library:of:{'f' * 64}") > 0


def test_a_list_has_the_latest_libraries_and_no_more(client: redis.Redis, units: UnitCache) -> None:
    client.zadd(list_key("ann"), {f"library:1:{number}": number for number in range(MAX_LISTED)})
    units.used({"library:1:new": 1})
    assert client.zcard(list_key("ann")) == MAX_LISTED
    assert client.zscore(list_key("ann"), "library:1:new") is not None
    assert client.zscore(list_key("ann"), "library:1:0") is None
