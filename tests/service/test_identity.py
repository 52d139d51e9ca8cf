"""API-5: versions and stores mixed, and workers restarted again and again: jobs wait or go on, and none is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from app.redis_urls import connect
from app.supervisor.redis_server import Role
from app.supervisor.service import EmbeddedService
from compiler.version import COMPILER_VERSION
from tests.service.harness import Api, conv_chain, gone, kill_all, tree, until
from tests.service.test_recovery import counts, working_child
from tests.service.test_separate import redis_at, running

pytestmark = pytest.mark.service
LATER = "999.1.0"


@dataclass
class Site:
    """Processes that share two Redis servers: API and workers of any version, with any data directory."""

    stack: ExitStack
    folder: Path
    environment: dict[str, str]
    made: int = 0

    def start(self, *words: str, version: str = COMPILER_VERSION, data: str = "data") -> ExitStack:
        """Starts a process of a version, which a `sitecustomize` of the test gives it; close the answer to end it."""
        patch = self.folder / f"version-{version}"
        patch.mkdir(exist_ok=True)
        (patch / "sitecustomize.py").write_text(f"import compiler.version as v\nv.COMPILER_VERSION = {version!r}\n")
        environment = {
            **self.environment,
            "PYTHONPATH": os.pathsep.join((str(patch), str(Path(__file__).parents[2]))),
            "TESSERA_DATA_DIR": str(self.folder / data),
        }
        self.made += 1
        one = self.stack.enter_context(ExitStack())
        one.enter_context(running(self.folder / f"{self.made}-{words[0]}.log", environment, *words))
        return one

    def api(self, **changes: str) -> tuple[Api, ExitStack]:
        """An API process that answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.environment["TESSERA_PORT"] = str(free.getsockname()[1])
        one = self.start("app.server", **changes)
        api = Api(f"http://127.0.0.1:{self.environment['TESSERA_PORT']}")
        one.callback(api.http.close)
        until(lambda: answers(api, "/livez") == 200, "the API")
        return api, one


def answers(api: Api, path: str) -> int | None:
    try:
        return api.http.get(path).status_code
    except httpx.TransportError:
        return None


def says(api: Api, words: str) -> str | None:
    """The message of `/readyz` once it is 503 and contains the words."""
    answer = api.http.get("/readyz")
    message = str(answer.json()["detail"])
    return message if answer.status_code == 503 and words in message else None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        environment = {
            **os.environ,
            "TESSERA_BROKER_URL": stack.enter_context(redis_at(tmp_path / "b", Role.BROKER)),
            "TESSERA_CACHE_URL": stack.enter_context(redis_at(tmp_path / "c", Role.CACHE)),
            "TESSERA_LEASE_S": "1.5",
            "TESSERA_FIRST_RESEND_S": "0.5",
            "TESSERA_REKEY_AFTER_S": "2",
        }
        yield Site(stack, tmp_path, environment)


@pytest.mark.slow
def test_a_job_of_a_version_that_is_replaced_succeeds_under_the_next_one_which_it_names(site: Site) -> None:
    before, old_api = site.api()
    model = before.upload(conv_chain(3))
    job = before.submit(model)
    old_worker = site.start("worker", version=LATER)  # of the next version: upgraded first
    until(lambda: says(before, f"of version {LATER}, and this is {COMPILER_VERSION}"), "the versions to be named")
    assert before.job(job)["state"] == "queued"
    assert f'tessera_workers{{store="same",version="{LATER}"}} 1.0' in before.http.get("/metrics").text
    waits = f'tessera_queue_depth{{queue="short",store="same",version="{COMPILER_VERSION}"}} 1.0'
    assert waits in before.http.get("/metrics").text
    old_api.close()
    old_worker.close()
    after, _ = site.api(version=LATER)
    assert after.job(job)["state"] == "queued"
    site.start("worker", version=LATER)
    found = after.finished(job)
    assert (found["state"], found["attempts"]) == ("succeeded", 1)
    assert found["versions"] == {"compiler": LATER, "requested": COMPILER_VERSION}
    assert after.http.get(f"/v1/jobs/{job}/plan").json()["compiler_version"] == LATER
    again = after.finished(after.submit(model))
    assert (again["cached"], again["versions"]) == (True, {"compiler": LATER})
    cache = connect(site.environment["TESSERA_CACHE_URL"])
    broker: Any = connect(site.environment["TESSERA_BROKER_URL"])
    known = cache.keys("tessera:result:*")
    assert known == [f"tessera:result:{broker.hget(f'tessera:job:{job}', 'content')}"]
    states = [json.loads(fields["data"])["state"] for _, fields in broker.xrange(f"tessera:job:{job}:events")]
    assert states[:2] == ["queued", "queued"]
    assert (states.count("succeeded"), states[-1]) == (1, "succeeded")


