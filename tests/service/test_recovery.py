"""API-5: whatever is killed, accepted jobs finish, within seconds and once."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest
import redis

from app.jobs.records import LEASES_KEY
from app.redis_urls import connect
from app.supervisor.redis_server import Role, socket_path
from app.supervisor.service import EmbeddedService
from tests.service.harness import FINAL, Api, conv_chain, gone, kill, tree, until

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]

LONG = 30  # convolutions: about a second with programs, proofs and values, long enough to be hit


def records(service: EmbeddedService) -> redis.Redis:
    return connect(service.broker_url)


def working_child(client: redis.Redis, attempt: int) -> int | None:
    """The pid of the pool child that works on the only computation, in a given attempt."""
    for key in client.scan_iter("tessera:computation:*"):
        if key.count(":") == 2:
            fields: Any = client.hgetall(key)
            if fields.get("state") == "running" and int(fields["attempts"]) == attempt:
                return int(fields["worker"].split("/")[1])
    return None


def counts(client: redis.Redis) -> dict[str, int]:
    fields: Any = client.hgetall("tessera:counts")
    return {name: int(value) for name, value in fields.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.full)])
def test_each_job_whose_worker_is_killed_finishes_on_another_attempt(start: Start, kills: int) -> None:
    service, api = start()
    client = records(service)
    model = api.upload(conv_chain(LONG))
    dice = random.Random(20)
    recoveries: list[float] = []
    tries = 0
    while len(recoveries) < kills:
        tries += 1
        # Distinct work each time: a rule's limit is part of the content key.
        job = api.submit(model, rules={"FUSE-19": {"limit": 1_000_000 + tries}})
        child = until(lambda: working_child(client, 1), "the worker to begin")
        moment = time.monotonic() + dice.uniform(0, 0.4)
        until(lambda moment=moment: time.monotonic() > moment, "the moment")  # type: ignore[misc]
        killed_at = time.monotonic()
        # Every fifth time the whole worker: then nobody can tell, and the lease has to run out.
        kill(service.pids["worker"] if tries % 5 == 0 else child)
        until(lambda job=job: second_attempt_or_final(api, job), "another attempt")  # type: ignore[misc]
        taken_up_s = time.monotonic() - killed_at
        found = api.finished(job)
        assert found["state"] == "succeeded", (tries, found)
        if found["attempts"] == 2:
            recoveries.append(taken_up_s)
        else:  # it was faster than the kill: that one does not count
            assert (found["attempts"], tries < 2 * kills) == (1, True), (tries, found)
    totals = counts(client)
    assert (totals["publishes"], totals["jobs_finished:compilation:succeeded"]) == (tries, tries)
    assert (totals["attempts_started"], totals["attempts_lost"]) == (tries + kills, kills)
    median = statistics.median(recoveries)
    print(f"from kill to the next attempt: median {median:.2f} s, most {max(recoveries):.2f} s")
    client.close()


def second_attempt_or_final(api: Api, job: str) -> bool:
    found = api.job(job)
    return (found["state"] == "running" and found["attempts"] == 2) or found["state"] in FINAL


@pytest.mark.slow
def test_a_job_whose_worker_is_killed_at_each_attempt_fails_with_worker_lost(start: Start) -> None:
    service, api = start()
    client = records(service)
    job = api.submit(api.upload(conv_chain(LONG)))
    for attempt in (1, 2, 3):
        kill(until(lambda attempt=attempt: working_child(client, attempt), f"attempt {attempt}"))  # type: ignore[misc]
    found = api.finished(job)
    assert (found["state"], found["attempts"]) == ("failed", 3)
    assert (found["problem"]["code"], found["problem"]["limit"]) == ("worker_lost", 3)
    # The same again is tried afresh and succeeds.
    again = api.finished(api.submit(found["model"]["digest"]))
    assert (again["state"], again["attempts"], again["cached"]) == ("succeeded", 1, False)
    client.close()


@pytest.mark.slow
def test_a_hung_worker_loses_its_lease_and_its_late_publish_is_refused(start: Start) -> None:
    service, api = start(worker_concurrency=2)
    client = records(service)
    job = api.submit(api.upload(conv_chain(LONG)))
    process = psutil.Process(until(lambda: working_child(client, 1), "the worker to begin"))
    process.suspend()  # heartbeat and all
    assert api.finished(job)["attempts"] == 2
    with suppress(psutil.NoSuchProcess):  # the main process may have ended it already, as it should
        process.resume()
    until(lambda: counts(client).get("publishes_refused", 0) or gone([process]), "the late publish")
    assert counts(client)["publishes"] == 1
    assert api.job(job)["state"] == "succeeded"
    client.close()


@pytest.mark.slow
def test_a_hung_child_is_ended_and_its_slot_taken_up(start: Start) -> None:
    service, api = start(worker_concurrency=1)
    client = records(service)
    job = api.submit(api.upload(conv_chain(LONG, channels=6)))
    process = psutil.Process(until(lambda: working_child(client, 1), "the worker to begin"))
    process.suspend()
    found = api.finished(job)
    assert (found["state"], found["attempts"]) == ("succeeded", 2)
    assert gone([process])
    client.close()


@pytest.mark.slow
def test_killing_any_part_of_the_service_orphans_nothing_and_loses_no_job(start: Start) -> None:
    service, api = start()
    model = api.upload(conv_chain(LONG))
    for index, part in enumerate(("api", "redis", "worker")):
        job = api.submit(model, rules={"FUSE-19": {"limit": 2_000_000 + index}})
        api.in_state(job, "running")
        before = tree(service.pids[part])
        kill(service.pids[part])
        until(lambda before=before: gone(before), f"{part} and its children to end")  # type: ignore[misc]
        found = until(lambda job=job: finished_or_none(api, job), f"the job after {part} was killed")  # type: ignore[misc]
        assert found["state"] == "succeeded", (part, found)
        until(lambda: api.http.get("/readyz").status_code == 200, "ready again")


@pytest.mark.slow
def test_a_worker_that_cannot_tell_redis_of_finished_work_takes_up_more(start: Start) -> None:
    """Redis is away while acknowledgements go out, of as many messages as a worker may hold."""
    service, api = start(worker_concurrency=1)
    client = records(service)
    socket = socket_path(service.data_dir / Role.BROKER.value)
    aside = socket.with_name("aside.sock")
    log = service.data_dir / "logs" / "worker.log"
    model = api.upload(conv_chain(LONG))
    job = api.submit(model)
    api.in_state(job, "running")
    main = psutil.Process(service.pids["worker"])
    main.suspend()  # the child works on, but nobody acknowledges
    assert api.finished(job)["state"] == "succeeded"
    client.ping()
    socket.rename(aside)  # no new connections, and all but this one end
    client.client_kill_filter(_type="normal", skipme=True)
    main.resume()
    until(lambda: "Couldn't ack" in log.read_text(), "an acknowledgement to fail")
    aside.rename(socket)
    again = until(lambda: submitted(api, model), "the API to reach Redis")
    assert api.finished(again)["state"] == "succeeded"
    assert main.is_running()  # it went on by itself
    client.close()


def submitted(api: Api, model: str) -> str | None:
    """Other work on the model, unless the API cannot reach Redis at the moment."""
    answer = api.http.post("/v1/compilations", json={"model": model, "profile": "edge4"})
    return str(answer.json()["id"]) if answer.status_code == 202 else None


@pytest.mark.slow
def test_a_pool_child_dies_with_the_main_process_of_celery_whatever_it_does(start: Start) -> None:
    service, api = start()
    client = records(service)
    api.submit(api.upload(conv_chain(LONG)))
    child = psutil.Process(until(lambda: working_child(client, 1), "the worker to begin"))
    child.suspend()  # it cannot end by itself
    kill(service.pids["worker"])
    until(lambda: gone([child]), "the suspended child to be killed", 10)
    client.close()


def finished_or_none(api: Api, job: str) -> dict[str, Any] | None:
    try:
        answer = api.http.get(f"/v1/jobs/{job}")
    except httpx.TransportError:  # a connection to the process that was killed
        return None
    if answer.status_code == 503:
        assert answer.json()["code"] == "service_unavailable"
        return None
    found = dict(answer.json())
    return found if found["state"] in FINAL else None


@pytest.mark.slow
def test_a_cancelled_job_stops_at_a_phase_and_frees_the_worker(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    client = records(service)
    model = api.upload(conv_chain(LONG))
    running, queued = api.submit(model), api.submit(model, "edge4")
    api.in_state(running, "running")
    assert api.job(queued)["queue_position"] == 1
    assert api.http.post(f"/v1/jobs/{queued}/cancel").json()["state"] == "cancelled"
    assert api.http.post(f"/v1/jobs/{running}/cancel").json()["state"] in ("cancelling", "cancelled")
    assert api.finished(running)["state"] == "cancelled"
    until(lambda: client.zcard(LEASES_KEY) == 0, "the worker to stop")
    assert api.http.post(f"/v1/jobs/{running}/cancel").json()["state"] == "cancelled"
    assert api.http.get(f"/v1/jobs/{running}/plan").json()["code"] == "no_result"
    # The same content again is real work, and done.
    again = api.finished(api.submit(model))
    assert (again["state"], again["cached"]) == ("succeeded", False)
    client.close()


@pytest.mark.slow
def test_identical_jobs_share_one_computation(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    client = records(service)
    before = counts(client)
    model = api.upload(conv_chain(LONG))
    jobs = [api.submit(model) for _ in range(5)]
    assert {api.finished(job)["state"] for job in jobs} == {"succeeded"}
    after = counts(client)
    assert [after[name] - before.get(name, 0) for name in ("attempts_started", "publishes")] == [1, 1]
    plans = {api.http.get(f"/v1/jobs/{job}/plan").content for job in jobs}
    assert len(plans) == 1
    client.close()


@pytest.mark.slow
def test_a_delivery_that_comes_twice_is_worked_on_once(start: Start) -> None:
    from app.jobs.identity import Identity
    from app.jobs.queue import COMPUTE_TASK, create_celery

    service, api = start(worker_concurrency=2)
    client = records(service)
    url = service.broker_url
    short = Identity.present(service.settings).queues()[0]
    celery = create_celery(service.settings.model_copy(update={"broker_url": url, "cache_url": url}), [short])
    job = api.submit(api.upload(conv_chain(LONG)))
    api.in_state(job, "running")
    fields: Any = client.hgetall(f"tessera:job:{job}")
    content = fields["content"]
    fence = int(str(client.hget(f"tessera:computation:{content}", "fence")))
    for _ in range(3):
        celery.send_task(COMPUTE_TASK, args=(content, fence), queue=short)
    assert api.finished(job)["attempts"] == 1
    until(lambda: client.llen(short) == 0, "the copies to be taken up")
    assert (counts(client)["attempts_started"], counts(client)["publishes"]) == (1, 1)
    celery.close()
    client.close()


@pytest.mark.slow
def test_a_time_limit_ends_the_job_and_keeps_the_worker_usable(start: Start) -> None:
    _, api = start()
    model = api.upload(conv_chain(LONG))
    found = api.finished(api.submit(model, time_limit_s=0.05))
    assert (found["state"], found["problem"]["code"], found["problem"]["limit"]) == (
        "failed",
        "time_limit",
        0.05,
    )
    assert found["attempts"] == 1
    # The limit is no part of the content key, and what it did to one job it does not do to the next.
    again = api.finished(api.submit(model))
    assert (again["state"], again["cached"]) == ("succeeded", False)


@pytest.mark.slow
def test_a_memory_limit_ends_the_job_and_does_not_crash_in_a_loop(start: Start) -> None:
    service, api = start()
    client = records(service)
    model = api.upload(conv_chain(LONG))
    found = api.finished(api.submit(model, memory_limit_bytes=1000))
    assert (found["state"], found["problem"]["code"]) == ("failed", "memory_limit")
    assert (found["attempts"], found["problem"]["limit"]) == (1, 1000)
    assert found["problem"]["actual"] > 1000
    until(lambda: client.zcard(LEASES_KEY) == 0, "the computation to end")
    assert counts(client).get("attempts_lost", 0) == 0
    assert api.finished(api.submit(model))["state"] == "succeeded"
    client.close()
