"""SIM-5, API-5: the records of sweeps, on a real Redis: a sweep's state follows from its points', whatever happens."""

from __future__ import annotations

import itertools
import random
from typing import cast

import pytest
import redis

from app.jobs.records import FINAL_STATES, JobRequest, Lease, SweepRequest, events_key, point_id
from app.settings import Settings
from tests.app.test_record_walk import check_agreement
from tests.app.test_records import DONE, MODEL, SHORT, Bench

FAILED = {"state": "failed", "problem": '{"code": "invalid_profile"}'}
NUMBERS = itertools.count()


def request(sweep: str, contents: list[str]) -> tuple[SweepRequest, list[JobRequest]]:
    asked = SweepRequest(
        job=sweep, model=MODEL, model_name="net.onnx", options="{}", compiler_version="0", request_id=""
    )
    points = [
        JobRequest(
            job=point_id(sweep, number),
            content=content,
            model=MODEL,
            model_name="net.onnx",
            profile="b" * 64,
            profile_name="p",
            options="{}",
            queue="short",
            time_limit_s=60,
            memory_limit_bytes=1000,
            compiler_version="0",
            request_id="",
        )
        for number, content in enumerate(contents)
    ]
    return asked, points


def swept(bench: Bench, contents: list[str], known: dict[int, dict[str, str]] | None = None) -> tuple[str, list[str]]:
    """Accept a sweep whose points have these contents; its id and those of its points."""
    outcomes = known or {}
    asked, points = request(f"sweep{next(NUMBERS)}", contents)
    accepted = bench.records.accept_sweep(asked, [(point, outcomes.get(i)) for i, point in enumerate(points)])
    assert accepted.answer in ("accepted", "finished")
    return accepted.job, [point.job for point in points]


@pytest.fixture
def bench(client: redis.Redis) -> Bench:
    return Bench(client, Settings(lease_s=30.0))


def states_told(bench: Bench, job: str) -> list[str]:
    entries = cast(list[tuple[str, dict[str, str]]], bench.client.xrange(events_key(job)))
    return [fields["state"] for _, fields in entries]


