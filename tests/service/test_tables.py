"""SHAPE-7, SHAPE-10, API-3: packages and tables over HTTP, with real Redis and workers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.client.client import Client
from app.client.errors import ServiceError
from app.redis_urls import connect
from app.store import document_store
from app.supervisor.service import EmbeddedService
from app.tables.cache import value_key
from compiler.compile import compile_shapes
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.shapes.direct import run_directly
from compiler.shapes.package import read_package, stored_values, write_package
from compiler.simulator.reference import run_reference
from tests.profiles import profile_values
from tests.service.harness import Api, conv_chain, kill, until
from tests.service.models import attention, images, rarely_none, sentences

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]

RANGES = {name: {"min": 1, "max": most} for name, most in (("n", 4), ("h", 40), ("w", 40))}
LARGE = {name: {"min": 1, "max": most} for name, most in (("n", 512), ("h", 2048), ("w", 2048))}


def packaged(api: Api, data: bytes, profile: str = "edge4", dims: Any = None) -> tuple[str, dict[str, Any]]:
    """A model that was compiled for ranges of its dimensions, and the job."""
    model = api.upload(data)
    job = api.finished(api.submit(model, profile, dims=RANGES if dims is None else dims, verify="none"))
    assert job["state"] == "succeeded", job
    return model, job


def ask(api: Api, model: str, *shapes: str, profile: str = "edge4", **headers: str) -> httpx.Response:
    query = {"profile": profile, "shape": list(shapes)}
    return api.http.get(f"/v1/models/{model}/tables", params=query, headers=headers)


def tables(api: Api, model: str, *shapes: str) -> dict[str, Any]:
    answer = ask(api, model, *shapes)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def optimised(api: Api, model: str, *shapes: str) -> dict[str, Any]:
    """The answer once all tables are optimised."""
    return until(
        lambda: found if (found := tables(api, model, *shapes))["kind"] == "optimised" else None, "optimised tables"
    )


def statistics(api: Api, model: str, profile: str = "edge4") -> dict[str, Any]:
    answer = api.http.get(f"/v1/models/{model}/tables/statistics", params={"profile": profile})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def answered(found: dict[str, Any], cache: str, kind: str) -> int:
    return next(int(one["tables"]) for one in found["answered"] if (one["cache"], one["kind"]) == (cache, kind))


def cache_of(service: EmbeddedService) -> Any:
    """A client of bytes, which redis-py's types do not know."""
    return connect(service.cache_url, text=False)


