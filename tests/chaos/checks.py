"""What `make chaos` checks one by one: accepted jobs on a slow and on a full disk whose broker is killed (API-2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from tests.chaos.faults import Control, control, preloadable
from tests.chaos.topology import Embedded
from tests.service.harness import Api, conv_chain, until


@dataclass
class Scene:
    """A service with nothing to work, so that what it accepts stays as it is."""

    topology: Embedded
    disk: Control
    api: Api
    model: str

    def accept(self, number: int) -> str | None:
        """The id of a job that was accepted; None if it was not."""
        body = {"model": self.model, "profile": "edge4", "options": {"rules": {"FUSE-19": {"limit": 1000 + number}}}}
        with suppress(httpx.TransportError):
            answer = self.api.http.post("/v1/compilations", json=body)
            assert answer.status_code in (202, 503, 507), answer.text
            return str(answer.json()["id"]) if answer.status_code == 202 else None
        return None

    def kill_broker(self) -> None:
        """Kills it, unless it ended by itself, as it does on a full disk."""
        for process in self.topology.processes("broker"):
            process.kill()
            process.wait(10)

    def known(self, jobs: list[str]) -> None:
        """Fails unless every job is known once the broker is there again."""

        def status(job: str) -> int:
            with suppress(httpx.TransportError):
                return int(self.api.http.get(f"/v1/jobs/{job}").status_code)
            return 0

        found = [until(lambda job=job: code if (code := status(job)) in (200, 404) else None, job) for job in jobs]  # type: ignore[misc]
        assert found.count(404) == 0, f"{found.count(404)} of {len(jobs)} accepted jobs are lost"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    library, shared = preloadable(tmp_path), tmp_path / "control"
    assert library is not None
    with control(shared) as disk:
        topology = Embedded(tmp_path, preload={"LD_PRELOAD": str(library), "CHAOS_CONTROL": str(shared)})
        api = Api(topology.url)

        def ready() -> bool:
            with suppress(httpx.TransportError):
                return api.http.get("/readyz").status_code == 200
            return False

        until(ready, "the service")
        model = api.upload(conv_chain(1))
        for process in (*topology.processes("worker"), *topology.processes("child")):
            with suppress(psutil.Error):
                process.suspend()
        yield Scene(topology, disk, api, model)
        api.http.close()
        topology.stop()


def _unwritten(broker: redis.Redis) -> bool:
    """Whether the broker has answered what it did not write yet, because a sync is under way."""
    persistence: Any = broker.info("persistence")
    return bool(persistence["aof_pending_bio_fsync"] and persistence["aof_buffer_length"] > 2000)


def test_jobs_accepted_on_a_slow_disk_are_known_after_the_broker_was_killed(scene: Scene) -> None:
    """51 of 61 were lost: the append-only file waited for its sync, and the answer did not."""
    accepted = [job for number in range(3) if (job := scene.accept(number))]
    assert len(accepted) == 3
    scene.disk.set(sync_ms=1500)  # longer than the API waits: it accepts what it knows to be on disk, perhaps nothing
    broker = redis.Redis.from_url(scene.topology.broker_url)
    ends_at, number = time.monotonic() + 6, 3
    while time.monotonic() < ends_at and not _unwritten(broker):
        number += 1
        if job := scene.accept(number):
            accepted.append(job)
    broker.close()
    scene.kill_broker()
    scene.disk.set(sync_ms=0)
    scene.known(accepted)


def test_jobs_accepted_before_the_disk_was_full_are_known_after_the_broker_was_killed(scene: Scene) -> None:
    """5 of 5 were lost."""
    accepted = [job for number in range(5) if (job := scene.accept(number))]
    scene.disk.set(disk_full=True)
    accepted += [job for number in range(5, 10) if (job := scene.accept(number))]
    scene.kill_broker()
    until(lambda: scene.accept(99) is None, "a refusal")
    scene.disk.set(disk_full=False)
    assert len(accepted) >= 5
    scene.known(accepted)
    until(lambda: scene.accept(100), "room again")
