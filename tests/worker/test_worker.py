"""API-5, API-6: what happens in a worker child."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from app.cache_losses import CacheLosses
from app.jobs.identity import Identity
from app.jobs.records import JobRequest, Lease, Records
from app.jobs.results import ResultCache
from app.redis_urls import connect
from app.settings import Settings
from app.store import document_store, model_store
from app.tables.address_tables import AddressTableCache, value_key
from app.units.unit_cache import UnitCache
from compiler.compile import compile_model
from compiler.errors import CompilationCancelledError, InternalError, ModelError
from compiler.profile import builtin_profile, profile_json
from compiler.program.executable import read
from compiler.shapes.package import read_package
from tests.app.conftest import client, redis_url  # noqa: F401 - fixtures
from tests.app.test_unit_cache import bytes_client
from tests.service.harness import conv_chain
from tests.service.models import images
from worker.lease_keeper import Keeper, anonymous_bytes
from worker.task import Computer

ROOT = Path(__file__).parents[2]
DIMS: dict[str, Any] = {
    "dims": {"n": {"min": 1, "max": 2}, "h": {"min": 1, "max": 24}, "w": {"min": 1, "max": 24}},
    "verify": "none",
}


class Desk:
    """One computer over a real Redis and store, in this process."""

    def __init__(self, connection: redis.Redis, url: str, folder: Path) -> None:
        self.settings = Settings(data_dir=folder, lease_s=30.0)
        self.models = model_store(self.settings.store_dir)
        self.store = document_store(self.settings.store_dir)
        self.records = Records(connection, self.settings, Identity(version="0", store="here"))
        self.results = ResultCache(connection, self.settings, self.store)
        self.computer = Computer(
            records=self.records,
            results=self.results,
            models=self.models,
            store=self.store,
            units=UnitCache(bytes_client(connection), connection, self.settings),
            addresses=AddressTableCache(connect(url, text=False), self.settings, CacheLosses(connection)),
            settings=self.settings,
        )
        self.client = connection
        self.url = url

    def submit(
        self,
        data: bytes,
        content: str = "c1",
        *,
        job: str = "jobc1",
        options: Mapping[str, object] | None = None,
        outcome: Mapping[str, str] | None = None,
    ) -> str:
        model = self.models.put(data)
        self.records.pin_model(model)
        self.records.register_model(model, "net.onnx", len(data))
        request = JobRequest(
            job=job,
            content=content,
            model=model,
            model_name="net.onnx",
            profile=self.store.put(profile_json(builtin_profile("cluster4x4"))),
            profile_name="cluster4x4",
            # by rules: choosing plans would take most of a job's time
            options=json.dumps({"fusion": "rules", **(options or {})}),
            queue="short",
            time_limit_s=60,
            memory_limit_bytes=2**40,
            compiler_version="0",
            request_id="",
        )
        return self.records.accept(request, outcome=outcome).job

    def fence(self, content: str = "c1") -> int:
        return int(str(self.client.hget(f"tessera:computation:{content}", "fence")))

    def lease(self, content: str = "c1") -> Lease:
        lease = self.records.lease(content, self.fence(content), "w")
        assert lease is not None
        return lease

    def job(self, job: str) -> dict[str, str]:
        fields = self.records.job(job)
        assert fields is not None
        return fields


@pytest.fixture
def desk(client: redis.Redis, redis_url: str, tmp_path: Path) -> Desk:  # noqa: F811
    return Desk(client, redis_url, tmp_path)


def test_a_cache_that_does_not_answer_keeps_no_result_back(desk: Desk, tmp_path: Path) -> None:
    """One second for the cache at most; a patient client would wait for the better part of a minute."""
    path = tmp_path / "mute.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()  # connections are made, and nothing is ever read
        results = ResultCache(connect(f"unix://{path}?db=0", patience_s=0.5), desk.settings, desk.store)
        job = desk.submit(conv_chain(2), options={"verify": "none"})
        computer = replace(desk.computer, results=results)
        with capture_logs() as logs:
            assert computer.run("c1", desk.fence(), "w") == "published"
    assert desk.job(job)["state"] == "succeeded"
    assert [entry["error"] for entry in logs if entry["event"] == "result_not_cached"] == ["TimeoutError"]


def test_a_computation_writes_its_blobs_publishes_and_is_remembered(desk: Desk) -> None:
    job = desk.submit(conv_chain(2))
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    fields = desk.job(job)
    assert fields["state"] == "succeeded"
    assert desk.store.exists(fields["plan"])
    assert desk.store.exists(fields["report"])
    with desk.store.mapped(fields["executable"]) as data:
        assert read(data).model_name == "net.onnx"
    totals = json.loads(desk.store.read(fields["plan"]))["totals"]
    assert json.loads(fields["figures"])["dram_bytes"] == totals["dram_bytes"]
    pictures = json.loads(desk.store.read(fields["pictures"]))
    assert pictures
    assert all(text.startswith("<svg ") for text in pictures.values())
    # nobody asked for the tables of its one shape
    names = ("state", "plan", "report", "pictures", "executable", "figures")
    assert desk.results.get("c1") == {name: fields[name] for name in names}


def test_a_model_of_fixed_shapes_has_a_package_where_it_is_asked_for(desk: Desk) -> None:
    job = desk.submit(conv_chain(2), options={"tables": [{}]})
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    with desk.store.mapped(desk.job(job)["package"]) as data:
        package = read_package(memoryview(data))
        assert (package.model.ranges, [dict(one.dims) for one in package.tables]) == ({}, [{}])
        del package


@pytest.mark.slow
def test_compilations_share_address_tables_and_make_those_that_are_lost_or_damaged_again(desk: Desk) -> None:
    """ADDR-5: the executable is the same to the byte."""

    def executable(content: str) -> str:
        job = desk.submit(conv_chain(2), options={"verify": "none"}, job=content, content=content)
        assert desk.computer.run(content, desk.fence(content), "w") == "published"
        return desk.job(job)["executable"]

    first = executable("c1")
    keys = sorted(key for key in desk.client.scan_iter(value_key("*")))
    assert keys
    assert all(0 < desk.client.pttl(key) <= desk.settings.keep_table_s * 1000 for key in keys)
    raw = connect(desk.url, text=False)
    kept = {key: raw.get(key) for key in keys}
    for key in keys:
        desk.client.set(key, "damaged")
    assert executable("c2") == first
    assert {key: raw.get(key) for key in keys} == kept
    desk.client.delete(*keys)
    assert executable("c3") == first


def test_a_model_with_dynamic_dimensions_has_a_package_beside_its_plan(desk: Desk) -> None:
    job = desk.submit(images(), options=DIMS)
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    fields = desk.job(job)
    with desk.store.mapped(fields["package"]) as data:
        package = read_package(memoryview(data), profile_digest=fields["profile"])
        assert (package.model.model_digest, set(package.model.ranges)) == (fields["model"], {"n", "h", "w"})
        del package
    assert desk.client.hgetall(f"tessera:model:{fields['model']}:packages") == {fields["profile"]: fields["package"]}
    # where the outcome is known already, it is the newest package just the same
    desk.client.delete(f"tessera:model:{fields['model']}:packages")
    again = desk.submit(images(), options=DIMS, job="again", outcome=desk.results.get("c1"))
    assert desk.job(again)["package"] == fields["package"]
    assert desk.client.hgetall(f"tessera:model:{fields['model']}:packages") == {fields["profile"]: fields["package"]}
    assert desk.records.delete_model(fields["model"]) == "deleted"
    assert not desk.client.exists(f"tessera:model:{fields['model']}:packages")


def test_a_plan_whose_package_cannot_be_made_says_why_and_succeeds(desk: Desk) -> None:
    job = desk.submit(images(), options={**DIMS, "precision": "int8", "verify": "none"})
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    fields = desk.job(job)
    problem = json.loads(fields["no_package"])
    assert (fields["state"], problem["code"], problem["actual"]) == ("succeeded", "invalid_option", "precision=int8")
    assert "package" not in fields


@pytest.mark.parametrize("name", ["plan", "executable"])
def test_a_remembered_result_whose_blob_is_gone_is_not_used(desk: Desk, name: str) -> None:
    job = desk.submit(conv_chain(2))
    desk.computer.run("c1", desk.fence(), "w")
    desk.store.delete(desk.job(job)[name])
    assert desk.results.get("c1") is None


def test_a_second_delivery_does_nothing(desk: Desk) -> None:
    desk.submit(conv_chain(2))
    fence = desk.fence()
    desk.lease()
    assert desk.computer.run("c1", fence, "other") == "duplicate"


def test_a_crash_between_blob_and_reference_leaves_no_lie(desk: Desk) -> None:
    job = desk.submit(conv_chain(2))
    lease = desk.lease()
    desk.store.put(b'{"a plan": "that nobody refers to"}')
    desk.records.lost("c1", lease.fence)  # the worker died before it published
    assert desk.job(job)["state"] == "queued"
    assert "plan" not in desk.job(job)
    assert desk.computer.run("c1", desk.fence(), "w2") == "published"


def test_the_failure_of_a_model_is_published_and_remembered(desk: Desk) -> None:
    job = desk.submit(b"not a model")
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    assert desk.job(job)["state"] == "failed"
    assert (desk.results.get("c1") or {})["state"] == "failed"


def test_an_unexpected_failure_is_ours_and_not_remembered(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setattr("worker.task.compile_model", broken)
    job = desk.submit(conv_chain(2))
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    problem = desk.job(job)["problem"]
    assert '"internal_error"' in problem
    assert "secret" not in problem
    assert desk.results.get("c1") is None


@pytest.mark.parametrize("error", [InternalError("an invariant broke"), RuntimeError("x")])
def test_what_is_our_fault_is_tried_afresh_at_the_next_request(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("worker.task.compile_model", broken)
    job = desk.submit(conv_chain(2))
    desk.computer.run("c1", desk.fence(), "w")
    assert desk.job(job)["state"] == "failed"
    assert desk.results.get("c1") is None


def test_a_plan_that_cannot_be_stored_early_does_not_fail_its_job(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    put, tries = desk.store.put, list[bytes]()

    def once_full(data: bytes) -> str:
        tries.append(data)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")
        return put(data)

    job = desk.submit(conv_chain(2))
    monkeypatch.setattr(desk.store, "put", once_full)
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    assert json.loads(tries[0])["provisional"] is True
    assert desk.job(job)["state"] == "succeeded"


@pytest.mark.parametrize("fails", [True, False])
def test_a_model_that_is_damaged_while_it_is_read_has_no_outcome(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The failure was remembered for the undamaged model (found by `make chaos`)."""
    data = conv_chain(2)
    model = hashlib.sha256(data).hexdigest()

    def damaged_meanwhile(*words: Any, **more: Any) -> Any:
        found = compile_model(*words, **more)
        desk.models.path(model).write_bytes(data[:-1] + b"?")
        if fails:
            raise ModelError("no ONNX file", code="not_onnx", stage="import")
        return found

    monkeypatch.setattr("worker.task.compile_model", damaged_meanwhile)
    job = desk.submit(data)
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    assert json.loads(desk.job(job)["problem"])["code"] == "input_lost"
    assert desk.results.get("c1") is None