def times_covered(routine: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How often each element of a routine's result is covered, over its tiled axes, call by call."""
    covered = np.zeros([routine["shape"][axis] for axis in routine["tiled"]], dtype=np.int64)
    for run in routine["runs"]:
        for turn in np.ndindex(*(axis["count"] for axis in run["axes"])):
            starts = [axis["start"] + place * axis["length"] for axis, place in zip(run["axes"], turn, strict=True)]
            box = (slice(start, start + axis["length"]) for start, axis in zip(starts, run["axes"], strict=True))
            covered[tuple(box)] += 1
    return covered


@pytest.fixture(scope="module")
def images_model(api: Api) -> str:
    return packaged(api, images())[0]


def test_a_shape_is_answered_at_once_and_better_later(api: Api, images_model: str) -> None:
    first = tables(api, images_model, "x:2x3x37x29")
    assert (first["cache"], first["kind"], first["optimised_cost_cycles"]) == ("miss", "simple", None)
    assert (first["inputs"], first["dims"]) == ({"x": [2, 3, 37, 29]}, {"h": 37, "n": 2, "w": 29})
    assert first["cost_cycles"] == first["simple_cost_cycles"] == sum(one["cost_cycles"] for one in first["routines"])
    assert [node for routine in first["routines"] for node in routine["ops"]] == ["conv", "relu"]
    last = optimised(api, images_model, "x:2x3x37x29")
    assert (last["cache"], last["simple_cost_cycles"]) == ("hit", first["cost_cycles"])
    assert last["cost_cycles"] == last["optimised_cost_cycles"] <= first["cost_cycles"]
    for answer in (first, last):
        for routine in answer["routines"]:
            assert routine["shape"] == [2, 8, 37, 29]
            assert (times_covered(routine) == 1).all()
            assert routine["calls"] == sum(np.prod([a["count"] for a in run["axes"]]) for run in routine["runs"])


def test_an_etag_is_of_the_content(api: Api, images_model: str) -> None:
    optimised(api, images_model, "x:1x3x11x12")
    answer = ask(api, images_model, "x:1x3x11x12")
    tag = answer.headers["etag"]
    assert answer.headers["cache-control"] == "private, no-cache"
    again = ask(api, images_model, "x:1x3x11x12", **{"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = ask(api, images_model, "x:1x3x12x11", **{"If-None-Match": tag})
    assert (other.status_code, other.headers["etag"] == tag) == (200, False)


# sixteen times the maxima of RANGES: there the graph is the same
RANGE = "x[n = 1 to 64, 3, h = 1 to 640, w = 1 to 640]"
WRONG = {
    "x:1x3x641x9": ("extent_out_of_range", 641, "1 to 640"),
    "x:1x4x9x9": ("extent_out_of_range", "1x4x9x9", RANGE),
    "x:1x3x9": ("wrong_rank", "1x3x9", RANGE),
    "x:1x3x9x9x9": ("wrong_rank", "1x3x9x9x9", RANGE),
    "x:1x3x0x9": ("extent_out_of_range", "1x3x0x9", RANGE),
    "x:1x3x-9x9": ("extent_out_of_range", "1x3x-9x9", RANGE),
    "x:1x3x999999999999999999x9": ("extent_out_of_range", 999999999999999999, "1 to 640"),
    "x:1x3xheightx9": ("invalid_shape", "x:1x3xheightx9", "x[n, 3, h, w]; h = 1 to 640, n = 1 to 64, w = 1 to 640"),
    "x:1x3x٣x9": ("invalid_shape", "x:1x3x٣x9", "x[n, 3, h, w]; h = 1 to 640, n = 1 to 64, w = 1 to 640"),
    "x:": ("wrong_rank", "", RANGE),
    ":1x3x9x9": ("invalid_shape", ":1x3x9x9", "x[n, 3, h, w]; h = 1 to 640, n = 1 to 64, w = 1 to 640"),
    "1x3x9x9": ("invalid_shape", "1x3x9x9", "x[n, 3, h, w]; h = 1 to 640, n = 1 to 64, w = 1 to 640"),
    "y:1x3x9x9": ("unknown_input", "y", "x"),
    "<b>:1x3x9x9": ("unknown_input", "<b>", "x"),
}


@pytest.mark.parametrize("shape", WRONG)
def test_a_shape_that_cannot_be_is_refused_with_what_can(api: Api, images_model: str, shape: str) -> None:
    answer = ask(api, images_model, shape)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert (problem["code"], problem["actual"], problem["limit"]) == WRONG[shape]
    assert problem["stage"] == "shapes"


def test_inputs_are_given_once_and_may_be_left_out_where_others_say_all(api: Api) -> None:
    model, _ = packaged(api, sentences(), dims={"t": {"min": 1, "max": 64}})
    assert tables(api, model, "x:33x16")["inputs"] == {"x": [33, 16], "y": [33, 8]}
    assert tables(api, model, "y:33x8", "x:33x16")["dims"] == {"t": 33}
    wrong = {
        ("x:33x16", "y:32x8"): "contradicting_extents",
        ("x:33x16", "x:33x16"): "invalid_shape",
        (): "missing_dimension",
    }
    for shapes, code in wrong.items():
        answer = ask(api, model, *shapes)
        assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_shape_at_which_the_model_is_none_is_refused_at_once(api: Api) -> None:
    """It is within the ranges, and no check of the compilation tried it."""
    model, _ = packaged(api, rarely_none(), dims={"t": {"min": 1, "max": 100}})
    assert tables(api, model, "x:98x1")["dims"] == {"t": 98}
    answer = ask(api, model, "x:99x1")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["node"]) == (422, "illegal_extents", "fold")
    assert problem["actual"] == "(49, 2) of (99, 1) at t = 99"


def test_a_table_made_beforehand_is_a_hit_when_it_is_first_asked_for(api: Api) -> None:
    model = api.upload(images(9))
    shape = {"n": 2, "h": 37, "w": 29}
    job = api.finished(api.submit(model, "edge4", dims=RANGES, verify="none", tables=[shape]))
    assert job["state"] == "succeeded", job
    found = tables(api, model, "x:2x3x37x29")
    assert (found["cache"], found["kind"], found["dims"]) == ("hit", "optimised", shape)
    assert found["cost_cycles"] == found["optimised_cost_cycles"] <= found["simple_cost_cycles"]
    assert all((times_covered(routine) == 1).all() for routine in found["routines"])
    assert tables(api, model, "x:2x3x37x28")["cache"] == "miss"
    figures = statistics(api, model)
    assert (answered(figures, "hit", "optimised"), figures["simple_made"]) == (1, 1)
    package = read_package(memoryview(api.http.get(job["links"]["package"]).content))
    assert [dict(one.dims) for one in package.tables] == [shape]


def test_where_there_is_no_package_the_hint_says_how_to_get_one(api: Api) -> None:
    never = ask(api, api.upload(conv_chain(1)), "x:1x8x32x32")
    assert (never.status_code, never.json()["code"]) == (404, "no_package")
    assert "option tables=[{}]" in never.json()["hint"]
    elsewhere, _ = packaged(api, images(11))
    assert ask(api, elsewhere, "x:1x3x9x9", profile="cluster4x4").json()["code"] == "no_package"
    assert ask(api, elsewhere, "x:1x3x9x9", profile="nowhere").json()["code"] == "unknown_profile"
    for unknown in ("0" * 64, "no-digest"):
        answer = ask(api, unknown, "x:1x3x9x9")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_model")


def test_a_profile_is_named_or_given_by_digest(api: Api, images_model: str) -> None:
    named = ask(api, images_model, "x:1x3x7x8").json()
    by_digest = ask(api, images_model, "x:1x3x7x8", profile=named["profile"]["digest"]).json()
    assert by_digest["package"] == named["package"]


def test_the_package_of_a_job_is_a_file_with_all_in_it(api: Api, tmp_path: Path) -> None:
    model, job = packaged(api, images())
    answer = api.http.get(job["links"]["package"])
    tag = answer.headers["etag"]
    package = read_package(memoryview(answer.content), profile_digest=job["profile"]["digest"])
    assert (package.model.model_digest, package.model.ranges["h"].high) == (model, 40)
    assert api.http.get(job["links"]["package"], headers={"If-None-Match": tag}).status_code == 304
    with Client(str(api.http.base_url)) as client:
        client.save_package(job["id"], tmp_path / "images.tsp")
        assert (tmp_path / "images.tsp").read_bytes() == answer.content
        assert client.tables(model, "edge4", {"x": (1, 3, 9, 9)}).startswith(b'{"compiler_version"')
        assert client.table_statistics(model, "edge4").startswith(b'{"package"')
        with pytest.raises(ServiceError, match="outside its range"):
            client.tables(model, "edge4", {"x": (1, 3, 999, 9)})


def test_a_static_model_has_the_table_of_its_one_shape(api: Api) -> None:
    """SHAPE-9: made with a compilation that asks for it, so that the first answer is a hit; no shape need be given."""
    model = api.upload(conv_chain(2, channels=7))
    fixed = api.finished(api.submit(model, "edge4"))
    answer = api.http.get(f"/v1/jobs/{fixed['id']}/package")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_result")
    assert "option tables=[{}]" in answer.json()["hint"]
    assert "package" not in fixed["links"]
    job = api.finished(api.submit(model, "edge4", tables=[{}]))
    found = tables(api, model)
    assert found == tables(api, model, "x:1x7x32x32")
    assert (found["cache"], found["kind"], found["dims"], found["beyond"]) == ("hit", "optimised", {}, [])
    assert found["inputs"] == {"x": [1, 7, 32, 32]}
    assert all((times_covered(routine) == 1).all() for routine in found["routines"])
    refused = ask(api, model, "x:1x7x32x33")
    assert (refused.status_code, refused.json()["code"]) == (422, "extent_out_of_range")
    package = read_package(memoryview(api.http.get(job["links"]["package"]).content))
    assert [dict(one.dims) for one in package.tables] == [{}]
    assert statistics(api, model)["requests"] == 2


def test_a_model_compiled_without_ranges_has_default_ranges_and_tables(api: Api) -> None:
    """SHAPE-9: the plan and the answer say which ranges were taken, and that they are defaults."""
    model = api.upload(images(3))
    job = api.finished(api.submit(model, "edge4", verify="none"))
    assert job["state"] == "succeeded", job
    taken = {
        name: {"min": 1, "max": most, "step": 1, "is_default": True}
        for name, most in (("h", 256), ("n", 8), ("w", 256))
    }
    plan = api.http.get(job["links"]["plan"]).json()
    assert (plan["ranges"], plan["dims"]) == (taken, {"h": 256, "n": 8, "w": 256})
    found = tables(api, model, "x:2x3x37x29")
    assert (found["ranges"], found["dims"], found["beyond"]) == (taken, {"h": 37, "n": 2, "w": 29}, [])
    assert not any(
        one["is_default"] for one in tables(api, packaged(api, images(5))[0], "x:1x3x9x9")["ranges"].values()
    )


def test_a_shape_beyond_the_ranges_is_served_by_the_same_units(api: Api, images_model: str) -> None:
    """A height of 300 of a fully convolutional network that was compiled for up to 40."""
    found = tables(api, images_model, "x:1x3x300x24")
    assert (found["beyond"], found["dims"]) == (["h"], {"h": 300, "n": 1, "w": 24})
    assert tables(api, images_model, "x:1x3x300x24")["cache"] == "hit"
    units = {run["unit"] for routine in found["routines"] for run in routine["runs"]}
    within = tables(api, images_model, "x:1x3x30x24")
    assert within["beyond"] == []
    signatures = {run["unit"].split("-")[0] for routine in within["routines"] for run in routine["runs"]}
    assert {unit.split("-")[0] for unit in units} == signatures
    for routine in found["routines"]:
        assert routine["shape"] == [1, 8, 300, 24]
        assert (times_covered(routine) == 1).all()


def test_what_units_take_whole_is_refused_beyond_their_ranges_with_the_cause(api: Api) -> None:
    model, _ = packaged(api, attention(), dims={"t": {"min": 1, "max": 24}})
    assert tables(api, model, "x:24x8")["beyond"] == []
    answer = ask(api, model, "x:25x8")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["actual"], problem["limit"]) == (
        422,
        "extent_out_of_range",
        25,
        "24",
    )
    assert "'t'" in problem["detail"]
    assert "its units were built for 24" in problem["detail"]


def test_a_job_without_a_package_says_why(api: Api) -> None:
    compressed = profile_values("manycore2x64") | {"name": "compressed"}
    compressed["weights"]["compression"] = 0.5
    assert api.http.post("/v1/profiles", json=compressed).status_code == 201
    _, refused = packaged(api, images(), "compressed")
    answer = api.http.get(f"/v1/jobs/{refused['id']}/package")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_tables_for_profile")
    assert answer.json()["actual"] == refused["no_package"]["actual"] == "weights.compression=0.5"
    assert (refused["no_package"]["code"], refused["state"]) == ("no_tables_for_profile", "succeeded")


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("profile", ["manycore2x64", "through-sram"])
def test_chips_of_every_kind_have_packages(api: Api, profile: str) -> None:
    """Stationary weights, and cores that reach DRAM through an SRAM alone: made, asked for, run by tables."""
    if profile == "through-sram":
        values = profile_values("cluster4x4") | {"name": profile}
        values["engines"]["iodma"] = None
        assert api.http.post("/v1/profiles", json=values).status_code == 201
    model, job = packaged(api, images(), profile)
    assert "no_package" not in job
    answer = ask(api, model, "x:3x3x31x17", profile=profile)
    assert answer.status_code == 200, answer.text
    data = memoryview(api.http.get(f"/v1/jobs/{job['id']}/package").content)
    package = read_package(data)
    assert package.model.profile_name == profile
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 3, 9, 7)).astype(np.float32)}
    made = run_directly(package.model, stored_values(data), inputs)
    expected = run_reference(ModelSource.from_bytes(images()), inputs).values
    for name, array in made.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_two_hundred_requests_at_once_compute_a_table_once(api: Api, service: EmbeddedService) -> None:
    model, _ = packaged(api, images(), "cluster4x4")

    async def all_at_once() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=service.url, timeout=60, trust_env=False, limits=limits) as http:
            query = {"profile": "cluster4x4", "shape": "x:3x3x31x17"}
            return await asyncio.gather(*(http.get(f"/v1/models/{model}/tables", params=query) for _ in range(200)))

    before = statistics(api, model, "cluster4x4")
    answers = asyncio.run(all_at_once())
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["simple_cost_cycles"] for answer in answers}) == 1
    after = statistics(api, model, "cluster4x4")
    assert after["simple_made"] - before["simple_made"] == 1
    assert sum(one["tables"] for one in after["answered"]) - sum(one["tables"] for one in before["answered"]) == 200
    assert {"dims": {"n": 3, "h": 31, "w": 17}, "requests": 200} in after["shapes"]
    until(lambda: statistics(api, model, "cluster4x4")["optimised_made"] == before["optimised_made"] + 1, "one swap")


