"""API-3, API-4: every resource and every kind of wrong input, over HTTP against real processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
import yaml

from app.simulations import listings, traces
from app.supervisor.service import EmbeddedService
from compiler.profile import builtin_names, builtin_profile, profile_digest, profile_json
from compiler.version import COMPILER_VERSION
from tests.service.harness import Api, conv_chain, until

pytestmark = pytest.mark.service
OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def network(api: Api) -> str:
    return api.upload(conv_chain(12, channels=9), "network.onnx")


def assert_problem(answer: httpx.Response, status: int, code: str, names: str = "") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = dict(answer.json())
    assert problem["code"] == code
    assert problem["status"] == status
    assert problem["type"] == f"urn:tessera:problem:{code}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert names in json.dumps(problem)
    assert "Traceback" not in answer.text
    return problem


def user_profile(name: str, **changes: Any) -> dict[str, Any]:
    values = json.loads(profile_json(builtin_profile("cluster4x4")))
    return {**values, "name": name, **changes}


# models


def test_a_model_is_known_by_the_digest_of_its_bytes(api: Api) -> None:
    data = conv_chain(1)
    first = api.http.post("/v1/models?name=one.onnx", content=data, headers=OCTETS)
    second = api.http.post("/v1/models", files={"model": ("two.onnx", data)})
    digest = hashlib.sha256(data).hexdigest()
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.json()["id"] == digest
    assert (first.json()["name"], first.json()["size_bytes"]) == ("one.onnx", len(data))
    assert first.headers["location"] == f"/v1/models/{digest}"
    assert first.headers["etag"] == f'"{digest}"'


def test_a_model_put_under_its_digest_is_checked(api: Api) -> None:
    data = conv_chain(2)
    digest = hashlib.sha256(data).hexdigest()
    assert api.http.put(f"/v1/models/{digest}", content=data, headers=OCTETS).status_code == 201
    assert api.http.put(f"/v1/models/{digest}", content=data, headers=OCTETS).status_code == 200
    wrong = api.http.put(f"/v1/models/{'0' * 64}", content=data, headers=OCTETS)
    assert_problem(wrong, 422, "digest_mismatch", digest)
    assert_problem(api.http.get(f"/v1/models/{'0' * 64}"), 404, "unknown_model", "0" * 64)


def test_an_immutable_model_answers_304_to_its_etag(api: Api, network: str) -> None:
    first = api.http.get(f"/v1/models/{network}")
    again = api.http.get(f"/v1/models/{network}", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    other = api.http.get(f"/v1/models/{network}", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


def pages(api: Api, path: str, limit: int) -> list[dict[str, Any]]:
    """The items of a list over all of its pages."""
    items: list[dict[str, Any]] = []
    parameters: dict[str, Any] = {"limit": limit}
    while True:
        page = api.http.get(path, params=parameters).json()
        assert len(page["items"]) <= limit
        items += page["items"]
        if "next_cursor" not in page:
            return items
        assert len(page["items"]) == limit
        parameters["cursor"] = page["next_cursor"]


def test_the_list_of_models_is_complete_over_pages(api: Api) -> None:
    expected = {api.upload(conv_chain(3, channels=channels)) for channels in range(1, 6)}
    seen = [item["id"] for item in pages(api, "/v1/models", 2)]
    assert len(seen) == len(set(seen))
    assert expected <= set(seen)


@pytest.mark.parametrize("limit", [1, 2, 3, 200])
def test_the_list_of_profiles_counts_the_builtin_ones_and_is_complete_over_pages(api: Api, limit: int) -> None:
    for number in range(3):
        api.http.post("/v1/profiles", json=user_profile(f"listed-{number}"))
    seen = [item["name"] for item in pages(api, "/v1/profiles", limit)]
    assert tuple(seen[: len(builtin_names())]) == builtin_names()
    assert len(seen) == len(set(seen))
    assert [name for name in seen if name.startswith("listed-")] == ["listed-2", "listed-1", "listed-0"]


def test_a_deleted_model_is_gone_and_may_come_back(api: Api) -> None:
    data = conv_chain(4)
    model = api.upload(data)
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    assert_problem(api.http.get(f"/v1/models/{model}"), 404, "unknown_model", model)
    assert_problem(api.http.delete(f"/v1/models/{model}"), 404, "unknown_model", model)
    assert_problem(
        api.http.post("/v1/compilations", json={"model": model, "profile": "edge4"}),
        422,
        "unknown_model",
        model,
    )
    assert api.upload(data) == model
    assert api.finished(api.submit(model))["state"] == "succeeded"


@pytest.mark.parametrize("how", ["raw", "multipart", "put"])
def test_an_empty_model_is_refused_by_name(api: Api, how: str) -> None:
    if how == "raw":
        answer = api.http.post("/v1/models", content=b"", headers=OCTETS)
    elif how == "multipart":
        answer = api.http.post("/v1/models", files={"model": ("empty.onnx", b"")})
    else:
        digest = hashlib.sha256(b"").hexdigest()
        answer = api.http.put(f"/v1/models/{digest}", content=b"", headers=OCTETS)
    assert_problem(answer, 422, "empty_model", "empty")


def test_a_too_large_upload_is_refused_before_it_is_sent(api: Api) -> None:
    answer = api.http.post("/v1/models", content=b"x" * 4_000_001, headers=OCTETS)
    assert assert_problem(answer, 413, "too_large")["limit"] == 4_000_000


@pytest.mark.parametrize("how", ["raw", "multipart"])
def test_a_too_large_upload_of_unknown_length_is_refused_while_it_streams(
    api: Api, service: EmbeddedService, how: str
) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\n'
    temporary = service.data_dir / "blobs" / "models" / "tmp"
    largest = 0

    def size() -> int:
        total = 0
        for path in temporary.iterdir():
            with contextlib.suppress(FileNotFoundError):  # one that the test before left is removed at this moment
                total += path.stat().st_size
        return total

    def body() -> Iterator[bytes]:
        nonlocal largest
        yield head if how == "multipart" else b""
        for index in range(400):
            if index == 40:  # well below the limit: what was sent so far reaches the disk, not only the memory
                until(lambda: size() >= 1_000_000, "the first bytes to be written")
            largest = max(largest, size())
            yield b"x" * 65536

    content_type = "multipart/form-data; boundary=b" if how == "multipart" else OCTETS["Content-Type"]
    answer = api.http.post("/v1/models", content=body(), headers={"Content-Type": content_type})
    assert assert_problem(answer, 413, "too_large")["limit"] == 4_000_000
    assert 1_000_000 <= largest <= 4_000_000
    until(lambda: not list(temporary.iterdir()), "the rest of the upload to be removed")


def test_a_form_without_a_model_or_cut_short_is_refused(api: Api) -> None:
    answer = api.http.post("/v1/models", files={"other": ("x", b"data")})
    assert_problem(answer, 422, "missing_model", "other")
    both = {"model": ("m", b"data"), "other": ("x", b"data")}
    assert_problem(api.http.post("/v1/models", files=both), 422, "invalid_request", "other")
    cut = b'--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\nda'
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert_problem(api.http.post("/v1/models", content=cut, headers=headers), 400, "malformed_request")
    assert_problem(api.http.post("/v1/models", content=b"rubbish", headers=headers), 400, "malformed_request")
    assert_problem(api.http.post("/v1/models", json={"a": 1}), 415, "unsupported_media_type", "application/json")


def test_a_file_name_never_becomes_more_than_one_printable_line(api: Api) -> None:
    data = conv_chain(5)
    answer = api.http.post("/v1/models", params={"name": "../../etc/\x1b[31mnet\n.onnx"}, content=data, headers=OCTETS)
    assert answer.json()["name"] == "\\x1b[31mnet\\n.onnx"


# profiles


def test_the_builtin_profiles_are_listed_and_served(api: Api) -> None:
    items = {item["name"]: item for item in api.http.get("/v1/profiles").json()["items"]}
    assert items["cluster4x4"]["builtin"]
    assert items["edge4"]["builtin"]
    for name in ("edge4", items["edge4"]["digest"]):
        answer = api.http.get(f"/v1/profiles/{name}")
        assert answer.content == profile_json(builtin_profile("edge4"))
        assert answer.headers["etag"] == f'"{profile_digest(builtin_profile("edge4"))}"'
        headers = {"If-None-Match": answer.headers["etag"]}
        assert api.http.get(f"/v1/profiles/{name}", headers=headers).status_code == 304


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_user_profile_is_known_by_name_and_digest(api: Api, form: str) -> None:
    values = user_profile(f"mine-{form}")
    text = json.dumps(values) if form == "json" else yaml.safe_dump(values)
    headers = {"Content-Type": f"application/{form}"}
    first, again = (api.http.post("/v1/profiles", content=text.encode(), headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    by_name = api.http.get(f"/v1/profiles/mine-{form}")
    by_digest = api.http.get(first.headers["location"])
    assert by_name.content == by_digest.content
    assert f"mine-{form}" in {item["name"] for item in api.http.get("/v1/profiles").json()["items"]}


def test_a_profile_with_a_negative_size_is_refused_by_its_field(api: Api) -> None:
    values = user_profile("bad")
    values["sram"]["capacity_bytes"] = -1
    problem = assert_problem(api.http.post("/v1/profiles", json=values), 422, "invalid_profile", "sram.capacity_bytes")
    assert problem["actual"] == "-1"
    form = {"model": ("net.onnx", conv_chain(1)), "profile": ("bad.json", json.dumps(values).encode())}
    assert_problem(api.http.post("/v1/compilations", files=form), 422, "invalid_profile", "sram.capacity_bytes")


def test_amounts_with_units_make_the_same_profile_as_numbers_and_a_wrong_unit_is_refused(api: Api) -> None:
    values = user_profile("with-units")
    digest = api.http.post("/v1/profiles", json=values).json()["digest"]
    values["sram"]["capacity_bytes"] = "2MiB"
    values["clock_hz"] = "1GHz"
    again = api.http.post("/v1/profiles", json=values)
    assert again.json().get("digest") == digest, again.text
    values["sram"]["capacity_bytes"] = "2MHz"
    problem = assert_problem(api.http.post("/v1/profiles", json=values), 422, "invalid_profile", "sram.capacity_bytes")
    assert problem["actual"] == "2MHz"


def test_the_name_of_a_builtin_profile_is_taken(api: Api) -> None:
    values = user_profile("edge4", clock_hz=12345678.0)
    answer = api.http.post("/v1/profiles", json=values)
    assert answer.status_code in (409, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_deleted_profile_is_gone_and_its_name_means_the_one_before(api: Api) -> None:
    first, latest = (
        api.http.post("/v1/profiles", json=user_profile("twice", clock_hz=clock)).json()["digest"]
        for clock in (1e9, 2e9)
    )
    assert api.http.get("/v1/profiles/twice").headers["etag"] == f'"{latest}"'
    assert api.http.delete("/v1/profiles/twice").status_code == 204
    assert_problem(api.http.get(f"/v1/profiles/{latest}"), 404, "unknown_profile", latest)
    assert api.http.get("/v1/profiles/twice").headers["etag"] == f'"{first}"'
    assert api.http.delete(f"/v1/profiles/{first}").status_code == 204
    assert_problem(api.http.delete("/v1/profiles/twice"), 404, "unknown_profile", "twice")
    assert not {first, latest} & {item["digest"] for item in pages(api, "/v1/profiles", 200)}


def test_a_builtin_profile_cannot_be_deleted(api: Api) -> None:
    digest = profile_digest(builtin_profile("edge4"))
    for name in ("edge4", digest):
        assert_problem(api.http.delete(f"/v1/profiles/{name}"), 409, "builtin_profile", "edge4")
    assert api.http.get("/v1/profiles/edge4").status_code == 200


def test_a_job_goes_on_with_a_profile_that_was_deleted(api: Api, network: str) -> None:
    digest = api.http.post("/v1/profiles", json=user_profile("short-lived")).json()["digest"]
    job = api.submit(network, "short-lived")
    assert api.http.delete(f"/v1/profiles/{digest}").status_code == 204
    assert api.finished(job)["state"] == "succeeded"


def test_an_unknown_profile_is_not_found(api: Api) -> None:
    assert_problem(api.http.get("/v1/profiles/nonesuch"), 404, "unknown_profile", "nonesuch")


# compilations and jobs


def test_a_compilation_is_accepted_followed_and_answered(api: Api, network: str) -> None:
    accepted = api.http.post("/v1/compilations", json={"model": network, "profile": "cluster4x4"})
    assert accepted.status_code in (200, 202)
    location = accepted.headers["location"]
    assert location == f"/v1/jobs/{accepted.json()['id']}"
    job = api.finished(accepted.json()["id"])
    assert (job["state"], job["model"]["name"]) == ("succeeded", "network.onnx")
    assert job["started_at"] <= job["finished_at"]
    plan = api.http.get(job["links"]["plan"])
    assert plan.json()["model"] == {"name": "network.onnx", "sha256": network}
    assert plan.json()["segments"]
    assert plan.headers["etag"] == f'"{hashlib.sha256(plan.content).hexdigest()}"'
    headers = {"If-None-Match": plan.headers["etag"]}
    assert api.http.get(job["links"]["plan"], headers=headers).status_code == 304
    assert api.http.get(job["links"]["report"]).status_code == 200


def test_a_job_has_a_page_for_browsers_that_may_neither_load_nor_call_anything(api: Api, network: str) -> None:
    job = api.finished(api.submit(network, "cluster4x4"))
    page = api.http.get(job["links"]["report_page"])
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith("sandbox allow-scripts")
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["content-disposition"] == 'inline; filename="report.html"'
    assert "<title>network.onnx on cluster4x4</title>" in page.text
    assert '"pictures":{"s0.g0":' in page.text
    headers = {"If-None-Match": page.headers["etag"]}
    again = api.http.get(f"/v1/jobs/{job['id']}/report.html", headers=headers)
    assert again.status_code == 304
    for name in ("content-security-policy", "cross-origin-opener-policy"):  # a browser keeps those of the 304
        assert again.headers[name] == page.headers[name]


def test_a_known_result_is_answered_at_once(api: Api, network: str) -> None:
    first = api.submit(network, "edge4", fusion="search")
    api.finished(first)

    def known() -> httpx.Response | None:
        answer = api.http.post("/v1/compilations", json={"model": network, "profile": "edge4"})
        return answer if answer.json()["cached"] else None

    answer = until(known, "the result to be cached")
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["attempts"]) == ("succeeded", 0)
    assert answer.json()["id"] != first
    plans = [api.http.get(f"/v1/jobs/{job}/plan").content for job in (first, answer.json()["id"])]
    assert plans[0] == plans[1]


def test_prefer_wait_answers_with_the_finished_job(api: Api) -> None:
    model = api.upload(conv_chain(6))
    answer = api.http.post("/v1/compilations", json={"model": model, "profile": "edge4"}, headers={"Prefer": "wait=20"})
    assert (answer.status_code, answer.json()["state"]) == (200, "succeeded")
    assert answer.headers["preference-applied"] == "wait=20"


def test_model_profile_and_options_come_in_one_form(api: Api) -> None:
    values = user_profile("carried")
    form: dict[str, Any] = {
        "model": ("carried.onnx", conv_chain(7)),
        "profile": ("p.yaml", yaml.safe_dump(values).encode()),
        "options": (None, json.dumps({"fusion": "none"})),
    }
    answer = api.http.post("/v1/compilations", files=form, headers={"Prefer": "wait=20"})
    job = answer.json()
    assert (job["state"], job["profile"]["name"]) == ("succeeded", "carried")
    assert job["options"]["fusion"] == "none"
    assert api.http.get(f"/v1/models/{job['model']['digest']}").json()["name"] == "carried.onnx"


def test_a_form_may_refer_to_what_is_there(api: Api, network: str) -> None:
    form = {"model": (None, network), "profile": (None, "cluster4x4")}
    assert api.http.post("/v1/compilations", files=form).status_code in (200, 202)
    form["extra"] = (None, "x")
    assert_problem(api.http.post("/v1/compilations", files=form), 422, "invalid_request", "extra")


def test_the_list_of_jobs_is_newest_first_and_complete_over_pages(api: Api, network: str) -> None:
    jobs = [api.submit(network, verify="none", min_macs=number) for number in range(5)]
    for job in jobs:
        api.finished(job)
    items = pages(api, "/v1/jobs", 2)
    assert [item["id"] for item in items if item["id"] in jobs] == jobs[::-1]
    times = [datetime.fromisoformat(item["created_at"]) for item in items]
    assert times == sorted(times, reverse=True)
    whole = api.job(jobs[0])
    shown = next(item for item in items if item["id"] == jobs[0])
    assert shown == {name: whole[name] for name in shown}
    assert {"id", "kind", "state", "created_at", "model", "profile"} <= shown.keys()


def test_a_deleted_job_is_gone_and_what_it_led_to_is_known(api: Api, network: str) -> None:
    job = api.submit(network)
    api.finished(job)
    assert api.http.delete(f"/v1/jobs/{job}").status_code == 204
    assert_problem(api.http.get(f"/v1/jobs/{job}"), 404, "unknown_job", job)
    assert_problem(api.http.delete(f"/v1/jobs/{job}"), 404, "unknown_job", job)
    assert job not in {item["id"] for item in pages(api, "/v1/jobs", 200)}
    assert api.job(api.submit(network))["cached"]


def test_a_job_that_is_not_final_is_not_deleted(api: Api) -> None:
    job = api.submit(api.upload(conv_chain(200)))
    problem = assert_problem(api.http.delete(f"/v1/jobs/{job}"), 409, "not_finished", job)
    assert f"POST /v1/jobs/{job}/cancel" in problem["hint"]
    api.http.post(f"/v1/jobs/{job}/cancel")
    assert api.finished(job)["state"] == "cancelled"
    assert api.http.delete(f"/v1/jobs/{job}").status_code == 204


def test_a_sweep_is_deleted_with_its_points_and_only_it_is_listed(api: Api, network: str) -> None:
    body = {"model": network, "profiles": ["edge4"], "grid": {"nram": ["256KiB", "512KiB"]}}
    sweep = api.http.post("/v1/sweeps", json=body).json()["id"]
    assert api.finished(sweep)["state"] == "succeeded"
    points = [point["job"] for point in api.http.get(f"/v1/sweeps/{sweep}").json()["points"]]
    listed = {item["id"] for item in pages(api, "/v1/jobs", 200)}
    assert sweep in listed
    assert not listed.intersection(points)
    assert_problem(api.http.delete(f"/v1/jobs/{points[0]}"), 409, "point_of_sweep", sweep)
    assert api.http.delete(f"/v1/jobs/{sweep}").status_code == 204
    for job in (sweep, *points):
        assert_problem(api.http.get(f"/v1/jobs/{job}"), 404, "unknown_job", job)


def test_head_on_every_get_is_the_answer_without_its_body(api: Api, network: str) -> None:
    job = api.submit(network)
    api.finished(job)
    sweep = api.http.post("/v1/sweeps", json={"model": network, "profiles": ["edge4"], "grid": {}}).json()["id"]
    api.finished(sweep)
    values = {"model_id": network, "profile": "edge4", "job_id": job, "sweep_id": sweep, "number": 0}
    values["library_id"] = "0" * 64
    paths = api.http.get("/openapi.json").json()["paths"]
    tried = ["/", "/docs", "/openapi.json", *(path for path, methods in paths.items() if "get" in methods)]
    for path in tried:
        url = path.format(**values)
        head = api.http.head(url)
        assert head.content == b"", url
        with api.http.stream("GET", url) as answer:
            assert head.status_code == answer.status_code, url
            for name in ("content-type", "content-length", "etag"):
                # the figures of the service change from one moment to the next
                if (path, name) != ("/metrics", "content-length"):
                    assert head.headers.get(name) == answer.headers.get(name), (url, name)


@pytest.mark.slow
def test_head_leaves_no_place_of_those_who_make_traces_taken(api: Api, network: str) -> None:
    job = api.submit(network)
    api.finished(job)
    for _ in range(traces.AT_ONCE):
        assert api.http.head(f"/v1/jobs/{job}/trace").status_code == 200
    assert api.http.get(f"/v1/jobs/{job}/trace").status_code == 200


def test_head_leaves_no_place_of_those_who_make_listings_taken(api: Api, network: str) -> None:
    job = api.submit(network)
    api.finished(job)
    for _ in range(2 * listings.AT_ONCE):
        assert api.http.head(f"/v1/jobs/{job}/listing").status_code == 200
    assert api.http.get(f"/v1/jobs/{job}/listing").status_code == 200


def test_an_idempotency_key_makes_one_job_even_in_a_race(api: Api, network: str) -> None:
    body = {"model": network, "profile": "cluster4x4", "options": {"start_rule": "B"}}
    answers: list[httpx.Response] = []

    def post() -> None:
        answers.append(api.http.post("/v1/compilations", json=body, headers={"Idempotency-Key": "race"}))

    threads = [threading.Thread(target=post) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = {**body, "options": {"start_rule": "A"}}
    answer = api.http.post("/v1/compilations", json=other, headers={"Idempotency-Key": "race"})
    assert_problem(answer, 422, "idempotency_key_reused", "race")


def test_a_file_that_is_not_onnx_fails_its_job_and_says_so(api: Api) -> None:
    model = api.upload(b"this is no protobuf at all, let alone a network")
    job = api.finished(api.submit(model))
    assert (job["state"], job["attempts"]) == ("failed", 1)
    assert "ONNX" in job["problem"]["detail"]
    assert job["problem"]["status"] == 422
    assert api.http.get(f"/v1/jobs/{job['id']}").status_code == 200
    assert_problem(api.http.get(f"/v1/jobs/{job['id']}/plan"), 409, "no_result", "failed")


def test_the_failure_of_a_faulty_model_is_known_too(api: Api) -> None:
    model = api.upload(b"another file that is not a network")
    problem = api.finished(api.submit(model))["problem"]
    body = {"model": model, "profile": "cluster4x4"}

    def known() -> dict[str, Any] | None:
        job = dict(api.http.post("/v1/compilations", json=body).json())
        return job if job["cached"] else None

    assert until(known, "the failure to be cached")["problem"]["code"] == problem["code"]


@pytest.mark.parametrize(
    ("change", "status", "code", "names"),
    [
        ({"model": "f" * 64}, 422, "unknown_model", "f" * 64),
        ({"model": "../../etc/passwd"}, 422, "unknown_model", "etc/passwd"),
        ({"profile": "nonesuch"}, 422, "unknown_profile", "nonesuch"),
        ({"options": {"colour": 1}}, 422, "unknown_option", "colour"),
        ({"options": {"objective": "speed"}}, 422, "invalid_option", "objective"),
        ({"options": {"time_limit_s": 1e9}}, 422, "invalid_option", "time_limit_s"),
        ({"options": {"memory_limit_bytes": 2**60}}, 422, "invalid_option", "memory_limit_bytes"),
        ({"options": []}, 422, "invalid_request", "options"),
        ({"surplus": 1}, 422, "invalid_request", "surplus"),
        ({"profile": None}, 422, "invalid_request", "profile"),
    ],
)
def test_a_wrong_request_is_refused_by_the_name_of_what_is_wrong(
    api: Api, network: str, change: dict[str, Any], status: int, code: str, names: str
) -> None:
    body = {"model": network, "profile": "cluster4x4", **change}
    assert_problem(api.http.post("/v1/compilations", json=body), status, code, names)


def test_malformed_json_is_refused(api: Api) -> None:
    headers = {"Content-Type": "application/json"}
    answer = api.http.post("/v1/compilations", content=b'{"model": ', headers=headers)
    assert_problem(answer, 400, "malformed_request", "JSON")
    answer = api.http.post("/v1/compilations", content=b"[" * 100_000, headers=headers)
    assert_problem(answer, 400, "malformed_request", "JSON")
    answer = api.http.post("/v1/compilations", content=b" " * 1_100_000, headers=headers)
    assert_problem(answer, 413, "too_large")


@pytest.mark.parametrize("path", ["", "/plan", "/report", "/events"])
def test_an_unknown_job_is_not_found(api: Api, path: str) -> None:
    assert_problem(api.http.get(f"/v1/jobs/deadbeef{path}"), 404, "unknown_job", "deadbeef")
    assert_problem(api.http.post("/v1/jobs/a:b/cancel"), 404, "unknown_job", "a:b")


def test_a_wrong_method_is_refused_and_says_which_are_right(api: Api) -> None:
    answer = api.http.delete("/v1/compilations")
    assert_problem(answer, 405, "method_not_allowed", "DELETE")
    assert answer.headers["allow"] == "POST"


def test_an_unknown_path_is_a_problem_too(api: Api) -> None:
    assert_problem(api.http.get("/v1/nothing"), 404, "not_found", "/v1/nothing")


def test_a_bad_query_or_cursor_is_a_problem(api: Api) -> None:
    assert_problem(api.http.get("/v1/models?limit=0"), 422, "invalid_request", "limit")
    assert_problem(api.http.get("/v1/models?cursor=%21%21"), 422, "invalid_cursor", "!!")


# events


def test_events_resume_after_the_last_id(api: Api) -> None:
    model = api.upload(conv_chain(8))
    job = api.submit(model)
    api.finished(job)
    events = read_events(api, job, {})
    states = [json.loads(event["data"])["state"] for event in events]
    assert states[0] == "queued"
    assert states[-1] == "succeeded"
    phases = [json.loads(event["data"]) for event in events if "phase" in json.loads(event["data"])]
    assert [phase["step"] for phase in phases] == sorted(phase["step"] for phase in phases)
    rest = read_events(api, job, {"Last-Event-ID": events[1]["id"]})
    assert [event["id"] for event in rest] == [event["id"] for event in events[2:]]
    last = api.http.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": events[-1]["id"]})
    assert last.status_code == 204
    wrong = api.http.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "x"})
    assert_problem(wrong, 422, "invalid_event_id", "x")


def read_events(api: Api, job: str, headers: dict[str, str]) -> list[dict[str, str]]:
    events: list[dict[str, str]] = []
    with api.http.stream("GET", f"/v1/jobs/{job}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(":")
            if line:
                event[name] = value.strip()
            elif event:
                events.append(event)
                event = {}
    return events


# health and documents


def test_the_service_is_alive_ready_and_measured(api: Api) -> None:
    assert api.http.get("/livez").json() == {"status": "alive"}
    ready = api.http.get("/readyz")
    assert (ready.status_code, ready.json()["workers"]) == (200, 1)
    text = api.http.get("/metrics").text
    for name in (
        "tessera_queue_depth",
        "tessera_queue_oldest_seconds",
        f'tessera_workers{{store="same",version="{COMPILER_VERSION}"}} 1.0',
    ):
        assert name in text


def test_the_documentation_needs_no_other_host(api: Api) -> None:
    assert api.http.get("/").headers["location"] == "/docs"
    page = api.http.get("/docs")
    assert page.status_code == 200
    assert "https://" not in page.text.replace("https://www.w3.org", "")
    for part in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert part in page.text
        assert api.http.get(f"/static-offline-docs/{part}").status_code == 200


def test_operation_ids_are_stable(api: Api) -> None:
    paths = api.http.get("/openapi.json").json()["paths"]
    ids = {operation["operationId"] for methods in paths.values() for operation in methods.values()}
    assert ids == {
        "uploadModel",
        "putModel",
        "listUnits",
        "getUnits",
        "putUnits",
        "getUnitStatistics",
        "listTables",
        "listModels",
        "getModel",
        "deleteModel",
        "createProfile",
        "listProfiles",
        "getProfile",
        "deleteProfile",
        "createCompilation",
        "createSimulation",
        "listJobs",
        "getJob",
        "deleteJob",
        "cancelJob",
        "getPlan",
        "getReport",
        "getReportPage",
        "getExecutable",
        "getListing",
        "getTrace",
        "createSweep",
        "getSweep",
        "compareJobs",
        "getOutputs",
        "getPackage",
        "getTables",
        "getTableStatistics",
        "followJob",
        "live",
        "ready",
        "metrics",
    }


def test_a_request_id_of_the_caller_is_kept_if_it_is_a_plain_word(api: Api) -> None:
    assert api.http.get("/livez", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert api.http.get("/livez", headers={"X-Request-ID": "a b"}).headers["x-request-id"] != "a b"


def test_deleting_a_model_whose_bytes_are_a_plan_leaves_the_plan(api: Api, network: str) -> None:
    job = api.finished(api.submit(network, "edge4"))
    plan = api.http.get(job["links"]["plan"])
    model = api.upload(plan.content, "plan.onnx")
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    assert api.http.get(job["links"]["plan"]).content == plan.content


def test_a_refused_method_lists_all_that_the_path_has(api: Api) -> None:
    answer = api.http.request("PATCH", f"/v1/models/{'0' * 64}")
    assert_problem(answer, 405, "method_not_allowed", "PATCH")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"


def test_text_that_is_no_utf8_and_an_event_id_out_of_range_are_the_callers_fault(api: Api, network: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = api.http.post("/v1/compilations", content=b'{"model": "\xff"}', headers=headers)
    assert_problem(answer, 400, "malformed_request")
    job = api.finished(api.submit(network, "edge4"))
    answer = api.http.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": "99999999999999999999-0"})
    assert_problem(answer, 422, "invalid_event_id", "99999999999999999999-0")


@pytest.mark.slow
def test_an_event_id_ahead_of_the_stream_ends_with_the_job(api: Api) -> None:
    job = api.submit(api.upload(conv_chain(30, channels=5)), "edge4")
    headers = {"Last-Event-ID": "99999999999999-0"}
    answer = api.http.get(f"/v1/jobs/{job}/events", headers=headers, timeout=60)
    assert answer.status_code == 200
    assert "data:" not in answer.text
    assert api.job(job)["state"] == "succeeded"


@pytest.mark.slow
def test_the_plan_of_a_running_job_can_be_read_before_its_programs_are_made(api: Api) -> None:
    """Marked provisional and not to be stored; the final one is another document, its plan chosen by simulation."""
    job = api.submit(api.upload(conv_chain(60, extent=96)), fusion="search")
    running = until(lambda: found if (found := api.job(job))["links"].get("plan") else None, "a plan")
    assert running["state"] == "running"
    early = api.http.get(running["links"]["plan"])
    assert (early.status_code, early.headers["Cache-Control"]) == (200, "no-store")
    again = api.http.get(running["links"]["plan"], headers={"If-None-Match": early.headers["ETag"]})
    assert again.status_code == 304
    assert api.http.get(f"/v1/jobs/{job}/report").status_code == 409
    events = api.http.get(f"/v1/jobs/{job}/events").text
    final = api.http.get(api.finished(job)["links"]["plan"])
    assert final.headers["Cache-Control"] != "no-store"
    assert final.headers["ETag"] != early.headers["ETag"]
    first, last = early.json(), final.json()
    assert (first["provisional"], last["provisional"]) == (True, False)
    assert first["totals"]["simulated_latency_s"] is None
    assert last["totals"]["simulated_latency_s"] > 0
    same = ("model", "profile", "options", "native", "baseline")
    assert [first[name] for name in same] == [last[name] for name in same]
    told = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: ")]
    planned = next(event for event in told if event["planned"])
    assert (planned["state"], planned["phase"]) == ("running", "plan")
