"""API-2: with both URLs set nothing is embedded; the commands of docker-compose.yml as processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import httpx
import psutil
import pytest

from app.jobs.records import live_workers
from app.redis_urls import connect
from app.supervisor.redis_server import RedisServer, Role
from tests.service.harness import Api, conv_chain, kill, kill_all, tree, until

pytestmark = pytest.mark.service


@contextmanager
def running(log: Path, environment: dict[str, str], *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield process
        finally:
            kill_all(tree(process.pid) if process.poll() is None else [])
            process.wait(20)


@contextmanager
def redis_at(directory: Path, role: Role) -> Iterator[str]:
    directory.mkdir()
    with (directory / "lock").open("w") as lock:
        server = RedisServer(role, directory, directory, lock.fileno())
        server.start()
        server.wait_until_ready()
        yield server.url
        server.child.wait(0)


@pytest.mark.slow
def test_api_and_two_workers_over_two_redis_survive_the_kill_of_either_worker(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {
            **os.environ,
            "TESSERA_BROKER_URL": stack.enter_context(redis_at(tmp_path / "b", Role.BROKER)),
            "TESSERA_CACHE_URL": stack.enter_context(redis_at(tmp_path / "c", Role.CACHE)),
            "TESSERA_DATA_DIR": str(tmp_path / "data"),
            "TESSERA_PORT": str(port),
            "TESSERA_LEASE_S": "1.5",
        }
        stack.enter_context(running(tmp_path / "api.log", environment, "app.server"))
        workers = [
            stack.enter_context(running(tmp_path / f"worker{index}.log", environment, "worker")) for index in range(2)
        ]
        api = Api(f"http://127.0.0.1:{port}")

        def workers_seen() -> bool:
            try:
                answer = api.http.get("/readyz")
            except httpx.TransportError:
                return False
            return answer.status_code == 200 and answer.json()["workers"] == 2

        until(workers_seen, "both workers")
        health = [sys.executable, "-m", "worker.health"]
        assert subprocess.run(health, env=environment, check=False).returncode == 0
        model = api.upload(conv_chain(30))
        for worker in (workers[0], None):
            job = api.submit(model, "cluster4x4" if worker else "edge4")
            if worker:
                api.in_state(job, "running")
                kill(worker.pid)  # perhaps the one that works, perhaps not: the job finishes either way
            assert api.finished(job)["state"] == "succeeded"
        assert api.finished(api.submit(model))["cached"]
        kill(workers[1].pid)
        until(lambda: api.http.get("/readyz").status_code == 503, "no worker left")
        problem = api.http.get("/readyz").json()
        assert (problem["code"], problem["actual"]) == ("not_ready", "worker")
        assert subprocess.run(health, env=environment, check=False).returncode == 1
        api.http.close()


@pytest.mark.slow
def test_a_worker_whose_broker_hangs_can_be_stopped(tmp_path: Path) -> None:
    """It took 330 s."""
    with ExitStack() as stack:
        environment = {
            **os.environ,
            "TESSERA_BROKER_URL": stack.enter_context(redis_at(tmp_path / "b", Role.BROKER)),
            "TESSERA_CACHE_URL": stack.enter_context(redis_at(tmp_path / "c", Role.CACHE)),
            "TESSERA_DATA_DIR": str(tmp_path / "data"),
        }
        worker = stack.enter_context(running(tmp_path / "worker.log", environment, "worker"))
        broker = connect(environment["TESSERA_BROKER_URL"])
        until(lambda: live_workers(broker), "the worker")
        server = psutil.Process(cast(dict[str, int], broker.info("server"))["process_id"])
        broker.close()
        server.suspend()
        worker.terminate()
        worker.wait(90)
        server.resume()