def test_tables_are_of_the_package_whose_compilation_was_asked_for_last(api: Api) -> None:
    """docs/packages.md"""
    narrow, wide = ({name: {"min": 1, "max": most} for name in RANGES} for most in (9, 10))
    model, _ = packaged(api, images(13), dims=wide)
    before = tables(api, model, "x:1x3x150x10")["package"]
    packaged(api, images(13), dims=narrow)
    assert ask(api, model, "x:1x3x150x10").json()["code"] == "extent_out_of_range"
    assert tables(api, model, "x:1x3x9x9")["package"] != before
    _, again = packaged(api, images(13), dims=wide)
    assert again["cached"]
    assert tables(api, model, "x:1x3x150x10")["package"] == before


def test_shapes_within_a_bucket_need_no_tables_of_their_own(api: Api) -> None:
    # a model of its own: of any other the newest package would have other ranges from now on
    model, _ = packaged(api, images(12), dims={name: {"min": 1, "max": 24} for name in RANGES})
    for extent in range(40):
        tables(api, model, f"x:2x3x{24 - extent % 4}x{24 - extent // 4}")
    optimised(api, model, "x:1x3x2x2")  # with which the worker chooses buckets, if it has not before
    fresh = (f"x:2x3x{height}x{width}" for height in range(20, 3, -1) for width in range(20, 3, -1))
    served = until(
        lambda: found if (found := tables(api, model, next(fresh)))["cache"] == "bucket-hit" else None, "a bucket"
    )
    assert (times_covered(served["routines"][0]) == 1).all()
    assert served["cost_cycles"] <= 1.05 * served["simple_cost_cycles"]
    assert (served["kind"], served["optimised_cost_cycles"]) == ("simple", None)
    made = statistics(api, model)
    # asked for again it has no table of its own either
    again = "x:{n}x3x{h}x{w}".format(**served["dims"])
    assert tables(api, model, again)["cache"] == "bucket-hit"
    assert statistics(api, model)["simple_made"] == made["simple_made"]
    assert 'tessera_tables_answered_total{cache="bucket-hit",kind="simple"}' in api.http.get("/metrics").text


