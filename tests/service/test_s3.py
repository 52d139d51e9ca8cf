"""API-1: the service with its blobs in a bucket of a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import obstore
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.redis_urls import connect
from app.store import document_store
from app.stores import open_stores, store_id
from app.supervisor.service import EmbeddedService
from tests.s3 import S3Server
from tests.service.harness import Api, conv_chain, kill, until
from tests.service.models import images
from tests.service.test_frozen import frozen, soon
from tests.service.test_tables import packaged

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]


@pytest.fixture
def begin(start: Start, s3: S3Server, prefix: str) -> Start:
    return lambda **changes: start(**{**s3.settings(prefix), **changes})


@pytest.mark.slow
def test_models_plans_tables_and_programs_go_through_the_bucket(begin: Start, s3: S3Server, prefix: str) -> None:
    service, api = begin()
    model, _ = packaged(api, images())
    table = api.http.get(f"/v1/models/{model}/tables", params={"profile": "edge4", "shape": "x:1x3x13x14"})
    assert table.status_code == 200, table.text
    model = api.upload(conv_chain(3))
    job = api.finished(api.submit(model))
    assert job["state"] == "succeeded"
    whole = {name: api.http.get(job["links"][name]) for name in ("plan", "report", "executable", "listing", "trace")}
    assert {answer.status_code for answer in whole.values()} == {200}
    ran = api.http.post("/v1/simulations", json={"job": job["id"]})
    assert api.finished(ran.json()["id"])["state"] == "succeeded"
    kill(service.pids["redis"])
    until(lambda: api.http.get("/readyz").status_code == 200, "another broker")
    assert not (service.data_dir / "blobs").exists()
    assert f"models/{model}" in s3.keys(prefix)
    assert f"documents/{whole['plan'].headers['ETag'][1:-1]}" in s3.keys(prefix)

    service.stop()
    shutil.rmtree(service.data_dir / "copies")  # as on another machine
    _, api = begin()
    assert {name: api.http.get(job["links"][name]).content for name in whole} == {
        name: answer.content for name, answer in whole.items()
    }
    assert api.finished(api.submit(model))["cached"]


@pytest.mark.slow
def test_damaged_objects_are_noticed_and_made_again(begin: Start, s3: S3Server, prefix: str) -> None:
    service, api = begin()
    data = conv_chain(3)
    model = api.upload(data)
    job = api.finished(api.submit(model))
    plan = api.http.get(job["links"]["plan"])
    digest = plan.headers["ETag"][1:-1]
    shutil.rmtree(service.data_dir / "copies" / "documents" / digest[:2])
    obstore.put(s3.bucket(prefix), f"documents/{digest}", plan.content[:-1] + b"?")
    answer = api.http.get(job["links"]["plan"])
    assert (answer.status_code, answer.json()["code"]) == (503, "result_lost")
    again = until(lambda: found if (found := api.http.get(job["links"]["plan"])).status_code == 200 else None, "plan")
    assert again.content == plan.content
    shutil.rmtree(service.data_dir / "copies" / "models" / model[:2])
    obstore.put(s3.bucket(prefix), f"models/{model}", data[:-1] + b"?")
    failed = api.finished(api.submit(model, "edge4"))
    assert failed["problem"]["code"] == "input_lost"
    assert "tessera_blobs_damaged_total 2.0" in api.http.get("/metrics").text
    assert api.upload(data) == model
    assert api.finished(api.submit(model, "edge4"))["state"] == "succeeded"


@pytest.mark.slow
def test_a_frozen_s3_is_answered_503_within_two_seconds(begin: Start, s3: S3Server) -> None:
    _, api = begin()
    model = api.upload(conv_chain(1))
    job = api.finished(api.submit(model))
    with frozen(s3.child.pid):
        raw = {"Content-Type": "application/octet-stream"}
        for call in (
            lambda: api.http.get(f"/v1/models/{model}"),
            lambda: api.http.post("/v1/compilations", json={"model": model, "profile": "edge4"}),
            lambda: api.http.post("/v1/models", content=conv_chain(2), headers=raw),
            lambda: api.http.post("/v1/models", content=bytes(20_000_000), headers=raw),
        ):
            answer = soon(call)
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert int(answer.headers["Retry-After"]) > 0
        ready = soon(lambda: api.http.get("/readyz"))
        assert ready.json()["actual"] == "store, models"
        assert soon(lambda: api.http.get(job["links"]["plan"])).status_code == 200  # there is a copy
    until(lambda: api.http.get("/readyz").status_code == 200, "the service to be ready again")
    assert api.finished(api.submit(model, "edge4"))["state"] == "succeeded"


@pytest.mark.slow
def test_a_job_whose_results_cannot_be_stored_says_so_and_may_be_tried_again(begin: Start, s3: S3Server) -> None:
    service, api = begin(store_patience_s=1.0)
    model = api.upload(conv_chain(1))
    os.kill(service.pids["worker"], signal.SIGSTOP)
    job = api.submit(model)
    with frozen(s3.child.pid):
        os.kill(service.pids["worker"], signal.SIGCONT)
        failed = api.finished(job)
    assert failed["problem"]["code"] == "store_unavailable"
    assert failed["problem"]["status"] == 503
    until(lambda: api.http.get("/readyz").status_code == 200, "the service to be ready again")
    again = api.finished(api.submit(model))
    assert (again["state"], again["cached"]) == ("succeeded", False)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("where", ["directory", "s3"])
def test_the_service_removes_what_nothing_refers_to(
    request: pytest.FixtureRequest, start: Start, where: str, prefix: str
) -> None:
    changes = request.getfixturevalue("s3").settings(prefix) if where == "s3" else {}
    service, api = start(**changes, keep_unused_s=0.5, collect_interval_s=0.5)
    stores = open_stores(service.settings)
    unused = stores.documents.put(b"nothing refers to it")
    model = api.upload(conv_chain(2))
    job = api.finished(api.submit(model))
    assert datetime.fromisoformat(job["expires_at"]) - datetime.fromisoformat(job["finished_at"]) == timedelta(days=7)
    until(lambda: not stores.documents.holds(unused), "the collection")
    for link in ("plan", "report", "executable", "trace"):
        assert api.http.get(job["links"][link]).status_code == 200
    assert api.finished(api.submit(model))["cached"]
    metrics = api.http.get("/metrics").text
    found = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(found["tessera_blobs_removed_total"]) >= 1
    assert float(found["tessera_blob_bytes_removed_total"]) >= len(b"nothing refers to it")
    assert float(found["tessera_store_blobs"]) >= 5
    assert float(found["tessera_store_bytes"]) > 0
    assert 0 <= time.time() - float(found["tessera_store_counted_timestamp_seconds"]) < 300


def test_the_records_of_another_service_remove_nothing(
    service: EmbeddedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not name what this store holds."""
    other = document_store(tmp_path / "other" / "blobs")
    needed = other.put(b"the other service needs it")
    os.utime(other.path(needed), (0, 0))
    for role in ("broker", "cache"):
        monkeypatch.setenv(f"TESSERA_{role.upper()}_URL", service.broker_url)
    command = ["store", "collect", "--data-dir", str(tmp_path / "other"), "--json"]
    monkeypatch.setenv("TESSERA_KEEP_UNUSED_S", "1e-9")
    said = CliRunner().invoke(cli, command)
    assert json.loads(said.output)["code"] == "not_running", said.output
    assert other.holds(needed)


@pytest.mark.slow
def test_an_operator_collects_by_command(start: Start) -> None:
    service, api = start()
    stores = open_stores(service.settings)
    unused = stores.documents.put(b"nothing refers to it")
    job = api.finished(api.submit(api.upload(conv_chain(2))))
    os.utime(document_store(service.settings.store_dir).path(unused), (0, 0))
    client = connect(service.broker_url)
    client.set(f"tessera:known_since:{store_id(service.settings)}", 0)
    client.close()
    command = ["store", "collect", "--data-dir", str(service.data_dir)]
    said = CliRunner().invoke(cli, [*command, "--dry-run"])
    assert "1 blobs with 20 bytes would be removed" in said.output, said.output
    assert stores.documents.holds(unused)
    said = CliRunner().invoke(cli, [*command, "--json"])
    assert (json.loads(said.output)["removed"], json.loads(said.output)["removed_bytes"]) == (1, 20)
    assert not stores.documents.holds(unused)
    assert api.http.get(job["links"]["plan"]).status_code == 200
    service.stop()
    said = CliRunner().invoke(cli, [*command, "--json"])
    assert json.loads(said.output)["code"] == "not_running", said.output
