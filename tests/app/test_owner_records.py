"""API-4, API-5: whose a record is, on a real Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis

from app.jobs.records import JobRequest, Records, owned
from app.keys.owners import Limits
from app.settings import Settings
from tests.app.test_records import DONE, IDENTITY, MODEL, Bench


@pytest.fixture
def bench(client: redis.Redis) -> Bench:
    found = Bench(client, Settings(lease_s=30.0))
    for owner in ("ann", "bob"):
        found.records.pin_model(MODEL, owner=owner, size_bytes=10)
        found.records.register_model(MODEL, f"{owner}.onnx", 10, owner=owner)
    return found


def request(bench: Bench, job: str, owner: str, content: str = "c1") -> JobRequest:
    return replace(bench.request(job, content), owner=owner)


def test_a_job_and_its_computation_say_whose_they_are(bench: Bench) -> None:
    bench.records.accept(request(bench, "j1", "ann"))
    bench.records.accept(request(bench, "j2", "bob"))
    assert (bench.job("j1")["owner"], bench.job("j2")["owner"]) == ("ann", "bob")
    assert bench.computation()["owner"] == "ann"  # of the first who asked
    for owner, job in (("ann", "j1"), ("bob", "j2"), ("", None)):
        assert bench.client.zrange(owned(owner, "jobs"), 0, -1) == ([job] if job else [])


def test_a_package_belongs_to_all_who_waited_for_it(bench: Bench) -> None:
    for owner in ("ann", "bob"):
        bench.records.accept(request(bench, f"j-{owner}", owner))
    bench.records.publish(bench.lease(), {**DONE, "package": "k" * 64})
    for owner in ("ann", "bob"):
        assert bench.client.hgetall(owned(owner, f"model:{MODEL}:packages")) == {"b" * 64: "k" * 64}
    assert not bench.client.exists(owned("", f"model:{MODEL}:packages"))


def test_a_model_that_an_owner_does_not_have_is_unknown_to_its_jobs(bench: Bench) -> None:
    assert bench.records.accept(request(bench, "j", "eve")).answer == "unknown_model"
    assert bench.records.delete_model(MODEL, owner="eve") == "unknown"


def test_the_jobs_of_an_owner_that_wait_are_bounded_and_leave_no_trace_when_they_end(bench: Bench) -> None:
    records = bench.records
    for number in range(2):
        assert records.accept(request(bench, f"j{number}", "ann"), limits=Limits(waiting_jobs=2)).answer == "accepted"
    refused = records.accept(request(bench, "j3", "ann", "c2"), limits=Limits(waiting_jobs=2))
    assert (refused.answer, refused.job) == ("too_many_jobs", "2")
    assert records.accept(request(bench, "j4", "bob", "c2"), limits=Limits(waiting_jobs=2)).answer == "accepted"
    records.publish(bench.lease(), DONE)
    assert records.accept(request(bench, "j5", "ann", "c2"), limits=Limits(waiting_jobs=2)).answer == "accepted"
    for job in ("j4", "j5"):
        records.cancel(job)
    assert not list(bench.client.scan_iter("tessera:owner:*:unfinished"))


def test_the_list_of_an_owner_forgets_jobs_that_expired(client: redis.Redis) -> None:
    bench = Bench(client, Settings(keep_finished_s=0.05))
    bench.records.pin_model(MODEL, owner="ann")
    bench.records.register_model(MODEL, "ann.onnx", 10, owner="ann")
    bench.records.accept(request(bench, "j", "ann"))
    bench.records.accept(bench.request("old"))
    bench.records.publish(bench.lease(), DONE)
    assert client.zrange(owned("ann", "jobs"), 0, -1) == ["j"]
    bench.reap_until(lambda: not client.exists(owned("ann", "jobs"), owned("", "jobs"), "tessera:jobs:ending"))


def test_a_deleted_job_leaves_the_list_of_its_owner(bench: Bench) -> None:
    bench.records.accept(request(bench, "j", "ann"))
    bench.records.publish(bench.lease(), DONE)
    assert bench.records.delete_job("j") == "deleted"
    assert not bench.client.exists(owned("ann", "jobs"), "tessera:jobs:ending")


def test_models_and_profiles_of_an_owner_are_so_many_and_no_more(client: redis.Redis) -> None:
    records, few = Records(client, Settings(), IDENTITY), Limits(stored_items=2)
    assert records.pin_model("a" * 64, owner="ann", limits=few)[0] == "pinned"
    records.register_model("a" * 64, "a.onnx", 60, owner="ann")
    assert records.register_profile("c" * 64, "one", owner="ann", limits=few)[0] == "new"
    assert records.pin_model("b" * 64, owner="ann", limits=few) == ("crowded", 3)
    assert records.register_profile("d" * 64, "two", owner="ann", limits=few) == ("crowded", 3)
    assert not client.hexists(owned("ann", "profile-names"), "two")
    assert records.pin_model("a" * 64, owner="ann", limits=few)[0] == "pinned"  # what is there already stays in reach
    assert records.register_profile("c" * 64, "one", owner="ann", limits=few)[0] == "known"
    assert records.register_profile("d" * 64, "two", owner="bob", limits=few)[0] == "new"
    assert records.delete_profile("c" * 64, owner="ann") == "deleted"
    assert records.register_profile("d" * 64, "two", owner="ann", limits=few)[0] == "new"


def test_bytes_that_move_into_place_count_before_they_are_there(client: redis.Redis) -> None:
    records, few = Records(client, Settings(), IDENTITY), Limits(stored_bytes=100)
    assert records.pin_model("a" * 64, owner="ann", size_bytes=60, limits=few)[0] == "pinned"
    assert records.pin_model("b" * 64, owner="ann", size_bytes=60, limits=few) == ("full", 120)
    assert records.pin_model("b" * 64, owner="bob", size_bytes=60, limits=few)[0] == "pinned"
    records.register_model("a" * 64, "a.onnx", 60, owner="ann")
    assert records.pin_model("b" * 64, owner="ann", size_bytes=41, limits=few) == ("full", 101)
    none = Limits(stored_bytes=1)
    assert records.pin_model("a" * 64, owner="ann", size_bytes=60, limits=none)[0] == "pinned"  # it is there already
    assert records.pin_model("b" * 64, owner="ann", size_bytes=40, limits=few)[0] == "pinned"


def test_the_bytes_of_many_models_are_not_added_up_for_each_upload(client: redis.Redis) -> None:
    """It took a broker with 100,000 models of one owner 0.4 s, in which it answered nobody."""
    records = Records(client, Settings(), IDENTITY)
    models = [f"{number:064x}" for number in range(20)]

    def calls() -> int:
        client.config_resetstat()
        assert records.pin_model("f" * 64, owner="ann", size_bytes=1, limits=Limits(stored_bytes=10**6))[0] == "pinned"
        found: Any = client.info("commandstats")
        return int(found.get("cmdstat_hget", {"calls": 0})["calls"])

    for model in models:
        records.register_model(model, "a.onnx", 60, owner="ann")
    assert calls() >= 20  # of a version that did not keep the sum
    assert calls() < 5
    records.register_model("e" * 64, "a.onnx", 60, owner="ann")
    records.register_model("e" * 64, "a.onnx", 60, owner="ann")
    for model in models[:15]:
        records.delete_model(model, owner="ann")
    assert records.stored_bytes("ann") == 6 * 60 + 1


def test_files_that_came_with_a_job_count_as_long_as_it_is_kept(bench: Bench) -> None:
    records, few = bench.records, Limits(stored_bytes=100)  # the model has 10

    def asked(job: str) -> tuple[str, str]:
        accepted = records.accept(replace(request(bench, job, "ann"), attached_bytes=60), limits=few)
        return accepted.answer, accepted.job

    assert asked("j1") == ("accepted", "j1")
    assert asked("j2") == ("too_many_bytes", "130")
    assert records.pin_model("b" * 64, owner="ann", size_bytes=31, limits=few) == ("full", 101)
    records.publish(bench.lease(), DONE)
    records.delete_job("j1")
    assert asked("j2") == ("accepted", "j2")


def test_the_last_owner_takes_a_model_along(bench: Bench) -> None:
    assert [bench.records.delete_model(MODEL, owner=owner) for owner in ("ann", "", "bob")] == [
        "left",
        "left",
        "deleted",
    ]


def test_the_last_owner_waits_for_jobs_of_others(bench: Bench) -> None:
    bench.records.accept(request(bench, "j", "ann"))
    assert bench.records.delete_model(MODEL, owner="ann") == "in_use"
    assert bench.records.delete_model(MODEL, owner="bob") == "left"
    bench.records.cancel("j")
    assert bench.records.delete_model(MODEL, owner="ann") == "left"