def test_answers_are_counted_by_kind_in_the_metrics(api: Api, images_model: str) -> None:
    tables(api, images_model, "x:1x3x5x6")
    optimised(api, images_model, "x:1x3x5x6")
    for name in (
        'tessera_tables_answered_total{cache="miss",kind="simple"}',
        'tessera_tables_answered_total{cache="hit",kind="optimised"}',
        'tessera_tables_made_total{kind="simple"}',
        'tessera_tables_made_total{kind="optimised"}',
    ):
        # a worker counts a table after it was put into the cache
        until(lambda name=name: f"\n{name} " in api.http.get("/metrics").text, name)  # type: ignore[misc]


@pytest.mark.slow
def test_a_flushed_cache_and_a_damaged_value_cost_time_and_nothing_else(start: Start) -> None:
    service, api = start(known_answers_bytes=1)  # the API itself remembers nothing
    model, _ = packaged(api, images())
    client = cache_of(service)
    best = optimised(api, model, "x:1x3x13x14")
    client.flushdb()
    first = tables(api, model, "x:1x3x13x14")
    assert (first["cache"], first["kind"], first["cost_cycles"]) == ("miss", "simple", best["simple_cost_cycles"])
    assert optimised(api, model, "x:1x3x13x14") == best
    (key,) = (key for key in client.keys(value_key("*")) if key.count(b":") == 3)
    client.set(key, b"T1o damaged")
    assert tables(api, model, "x:1x3x13x14")["cache"] == "miss"
    assert optimised(api, model, "x:1x3x13x14") == best
    found = statistics(api, model)
    assert (found["simple_made"], answered(found, "miss", "simple")) == (3, 3)
    assert found["shapes"][0]["dims"] == {"n": 1, "h": 13, "w": 14}
    client.close()