def test_a_sweep_and_all_of_its_points_are_accepted_at_once(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2", "c1"])
    assert [bench.state(job) for job in (sweep, *points)] == ["queued"] * 4
    assert {delivery.content for delivery in bench.records.claim()} == {"c1", "c2"}
    assert (bench.job(sweep)["total"], bench.job(sweep)["step"]) == ("3", "0")


def test_for_an_unknown_model_nothing_of_a_sweep_is_left_behind(bench: Bench) -> None:
    asked, points = request("none", ["c1"])
    bench.records.delete_model(MODEL)
    assert bench.records.accept_sweep(asked, [(point, None) for point in points]).answer == "unknown_model"
    assert bench.records.job("none") is None
    assert bench.records.claim() == []


def test_accepting_the_same_sweep_twice_after_a_lost_answer_makes_one(bench: Bench) -> None:
    asked, points = request("once", ["c1", "c2"])
    for _ in range(2):
        bench.records.accept_sweep(asked, [(point, None) for point in points])
    assert bench.client.zcard("tessera:computation:c1:waiting") == 1
    assert bench.job("once")["total"] == "2"


def test_a_sweep_runs_from_its_first_point_to_its_last(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2", "c3"])
    bench.records.publish(bench.lease("c2"), DONE)
    assert (bench.state(sweep), bench.job(sweep)["step"]) == ("running", "1")
    bench.records.publish(bench.lease("c1"), FAILED)
    bench.records.publish(bench.lease("c3"), DONE)
    assert (bench.state(sweep), bench.job(sweep)["step"]) == ("succeeded", "3")
    assert [bench.state(point) for point in points] == ["failed", "succeeded", "succeeded"]
    assert states_told(bench, sweep) == ["queued", "running", "running", "running", "succeeded"]


def test_a_point_whose_worker_is_lost_does_not_set_its_sweep_back(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2"])
    lease = bench.lease("c1")
    bench.records.lost("c1", lease.fence)
    assert (bench.state(points[0]), bench.state(sweep)) == ("queued", "running")


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ({0: DONE, 1: DONE}, "succeeded"),
        ({0: DONE, 1: FAILED}, "succeeded"),
        ({0: FAILED, 1: FAILED}, "failed"),
    ],
)
def test_a_sweep_whose_points_are_all_known_is_final_at_once(
    bench: Bench, known: dict[int, dict[str, str]], state: str
) -> None:
    sweep, _ = swept(bench, ["c1", "c2"], known)
    assert bench.state(sweep) == state
    assert ("no_point_succeeded" in bench.job(sweep).get("problem", "")) == (state == "failed")
    assert bench.records.claim() == []


def test_cancelling_keeps_what_is_finished_and_waits_for_what_runs(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2", "c3"])
    bench.records.publish(bench.lease("c1"), DONE)
    running = bench.lease("c2")
    assert bench.records.cancel(sweep) == "cancelling"
    assert [bench.state(point) for point in points] == ["succeeded", "cancelling", "cancelled"]
    assert bench.records.cancel(sweep) == "cancelling"
    assert bench.records.stopped(running) == "stopped"
    assert [bench.state(job) for job in (sweep, points[1])] == ["cancelled"] * 2
    assert bench.job(points[0])["plan"] == DONE["plan"]
    assert bench.records.cancel(sweep) == "cancelled"


def test_a_sweep_of_which_nothing_runs_is_cancelled_at_once(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2"])
    assert bench.records.cancel(sweep) == "cancelled"
    assert [bench.state(point) for point in points] == ["cancelled"] * 2
    assert bench.client.keys("tessera:computation:*") == []


def test_a_sweep_whose_points_were_cancelled_one_by_one_is_cancelled(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2"])
    for point in points:
        bench.records.cancel(point)
    assert bench.state(sweep) == "cancelled"


def test_cancelling_a_sweep_leaves_work_that_others_wait_for(bench: Bench) -> None:
    job = bench.submit("c1")
    sweep, _ = swept(bench, ["c1", "c2"])
    bench.lease("c1")
    assert bench.records.cancel(sweep) == "cancelled"
    assert (bench.state(job), bench.computation("c1")["state"]) == ("running", "running")


def test_points_expire_with_their_sweep_and_not_before(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2"])
    bench.records.publish(bench.lease("c1"), DONE)
    keys = [f"tessera:job:{points[0]}", events_key(points[0])]
    assert [bench.client.pttl(key) for key in keys] == [-1, -1]
    bench.records.publish(bench.lease("c2"), DONE)
    for job in (sweep, *points):
        assert bench.client.pttl(f"tessera:job:{job}") > 0
        assert bench.client.pttl(events_key(job)) > 0


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_in_whatever_order_a_sweep_agrees_with_its_points(client: redis.Redis, seed: int) -> None:
    bench = Bench(client, Settings(lease_s=0.004, first_resend_s=0.001, last_resend_s=0.002, max_attempts=2))
    dice = random.Random(seed)
    sweeps: dict[str, list[str]] = {}
    leases: list[Lease] = []
    acts = ("sweep", "submit", "claim", "claim", "claim", "publish", "publish", "stopped", "cancel", "point", "reap")
    for _ in range(200):
        act = dice.choice(acts)
        if act == "sweep":
            contents = [f"c{dice.randrange(5)}" for _ in range(dice.randrange(1, 5))]
            known = {number: dice.choice((DONE, FAILED)) for number in range(len(contents)) if dice.random() < 0.2}
            sweep, points = swept(bench, contents, known)
            sweeps[sweep] = points
        elif act == "submit":
            bench.submit(f"c{dice.randrange(5)}")
        elif act == "claim":
            taken = [
                bench.records.lease(sent.content, sent.fence, str(dice.random())) for sent in bench.records.claim()
            ]
            leases += [lease for lease in taken if lease is not None]
        elif act == "reap":
            bench.records.reap()
            if dice.random() < 0.1:
                bench.records.restart()
        elif act in ("cancel", "point") and sweeps:
            sweep = dice.choice(list(sweeps))
            bench.records.cancel(sweep if act == "cancel" else dice.choice(sweeps[sweep]))
        elif leases and act == "publish":
            bench.records.publish(dice.choice(leases), dice.choice((DONE, FAILED)))
        elif leases and act == "stopped":
            bench.records.stopped(dice.choice(leases))
        check_agreement(bench.records, {point: "" for points in sweeps.values() for point in points}, {})
        for sweep, points in sweeps.items():
            check_sweep(bench, sweep, points)
    assert {bench.state(sweep) for sweep in sweeps} >= {"succeeded", "cancelled"}


def check_sweep(bench: Bench, sweep: str, points: list[str]) -> None:
    """What decision 0010 says of a sweep and its points."""
    states = [bench.state(point) for point in points]
    final = [state for state in states if state in FINAL_STATES]
    own = bench.job(sweep)
    assert (int(own["step"]), int(own["total"])) == (len(final), len(points))
    assert (own["state"] in FINAL_STATES) == (len(final) == len(points))
    if own["state"] == "queued":
        assert set(states) <= {"queued", "cancelled"}
    if own["state"] == "cancelling":
        assert "cancelling" in states
        assert set(states) & {"queued", "running"} == set()
    if own["state"] == "succeeded":
        assert "succeeded" in states
    if own["state"] == "failed":
        assert "succeeded" not in states
    if own["state"] in FINAL_STATES:
        assert [state in FINAL_STATES for state in states_told(bench, sweep)].count(True) == 1
    ttl = [bench.client.pttl(f"tessera:job:{job}") for job in (sweep, *points)]
    assert [left > 0 for left in ttl] == [own["state"] in FINAL_STATES] * len(ttl)


def test_a_thousand_points_are_accepted_and_cancelled_in_one_go(bench: Bench) -> None:
    sweep, points = swept(bench, [f"c{number}" for number in range(1024)])
    assert bench.client.zcard(f"tessera:queue:{SHORT}") == 1024
    assert bench.records.cancel(sweep) == "cancelled"
    assert {bench.state(point) for point in points} == {"cancelled"}


def test_a_sweep_and_its_points_are_read_together_in_order(bench: Bench) -> None:
    sweep, points = swept(bench, ["c1", "c2"], {1: FAILED})
    found = bench.records.sweep(sweep)
    assert found is not None
    own, rows = found
    assert (own["kind"], [row["state"] for row in rows]) == ("sweep", ["queued", "failed"])
    bench.client.delete(f"tessera:job:{points[1]}")
    assert bench.records.sweep(sweep) is None
    assert bench.records.sweep("nonesuch") is None
