"""API-8: what the service lacks (disk, memory for records, time before a stop) is named, not called our fault."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from app.supervisor.service import EmbeddedService
from tests.profiles import profile_values
from tests.service.harness import Api, conv_chain, kill, until

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]
_DISK_BYTES = 2 << 20


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of 2 MiB at a folder, if one may be mounted here."""
    folder.mkdir(parents=True)
    size = f"size={_DISK_BYTES}"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def full(service: EmbeddedService, blobs: Path, mounted: bool) -> Iterator[None]:
    """No space for blobs: the disk is filled, or the process may write no file any more."""
    ballast, pid = blobs / "ballast", service.pids["api"]
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    if mounted:
        with ballast.open("wb", buffering=0) as file:
            while file.write(bytes(os.statvfs(blobs).f_bavail * 4096)):
                pass
    else:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    yield
    ballast.unlink(missing_ok=True)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def named(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Retry-After"]
    assert answer.json()["hint"]


def new_profile(api: Api, name: str) -> httpx.Response:
    return api.http.post("/v1/profiles", json=profile_values("edge4") | {"name": name})


def upload(api: Api, data: bytes) -> httpx.Response:
    return api.http.post("/v1/models", content=data, headers={"Content-Type": "application/octet-stream"})


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("may_mount", [True, False])
def test_a_full_disk_is_named(start: Start, tmp_path: Path, may_mount: bool) -> None:
    """It was answered 500, and /readyz said ready. Without the right to mount, both cases limit the size of files."""
    blobs = tmp_path / "data" / "blobs"
    with small_disk(blobs if may_mount else tmp_path / "unused") as mounted:
        service, api = start(max_upload_bytes=8 << 20)
        with full(service, blobs, mounted and may_mount):
            named(upload(api, conv_chain(20)), 507, "storage_full")
            named(new_profile(api, "other"), 507, "storage_full")
            ready = api.http.get("/readyz")
            assert (ready.status_code, ready.json()["actual"]) == (503, "store, models")
        assert new_profile(api, "other").status_code == 201
        assert upload(api, conv_chain(20)).status_code == 201
        assert api.http.get("/readyz").status_code == 200
        if mounted and may_mount:
            named(upload(api, os.urandom(2 * _DISK_BYTES)), 507, "storage_full")
            assert not [*blobs.glob("*/tmp/*")]


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("storage", ["directory", "s3"])
def test_a_broker_that_ended_on_a_full_disk_comes_back_with_space(
    request: pytest.FixtureRequest, start: Start, tmp_path: Path, storage: str
) -> None:
    """With blobs in a bucket the wrong folder was looked at: the broker restarted in a loop, and answers were 503."""
    changes = (
        {} if storage == "directory" else request.getfixturevalue("s3").settings(request.getfixturevalue("prefix"))
    )
    records = tmp_path / "data" / "redis"
    with small_disk(records) as mounted:
        service, api = start(**changes)
        if not mounted:
            pytest.skip("no disk may be mounted here")
        with full(service, records, mounted):
            kill(service.pids["redis"])  # it ends by itself, too, at its next write
            until(lambda: api.http.get("/v1/jobs").status_code == 507, "an answer of the full disk")
            log = service.log_dir / "redis.log"
            starts = log.read_bytes().count(b"oO0OoO0OoO0Oo Redis is starting")
            soon = time.monotonic() + 1.5
            until(lambda: time.monotonic() > soon, "the time of some restarts")
            assert log.read_bytes().count(b"oO0OoO0OoO0Oo Redis is starting") == starts
            named(api.http.get("/v1/jobs"), 507, "storage_full")
        until(lambda: api.http.get("/readyz").status_code == 200, "another broker")
        assert new_profile(api, "other").status_code == 201
        assert (service.data_dir / "blobs").exists() is (storage == "directory")


def test_full_records_are_named(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    model = api.upload(conv_chain(1))
    client: Any = redis.Redis.from_url(service.broker_url)
    maxmemory = client.config_get("maxmemory")["maxmemory"]
    client.config_set("maxmemory", 1)
    named(new_profile(api, "full"), 503, "records_full")
    named(api.http.post("/v1/compilations", json={"model": model, "profile": "edge4"}), 503, "records_full")
    client.config_set("maxmemory", maxmemory)
    assert new_profile(api, "full").status_code == 201
    client.close()


def test_long_options_take_no_room_from_records_and_a_full_broker_forgets_nothing(
    spare: tuple[EmbeddedService, Api],
) -> None:
    """670 requests with long options filled 1 GiB: a finished job was forgotten, and further ones were answered 500."""
    service, api = spare
    model = api.upload(conv_chain(1))
    done = api.finished(api.submit(model, "edge4"))["id"]
    client: Any = redis.Redis.from_url(service.broker_url)
    os.kill(service.pids["worker"], signal.SIGSTOP)

    def submit(number: int) -> httpx.Response:
        cuts = [f"{number} {cut} {'x' * 4000}" for cut in range(200)]
        body = {"model": model, "profile": "edge4", "options": {"partition": cuts}}
        return api.http.post("/v1/compilations", json=body)

    maxmemory = client.config_get("maxmemory")["maxmemory"]
    before = client.info("memory")["used_memory"]
    answers = [submit(number) for number in range(10)]
    assert {answer.status_code for answer in answers} == {202}
    assert client.info("memory")["used_memory"] - before < 800_000  # 8 MB of options
    assert len(api.job(answers[0].json()["id"])["options"]["partition"]) == 200
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 100_000)
    named(until(lambda: answer if (answer := submit(10)).status_code != 202 else None, "the end"), 503, "records_full")
    client.config_set("maxmemory", 1)
    assert api.job(done)["state"] == "succeeded"
    assert api.http.get(f"/v1/jobs/{done}/plan").status_code == 200
    client.config_set("maxmemory", maxmemory)
    client.close()
    for answer in answers:
        api.http.post(f"/v1/jobs/{answer.json()['id']}/cancel")
    os.kill(service.pids["worker"], signal.SIGCONT)


def test_records_that_cannot_be_saved_are_named(spare: tuple[EmbeddedService, Api]) -> None:
    """Redis then answers MISCONF to all that writes."""
    service, api = spare
    model = api.upload(conv_chain(1))
    client = redis.Redis.from_url(service.broker_url)
    client.config_set("save", "3600 1")
    blocked = service.data_dir / "redis" / "dump.rdb"
    blocked.mkdir()  # the snapshot cannot take this place
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", "a snapshot that failed")
    named(new_profile(api, "other"), 503, "records_not_saved")
    named(api.http.post("/v1/compilations", json={"model": model, "profile": "edge4"}), 503, "records_not_saved")
    client.config_set("save", "")
    assert new_profile(api, "saved").status_code == 201
    client.close()
    blocked.rmdir()


@pytest.mark.slow
def test_who_waits_when_the_service_stops_is_told_where_to_ask_again(start: Start) -> None:
    """It was 500 as plain text."""
    service, api = start()
    model = api.upload(conv_chain(1))
    os.kill(service.pids["worker"], signal.SIGSTOP)
    job = api.submit(model)
    before = psutil.Process(service.pids["api"]).num_fds()
    body = {"model": model, "profile": "edge4", "options": {"objective": "dram_bytes"}}
    prefer = {"Prefer": "wait=30"}
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(api.http.get, f"/v1/jobs/{job}", headers=prefer)
        posted = pool.submit(api.http.post, "/v1/compilations", json=body, headers=prefer)
        until(lambda: psutil.Process(service.pids["api"]).num_fds() >= before + 3, "both to wait", 30)
        until(lambda: api.http.get("/v1/jobs").json()["items"][1:], "both jobs", 30)
        service.stop()
        named(waiting.result(30), 503, "stopping")
        assert waiting.result().headers["Location"] == f"/v1/jobs/{job}"
        named(posted.result(30), 503, "stopping")
        assert posted.result().headers["Location"].startswith("/v1/jobs/")