@pytest.mark.slow
def test_optimised_tables_survive_the_kill_of_redis(start: Start) -> None:
    service, api = start()
    model, _ = packaged(api, images())
    best = optimised(api, model, "x:1x3x13x14")
    before = service.pids["cache"]
    kill(before)
    until(lambda: service.pids["cache"] != before, "another Redis")
    until(lambda: api.http.get("/readyz").status_code == 200, "ready again")
    assert tables(api, model, "x:1x3x13x14") == best


def test_what_was_compiled_last_counts_and_goes_with_its_model(spare: tuple[EmbeddedService, Api]) -> None:
    _, api = spare
    model, first = packaged(api, images())
    assert ask(api, model, "x:1x3x700x50").status_code == 422
    wider = {**RANGES, "h": {"min": 1, "max": 60}, "w": {"min": 1, "max": 60}}
    packaged(api, images(), dims=wider)
    newest = tables(api, model, "x:1x3x700x50")
    # asking for the first again, whose outcome is known, makes it the newest
    again = api.finished(api.submit(model, "edge4", dims=RANGES, verify="none"))
    assert (again["cached"], again["links"]["package"] != first["links"]["package"]) == (True, True)
    assert tables(api, model, "x:1x3x9x9")["package"] != newest["package"]
    assert api.http.delete(f"/v1/models/{model}").status_code == 204
    assert ask(api, model, "x:1x3x9x9").json()["code"] == "unknown_model"
    api.upload(images())
    assert ask(api, model, "x:1x3x9x9").json()["code"] == "no_package"


