"""API-5: the records of jobs and computations, on a real Redis."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from app.jobs.identity import Identity
from app.jobs.records import (
    LEASES_KEY,
    WORKERS_KEY,
    Idempotency,
    JobRequest,
    Lease,
    Records,
    SweepRequest,
    events_key,
    owned,
)
from app.settings import Settings
from tests.service.harness import until

MODEL = "a" * 64
IDENTITY = Identity(version="0", store="here")
SHORT, LONG = IDENTITY.queues()
FORMER_LEASES_KEY = "tessera:leases"
DONE = {"state": "succeeded", "plan": "p" * 64, "report": "r" * 64}


@dataclass
class Bench:
    """Records with short times, and the few verbs that the tests are written in."""

    client: redis.Redis
    settings: Settings
    ids: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.records = Records(self.client, self.settings, IDENTITY)
        self.beat("worker", IDENTITY)
        self.records.pin_model(MODEL)
        self.records.register_model(MODEL, "net.onnx", 10)

    def submit(self, content: str = "c1", model: str = MODEL, **changes: Any) -> str:
        job = f"job{next(self.ids)}"
        accepted = self.records.accept(self.request(job, content, model, **changes))
        assert accepted.answer == "accepted"
        return accepted.job

    def request(
        self,
        job: str,
        content: str = "c1",
        model: str = MODEL,
        time_limit_s: float = 60,
        memory_limit_bytes: int = 1000,
    ) -> JobRequest:
        return JobRequest(
            job=job,
            content=content,
            model=model,
            model_name="net.onnx",
            profile="b" * 64,
            profile_name="p",
            options="{}",
            queue="short",
            time_limit_s=time_limit_s,
            memory_limit_bytes=memory_limit_bytes,
            compiler_version="0",
            request_id="",
        )

    def beat(self, worker: str, identity: Identity, slots: int = 1000) -> None:
        """A worker of an identity lives for the time of the test."""
        Records(self.client, self.settings, identity).heartbeat(worker, identity.queues(), slots)

    def fence(self, content: str = "c1") -> int:
        return int(str(self.client.hget(f"tessera:computation:{content}", "fence")))

    def lease(self, content: str = "c1", worker: str = "w") -> Lease:
        lease = self.records.lease(content, self.fence(content), worker)
        assert lease is not None
        return lease

    def state(self, job: str) -> str:
        return self.job(job)["state"]

    def job(self, job: str) -> dict[str, str]:
        fields = self.records.job(job)
        assert fields is not None
        return fields

    def computation(self, content: str = "c1") -> dict[str, str]:
        return cast(dict[str, str], self.client.hgetall(f"tessera:computation:{content}"))

    def reap_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            self.records.reap()
            time.sleep(0.005)


@pytest.fixture
def bench(client: redis.Redis) -> Bench:
    return Bench(client, Settings(lease_s=30.0))


@pytest.fixture
def hasty(client: redis.Redis) -> Bench:
    """Leases and resends of a few milliseconds."""
    return Bench(client, Settings(lease_s=0.02, first_resend_s=0.02, last_resend_s=0.05))


def test_accepting_makes_record_computation_and_outbox_entry_at_once(bench: Bench) -> None:
    job = bench.submit()
    assert bench.state(job) == "queued"
    assert bench.computation()["state"] == "queued"
    (delivery,) = bench.records.claim()
    assert (delivery.content, delivery.fence, delivery.queue) == ("c1", bench.fence(), SHORT)


def test_accepting_for_an_unknown_model_leaves_nothing_behind(bench: Bench) -> None:
    accepted = bench.records.accept(bench.request("j", model="d" * 64))
    assert accepted.answer == "unknown_model"
    assert bench.records.job("j") is None
    assert bench.records.claim() == []


def test_accepting_the_same_job_twice_after_a_lost_answer_makes_one(bench: Bench) -> None:
    for _ in range(2):
        assert bench.records.accept(bench.request("j")).answer == "accepted"
    assert bench.client.zcard("tessera:computation:c1:waiting") == 1


def test_identical_work_is_done_once_for_all_jobs(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    assert len(bench.records.claim()) == 1
    assert bench.records.publish(bench.lease(), DONE) == "published"
    for job in (first, second):
        assert (bench.state(job), bench.job(job)["plan"]) == ("succeeded", DONE["plan"])
    assert bench.client.hget("tessera:counts", "publishes") == "1"


def test_an_idempotency_key_gives_the_same_job_and_refuses_another_request(bench: Bench) -> None:
    def accept(job: str, fingerprint: str) -> tuple[str, str]:
        request = bench.request(job)
        accepted = bench.records.accept(request, key=Idempotency(key="k", fingerprint=fingerprint))
        return accepted.answer, accepted.job

    assert accept("j1", "f") == ("accepted", "j1")
    assert accept("j2", "f") == ("replayed", "j1")
    assert accept("j3", "other") == ("conflict", "j1")
    assert bench.records.job("j2") is None
    assert bench.records.job("j3") is None


def test_a_job_whose_outcome_is_known_is_final_at_once(bench: Bench) -> None:
    accepted = bench.records.accept(bench.request("j"), outcome=DONE)
    assert accepted.answer == "finished"
    assert (bench.state("j"), bench.job("j")["plan"]) == ("succeeded", DONE["plan"])
    assert bench.records.claim() == []


def test_a_second_delivery_of_the_same_fence_gets_no_lease(bench: Bench) -> None:
    bench.submit()
    fence = bench.fence()
    assert bench.records.lease("c1", fence, "w1") is not None
    assert bench.records.lease("c1", fence, "w2") is None


def test_a_worker_that_lost_the_answer_to_its_lease_gets_it_again(bench: Bench) -> None:
    bench.submit()
    fence = bench.fence()
    first = bench.records.lease("c1", fence, "w1")
    assert bench.records.lease("c1", fence, "w1") == first
    assert bench.computation()["attempts"] == "1"


def test_a_late_delivery_of_an_older_fence_gets_no_lease(hasty: Bench) -> None:
    hasty.submit()
    old = hasty.fence()
    hasty.lease()
    hasty.reap_until(lambda: hasty.computation()["state"] == "queued")
    assert hasty.fence() != old
    assert hasty.records.lease("c1", old, "w2") is None
    assert hasty.records.lease("c1", hasty.fence(), "w2") is not None


def test_a_publish_under_an_older_fence_is_refused(hasty: Bench) -> None:
    job = hasty.submit()
    old = hasty.lease()
    hasty.reap_until(lambda: hasty.computation()["state"] == "queued")
    assert hasty.records.publish(old, DONE) == "refused"
    new = hasty.lease()
    assert hasty.records.publish(old, DONE) == "refused"
    assert hasty.state(job) == "running"
    assert hasty.records.publish(new, DONE) == "published"
    assert hasty.client.hget("tessera:counts", "publishes_refused") == "2"


def test_a_second_publish_is_refused(bench: Bench) -> None:
    bench.submit()
    lease = bench.lease()
    assert bench.records.publish(lease, DONE) == "published"
    assert bench.records.publish(lease, {"state": "failed", "problem": "{}"}) == "refused"


def test_a_fence_is_never_used_twice_even_after_the_computation_was_forgotten(bench: Bench) -> None:
    bench.submit()
    old = bench.lease()
    bench.records.publish(old, DONE)
    job = bench.submit()
    assert bench.records.publish(old, DONE) == "refused"
    assert bench.records.renew(old).answer == "lost"
    assert bench.records.progress(old, "x", 1, 2) == "lost"
    assert bench.state(job) == "queued"


def test_a_lease_that_is_renewed_does_not_run_out(hasty: Bench) -> None:
    hasty.submit()
    lease = hasty.lease()
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        assert hasty.records.renew(lease).answer == "keep"
        hasty.records.reap()
    assert hasty.computation()["attempts"] == "1"


def test_a_lease_ends_though_the_clock_of_redis_was_set_back(hasty: Bench) -> None:
    """It was kept until the clock had come back to the end of the lease: for an hour."""
    job = hasty.submit()
    hasty.lease()
    hasty.client.zadd(LEASES_KEY, {"c1": (time.time() + 3600) * 1000})  # as if given before
    hasty.reap_until(lambda: hasty.state(job) == "queued")


def test_a_lease_that_is_renewed_holds_though_the_clock_of_redis_was_set_forward(client: redis.Redis) -> None:
    bench = Bench(client, Settings(lease_s=1.0))
    job = bench.submit()
    lease = bench.lease()
    client.zadd(LEASES_KEY, {"c1": 0})  # as if it had ended long ago
    for _ in range(20):
        bench.records.reap()
    assert bench.records.renew(lease).answer == "keep"
    assert bench.state(job) == "running"


def test_an_api_before_0_12_ends_no_lease_of_ours(bench: Bench) -> None:
    """During an upgrade it ended each within 0.2 s, and the third time the job failed with `worker_lost`."""
    bench.submit()
    bench.records.renew(bench.lease())
    assert bench.client.zrange(FORMER_LEASES_KEY, 0, -1) == []  # which it ends by the time of day


def test_a_lease_of_a_worker_before_0_12_ends_when_it_is_silent_and_at_a_restart(hasty: Bench) -> None:
    job = hasty.submit()
    for end in (lambda: hasty.reap_until(lambda: hasty.state(job) == "queued"), hasty.records.restart):
        hasty.lease()
        hasty.client.zrem(LEASES_KEY, "c1")
        hasty.client.zadd(FORMER_LEASES_KEY, {"c1": (time.time() + 3600) * 1000})
        end()
        assert hasty.state(job) == "queued"
        assert hasty.client.zrange(FORMER_LEASES_KEY, 0, -1) == []


def test_what_an_api_before_0_12_cancelled_holds_up_no_delivery(hasty: Bench) -> None:
    """Each call failed from then on, so that nothing was handed out any more."""
    hasty.submit("c1")
    hasty.submit("c2")
    assert len(hasty.records.claim()) == 2
    hasty.client.delete("tessera:computation:c1", "tessera:computation:c1:waiting")
    hasty.client.zrem(f"tessera:queue:{SHORT}", "c1")
    until(lambda: [delivery.content for delivery in hasty.records.claim()] == ["c2"], "the other to be sent again")
    assert hasty.records.queue_position("c2") == 1
    hasty.lease("c2")
    assert hasty.client.keys("tessera:queue:*") == []


def test_a_computation_that_an_api_before_0_12_queued_has_its_place(bench: Bench) -> None:
    """Its job was answered 500 until it was moved to the present version."""
    for fence, content in enumerate(("old1", "old2")):
        bench.client.hset(f"tessera:computation:{content}", mapping={"state": "queued", "queue": "short"})
        bench.client.zadd("tessera:queue:short", {content: fence})
    assert bench.records.queue_position("old2") == 2


def test_a_message_is_due_though_the_clock_of_redis_was_set_back(bench: Bench) -> None:
    bench.submit()
    assert len(bench.records.claim()) == 1
    bench.client.zadd(f"tessera:queue:{SHORT}:sent", {"c1": (time.time() + 3600) * 1000})
    assert [delivery.content for delivery in bench.records.claim()] == ["c1"]
    assert bench.records.claim() == []  # sent, and due again after the usual wait


def test_a_worker_that_died_before_the_clock_was_set_back_is_not_alive(bench: Bench) -> None:
    bench.client.zadd(WORKERS_KEY, {"dead": time.time() + 3600})
    assert [sign.name for sign in bench.records.workers()] == ["worker"]


def test_a_computation_that_loses_its_worker_at_each_attempt_fails_with_worker_lost(hasty: Bench) -> None:
    job = hasty.submit()
    for attempt in (1, 2, 3):
        assert hasty.lease().attempt == attempt
        hasty.reap_until(lambda: hasty.state(job) != "running")
    fields = hasty.job(job)
    assert (fields["state"], fields["attempts"]) == ("failed", "3")
    assert '"code":"worker_lost"' in fields["problem"]
    assert hasty.computation() == {}


def test_a_worker_known_to_be_dead_gives_its_computation_back_at_once(bench: Bench) -> None:
    job = bench.submit()
    lease = bench.lease()
    assert bench.records.lost("c1", lease.fence - 1) == "none"
    assert bench.records.lost("c1", lease.fence) == "queued"
    assert bench.state(job) == "queued"


def test_what_a_worker_gives_back_at_its_stop_is_no_attempt(bench: Bench) -> None:
    job = bench.submit()
    bench.records.goodbye("stopped-1")
    for number in range(5):
        lease = bench.lease(worker=f"stopped-{number % 2}/7/ab" if number == 0 else "stopped-1/7/ab")
        bench.records.lost(lease.content, lease.fence)
    assert bench.job(job)["state"] == "queued"
    assert bench.lease().attempt == 2  # one was lost: the first worker of another name was not told to stop
    counts = cast(dict[str, str], bench.client.hgetall("tessera:counts"))
    assert (counts["attempts_given_back"], counts["attempts_lost"]) == ("4", "1")


def test_a_new_job_after_worker_lost_is_tried_afresh(hasty: Bench) -> None:
    hasty.submit()
    for _ in range(3):
        hasty.lease()
        hasty.reap_until(lambda: hasty.computation().get("state") != "running")
    hasty.submit()
    assert hasty.lease().attempt == 1


def test_cancelling_the_only_queued_job_forgets_its_computation(bench: Bench) -> None:
    job = bench.submit()
    fence = bench.fence()
    assert bench.records.cancel(job) == "cancelled"
    assert bench.records.claim() == []
    assert bench.records.lease("c1", fence, "w") is None
    assert bench.client.keys("tessera:computation:*") == []
    assert bench.client.zcard(f"tessera:queue:{SHORT}") == 0


def test_cancelling_one_of_two_jobs_leaves_the_other_its_computation(bench: Bench) -> None:
    first, second = bench.submit(), bench.submit()
    lease = bench.lease()
    assert bench.records.cancel(first) == "cancelled"
    assert bench.records.renew(lease).answer == "keep"
    bench.records.publish(lease, DONE)
    assert (bench.state(first), bench.state(second)) == ("cancelled", "succeeded")


def test_cancelling_the_last_running_job_stops_the_computation_at_the_next_phase(bench: Bench) -> None:
    job = bench.submit()
    lease = bench.lease()
    assert bench.records.progress(lease, "tile", 3, 8) == "keep"
    assert bench.records.cancel(job) == "cancelling"
    assert bench.records.progress(lease, "place", 4, 8) == "stop"
    assert bench.records.renew(lease).answer == "stop"
    assert bench.records.stopped(lease) == "stopped"
    assert bench.state(job) == "cancelled"
    assert bench.computation() == {}


def test_a_result_that_comes_after_the_cancel_is_not_published(bench: Bench) -> None:
    job = bench.submit()
    lease = bench.lease()
    bench.records.cancel(job)
    assert bench.records.publish(lease, DONE) == "stopped"
    assert bench.state(job) == "cancelled"
    assert "plan" not in bench.job(job)


def test_a_cancelled_job_ends_even_if_its_worker_was_killed_meanwhile(hasty: Bench) -> None:
    job = hasty.submit()
    hasty.lease()
    hasty.records.cancel(job)
    hasty.reap_until(lambda: hasty.state(job) == "cancelled")
    assert hasty.computation() == {}


def test_a_stopping_computation_keeps_its_lease_no_longer_than_it_has_it(hasty: Bench) -> None:
    job = hasty.submit()
    lease = hasty.lease()
    hasty.records.cancel(job)

    def renewed_and_cancelled() -> bool:
        hasty.records.renew(lease)
        return hasty.state(job) == "cancelled"

    hasty.reap_until(renewed_and_cancelled)
    assert hasty.computation() == {}


def test_the_same_content_submitted_while_the_old_work_is_stopping_starts_afresh(bench: Bench) -> None:
    old_job = bench.submit()
    old = bench.lease()
    bench.records.cancel(old_job)
    new_job = bench.submit()
    assert bench.state(old_job) == "cancelled"
    new = bench.lease()
    assert (new.fence > old.fence, new.attempt) == (True, 1)
    assert bench.records.stopped(old) == "refused"
    assert bench.records.publish(old, DONE) == "refused"
    assert bench.records.publish(new, DONE) == "published"
    assert bench.state(new_job) == "succeeded"


@pytest.mark.parametrize("outcome", [DONE, {"state": "failed", "problem": "{}"}])
def test_a_final_job_cannot_be_cancelled(bench: Bench, outcome: dict[str, str]) -> None:
    job = bench.submit()
    bench.records.publish(bench.lease(), outcome)
    assert bench.records.cancel(job) == outcome["state"]
    assert bench.state(job) == outcome["state"]


def test_cancelling_an_unknown_job_says_so(bench: Bench) -> None:
    assert bench.records.cancel("nobody") is None


def test_a_time_limit_fails_the_job_that_set_it_and_no_other(bench: Bench) -> None:
    hurried = bench.submit(time_limit_s=0.02)
    patient = bench.submit()
    lease = bench.lease()
    assert bench.records.renew(lease, elapsed_s=0.005).time_left_s == 0.015
    assert bench.records.renew(lease, elapsed_s=0.01).answer == "keep"
    assert bench.state(hurried) == "running"
    assert bench.records.renew(lease, elapsed_s=0.02).time_left_s > 1
    assert bench.state(hurried) == "failed"
    assert '"code":"time_limit"' in bench.job(hurried)["problem"]
    assert bench.records.renew(lease).answer == "keep"
    assert bench.records.publish(lease, DONE) == "published"
    assert bench.state(patient) == "succeeded"


def test_work_that_hangs_beyond_a_time_limit_fails_that_job_and_is_done_again_for_others(hasty: Bench) -> None:
    hurried = hasty.submit(time_limit_s=0.02)
    patient = hasty.submit()
    hasty.lease()
    hasty.reap_until(lambda: hasty.state(patient) == "queued")
    assert '"code":"time_limit"' in hasty.job(hurried)["problem"]
    alone = hasty.submit("c2", time_limit_s=0.02)
    hasty.lease("c2")
    hasty.reap_until(lambda: hasty.state(alone) == "failed")
    assert '"code":"time_limit"' in hasty.job(alone)["problem"]
    assert hasty.job(alone)["attempts"] == "1"
    assert hasty.computation("c2") == {}


def test_waiting_in_the_queue_does_not_count_against_the_time_limit(bench: Bench) -> None:
    job = bench.submit(time_limit_s=0.01)
    time.sleep(0.03)  # longer than the limit is the point here
    assert bench.records.renew(bench.lease()).answer == "keep"
    assert bench.state(job) == "running"


def test_a_job_that_joins_running_work_and_one_that_starts_anew_have_their_whole_time(bench: Bench) -> None:
    bench.submit(time_limit_s=1000)
    first = bench.lease()
    bench.records.renew(first, elapsed_s=50)
    late = bench.submit(time_limit_s=10)
    assert bench.records.renew(first, elapsed_s=55).time_left_s == 10
    assert bench.records.renew(first, elapsed_s=64).time_left_s == 1
    bench.records.lost("c1", first.fence)
    assert bench.records.renew(bench.lease(), elapsed_s=0.5).time_left_s == 9.5
    assert bench.state(late) == "running"


def test_a_computation_whose_jobs_all_ran_out_of_time_is_stopped_though_its_worker_renews(
    bench: Bench,
) -> None:
    job = bench.submit(time_limit_s=0.02)
    lease = bench.lease()
    assert bench.records.renew(lease).answer == "keep"
    assert bench.records.renew(lease, elapsed_s=0.02).answer == "stop"
    assert bench.state(job) == "failed"
    assert bench.records.renew(lease, elapsed_s=0.04).answer == "stop"
    assert bench.records.publish(lease, DONE) == "stopped"
    assert bench.state(job) == "failed"


def test_a_memory_limit_fails_the_job_that_set_it_and_no_other(bench: Bench) -> None:
    small = bench.submit(memory_limit_bytes=100)
    large = bench.submit(memory_limit_bytes=5000)
    lease = bench.lease()
    assert bench.records.renew(lease, 50).memory_limit_bytes == 100
    renewal = bench.records.renew(lease, 101)
    assert (renewal.answer, renewal.memory_limit_bytes) == ("keep", 5000)
    assert '"code":"memory_limit"' in bench.job(small)["problem"]
    assert bench.state(large) == "running"
    assert bench.records.renew(lease, 5001).answer == "stop"
    assert bench.state(large) == "failed"


def test_a_delivery_is_sent_again_until_a_worker_takes_it_up(hasty: Bench) -> None:
    hasty.submit()
    sent = 0
    deadline = time.monotonic() + 10
    while sent < 4:
        assert time.monotonic() < deadline
        sent += len(hasty.records.claim())
    hasty.lease()
    assert hasty.records.claim() == []
    assert hasty.client.keys("tessera:queue:*") == []


def test_a_delivery_is_not_sent_again_before_its_time(bench: Bench) -> None:
    bench.submit()
    assert len(bench.records.claim()) == 1
    assert bench.records.claim() == []


def test_a_restart_ends_every_lease_and_sends_everything_again(bench: Bench) -> None:
    running, queued = bench.submit("c1"), bench.submit("c2")
    bench.lease("c1")
    bench.records.claim()
    assert bench.records.restart() == 2
    assert (bench.state(running), bench.state(queued)) == ("queued", "queued")
    assert {delivery.content for delivery in bench.records.claim()} == {"c1", "c2"}


def test_a_job_that_joins_a_running_computation_shows_its_phase(bench: Bench) -> None:
    bench.submit()
    bench.records.progress(bench.lease(), "tile", 3, 8)
    fields = bench.job(bench.submit())
    assert (fields["state"], fields["phase"], fields["step"], fields["total"]) == (
        "running",
        "tile",
        "3",
        "8",
    )


def test_the_queue_position_counts_from_one(bench: Bench) -> None:
    for content in ("c1", "c2", "c3"):
        bench.submit(content)
    assert bench.records.queue_position("c3") == 3
    bench.lease("c1")
    assert bench.records.queue_position("c3") == 2
    assert bench.records.queue_position("c1") is None


def test_only_final_records_expire(bench: Bench) -> None:
    done, open_job = bench.submit("c1"), bench.submit("c2")
    bench.records.publish(bench.lease("c1"), DONE)
    for key in (f"tessera:job:{done}", events_key(done)):
        assert bench.client.pttl(key) > 0
    for key in (f"tessera:job:{open_job}", events_key(open_job), "tessera:computation:c2"):
        assert bench.client.pttl(key) == -1


def test_events_tell_the_whole_life_of_a_job_once(hasty: Bench) -> None:
    job = hasty.submit()
    hasty.lease()
    hasty.reap_until(lambda: hasty.state(job) == "queued")
    lease = hasty.lease()
    hasty.records.progress(lease, "tile", 1, 1)
    hasty.records.publish(lease, DONE)
    entries = cast(list[tuple[str, dict[str, str]]], hasty.client.xrange(events_key(job)))
    states = [fields["state"] for _, fields in entries]
    assert states == ["queued", "running", "queued", "running", "running", "succeeded"]


def test_the_last_event_says_whether_the_plan_can_be_read(bench: Bench) -> None:
    def last(job: str) -> tuple[str, bool]:
        entries = cast(list[tuple[str, dict[str, str]]], bench.client.xrevrange(events_key(job), count=1))
        event = json.loads(entries[0][1]["data"])
        return event["state"], event["planned"]

    def planned(content: str) -> tuple[str, Lease]:
        job = bench.submit(content)
        assert last(job) == ("queued", False)
        lease = bench.lease(content)
        assert bench.records.announce(lease, "a" * 64) == "keep"
        assert last(job) == ("running", True)
        return job, lease

    done, lease = planned("c1")
    bench.records.publish(lease, DONE)
    assert last(done) == ("succeeded", True)
    failed, lease = planned("c2")
    bench.records.publish(lease, {"state": "failed", "problem": "{}"})
    assert last(failed) == ("failed", False)
    cancelled, lease = planned("c3")
    bench.records.cancel(cancelled)
    assert last(cancelled) == ("cancelling", False)
    bench.records.stopped(lease)
    assert last(cancelled) == ("cancelled", False)
    bench.records.accept(bench.request("known"), outcome=DONE)
    assert last("known") == ("succeeded", True)


def test_a_model_in_use_is_not_deleted_until_its_jobs_are_final(bench: Bench) -> None:
    bench.submit()
    assert bench.records.delete_model(MODEL) == "in_use"
    bench.records.publish(bench.lease(), DONE)
    assert bench.records.delete_model(MODEL) == "deleted"
    assert bench.records.delete_model(MODEL) == "unknown"


def test_upload_and_deletion_of_one_model_exclude_each_other(bench: Bench) -> None:
    assert bench.records.pin_model(MODEL)[0] == "pinned"
    assert bench.records.delete_model(MODEL) == "in_use"
    bench.records.register_model(MODEL, "net.onnx", 10)
    assert bench.records.delete_model(MODEL) == "deleted"
    assert bench.records.pin_model(MODEL)[0] == "deleting"
    bench.records.removed_blobs([MODEL])
    assert bench.records.pin_model(MODEL)[0] == "pinned"


def test_a_full_list_gets_no_more_messages_and_loses_none(bench: Bench) -> None:
    bench.beat("worker", IDENTITY, slots=1)
    for number in range(5):
        bench.submit(f"c{number}")
    first = bench.records.claim()
    assert len(first) == 2
    bench.client.rpush(SHORT, *("a message" for _ in first))
    assert bench.records.claim() == []
    bench.client.delete(SHORT)
    first += bench.records.claim() + bench.records.claim()
    assert [delivery.content for delivery in first] == [f"c{number}" for number in range(5)]


def test_a_job_whose_record_expired_leaves_the_list_and_others_stay(client: redis.Redis) -> None:
    bench = Bench(client, Settings(lease_s=30.0, keep_finished_s=0.02))
    done, waiting = bench.submit("c1"), bench.submit("c2")
    bench.records.publish(bench.lease("c1"), DONE)
    assert client.zrange(owned("", "jobs"), 0, -1) == [done, waiting]
    until(lambda: bench.records.job(done) is None, "the record to expire")
    bench.records.reap()
    assert client.zrange(owned("", "jobs"), 0, -1) == [waiting]


def test_what_was_accepted_is_finished_though_the_memory_of_the_records_is_full(bench: Bench) -> None:
    jobs = [bench.submit(f"c{number}") for number in range(4)]
    bench.client.config_set("maxmemory", 1)
    try:
        assert len(bench.records.claim()) == 4
        done, lost, cancelled = (bench.lease(f"c{number}") for number in range(3))
        assert bench.records.progress(done, "fuse", 1, 2) == "keep"
        assert bench.records.announce(done, "p" * 64) == "keep"
        assert bench.records.renew(done, 10).answer == "keep"
        assert bench.records.publish(done, DONE) == "published"
        assert bench.records.lost(lost.content, lost.fence) == "queued"
        bench.records.cancel(jobs[2])
        assert bench.records.stopped(cancelled) == "stopped"
        bench.records.cancel(jobs[3])
        bench.records.reap()
        accepted = bench.records.accept(bench.request("new", "c9"))
    finally:
        bench.client.config_set("maxmemory", "1gb")
    assert [bench.state(job) for job in jobs] == ["succeeded", "queued", "cancelled", "cancelled"]
    assert accepted.answer == "records_full"
    assert int(accepted.job) > 100_000
    assert bench.records.job("new") is None


def test_a_part_of_the_memory_is_kept_for_what_was_accepted(bench: Bench) -> None:
    """Models and profiles could fill it. At the limit Celery's messages are refused, and workers end as they start."""
    bench.records.register_profile("d" * 64, "known")
    memory: Any = bench.client.info("memory")
    bench.client.config_set("maxmemory", int(memory["used_memory"] / 0.9))
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError, match="used memory > 'maxmemory'"):
            bench.records.register_model("c" * 64, "net.onnx", 10)
        with pytest.raises(redis.exceptions.OutOfMemoryError, match="used memory > 'maxmemory'"):
            bench.records.register_profile("e" * 64, "new")
        assert bench.records.accept(bench.request("new")).answer == "records_full"
        assert not bench.records.register_model(MODEL, "net.onnx", 10)
        assert bench.records.register_profile("d" * 64, "known")[0] == "known"
    finally:
        bench.client.config_set("maxmemory", "1gb")


