"""Damaged files of the store over HTTP: no wrong byte is served, computed with or cached (found from outside)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.store import document_store, model_store
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_profile, profile_digest
from tests.service.harness import Api, conv_chain

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]


def documents(service: EmbeddedService) -> Any:
    return document_store(service.settings.store_dir)


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-20, os.SEEK_END)
        byte = file.read(1)
        file.seek(-20, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def made_again(answer: httpx.Response) -> str:
    """The job that an answer to a lost result says makes it again; until it has ended, it writes results."""
    found = re.search(r"job (\S+) has ended", answer.json()["hint"])
    assert found is not None
    return found[1]


def test_damaged_results_are_made_again_and_never_served(start: Start) -> None:
    service, api = start()
    model = api.upload(conv_chain(3))
    job = api.finished(api.submit(model))
    for name in ("plan", "executable"):
        link = job["links"][name]
        whole = api.http.get(link)
        path = documents(service).path(whole.headers["ETag"].strip('"'))
        flip(path)
        answer = api.http.get(link)
        assert (answer.status_code, answer.json()["code"]) == (503, "result_lost")
        assert int(answer.headers["Retry-After"]) > 0
        api.finished(made_again(answer))
        assert api.http.get(link).content == whole.content
    flip(documents(service).path(api.http.get(job["links"]["report"]).headers["ETag"].strip('"')))
    repeated = api.finished(api.submit(model))
    assert not repeated["cached"]
    assert api.http.get(repeated["links"]["report"]).status_code == 200
    assert "tessera_blobs_damaged_total 3.0" in api.http.get("/metrics").text


def test_a_damaged_model_fails_its_job_alone_and_is_uploaded_again(start: Start) -> None:
    service, api = start()
    data = conv_chain(3)
    model = api.upload(data)
    path = model_store(service.settings.store_dir).path(model)
    os.truncate(path, len(data) // 2)
    failed = api.finished(api.submit(model))
    assert (failed["state"], failed["problem"]["code"]) == ("failed", "input_lost")
    assert api.http.get(f"/v1/models/{model}").status_code == 404
    assert api.upload(data) == model
    assert api.finished(api.submit(model))["state"] == "succeeded"


def test_a_changed_profile_of_ours_is_written_again(start: Start) -> None:
    service, api = start()
    model = api.upload(conv_chain(3))
    plan = api.http.get(api.finished(api.submit(model))["links"]["plan"]).json()
    digest = profile_digest(builtin_profile("cluster4x4"))
    path = documents(service).path(digest)
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    other = api.finished(api.submit(api.upload(conv_chain(4)), profile="cluster4x4"))
    assert other["state"] == "succeeded"
    assert documents(service).exists(digest)
    assert api.http.get(other["links"]["plan"]).json()["profile"] == plan["profile"]
