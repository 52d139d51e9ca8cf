"""API-4: what belongs to one owner does not exist for another, over every route of the service."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, conv_chain, new_key, until
from tests.service.models import images
from tests.service.test_api import assert_problem, user_profile
from tests.service.test_tables import RANGES

pytestmark = pytest.mark.service

UNKNOWN = {"model": "d" * 64, "profile": "c" * 64, "job": "e" * 32, "simulation": "e" * 32, "sweep": "e" * 32}
UNKNOWN["library"] = "f" * 64
# Of what the path names: which of the things a request asks for.
PARAMETERS = {"model_id": "model", "profile": "profile", "job_id": "job", "sweep_id": "sweep", "number": "number"}
PARAMETERS["library_id"] = "library"
# Routes that name no owner's things, and why.
OPEN = {"live", "ready", "metrics"}
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    more: dict[str, Any]

    def sent(self, api: Api) -> httpx.Response:
        return api.http.request(self.method, self.path, **self.more)


def requests(operations: dict[str, tuple[str, str]], ids: dict[str, str]) -> dict[str, Request]:
    """A request for each operation that names things by an id, in its path, its query or its body."""
    bodies: dict[str, dict[str, Any]] = {
        "createCompilation": {"json": {"model": ids["model"], "profile": "edge4"}},
        "createSweep": {"json": {"model": ids["model"], "profiles": ["edge4"]}},
        "createSimulation": {"json": {"job": ids["job"]}},
        "compareJobs": {"json": {"a": ids["job"], "b": ids["job"]}},
        "putModel": {"content": b"other bytes", "headers": {"Content-Type": "application/octet-stream"}},
        "putUnits": {"content": b"no units", "headers": {"Content-Type": "application/octet-stream"}},
        "getTables": {"params": {"profile": "edge4", "shape": "x:1x3x9x9"}},
        "getTableStatistics": {"params": {"profile": "edge4"}},
    }
    found = {}
    for name, (method, path) in operations.items():
        here = {**ids, "number": "0"} | ({"job": ids["simulation"]} if name == "getOutputs" else {})
        filled = re.sub(r"\{(\w+)\}", lambda match, here=here: here[PARAMETERS[match[1]]], path)  # type: ignore[misc]
        if filled != path or "json" in bodies.get(name, {}):
            found[name] = Request(method, filled, bodies.get(name, {}))
    return found


def said(answer: httpx.Response, ids: dict[str, str]) -> tuple[int, Any]:
    """Status and problem, without what every answer has of its own and without the ids that were asked for."""
    text = re.sub(r'"request_id":"[^"]*"', "", answer.text)
    for one in sorted(ids.values(), key=len, reverse=True):
        text = text.replace(one, "ID")
    return answer.status_code, text


@pytest.fixture
def owners(service: EmbeddedService) -> Iterator[tuple[Api, Api]]:
    """Two owners on one service, new for each test."""
    number = next(NUMBERS)
    first, second = (Api(service.url, new_key(service, f"{name}-{number}")) for name in ("ann", "bob"))
    yield first, second
    first.http.close()
    second.http.close()


def things(api: Api) -> dict[str, str]:
    """One of everything that an owner can have."""
    model = api.upload(images(), "secret-of-ann.onnx")
    profile = api.http.post("/v1/profiles", json=user_profile("profile-of-ann"))
    job = api.finished(api.submit(model, "edge4", dims=RANGES, verify="none"))
    assert job["state"] == "succeeded", job
    simulation = api.http.post("/v1/simulations", json={"job": job["id"]}).json()["id"]
    sweep = api.http.post("/v1/sweeps", json={"model": api.upload(conv_chain(1)), "profiles": ["edge4"]}).json()["id"]
    assert api.finished(simulation)["state"] == api.finished(sweep)["state"] == "succeeded"
    digest = profile.json()["digest"]
    library = items(api, "units")[0]["id"]
    named = {"model": model, "profile": digest, "job": job["id"], "simulation": simulation, "sweep": sweep}
    return {**named, "library": library}


def operations_of(api: Api) -> dict[str, tuple[str, str]]:
    paths = api.http.get("/openapi.json").json()["paths"]
    return {
        operation["operationId"]: (method.upper(), path)
        for path, operations in paths.items()
        for method, operation in operations.items()
    }


@pytest.mark.slow
def test_every_route_answers_another_owner_as_if_there_were_no_such_thing(owners: tuple[Api, Api]) -> None:
    ann, bob = owners
    operations = operations_of(ann)
    ids = things(ann)
    asked, unknown = requests(operations, ids), requests(operations, UNKNOWN)
    uploads_and_lists = {"uploadModel", "createProfile", "listModels", "listProfiles", "listJobs"}
    uploads_and_lists |= {"listUnits", "getUnitStatistics", "listTables"}
    assert operations.keys() - asked.keys() == OPEN | uploads_and_lists, (
        "say in `requests` how a new route names things"
    )
    for name, request in asked.items():
        answer = request.sent(bob)
        assert said(answer, ids) == said(unknown[name].sent(bob), UNKNOWN), name
        assert answer.status_code == (
            422 if name in ("createCompilation", "createSweep", "putModel", "putUnits") else 404
        ), name
    # the same requests reach the things of their owner, so they were not refused for another reason
    by_method = sorted(asked.items(), key=lambda item: item[1].method == "DELETE")
    for name, request in by_method:
        if name == "deleteModel":
            for job in ann.jobs():  # those that these requests began need it until they end
                ann.finished(job["id"])
        if name not in ("putModel", "putUnits"):
            assert request.sent(ann).status_code in (200, 202, 204), name


def test_no_list_shows_what_belongs_to_another_owner(owners: tuple[Api, Api], api: Api) -> None:
    ann, bob = owners
    model = ann.upload(conv_chain(2, channels=9), "a.onnx")
    ann.http.post("/v1/profiles", json=user_profile("of-ann"))
    job = ann.submit(model, "edge4", verify="none")
    for other in (bob, api):
        assert model not in [one["id"] for one in items(other, "models")]
        assert job not in [one["id"] for one in items(other, "jobs")]
        assert "of-ann" not in [one["name"] for one in items(other, "profiles")]
    assert [one["id"] for one in items(ann, "models")] == [model]
    assert [one["id"] for one in items(ann, "jobs")] == [job]
    assert items(bob, "models") == items(bob, "jobs") == []
    ann.submit(model, "edge4", verify="none")
    cursor = ann.http.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"]
    assert bob.http.get("/v1/jobs", params={"cursor": cursor}).json()["items"] == []


def items(api: Api, what: str) -> list[dict[str, Any]]:
    return list(api.http.get(f"/v1/{what}", params={"limit": 200}).json()["items"])


def test_the_name_of_a_profile_means_the_own_one(owners: tuple[Api, Api]) -> None:
    for api, size in zip(owners, (64, 128), strict=True):
        values = user_profile("mine", description=f"with {size}")
        assert api.http.post("/v1/profiles", json=values).status_code == 201
    for api, size in zip(owners, (64, 128), strict=True):
        assert api.http.get("/v1/profiles/mine").json()["description"] == f"with {size}"
    ann, bob = owners
    assert ann.http.delete("/v1/profiles/mine").status_code == 204
    assert ann.http.get("/v1/profiles/mine").status_code == 404
    assert bob.http.get("/v1/profiles/mine").status_code == 200


def test_equal_bytes_belong_to_all_who_sent_them_and_go_with_the_last(
    owners: tuple[Api, Api], service: EmbeddedService
) -> None:
    ann, bob = owners
    data = conv_chain(4, channels=13)  # nobody else has it: the service is shared
    model = ann.upload(data, "ann.onnx")
    answer = bob.http.put(
        f"/v1/models/{model}",
        params={"name": "bob.onnx"},
        content=data,
        headers={"Content-Type": "application/octet-stream"},
    )
    assert answer.status_code == 201  # new to bob, who learns nothing else
    assert [api.http.get(f"/v1/models/{model}").json()["name"] for api in owners] == ["ann.onnx", "bob.onnx"]
    assert ann.http.delete(f"/v1/models/{model}").status_code == 204
    assert ann.http.get(f"/v1/models/{model}").status_code == 404
    assert (
        ann.http.post("/v1/compilations", json={"model": model, "profile": "edge4"}).json()["code"] == "unknown_model"
    )
    assert bob.finished(bob.submit(model, "edge4", verify="none"))["state"] == "succeeded"
    assert bob.http.delete(f"/v1/models/{model}").status_code == 204
    client = connect(service.broker_url)
    assert [key for key in client.scan_iter(f"*{model}*") if "deleting" not in str(key)] == []
    client.close()
    assert not list(service.settings.store_dir.rglob(model))


@pytest.mark.slow
def test_a_job_of_another_owner_does_not_keep_a_model(owners: tuple[Api, Api]) -> None:
    ann, bob = owners
    data = conv_chain(40)
    model = ann.upload(data)
    bob.upload(data)
    job = bob.submit(model)
    assert bob.http.delete(f"/v1/models/{model}").status_code == 409
    assert ann.http.delete(f"/v1/models/{model}").status_code == 204
    assert bob.finished(job)["state"] == "succeeded"


def test_a_cached_answer_carries_the_name_of_who_asks(owners: tuple[Api, Api]) -> None:
    ann, bob = owners
    data = conv_chain(3, channels=10)
    jobs = {}
    for api, name in ((ann, "secret-of-ann.onnx"), (bob, "bob.onnx")):
        job = jobs[name] = api.finished(api.submit(api.upload(data, name), "edge4", verify="none"))
        assert job["state"] == "succeeded", job
    shown = [bob.http.get(path).text for path in served(jobs["bob.onnx"])]
    shown.append(str(bob.http.get("/v1/jobs").json()))
    assert not [text for text in shown if "secret" in text]
    run = bob.http.post("/v1/simulations", json={"job": jobs["bob.onnx"]["id"]}).json()["id"]
    assert "secret" not in str(bob.finished(run)) + bob.http.get(f"/v1/jobs/{run}/report").text


def served(job: dict[str, Any]) -> list[str]:
    """The results of a job."""
    kept = ("plan", "report", "report_page", "listing", "executable")
    return [path for name, path in job["links"].items() if name in kept]


def test_an_idempotency_key_is_its_owners(owners: tuple[Api, Api]) -> None:
    data, jobs = conv_chain(3), set()
    for api in owners:
        body = {"model": api.upload(data), "profile": "edge4", "options": {"verify": "none"}}
        for _ in range(2):
            answer = api.http.post("/v1/compilations", json=body, headers={"Idempotency-Key": "one"})
            jobs.add(answer.json()["id"])
    assert len(jobs) == 2


@pytest.mark.slow
def test_tables_are_shared_and_what_was_asked_for_is_not_told(owners: tuple[Api, Api]) -> None:
    ann, bob = owners
    query = {"profile": "edge4", "shape": "x:1x3x9x9"}
    for api in owners:
        model = api.upload(images(), "same.onnx")
        assert api.http.get(f"/v1/models/{model}/tables", params=query).json()["code"] == "no_package"
        job = api.finished(api.submit(model, "edge4", dims=RANGES, verify="none"))
        assert job["state"] == "succeeded"
        assert api.http.get(f"/v1/models/{model}/tables", params=query).status_code == 200
        if api is ann:
            ann.http.get(f"/v1/models/{model}/tables", params={**query, "shape": "x:1x3x33x33"})
    found = {
        api: api.http.get(f"/v1/models/{model}/tables/statistics", params={"profile": "edge4"}).json() for api in owners
    }
    assert (found[ann]["requests"], found[bob]["requests"]) == (2, 1)
    assert [shape["dims"]["h"] for shape in found[bob]["shapes"]] == [9]


@pytest.mark.slow
def test_records_from_before_there_were_owners_belong_to_the_local_one(
    start: Callable[..., tuple[EmbeddedService, Api]],
) -> None:
    service, api = start()
    model = api.upload(conv_chain(2), "old.onnx")
    api.http.post("/v1/profiles", json=user_profile("old"))
    job = api.finished(api.submit(model, "old", verify="none"))["id"]
    client = connect(service.broker_url)
    client.hdel(f"tessera:job:{job}", "owner")
    assert client.hgetall(f"tessera:model:{model}").keys() == {"name", "size_bytes", "created_ms"}  # as 0.12 had it
    assert client.zscore("tessera:models", model)
    assert client.zscore("tessera:jobs", job)
    client.close()
    text = new_key(service, "new")
    service.stop()
    service, api = start()
    other, operator = Api(service.url, text), Api(service.url, new_key(service, "operator", "local"))
    assert [items(api, what)[-1].get("id", "old") for what in ("models", "jobs", "profiles")] == [model, job, "old"]
    assert api.http.get(f"/v1/jobs/{job}/plan").status_code == 200
    assert_problem(other.http.get(f"/v1/jobs/{job}"), 404, "unknown_job")  # the key survived, and the job is not its
    assert items(other, "models") == items(other, "jobs") == []
    assert operator.http.get(f"/v1/jobs/{job}").status_code == 200
    again = api.submit(model, "old", verify="none")
    until(lambda: api.job(again)["state"] == "succeeded", "the job of an old model")
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    other.http.close()
    operator.http.close()
