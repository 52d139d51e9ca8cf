"""API-5: a worker takes only jobs of its version and store; jobs that nobody takes go to those who live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import redis

from app.jobs.identity import QUEUE_KINDS, Identity, parsed_queue, queue_name
from app.jobs.records import JobRequest, Records
from app.jobs.rekey import Rekeyer
from app.jobs.results import ResultCache
from app.settings import Settings
from app.simulations.options import SimulationOptions
from app.store import DirectoryStore, document_store, model_store
from app.tables.request_queue import Wanted, WantedTables
from compiler.cache_key import cache_key
from compiler.options import Options, parse_options
from compiler.profile import builtin_profile, profile_json

OLD = Identity(version="0.9.0", store="here")
NEW = Identity(version="0.10.0", store="here")
ELSEWHERE = Identity(version="0.10.0", store="elsewhere")
PROFILE = builtin_profile("edge4")
AFTER_S = 60.0


class Site:
    """Records as processes of several identities see them, over one Redis, with a clock that the test moves."""

    def __init__(self, client: redis.Redis, folder: Path) -> None:
        self.client = client
        self.settings = Settings(data_dir=folder, lease_s=30.0, rekey_after_s=AFTER_S)
        self.store = document_store(self.settings.store_dir)
        self.models = model_store(self.settings.store_dir)
        self.model = self.models.put(b"a model")
        self.results = ResultCache(client, self.settings, self.store)
        self.now = 1000.0
        self.of(NEW).pin_model(self.model)
        self.of(NEW).register_model(self.model, "net.onnx", 7)

    def of(self, identity: Identity) -> Records:
        return Records(self.client, self.settings, identity)

    def beat(self, identity: Identity, slots: int = 1) -> None:
        self.of(identity).heartbeat(f"worker-{identity.version}-{identity.store}", identity.queues(), slots)

    def leave(self, identity: Identity) -> None:
        self.of(identity).goodbye(f"worker-{identity.version}-{identity.store}")

    def rekeyer(self, identity: Identity, store: DirectoryStore | None = None) -> Rekeyer:
        return Rekeyer(
            records=self.of(identity),
            results=self.results,
            models=self.models if store is None else store,
            store=self.store if store is None else store,
            rekey_after_s=AFTER_S,
            clock=lambda: self.now,
        )

    def moved(self, *rekeyers: Rekeyer, for_s: float) -> int:
        """The number of moves while time passes."""
        moved = 0
        for _ in range(round(for_s)):
            moved += sum(rekeyer.round() for rekeyer in rekeyers)
            self.now += 1.0
        return moved

    def submit(
        self, identity: Identity, job: str, content: str = "", options: Options | None = None, owner: str = ""
    ) -> str:
        """A job as an API process of this identity accepts it; returns its content key."""
        chosen = parse_options({}) if options is None else options
        content = content or f"{identity.version} {job}"
        self.of(NEW).pin_model(self.model, owner=owner)
        self.of(NEW).register_model(self.model, "net.onnx", 7, owner=owner)
        request = JobRequest(
            job=job,
            content=content,
            model=self.model,
            model_name="net.onnx",
            profile=self.store.put(profile_json(PROFILE)),
            profile_name="edge4",
            options=msgspec.json.encode(chosen, order="deterministic").decode(),
            queue="short",
            time_limit_s=60,
            memory_limit_bytes=1000,
            compiler_version=identity.version,
            request_id="",
            owner=owner,
        )
        assert self.of(identity).accept(request).answer == "accepted"
        return content

    def job(self, job: str) -> dict[str, str]:
        fields = self.of(NEW).job(job)
        assert fields is not None
        return fields

    def fence(self, content: str) -> int:
        return int(str(self.client.hget(f"tessera:computation:{content}", "fence")))


@pytest.fixture
def site(client: redis.Redis, tmp_path: Path) -> Site:
    return Site(client, tmp_path)


# names and ids


def test_the_name_of_a_queue_carries_version_and_store() -> None:
    names = {queue_name(kind, identity) for kind in QUEUE_KINDS for identity in (OLD, NEW, ELSEWHERE)}
    assert len(names) == 6
    assert parsed_queue(queue_name("long", OLD)) == ("long", OLD)
    assert not parsed_queue("long")[1].is_known


def test_versions_are_ordered_as_numbers_and_an_unknown_one_is_oldest() -> None:
    assert NEW.is_newer(OLD)
    assert not OLD.is_newer(NEW)
    assert OLD.is_newer(parsed_queue("short")[1])


# the lease


@pytest.mark.parametrize("other", [OLD, ELSEWHERE])
def test_a_worker_of_another_version_or_store_takes_no_job_and_that_is_no_attempt(site: Site, other: Identity) -> None:
    content = site.submit(NEW, "j")
    assert site.of(other).lease(content, site.fence(content), "w") is None
    assert site.job("j")["state"] == "queued"
    lease = site.of(NEW).lease(content, site.fence(content), "w")
    assert lease is not None
    assert lease.attempt == 1


def test_a_delivery_goes_to_the_queue_of_its_version_and_only_if_a_worker_serves_it(site: Site) -> None:
    site.submit(OLD, "old")
    site.submit(NEW, "new")
    site.beat(NEW)
    assert [sent.queue for sent in site.of(OLD).claim()] == [queue_name("short", NEW)]
    site.beat(OLD)
    assert [sent.queue for sent in site.of(NEW).claim()] == [queue_name("short", OLD)]


def test_a_worker_that_was_told_to_stop_gets_no_more_deliveries(site: Site) -> None:
    site.beat(NEW)
    site.leave(NEW)
    site.beat(NEW)  # its main loop still turns
    site.submit(NEW, "j")
    assert (site.of(NEW).claim(), site.of(NEW).workers()) == ([], [])


# fairness


def owned(site: Site, owner: str, count: int) -> list[str]:
    """Computations of an owner, queued one after the other."""
    return [site.submit(NEW, f"{owner}{number}", owner=owner) for number in range(count)]


def test_owners_take_turns_whoever_queued_more_and_earlier(site: Site) -> None:
    many, few = owned(site, "a", 6), owned(site, "b", 2)
    site.beat(NEW, slots=4)
    sent = [delivery.content for delivery in site.of(NEW).claim()]
    assert sent == [many[0], few[0], many[1], few[1], *many[2:]]


def test_the_queue_position_is_the_order_in_which_computations_are_handed_out(site: Site) -> None:
    queued = [*owned(site, "a", 6), *owned(site, "b", 2), *owned(site, "c", 3)]
    records = site.of(NEW)
    before = sorted(queued, key=lambda content: cast(int, records.queue_position(content)))
    assert [records.queue_position(content) for content in before] == list(range(1, 12))
    site.beat(NEW, slots=2)
    handed_out = [delivery.content for delivery in records.claim()]
    assert handed_out == before[:4]
    assert [records.queue_position(content) for content in before] == list(range(1, 12))
    assert records.lease(before[0], site.fence(before[0]), "w") is not None
    assert [records.queue_position(content) for content in before] == [None, *range(1, 11)]


def test_an_owner_who_comes_late_waits_for_what_was_handed_out_and_no_more(site: Site) -> None:
    first = owned(site, "a", 50)
    site.beat(NEW)
    records = site.of(NEW)
    sent = [delivery.content for delivery in records.claim()]
    late = owned(site, "b", 1)
    assert records.queue_position(late[0]) == len(sent) + 2
    assert len(sent) == 2
    assert records.queue_position(first[-1]) == 51


# jobs whose workers are gone


def test_after_a_minute_without_a_worker_jobs_are_for_the_present_version_and_say_so(site: Site) -> None:
    old = site.submit(OLD, "j")
    site.beat(NEW)
    rekeyer = site.rekeyer(NEW)
    assert site.moved(rekeyer, for_s=AFTER_S) == 0
    assert site.moved(rekeyer, for_s=2) == 1
    fields = site.job("j")
    new = cache_key(site.model, PROFILE, parse_options({}), name="net.onnx")
    assert (fields["state"], fields["content"]) == ("queued", new)
    assert (fields["compiler_version"], fields["requested_version"]) == (NEW.version, OLD.version)
    assert not site.client.exists(f"tessera:computation:{old}")
    assert len(cast(list[Any], site.client.xrange("tessera:job:j:events"))) == 2
    assert [sent.content for sent in site.of(NEW).claim()] == [new]
    assert site.of(NEW).lease(new, site.fence(new), "w") is not None


def test_as_long_as_one_worker_of_a_version_lives_its_jobs_wait_for_it(site: Site) -> None:
    site.submit(OLD, "j")
    site.beat(NEW)
    site.beat(OLD)
    rekeyer = site.rekeyer(NEW)
    assert site.moved(rekeyer, for_s=3 * AFTER_S) == 0
    site.leave(OLD)
    assert site.moved(rekeyer, for_s=AFTER_S - 1) == 0
    assert site.moved(rekeyer, for_s=3) == 1


def test_a_pause_of_the_whole_machine_moves_nothing(site: Site) -> None:
    site.submit(OLD, "j")
    site.beat(NEW)
    rekeyer = site.rekeyer(NEW)
    assert site.moved(rekeyer, for_s=10) == 0
    site.now += 3600.0
    assert site.moved(rekeyer, for_s=AFTER_S - 15) == 0
    assert site.moved(rekeyer, for_s=10) == 1


def test_nothing_is_moved_to_a_version_that_has_no_worker(site: Site) -> None:
    site.submit(OLD, "j")
    assert site.moved(site.rekeyer(NEW), for_s=3 * AFTER_S) == 0
    assert site.job("j")["compiler_version"] == OLD.version


def test_an_older_api_takes_no_jobs_from_a_newer_one_that_lives(site: Site) -> None:
    site.submit(NEW, "j")
    site.beat(OLD)
    newer, older = site.rekeyer(NEW), site.rekeyer(OLD)
    assert site.moved(newer, older, for_s=3 * AFTER_S) == 0


def test_after_a_rollback_jobs_of_the_newer_version_are_for_the_older_one(site: Site) -> None:
    site.submit(NEW, "j")
    site.beat(OLD)
    assert site.moved(site.rekeyer(OLD), for_s=AFTER_S + 2) == 1
    assert (site.job("j")["compiler_version"], site.job("j")["requested_version"]) == (OLD.version, NEW.version)


def test_two_versions_that_live_never_move_a_job_back_and_forth(site: Site) -> None:
    site.submit(OLD, "j")
    site.beat(NEW)
    newer, older = site.rekeyer(NEW), site.rekeyer(OLD)
    assert site.moved(newer, older, for_s=AFTER_S + 2) == 1
    site.beat(OLD)
    assert site.moved(newer, older, for_s=3 * AFTER_S) == 0


def test_a_job_that_is_moved_joins_the_computation_that_is_there_already(site: Site) -> None:
    new = cache_key(site.model, PROFILE, parse_options({}), name="net.onnx")
    site.submit(NEW, "first", content=new)
    lease = site.of(NEW).lease(new, site.fence(new), "w")
    assert lease is not None
    site.submit(OLD, "second")
    site.submit(OLD, "third", options=parse_options({"verify": "none"}))
    site.beat(NEW)
    assert site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2) == 2
    assert (site.job("second")["state"], site.job("third")["state"]) == ("running", "queued")
    done = {"state": "succeeded", "plan": "p" * 64, "report": "r" * 64}
    assert site.of(NEW).publish(lease, done) == "published"
    assert (site.job("second")["state"], site.job("second")["plan"]) == ("succeeded", "p" * 64)


def test_a_job_that_is_moved_to_a_known_outcome_has_it_at_once(site: Site) -> None:
    new = cache_key(site.model, PROFILE, parse_options({}), name="net.onnx")
    plan, report = site.store.put(b"plan"), site.store.put(b"report")
    site.results.put(new, {"state": "succeeded", "plan": plan, "report": report})
    site.submit(OLD, "j")
    site.beat(NEW)
    site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2)
    assert (site.job("j")["state"], site.job("j")["plan"], site.job("j")["cached"]) == ("succeeded", plan, "1")
    assert site.client.scard("tessera:queues") == 0


def test_a_simulation_is_moved_to_the_key_that_a_request_for_it_has_now(site: Site) -> None:
    options = SimulationOptions(executable=site.store.put(b"executable"), seed=3)
    request = JobRequest(
        job="sim",
        content="old",
        model="",
        model_name="net.onnx",
        profile="",
        profile_name="",
        options=msgspec.json.encode(options).decode(),
        queue="long",
        time_limit_s=60,
        memory_limit_bytes=1000,
        compiler_version=OLD.version,
        request_id="",
        kind="simulation",
    )
    site.of(OLD).accept(request)
    site.beat(NEW)
    site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2)
    assert site.job("sim")["content"] == options.content_key("", "net.onnx")
    assert [sent.queue for sent in site.of(NEW).claim()] == [queue_name("long", NEW)]


def test_a_job_whose_options_mean_nothing_to_the_present_version_fails_and_says_why(site: Site) -> None:
    content = site.submit(OLD, "j")
    site.client.hset(f"tessera:computation:{content}", "options", '{"rules": 7}')
    site.beat(NEW)
    site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2)
    assert site.job("j")["state"] == "failed"
    problem = json.loads(site.job("j")["problem"])
    assert (problem["code"], problem["actual"], problem["limit"]) == ("version_gone", OLD.version, NEW.version)


def test_a_running_computation_stays_with_its_worker(site: Site) -> None:
    content = site.submit(OLD, "j")
    lease = site.of(OLD).lease(content, site.fence(content), "w")
    assert lease is not None
    site.beat(NEW)
    assert site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2) == 0
    assert site.of(OLD).publish(lease, {"state": "succeeded", "plan": "p", "report": "r"}) == "published"
    assert site.job("j")["compiler_version"] == OLD.version


def test_more_than_one_round_moves_are_all_moved_and_what_must_stay_holds_up_nothing(
    site: Site, tmp_path: Path
) -> None:
    present = document_store(tmp_path / "present")
    present.put(profile_json(PROFILE))
    for number in range(60):
        site.submit(ELSEWHERE, f"stays{number}")
    site.model = present.put(b"another model")
    site.of(NEW).pin_model(site.model)
    site.of(NEW).register_model(site.model, "net.onnx", 7)
    for number in range(60):
        site.submit(ELSEWHERE, f"goes{number}", options=parse_options({"rules": {"FUSE-19": {"limit": number + 1}}}))
    site.beat(NEW)
    assert site.moved(site.rekeyer(NEW, store=present), for_s=AFTER_S + 6) == 60
    assert site.client.zcard(f"tessera:queue:{queue_name('short', ELSEWHERE)}") == 60


def test_versions_that_are_gone_leave_no_sign_of_life(site: Site) -> None:
    site.client.zadd("tessera:apis", {OLD.label: 1})
    site.of(NEW).note_api()
    assert site.client.zrange("tessera:apis", 0, -1) == [NEW.label]


# stores


def test_jobs_of_another_store_wait_if_their_model_is_not_here(site: Site, tmp_path: Path) -> None:
    site.submit(ELSEWHERE, "j")
    site.beat(NEW)
    empty = document_store(tmp_path / "empty")
    assert site.moved(site.rekeyer(NEW, store=empty), for_s=3 * AFTER_S) == 0
    assert site.job("j")["state"] == "queued"


def test_jobs_of_another_store_wait_while_an_api_of_that_store_lives(site: Site) -> None:
    site.submit(ELSEWHERE, "j")
    site.beat(NEW)
    assert site.moved(site.rekeyer(NEW), site.rekeyer(ELSEWHERE), for_s=3 * AFTER_S) == 0


def test_a_store_that_lost_its_id_keeps_its_jobs(site: Site) -> None:
    content = site.submit(ELSEWHERE, "j")
    site.beat(NEW)
    assert site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2) == 1
    assert "requested_version" not in site.job("j")
    assert site.job("j")["content"] == cache_key(site.model, PROFILE, parse_options({}), name="net.onnx") != content


def test_at_an_embedded_start_jobs_under_the_lost_id_are_for_the_new_one_at_once(site: Site) -> None:
    queued, running = site.submit(ELSEWHERE, "queued"), site.submit(ELSEWHERE, "running")
    site.of(ELSEWHERE).lease(running, site.fence(running), "w")
    assert site.of(NEW).restart() == 2
    site.beat(NEW)
    sent = site.of(NEW).claim()
    assert {delivery.content for delivery in sent} == {queued, running}
    for delivery in sent:
        assert site.of(NEW).lease(delivery.content, delivery.fence, "w") is not None


# what a version before 0.12 has left


def test_jobs_of_a_version_that_named_no_worker_are_taken_over(site: Site) -> None:
    content = site.submit(NEW, "j")
    key, named = f"tessera:computation:{content}", queue_name("short", NEW)
    site.client.hset(key, "queue", "short")
    site.client.hdel(key, "version", "store", "owner")
    site.client.hset("tessera:job:j", "compiler_version", OLD.version)
    site.client.rename(f"tessera:queue:{named}", "tessera:queue:short")
    site.client.zadd("tessera:outbox", {content: 1})
    site.client.delete("tessera:queues", *site.client.keys("tessera:queue:short@*"))
    site.of(NEW).restart()
    site.beat(NEW)
    assert site.moved(site.rekeyer(NEW), for_s=AFTER_S + 2) == 1
    assert (site.job("j")["compiler_version"], site.job("j")["requested_version"]) == (NEW.version, OLD.version)
    assert site.client.exists("tessera:outbox") == 0
    assert len(site.of(NEW).claim()) == 1


# tables


def test_tables_are_wanted_of_workers_of_the_version_that_asked(client: redis.Redis) -> None:
    old, new = WantedTables(client, OLD), WantedTables(client, NEW)
    old.add([Wanted(key="k", package="p", routine=0, problem=(1,))])
    assert (new.claim(), new.waiting()) == ([], 0)
    assert (len(old.claim()), old.queue) == (1, queue_name("short", OLD))