def publish(service: EmbeddedService, api: Api) -> str:
    """A model whose optimised tables take half a second; its plan at the maxima, which takes longer, is not made."""
    source = ModelSource.from_bytes(images(), name="images.onnx")
    shapes = compile_shapes(source, builtin_profile("edge4"), parse_options({"dims": LARGE}))
    file = opened(shapes.graph.source, source)
    pieces = write_package(shapes, (), lambda constant: materialise(constant, file))
    package = document_store(service.settings.store_dir).put(b"".join(map(bytes, pieces)))
    model = api.upload(images())
    client = connect(service.broker_url, text=False)
    client.hset(f"tessera:model:{model}:packages", shapes.profile_digest, package)
    client.close()
    return model


@pytest.mark.slow
def test_a_worker_killed_while_it_optimises_leaves_the_simple_table_until_it_is_asked_for_again(start: Start) -> None:
    service, api = start(optimise_lock_s=4.0)
    model = publish(service, api)
    client = cache_of(service)
    ended = threading.Event()
    killed: list[int] = []

    def kill_who_works() -> None:
        while not ended.is_set() and not killed:
            for key in client.keys(value_key("*:optimise")):
                token = client.get(key)
                if isinstance(token, bytes) and token != b"asked":
                    killed.append(int(token.split(b"/")[1]))
                    kill(killed[0])

    watcher = threading.Thread(target=kill_who_works)
    watcher.start()
    try:
        first = tables(api, model, "x:509x3x2039x2029")
        until(lambda: killed, "a worker that optimises")
        still = tables(api, model, "x:509x3x2039x2029")
        assert (still["cache"], still["kind"], still["cost_cycles"]) == ("hit", "simple", first["cost_cycles"])
        assert statistics(api, model)["optimised_made"] == 0
        last = optimised(api, model, "x:509x3x2039x2029")
        assert last["cost_cycles"] <= first["cost_cycles"]
        until(lambda: statistics(api, model)["optimised_made"] == 1, "the table to be counted")
    finally:
        ended.set()
        watcher.join()
        client.close()


@pytest.mark.slow
def test_of_the_tables_that_a_killed_worker_had_not_begun_each_may_be_asked_for_again_at_once(start: Start) -> None:
    """One message carries several; the lock of the one that was begun has to run out, which it does not here."""
    service, api = start(optimise_lock_s=600.0)
    model = publish(service, api)
    shapes = [f"x:509x3x2039x{width}" for width in (2017, 2027, 2029)]
    keys: dict[str, str] = {}
    client = cache_of(service)
    lock = value_key("*:optimise")
    for shape in shapes:
        before = set(client.keys(lock))
        tables(api, model, shape)
        (key,) = set(client.keys(lock)) - before
        keys[shape] = key

    def begun() -> str | None:
        tokens = {shape: client.get(key) for shape, key in keys.items()}
        return next((shape for shape, token in tokens.items() if token not in (None, b"asked")), None)

    try:
        killed = until(begun, "a worker that optimises")
        token = client.get(keys[killed])
        assert isinstance(token, bytes)
        kill(int(token.split(b"/")[1]))
        for shape in shapes:
            if shape != killed:
                optimised(api, model, shape)
        assert client.get(keys[killed]) == token
        assert tables(api, model, killed)["kind"] == "simple"
    finally:
        client.close()
