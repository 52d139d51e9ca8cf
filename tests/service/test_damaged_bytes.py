"""Damaged files of the store over HTTP: no wrong byte is served, computed with or cached (found from outside)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import onnx
import psutil
import pytest

from app.store import document_store, model_store
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_profile, profile_digest
from tests.service.harness import Api, conv_chain, until
from tests.service.models import network

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


@pytest.mark.slow
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


def settled(api: Api, link: str) -> httpx.Response:
    """The first answer that is not 503."""
    return until(lambda: answer if (answer := api.http.get(link)).status_code != 503 else None, link)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_weight(path: Path) -> None:
    """The file stays a model."""
    data = bytearray(path.read_bytes())
    weights = onnx.load_from_string(bytes(data)).graph.initializer[0].raw_data
    data[data.index(weights) + 2] ^= 1
    path.write_bytes(data)
    assert onnx.load(path).graph.initializer[0].raw_data != weights


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("damage", [cut, flip_a_weight])
def test_a_damaged_model_fails_its_job_alone_and_is_uploaded_again(
    spare: tuple[EmbeddedService, Api], damage: Callable[[Path], None]
) -> None:
    """A flipped weight made a wrong executable under the right digest, and the failure of a cut model stayed known."""
    service, api = spare
    data = network().data()
    model = api.upload(data)
    damage(model_store(service.settings.store_dir).path(model))
    failed = api.finished(api.submit(model))
    assert (failed["state"], failed["problem"]["code"]) == ("failed", "input_lost")
    assert "executable" not in failed["links"]
    assert api.http.get(f"/v1/models/{model}").status_code == 404
    assert api.upload(data) == model
    assert api.finished(api.submit(model))["state"] == "succeeded"


@pytest.mark.slow
def test_a_damaged_result_for_which_no_job_finds_room_is_made_when_there_is_some(start: Start) -> None:
    """It was answered 404 while the queue was full."""
    service, api = start(max_waiting_jobs=1)
    model = api.upload(conv_chain(3))
    job = api.finished(api.submit(model))
    whole = api.http.get(job["links"]["plan"])
    flip(documents(service).path(whole.headers["ETag"].strip('"')))
    worker = psutil.Process(service.pids["worker"])
    worker.suspend()
    api.submit(model, "edge4")
    answer = api.http.get(job["links"]["plan"])
    assert (answer.status_code, answer.json()["code"]) == (503, "result_lost")
    worker.resume()
    assert settled(api, job["links"]["plan"]).content == whole.content


@pytest.mark.slow
def test_a_result_whose_inputs_are_damaged_too_is_answered_as_lost(start: Start) -> None:
    """It was answered 503, "try again", for ever."""
    service, api = start()
    data = network().data()
    model = api.upload(data)
    compiled = api.finished(api.submit(model, "edge4"))
    run = api.http.post("/v1/simulations", json={"job": compiled["id"]})
    simulated = api.finished(run.json()["id"])
    links = [compiled["links"]["plan"], compiled["links"]["executable"], simulated["links"]["outputs"]]
    whole = {link: api.http.get(link) for link in links}
    for answer in whole.values():
        flip(documents(service).path(answer.headers["ETag"].strip('"')))
    flip(model_store(service.settings.store_dir).path(model))
    for link in links:
        lost = settled(api, link)
        assert (lost.status_code, lost.json()["code"]) == (404, "result_lost")
    assert api.upload(data) == model
    for link, answer in whole.items():
        assert settled(api, link).content == answer.content


def test_a_changed_profile_of_ours_is_written_again(spare: tuple[EmbeddedService, Api]) -> None:
    service, api = spare
    model = api.upload(conv_chain(3))
    plan = api.http.get(api.finished(api.submit(model))["links"]["plan"]).json()
    digest = profile_digest(builtin_profile("cluster4x4"))
    path = documents(service).path(digest)
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    other = api.finished(api.submit(api.upload(conv_chain(4)), profile="cluster4x4"))
    assert other["state"] == "succeeded"
    assert documents(service).exists(digest)
    assert api.http.get(other["links"]["plan"]).json()["profile"] == plan["profile"]
