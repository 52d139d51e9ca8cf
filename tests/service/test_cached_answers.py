"""Issue 24, finding 13: what is known is answered with one read of the records, and only while it is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx
import pytest

from app.keys.keys import Keys
from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, conv_chain, new_key
from tests.service.models import images
from tests.service.test_tables import ask, optimised, packaged, statistics

pytestmark = pytest.mark.service


def commands(url: str, word: str, act: Callable[[], object]) -> list[str]:
    """The commands that a Redis gets while something is done, as far as a word is in them."""
    client, found = connect(url), list[str]()
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        act()
        client.echo("that is all")
        for event in cast(Any, monitor.listen()):
            command = str(event["command"])
            if "that is all" in command:
                break
            if word in command:
                found.append(command)
    client.close()
    return found


@pytest.fixture(scope="module")
def job(api: Api) -> str:
    found = api.finished(api.submit(api.upload(conv_chain(3)), "edge4", verify="none"))
    assert found["state"] == "succeeded", found
    return str(found["id"])


@pytest.mark.parametrize("path", ["", "/plan", "/report"])
def test_a_known_answer_of_a_job_takes_one_read_of_its_record(
    api: Api, service: EmbeddedService, job: str, path: str
) -> None:
    target = f"/v1/jobs/{job}{path}"
    first = api.http.get(target)
    tag = {"If-None-Match": first.headers["ETag"]} if path else {}
    for headers, status in (({}, 200), (tag, 304 if path else 200)):
        answers: list[httpx.Response] = []

        def again(given: Mapping[str, str] = headers, answers: list[httpx.Response] = answers) -> None:
            answers.append(api.http.get(target, headers=given))

        assert commands(service.broker_url, job, again) == [f"HGETALL tessera:job:{job}"]
        assert answers[0].status_code == status
        assert status == 304 or answers[0].content == first.content


def test_a_known_table_takes_one_read_and_outlives_the_cache(api: Api, service: EmbeddedService) -> None:
    model, _ = packaged(api, images(5))
    shape = "x:2x3x31x33"
    optimised(api, model, shape)
    first = ask(api, model, shape)
    read = commands(service.broker_url, model, lambda: ask(api, model, shape))
    assert len(read) == 1
    assert read[0].startswith(f"HGET tessera:model:{model}:packages ")
    client = connect(service.cache_url)
    client.flushdb()
    client.close()
    assert ask(api, model, shape).content == first.content


def test_each_answer_with_a_known_table_is_counted(api: Api) -> None:
    model, _ = packaged(api, images(6))
    shape = "x:3x3x21x23"
    optimised(api, model, shape)
    before = statistics(api, model)
    for _ in range(7):
        ask(api, model, shape)
    after = statistics(api, model)
    assert after["requests"] - before["requests"] == 7
    assert after["shapes"][0]["requests"] - before["shapes"][0]["requests"] == 7
    hits = [sum(one["tables"] for one in found["answered"] if one["cache"] == "hit") for found in (before, after)]
    assert hits[1] - hits[0] == 7 * len(ask(api, model, shape).json()["routines"])


def test_a_known_answer_asks_for_the_key_and_nothing_else(service: EmbeddedService) -> None:
    text = new_key(service, "reader")
    api = Api(service.url, text)
    job = api.finished(api.submit(api.upload(conv_chain(2, channels=12)), "edge4", verify="none"))["id"]
    target, key = f"/v1/jobs/{job}/plan", text.split("_")[1]
    body = api.http.get(target).content
    assert api.http.get(target).content == body
    asked = commands(service.broker_url, "", lambda: api.http.get(target))
    assert [one for one in asked if key in one or job in one] == [
        f"HGETALL tessera:key:{key}",
        f"HGETALL tessera:job:{job}",
    ]
    broker = connect(service.broker_url)
    Keys(broker, service.settings).revoke("reader")
    broker.close()
    assert api.http.get(target).status_code == 401
    api.http.close()


def test_what_is_known_to_its_owner_is_unknown_to_others(api: Api, service: EmbeddedService, job: str) -> None:
    other = Api(service.url, new_key(service, "stranger"))
    for path in ("", "/plan", "/report"):
        assert api.http.get(f"/v1/jobs/{job}{path}").status_code == 200
        assert other.http.get(f"/v1/jobs/{job}{path}").status_code == 404
        assert api.http.get(f"/v1/jobs/{job}{path}").status_code == 200
    other.http.close()


def test_a_known_answer_is_counted_with_its_route(api: Api, job: str) -> None:
    def counted() -> float:
        label = 'tessera_http_request_seconds_count{method="GET",route="/v1/jobs/{job_id}/plan",status="200"} '
        lines = api.http.get("/metrics").text.splitlines()
        return next((float(line.removeprefix(label)) for line in lines if line.startswith(label)), 0.0)

    before = counted()
    for _ in range(3):
        api.http.get(f"/v1/jobs/{job}/plan")
    assert counted() - before == 3


def test_what_is_deleted_is_not_answered_from_memory(api: Api) -> None:
    model = api.upload(conv_chain(4, channels=12))
    found = api.finished(api.submit(model, "edge4", verify="none"))
    targets = [found["links"][name] for name in ("self", "plan", "report")]
    for target in targets:
        assert [api.http.get(target).status_code for _ in range(2)] == [200, 200]
    assert api.http.delete(found["links"]["self"]).status_code == 204
    assert [api.http.get(target).status_code for target in targets] == [404] * 3


def test_a_model_that_is_deleted_takes_its_known_tables_with_it(api: Api) -> None:
    model, _ = packaged(api, images(7))
    shape = "x:1x3x17x19"
    optimised(api, model, shape)
    assert ask(api, model, shape).status_code == 200
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    assert ask(api, model, shape).status_code == 404