def test_what_waits_can_be_seen_though_the_records_cannot_be_written(bench: Bench, redis_url: str) -> None:
    """GET of a queued job and /metrics were 503 while the broker answered MISCONF."""
    bench.submit()
    client: Any = bench.client
    with unsaved(client, redis_url):
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            bench.records.accept(bench.request("new", "c9"))
        assert bench.records.queue_position("c1") == 1
        assert [queue.waiting for queue in bench.records.queues()] == [0, 1]


@contextmanager
def unsaved(client: Any, redis_url: str) -> Iterator[None]:
    """A Redis whose snapshots fail, so that it refuses to write."""
    taken = Path(redis_url[7:].partition("?")[0]).with_name("taken.rdb")
    taken.mkdir()
    client.config_set("save", "3600 1")
    client.config_set("dbfilename", taken.name)
    try:
        client.bgsave()
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "a snapshot that failed")
        yield
    finally:
        client.config_set("save", "")
        taken.rmdir()


def test_more_jobs_than_may_wait_are_refused_and_sweeps_as_a_whole(client: redis.Redis) -> None:
    bench = Bench(client, Settings(max_waiting_jobs=3))
    first = bench.submit("c0")
    sweep = SweepRequest(job="sweep", model=MODEL, model_name="m", options="{}", compiler_version="0", request_id="")
    points = [(bench.request(f"sweepp{number}", f"c{number}"), None) for number in range(3)]
    refused = bench.records.accept_sweep(sweep, points)
    assert (refused.answer, refused.job) == ("queue_full", "1")
    assert bench.records.accept_sweep(sweep, points[:2]).answer == "accepted"
    assert bench.records.accept(bench.request("more")).answer == "queue_full"
    bench.records.cancel(first)
    assert bench.records.accept(bench.request("more")).answer == "accepted"
