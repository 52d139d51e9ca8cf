"""IMPORT-1, API-6, API-7: archives come in over the API, only a worker's child reads them, and a read is bounded."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest

from app.models.endpoints import _RAW_TYPES
from app.supervisor.service import EmbeddedService
from tests.corpus.archives import Member, tar_of, zip_of
from tests.models import Model
from tests.service.harness import Api, conv_chain, gone, until
from tests.service.models import SIDECARS, network, split_network

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]


# archives


def documents(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    """Plan and report of a job, without what they say about the uploaded file."""
    assert job["state"] == "succeeded", job
    plan, report = (api.http.get(job["links"][name]).json() for name in ("plan", "report"))
    assert plan.pop("model")["sha256"] == job["model"]["digest"]
    report.pop("model", None)
    return {"plan": plan, "report": report}


def split_members() -> list[Member]:
    model, files = split_network()
    return [("model.onnx", model), *files.items()]


PACKINGS: Mapping[str, Callable[..., bytes]] = {
    "net.zip": zip_of,
    "net-packed.zip": lambda *members: zip_of(*members, compression=zipfile.ZIP_DEFLATED),
    "net-in-a-folder.zip": lambda *members: zip_of(*((f"net/{name}", data) for name, data in members)),
    "net.tar": tar_of,
    "net.tar.gz": lambda *members: gzip.compress(tar_of(*members)),
    "net.TGZ": lambda *members: gzip.compress(tar_of(*members, kind=tarfile.PAX_FORMAT)),
}


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("name", PACKINGS)
def test_an_archive_of_a_model_and_its_data_compiles_to_the_plan_of_the_single_file(api: Api, name: str) -> None:
    answer = api.http.post("/v1/models", files={"model": (name, PACKINGS[name](*split_members()))})
    assert answer.status_code in (200, 201), answer.text
    packed = documents(api, api.finished(api.submit(answer.json()["id"])))
    single = documents(api, api.finished(api.submit(api.upload(network().data()))))
    assert packed == single
    assert packed["plan"]["segments"][0]["weight_bytes"] == 4 * (8 * 3 * 3 * 3 + 4 * 8 * 3 * 3)


@pytest.mark.parametrize("content_type", [*_RAW_TYPES, "Application/ZIP; charset=binary"])
@pytest.mark.parametrize("how", ["post", "put"])
def test_a_raw_body_may_say_that_it_is_an_archive(api: Api, content_type: str, how: str) -> None:
    archive = zip_of(*split_members())
    headers = {"Content-Type": content_type}
    digest = api.upload(archive)
    if how == "post":
        answer = api.http.post("/v1/models", params={"name": "net.zip"}, content=archive, headers=headers)
    else:
        answer = api.http.put(f"/v1/models/{digest}", content=archive, headers=headers)
    assert (answer.status_code, answer.json()["id"]) == (200, digest)


def test_a_body_of_another_kind_is_refused_with_the_kinds_that_are_taken(api: Api) -> None:
    answer = api.http.post("/v1/models", content=b"<a/>", headers={"Content-Type": "text/xml"})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["actual"]) == (415, "unsupported_media_type", "text/xml")
    assert "application/zip" in problem["limit"]


def test_an_archive_may_come_with_its_compilation_in_one_form(api: Api) -> None:
    form = {"model": ("net.tar", tar_of(*split_members()), "application/x-tar")}
    answer = api.http.post("/v1/compilations", files=form, data={"profile": "edge4"})
    assert answer.status_code in (200, 202), answer.text
    assert api.finished(answer.json()["id"])["state"] == "succeeded"


def test_an_archive_without_a_file_of_its_model_fails_by_the_name_of_the_file(api: Api) -> None:
    members = [member for member in split_members() if member[0] != SIDECARS["v"]]
    job = api.finished(api.submit(api.upload(zip_of(*members), "net.zip")))
    assert (job["state"], job["problem"]["code"]) == ("failed", "external_data")
    assert SIDECARS["v"] in json.dumps(job["problem"])


@pytest.mark.parametrize("how", ["raw", "form"])
def test_the_upload_limit_is_that_of_the_archive(api: Api, service: EmbeddedService, how: str) -> None:
    archive = zip_of(("model.onnx", bytes(service.settings.max_upload_bytes)))
    if how == "raw":
        answer = api.http.post("/v1/models", content=archive, headers={"Content-Type": "application/zip"})
    else:
        answer = api.http.post("/v1/models", files={"model": ("net.zip", archive)})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


# who reads


def imported(service: EmbeddedService, process: str) -> set[str]:
    """Every module that a process of the service imported up to now, lazily or not."""
    lines = (service.log_dir / f"{process}.log").read_text().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.mark.slow
def test_the_api_process_never_loads_what_reads_a_model(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """API-3: models are read by a worker's child alone; Python itself notes what each process imports."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    service, api = start()
    members = split_members()
    for data in (network().data(), zip_of(*members), gzip.compress(tar_of(*members))):
        uploaded = api.upload(data)
        job = api.finished(api.submit(uploaded, dims={}, partition=["relu"]))
        documents(api, job)
        api.http.get(f"/v1/models/{uploaded}")
    assert api.http.get(f"/v1/jobs/{api.submit(api.upload(b'no model'))}/events").status_code == 200
    forbidden = ("onnx", "google.protobuf", "compiler.frontend", "compiler.compile", "compiler.pipeline")

    def readers(process: str) -> set[str]:
        return {
            name
            for name in imported(service, process)
            for word in forbidden
            if name == word or name.startswith(f"{word}.")
        }

    assert {"compiler.frontend.read", "compiler.frontend.archive", "onnx"} <= readers("worker")
    assert "app.models.endpoints" in imported(service, "api")
    assert readers("api") == set()
    files_of_api = Path(f"/proc/{service.pids['api']}/maps").read_text()
    assert "onnx" not in files_of_api
    assert "onnx" in Path(f"/proc/{service.pids['worker']}/maps").read_text()