@pytest.mark.slow
def test_with_two_versions_alive_each_job_is_made_by_the_version_that_it_names(site: Site) -> None:
    old, _ = site.api()
    new, _ = site.api(version=LATER)
    site.start("worker")
    site.start("worker", version=LATER)
    for api in (old, new):
        until(lambda api=api: answers(api, "/readyz") == 200, "ready")  # type: ignore[misc]
    model = old.upload(conv_chain(3))
    jobs = {api.submit(model, rules={"FUSE-19": {"limit": 1 + n}}): api for n in range(4) for api in (old, new)}
    for job, api in jobs.items():
        found = api.finished(job)
        version = COMPILER_VERSION if api is old else LATER
        assert found["versions"] == {"compiler": version}
        assert api.http.get(f"/v1/jobs/{job}/plan").json()["compiler_version"] == version


@pytest.mark.slow
def test_a_worker_with_another_data_directory_takes_no_job_and_readiness_names_it(site: Site) -> None:
    api, _ = site.api()
    job = api.submit(api.upload(conv_chain(3)))
    stray = site.start("worker", data="elsewhere")
    until(lambda: says(api, "of another store: check TESSERA_DATA_DIR"), "the store to be named")
    assert 'tessera_workers{store="other",' in api.http.get("/metrics").text
    assert api.job(job)["state"] == "queued"
    site.start("worker")
    until(lambda: answers(api, "/readyz") == 200, "ready")
    found = api.finished(job)
    assert (found["state"], found["attempts"]) == ("succeeded", 1)
    assert api.http.get(f"/v1/jobs/{job}/plan").status_code == 200
    stray.close()


def working_tree(service: EmbeddedService, client: Any) -> list[psutil.Process]:
    """The worker's processes once one of them works on its first attempt; else empty."""
    child = working_child(client, 1)
    try:
        processes = tree(service.pids["worker"])
    except psutil.NoSuchProcess:
        return []
    return processes if child in [process.pid for process in processes] else []


@pytest.mark.slow
def test_restarts_that_were_asked_for_end_no_job_and_hold_none_up(
    start: Callable[..., tuple[EmbeddedService, Api]],
) -> None:
    service, api = start()
    client: Any = connect(service.broker_url)
    model = api.upload(conv_chain(60))
    long, following = api.submit(model), api.submit(model, "edge4", verify="none")
    for number in range(4):
        processes = until(lambda: working_tree(service, client), f"the work before restart {number}")
        os.kill(processes[0].pid, signal.SIGTERM)
        until(lambda number=number: len(client.keys("tessera:stopping:*")) > number, "it to hear")  # type: ignore[misc]
        kill_all(processes)
        until(lambda processes=processes: gone(processes), "its end")  # type: ignore[misc]
    found = api.finished(long)
    assert (found["state"], found["attempts"]) == ("succeeded", 1)
    assert api.finished(following)["state"] == "succeeded"
    totals = counts(client)
    assert (totals["attempts_given_back"], totals.get("attempts_lost", 0)) == (4, 0)
    client.close()
