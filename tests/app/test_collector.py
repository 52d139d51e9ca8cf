"""API-1: what nothing refers to is removed, and never what a record names or is about to name."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import pytest
import redis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app import collector
from app.blob_pins import BlobPins
from app.collector import Collected, Collector, CollectorThread
from app.errors import StoreUnavailableError
from app.jobs.identity import Identity
from app.jobs.records import JobRequest, Records, SweepRequest, point_id
from app.jobs.results import ResultCache
from app.settings import Settings
from app.store import BlobStore, StoreHooks
from app.stores import Stores, open_stores
from compiler.profile import builtin_profile, profile_json
from tests.s3 import settings as s3_settings
from tests.service.harness import until

# Everything is old enough at once.
_NOW_S: Final = 1e-9


@dataclass(kw_only=True)
class Desk:
    """Records, a cache and stores, and the few verbs that the tests are written in."""

    client: redis.Redis
    settings: Settings
    ids: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.records = Records(self.client, self.settings, Identity(version="0", store="here"))
        self.stores = open_stores(self.settings)
        self.results = ResultCache(self.client, self.settings, self.stores.documents)
        self.collector = Collector(records=self.records, cache=self.client, stores=self.stores, settings=self.settings)

    def collect(self, **how: Any) -> Collected:
        return self.collector.collect(**how)

    def put(self, text: str) -> str:
        return self.stores.documents.put(text.encode())

    def upload(self, text: str = "model") -> str:
        digest = self.stores.models.put(text.encode())
        self.records.pin_model(digest)
        self.records.register_model(digest, "net.onnx", len(text))
        return digest

    def request(self, content: str, model: str, profile: str, options: str = "{}") -> JobRequest:
        return JobRequest(
            job=f"job{next(self.ids)}",
            content=content,
            model=model,
            model_name="net.onnx",
            profile=profile,
            profile_name="p",
            options=options,
            queue="short",
            time_limit_s=60,
            memory_limit_bytes=1000,
            compiler_version="0",
            request_id="",
        )

    def finished(self, content: str, model: str, outcome: dict[str, str]) -> str:
        request = self.request(content, model, self.put("profile"))
        self.records.accept(request)
        fence = int(str(self.client.hget(f"tessera:computation:{content}", "fence")))
        lease = self.records.lease(content, fence, "w")
        assert lease is not None
        self.records.publish(lease, {"state": "succeeded", **outcome})
        return request.job

    def documents(self) -> set[str]:
        return {blob.digest for blob in self.stores.documents.blobs()}


@pytest.fixture(params=["directory", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Settings]:
    if request.param == "directory":
        return lambda **changes: Settings(data_dir=tmp_path, **changes)
    server, prefix = request.getfixturevalue("s3"), request.getfixturevalue("prefix")
    return lambda **changes: s3_settings(server, prefix, tmp_path, **changes)


@pytest.fixture
def desk(client: redis.Redis, where: Callable[..., Settings]) -> Desk:
    # a bucket's clock counts whole seconds
    return Desk(client=client, settings=where(keep_unused_s=_NOW_S))


def old(desk: Desk) -> None:
    """Waits until all that is stored counts as unused for long enough."""
    until(lambda: all(blob.written_s < time.time() for blob in desk.stores.documents.blobs()), "blobs to be old")


@pytest.mark.matrix(first=1, rest=1)
def test_what_records_name_stays_and_all_else_goes(desk: Desk) -> None:
    model = desk.upload()
    orphan = desk.stores.models.put(b"left by a crash")
    names = ("plan", "report", "pictures", "executable", "package")
    job = desk.finished("c1", model, {name: desk.put(name) for name in names})
    long_options = desk.put("long options")
    waiting = desk.request("c2", model, desk.put("another profile"), options=f"sha256:{long_options}")
    desk.records.accept(waiting)
    simulated = {name: desk.put(name) for name in ("given executable", "inputs")}
    desk.records.accept(desk.request("c3", model, "", options=json.dumps(simulated)))
    desk.results.put("c4", {"state": "succeeded", "report": desk.put("a cached report")})
    desk.records.register_profile(desk.put("a user's profile"), "mine")
    builtin = desk.stores.documents.put(profile_json(builtin_profile("edge4")))
    needed = desk.documents()
    unused = desk.put("unused")
    old(desk)
    assert desk.collect(dry_run=True).removed == 2
    assert desk.documents() == needed | {unused}
    found = desk.collect()
    assert (found.removed, found.removed_bytes) == (2, len("unused") + len("left by a crash"))
    assert desk.documents() == needed
    assert builtin in needed
    assert [blob.digest for blob in desk.stores.models.blobs()] == [model]
    assert not desk.stores.models.holds(orphan)
    desk.records.delete_job(job)
    desk.client.delete("tessera:packages:newest")
    desk.client.hdel(f"tessera:model:{model}:packages", *desk.client.hkeys(f"tessera:model:{model}:packages"))
    assert desk.collect().removed == len(names) + 1  # and its profile
    stored = desk.records.stored()
    assert 0 <= time.time() - int(stored.pop("counted_timestamp_seconds")) < 60
    assert stored == {
        "blobs": str(len(desk.documents()) + 1),
        "bytes": str(sum(blob.size_bytes for blob in desk.stores.documents.blobs()) + len("model")),
    }
    assert desk.client.hget("tessera:counts", "blobs_removed") == str(2 + len(names) + 1)


def test_what_is_young_or_pinned_stays(client: redis.Redis, where: Callable[..., Settings]) -> None:
    desk = Desk(client=client, settings=where(keep_unused_s=3600.0))
    digest = desk.put("young")
    assert desk.collect().removed == 0
    desk = Desk(client=client, settings=where(keep_unused_s=_NOW_S))
    old(desk)
    assert desk.records.pin_blob(digest, 60)
    assert desk.collect().removed == 0
    desk.client.delete(f"tessera:blob:{digest}:pinned")
    assert desk.collect().removed == 1


def test_records_that_were_lost_can_be_restored_before_anything_goes(
    client: redis.Redis, where: Callable[..., Settings]
) -> None:
    """Empty records made everything unused that was written a while ago."""
    desk = Desk(client=client, settings=where(keep_unused_s=0.2, keep_results_bytes=1))
    model, plan = desk.upload(), desk.put("a plan")
    old(desk)
    begun = time.time()
    until(lambda: time.time() > begun + 0.3, "the time of unused blobs")
    client.flushall()
    assert desk.collect().removed == 0
    assert (desk.stores.models.holds(model), desk.stores.documents.holds(plan)) == (True, True)
    until(lambda: desk.collect().removed == 2, "their end, as nobody restored the records")


def test_tables_in_the_same_redis_as_the_records_stop_no_collection(desk: Desk) -> None:
    desk.put("unused")
    old(desk)
    for key in ("tessera:table:1:key", "tessera:library:1:key", "tessera:unit:1:key", "tessera:addresses:key"):
        desk.client.set(key, b"\x93\xff\x00")
    assert desk.collect().removed == 1


def test_remains_of_uploads_go_with_their_time(client: redis.Redis, tmp_path: Path) -> None:
    desk = Desk(client=client, settings=Settings(data_dir=tmp_path, keep_unused_s=3600.0))
    writer = desk.stores.models.writer()
    writer.write(b"half")
    assert desk.collect().leftovers == 0
    desk = Desk(client=client, settings=Settings(data_dir=tmp_path, keep_unused_s=_NOW_S))
    assert desk.collect().leftovers == 1
    writer.__exit__(None, None, None)


def test_who_writes_a_blob_that_is_removed_waits_for_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = desk.put("again")
    old(desk)
    assert desk.records.claim_blobs([digest], 60) == [digest]
    assert desk.records.claim_blobs([digest], 60) == []
    pins = BlobPins(desk.records, 60)
    monkeypatch.setattr("app.blob_pins._REMOVAL_S", 0.1)
    with pytest.raises(StoreUnavailableError):
        pins.pin(digest)
    desk.stores.documents.delete(digest)
    desk.records.removed_blobs([digest])
    store = open_stores(desk.settings, documents=StoreHooks(pin=pins.pin)).documents
    assert store.keep(b"again") == digest
    assert not pins.pin(digest)
    old(desk)
    assert desk.collect().removed == 0


def test_a_collector_that_stood_still_removes_nothing_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.put("unused")
    old(desk)
    monkeypatch.setattr(collector, "_USED_CLAIM_S", -1.0)
    assert desk.collect().removed == 0
    assert len(desk.documents()) == 1


def test_above_the_bytes_the_results_asked_for_longest_ago_go(
    client: redis.Redis, where: Callable[..., Settings]
) -> None:
    desk = Desk(client=client, settings=where(keep_results_bytes=3500))
    model = desk.upload("m" * 5000)
    shared = desk.put("s" * 1000)
    plans = [desk.put(str(number) * 1000) for number in range(4)]
    jobs = [desk.finished(f"c{number}", model, {"plan": plan, "report": shared}) for number, plan in enumerate(plans)]
    again = desk.request("c0", model, desk.put("profile"))
    desk.records.accept(again, outcome={"state": "succeeded", "plan": plans[0], "report": shared})
    for number, job in enumerate(jobs):
        desk.client.hset(f"tessera:job:{job}", "finished_ms", 1000 * number)
    assert desk.collect(dry_run=True).results == 3
    assert set(plans) <= desk.documents()
    found = desk.collect()
    assert found.results == 3  # the first job too, whose plan stays, as it was asked for again
    assert desk.documents() & {shared, *plans} == {shared, plans[0], plans[3]}
    assert [desk.records.job(job) is not None for job in (*jobs, again.job)] == [False, False, False, True, True]
    assert desk.stores.models.holds(model)
    assert desk.collect().results == 0


def test_a_sweep_goes_as_a_whole_and_not_before_its_end(client: redis.Redis, tmp_path: Path) -> None:
    desk = Desk(client=client, settings=Settings(data_dir=tmp_path, keep_results_bytes=10))
    model, profile = desk.upload(), desk.put("profile")
    sweep = SweepRequest(job="sweep", model=model, model_name="m", options="{}", compiler_version="0", request_id="")
    plans = [desk.put(str(number) * 100) for number in range(2)]
    points = [
        (desk.request(f"c{number}", model, profile), {"state": "succeeded", "plan": plan, "report": plan})
        for number, plan in enumerate(plans)
    ]
    waiting: list[tuple[Any, Any]] = [(points[0][0], points[0][1]), (points[1][0], None)]
    named = [
        (JobRequest(**{**vars_of(request), "job": point_id("sweep", number)}), outcome)
        for number, (request, outcome) in enumerate(waiting)
    ]
    desk.records.accept_sweep(sweep, named)
    assert desk.collect().results == 0
    assert plans[0] in desk.documents()
    fence = int(str(desk.client.hget("tessera:computation:c1", "fence")))
    lease = desk.records.lease("c1", fence, "w")
    assert lease is not None
    desk.records.publish(lease, {"state": "succeeded", "plan": plans[0], "report": plans[0]})
    fields = desk.records.job("sweep")
    assert fields is not None
    point = desk.records.job("sweepp1")
    assert point is not None
    assert point["expires_ms"] == fields["expires_ms"]
    desk.collect()
    assert desk.records.job("sweep") is None
    assert desk.records.job("sweepp0") is None
    assert plans[0] not in desk.documents()


def vars_of(request: JobRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in JobRequest.__slots__}


def test_one_of_all_processes_collects_in_an_interval(client: redis.Redis, tmp_path: Path) -> None:
    desk = Desk(client=client, settings=Settings(data_dir=tmp_path, keep_unused_s=_NOW_S, collect_interval_s=0.05))
    desk.put("unused")
    threads = [CollectorThread(desk.collector) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: not desk.documents(), "the collection")
    for thread in threads:
        thread.stop()
    assert desk.records.take_turn("test", 60)
    assert not desk.records.take_turn("test", 60)


@pytest.fixture
def unsynced(client: redis.Redis) -> Iterator[redis.Redis]:
    """A Redis that is not killed here, so it need not sync before each answer."""
    client.config_set("appendfsync", "no")
    yield client
    client.config_set("appendfsync", "always")


class Interleaved:
    """Steps of requests and of workers, taken one at a time whenever the collector looks at something."""

    def __init__(self, desk: Desk, order: list[int]) -> None:
        self.desk = desk
        self.order = iter(order)
        self.running: list[Iterator[None]] = []
        self.contents: dict[str, str] = {}

    def steps(self) -> None:
        for _ in range(4):
            self.step()

    def step(self) -> None:
        number = next(self.order, None)
        if number is None:
            return
        starts = (self.compile, self.work, self.work, self.cached, self.delete_job, self.upload, self.delete_model)
        if number < len(starts) * 2:
            self.running.append(starts[number // 2](number % 2))
        if self.running:
            one = self.running[number % len(self.running)]
            try:
                next(one)
            except StopIteration:
                self.running.remove(one)

    def finish(self) -> None:
        for one in self.running:
            for _ in one:
                pass
        self.running.clear()

    def pinned(self, digest_of: bytes) -> Generator[None, None, str]:
        digest = hashlib.sha256(digest_of).hexdigest()
        while not self.desk.records.pin_blob(digest, 60):
            yield
        yield
        return digest

    def kept(self, store: BlobStore, data: bytes) -> Generator[None, None, str]:
        digest = yield from self.pinned(data)
        if not store.holds(digest):
            store.put(data)
        yield
        return digest

    def compile(self, number: int) -> Iterator[None]:
        profile = yield from self.kept(self.desk.stores.documents, b"profile%d" % number)
        models = self.desk.client.zrange("tessera:models", 0, -1)
        if models:
            self.desk.records.accept(self.desk.request(f"c{number}", str(models[number % len(models)]), profile))

    def work(self, number: int) -> Iterator[None]:
        content = f"c{number}"
        fence = self.desk.client.hget(f"tessera:computation:{content}", "fence")
        lease = None if fence is None else self.desk.records.lease(content, int(str(fence)), f"w{number}/{id(self)}")
        if lease is None:
            return
        plan = yield from self.kept(self.desk.stores.documents, b"plan%d" % number)
        self.desk.records.announce(lease, plan)
        yield
        report = yield from self.kept(self.desk.stores.documents, b"report%d" % number)
        outcome = {"state": "succeeded", "plan": plan, "report": report}
        self.desk.results.put(content, outcome)
        yield
        self.desk.records.publish(lease, outcome)

    def cached(self, number: int) -> Iterator[None]:
        outcome = self.desk.results.get(f"c{number}")
        yield
        models = self.desk.client.zrange("tessera:models", 0, -1)
        if outcome is not None and models:
            profile = yield from self.kept(self.desk.stores.documents, b"profile%d" % number)
            request = self.desk.request(f"c{number}", str(models[0]), profile)
            self.desk.records.accept(request, outcome=outcome)

    def delete_job(self, number: int) -> Iterator[None]:
        for job in self.desk.client.zrange("tessera:jobs", 0, number):
            self.desk.records.delete_job(str(job))
            yield

    def upload(self, number: int) -> Iterator[None]:
        data = b"model%d" % number
        digest = hashlib.sha256(data).hexdigest()
        while self.desk.records.pin_model(digest)[0] != "pinned":
            yield
        yield
        self.desk.stores.models.put(data)
        yield
        self.desk.records.register_model(digest, "net.onnx", len(data))

    def delete_model(self, number: int) -> Iterator[None]:
        for model in map(str, self.desk.client.zrange("tessera:models", 0, number)):
            if self.desk.records.delete_model(model) == "deleted":
                yield
                self.desk.stores.models.delete(model)
                self.desk.records.removed_blobs([model])

    def check(self) -> None:
        """Whatever a record names is stored."""
        client, stores = self.desk.client, self.desk.stores
        for model in map(str, client.zrange("tessera:models", 0, -1)):
            assert stores.models.holds(model)
        for key in map(str, client.keys("tessera:job:*")):
            if key.endswith(":events"):
                continue
            fields = cast(dict[str, str], client.hgetall(key))
            for name in ("profile", "provisional_plan", "plan", "report"):
                assert name not in fields or stores.documents.holds(fields[name]), (key, name)


@pytest.mark.slow
@settings(
    max_examples=30,
    phases=[Phase.explicit, Phase.generate],  # an example takes too long to be made smaller
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(order=st.lists(st.integers(0, 24), min_size=100, max_size=400))
def test_no_interleaving_with_requests_and_workers_loses_a_blob(
    unsynced: redis.Redis, tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    client = unsynced
    client.flushall()
    desk = Desk(client=client, settings=Settings(data_dir=tmp_path_factory.mktemp("blobs"), keep_unused_s=_NOW_S))
    world = Interleaved(desk, order)
    for name in ("left", "profile0", "plan0", "report0", "plan1"):
        desk.put(name)
    desk.stores.models.put(b"model0")
    with pytest.MonkeyPatch.context() as patch:
        contents = collector._contents

        def watched(one: redis.Redis, keys: Any) -> Any:
            world.steps()
            return contents(one, keys)

        claim = desk.records.claim_blobs

        def watched_claim(*arguments: Any) -> list[str]:
            world.steps()
            claimed = claim(*arguments)
            world.steps()
            return claimed

        patch.setattr(desk.records, "claim_blobs", watched_claim)

        patch.setattr(collector, "_contents", watched)
        patch.setattr(collector, "_SCANNED", 4)
        patch.setattr(collector, "_CLAIMED", 2)
        desk.collector = Collector(
            records=desk.records,
            cache=client,
            stores=Stores(models=stepping(desk.stores.models, world), documents=stepping(desk.stores.documents, world)),
            settings=desk.settings,
        )
        for _ in range(3):
            desk.collect()
            world.check()
    while (left := next(world.order, None)) is not None:
        world.order = itertools.chain([left], world.order)
        world.step()
    world.finish()
    world.check()
    for pin in client.keys("tessera:blob:*:pinned"):
        client.delete(pin)
    desk.collect()
    world.check()
    client.flushall()
    desk.collect()
    assert desk.documents() == set()


def stepping(store: BlobStore, world: Interleaved) -> Any:
    """A store that lets others take a step before and after each of its calls."""

    class Stepping:
        def __getattr__(self, name: str) -> Any:
            call = getattr(store, name)

            def stepped(*arguments: Any) -> Any:
                world.steps()
                found = call(*arguments)
                if name == "blobs":
                    found = list(found)
                world.steps()
                return found

            return stepped

    return Stepping()