# what a read may take


FAULTS = """
import os, sys
if sys.orig_argv[-2:] == ["-m", "worker"]:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from compiler.frontend.read import ReadModel
    read = ReadModel.run

    def loop():
        while True:
            pass

    def hold():  # one call of C that keeps the interpreter lock
        import re
        re.fullmatch("(a|a)+", "a" * 60 + "b")

    def grow():
        blocks = []
        while True:
            blocks.append(bytearray(os.urandom(4096)) * 256)

    def gulp():
        return bytearray(16 * 2**30)

    def crash():
        import ctypes
        ctypes.string_at(0)

    def run(self, source):
        data = bytes(source.data[:20])
        if data.startswith(b"fault "):
            faults = {"loop": loop, "hold": hold, "grow": grow, "gulp": gulp, "crash": crash}
            faults[data.split()[1].decode()]()
        return read(self, source)

    ReadModel.run = run
"""
MEMORY_LIMIT_BYTES = 2**28


@pytest.fixture
def faulty(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[EmbeddedService, Api]:
    """A service whose worker, when it reads a file that begins with `fault`, misbehaves as the file says."""
    folder = tmp_path / "faults"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULTS)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return start(memory_limit_bytes=MEMORY_LIMIT_BYTES)


def events(service: EmbeddedService) -> set[str]:
    """What the worker logged."""
    *lines, _ = (service.log_dir / "worker.log").read_text().split("\n")  # the last may be half written
    return {json.loads(line)["event"] for line in lines}


def children(service: EmbeddedService) -> list[psutil.Process]:
    return psutil.Process(service.pids["worker"]).children()


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(
    ("fault", "code", "attempts", "end_of_the_child"),
    [
        ("loop", "time_limit", 1, "child_ends_itself"),
        ("hold", "time_limit", 1, "hung_child_ended"),
        ("grow", "memory_limit", 1, "child_ends_itself"),
        ("gulp", "memory_limit", 1, None),
        ("crash", "worker_lost", 3, "child_lost"),
    ],
)
def test_a_read_that_goes_wrong_ends_as_what_it_is_and_the_next_job_works(
    faulty: tuple[EmbeddedService, Api],
    fault: str,
    code: str,
    attempts: int,
    end_of_the_child: str | None,
) -> None:
    """API-5, API-6: hangs with and without the interpreter lock, memory little by little and at once, a crash."""
    service, api = faulty
    before = until(lambda: children(service), "a child")
    options: dict[str, Any] = {"time_limit_s": 1.0} if code == "time_limit" else {}
    job = api.finished(api.submit(api.upload(f"fault {fault}".encode()), **options))
    problem = job["problem"]
    assert (job["state"], problem["code"], job["attempts"]) == ("failed", code, attempts)
    if code == "memory_limit":
        assert problem["limit"] == MEMORY_LIMIT_BYTES
    if fault == "grow":
        assert MEMORY_LIMIT_BYTES < problem["actual"] < 4 * MEMORY_LIMIT_BYTES
    if end_of_the_child is None:
        assert children(service) == before
    else:
        until(lambda: gone(before) and end_of_the_child in events(service), "the child to be ended")
    after = api.finished(api.submit(api.upload(conv_chain(3))))
    assert (after["state"], after["attempts"]) == ("succeeded", 1)


@pytest.mark.slow
def test_an_archive_that_expands_beyond_the_memory_limit_ends_as_memory_limit(start: Start) -> None:
    """IMPORT-4: no fault is planted here; the same file compiles when it is given the memory."""
    _, api = start(memory_limit_bytes=2**31, lease_s=20.0)
    weights = np.random.default_rng(0).integers(0, 2, 2**24, np.uint8).tobytes() * 8
    model = Model()
    x = model.input([1, 2**16], "x")
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2**16, 2**9])
    tensor.external_data.append(onnx.StringStringEntryProto(key="location", value="weights.bin"))
    tensor.data_location = onnx.TensorProto.EXTERNAL
    model.initializers.append(tensor)
    model.output(model.node("MatMul", [x, "w"], name="matmul"))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("model.onnx", model.data())
        archive.writestr("weights.bin", weights)
    uploaded = api.upload(out.getvalue(), "net.zip")
    job = api.finished(api.submit(uploaded, memory_limit_bytes=2**25))
    assert (job["state"], job["problem"]["code"], job["attempts"]) == ("failed", "memory_limit", 1)
    assert job["problem"]["actual"] > job["problem"]["limit"] == 2**25
    unlimited = api.finished(api.submit(uploaded))
    assert unlimited.get("problem") is None, unlimited["problem"]
    assert unlimited["state"] == "succeeded"