def test_a_result_that_finds_no_room_on_the_disk_says_so_and_is_tried_afresh(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an internal error, "our fault" (found by `make chaos`)."""
    put = desk.store.put

    def full(_: bytes) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = desk.submit(conv_chain(2))
    monkeypatch.setattr(desk.store, "put", full)
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    assert json.loads(desk.job(job)["problem"])["code"] == "storage_full"
    assert desk.results.get("c1") is None
    monkeypatch.setattr(desk.store, "put", put)
    again = desk.submit(conv_chain(2), job="again")
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    assert desk.job(again)["state"] == "succeeded"


def test_too_much_memory_at_once_is_a_memory_limit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        bytearray(2**45)

    monkeypatch.setattr("worker.task.compile_model", greedy)
    job = desk.submit(conv_chain(2))
    assert desk.computer.run("c1", desk.fence(), "w") == "published"
    assert '"memory_limit"' in desk.job(job)["problem"]


def test_the_keeper_stops_the_compiler_when_the_fence_is_closed(desk: Desk) -> None:
    job = desk.submit(conv_chain(2))
    lease = desk.lease()
    with Keeper(desk.records, lease, desk.settings) as keeper:
        keeper.phase("one", 1, 3)
        assert not keeper.cancelled()
        desk.records.lost("c1", lease.fence)
        with pytest.raises(CompilationCancelledError):
            keeper.phase("two", 2, 3)
        assert keeper.cancelled()
    assert desk.job(job)["state"] == "queued"


def test_the_keeper_bounds_the_address_space_and_frees_it_again(desk: Desk) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    desk.submit(conv_chain(2))
    with Keeper(desk.records, desk.lease(), desk.settings):
        assert 0 < resource.getrlimit(resource.RLIMIT_AS)[0] < 2**45
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_memory_of_mapped_files_is_not_counted(desk: Desk) -> None:
    size = 64 * 1024 * 1024
    digest = desk.store.put(os.urandom(1024) * (size // 1024))
    before = anonymous_bytes()
    with desk.store.mapped(digest) as data:
        assert sum(data[::4096]) > 0
        assert anonymous_bytes() - before < size // 2
    block = bytearray(os.urandom(1024) * (size // 1024))
    assert anonymous_bytes() - before >= size // 2
    del block


def test_a_child_that_will_not_stop_ends_itself(redis_url: str, tmp_path: Path) -> None:  # noqa: F811
    """The heartbeat thread of a hung child sees that nobody waits, and kills the process after the grace."""
    code = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from app.redis_urls import connect
from app.settings import Settings
from tests.worker.test_worker import Desk, conv_chain
from worker.lease_keeper import Keeper
client = connect({redis_url!r}); client.flushall()
desk = Desk(client, {redis_url!r}, Path({str(tmp_path)!r}))
settings = Settings(data_dir=Path({str(tmp_path)!r}), lease_s=0.4, stop_grace_s=0.2)
job = desk.submit(conv_chain(1))
with Keeper(desk.records, desk.lease(), settings):
    print(desk.records.cancel(job), flush=True)
    time.sleep(60)
"""
    begun = time.monotonic()
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert answer.returncode == -9, answer.stderr
    assert answer.stdout.splitlines()[0] == "cancelling"
    assert time.monotonic() - begun < 40


# Runs a worker up to where Celery forks its children; says what is loaded then, and how many threads there are.
PARENT = """
import json, os, sys
import celery

def fork(*_):
    loaded = [name for name in ("compiler.kernels", "compiler.compile", "onnxruntime") if name in sys.modules]
    json.dump([loaded, len(os.listdir("/proc/self/task"))], sys.stdout)

celery.Celery.worker_main = fork
os.environ.pop("OPENBLAS_NUM_THREADS", None)
sys.argv[1:] = []
from worker.__main__ import main
main()
"""


def test_a_worker_loads_compiler_and_machine_code_before_it_forks_and_starts_no_thread(tmp_path: Path) -> None:
    """A thread of a BLAS or a runtime would not live in the children (docs/decisions/0002)."""
    places = {"TESSERA_BROKER_URL": "redis://localhost:1/0", "TESSERA_CACHE_URL": "redis://localhost:1/0"}
    answer = subprocess.run(
        [sys.executable, "-c", PARENT],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **places, "TESSERA_DATA_DIR": str(tmp_path)},
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == [["compiler.kernels", "compiler.compile"], 1]
