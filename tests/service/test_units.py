"""SHAPE-1 over HTTP: compilations share units, lists show an owner's own, a flush and a restart cost time only."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from app.units.unit_cache import use_key
from compiler.shapes.unit_bundle import decode_bundle, encode_bundle
from compiler.unit_key import library_key_of
from tests.service.harness import Api, new_key
from tests.service.models import attention, images
from tests.service.test_tables import RANGES, packaged, tables
from tests.small_loader import load, written_loader

pytestmark = pytest.mark.service
Start = Callable[..., tuple[EmbeddedService, Api]]


def named(text: str) -> bytes:
    """The network of images with a name of its own, and other names of its dimensions."""
    model = onnx.load_from_string(images())
    model.graph.name = text
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = f"{text}_{dim.dim_param}"
    return bytes(model.SerializeToString())


def ranges(text: str) -> dict[str, Any]:
    return {f"{text}_{name}": ends for name, ends in RANGES.items()}


def figures(api: Api) -> dict[str, float]:
    """How many units compilations found and built so far."""
    lines = [line.split() for line in api.http.get("/metrics").text.splitlines()]
    values = {line[0]: float(line[1]) for line in lines if line[0].startswith("tessera_units_total")}
    return {source: values.get(f'tessera_units_total{{source="{source}"}}', 0.0) for source in ("found", "built")}


def listed(api: Api, what: str = "units", **query: Any) -> list[dict[str, Any]]:
    answer = api.http.get(f"/v1/{what}", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def package_bytes(api: Api, job: dict[str, Any]) -> bytes:
    return api.http.get(f"/v1/jobs/{job['id']}/package").content


def test_a_renamed_model_uses_the_units_and_tables_of_the_first(api: Api) -> None:
    first, _ = packaged(api, named("one"), dims=ranges("one"))
    before = figures(api)
    second, _ = packaged(api, named("two"), dims=ranges("two"))
    after = figures(api)
    assert after["built"] == before["built"]
    assert after["found"] > before["found"]
    for shape in ("x:1x3x9x9", "x:2x3x39x17", "x:4x3x1x40"):
        tables(api, first, shape)
        assert tables(api, second, shape)["cache"] == "hit"


def test_lists_show_units_and_tables_of_the_owner_alone(service: EmbeddedService) -> None:
    ann, bob = (Api(service.url, new_key(service, f"units-{name}")) for name in ("ann", "bob"))
    model, _ = packaged(ann, named("listed"), dims=ranges("listed"))
    (library,) = listed(ann)
    assert (library["op"], library["size"]) == ("Conv+Relu", "<=4,<=48,<=48")
    assert library["bytes"] > sum(one["bytes"] for one in library["units"]) > 0
    assert all(len(one["tile"]) == 4 for one in library["units"])
    assert listed(ann, op="Conv+Relu", profile="edge4") == [library]
    assert listed(ann, op="Relu") == listed(ann, profile="cluster4x4") == listed(bob) == []
    assert ann.http.get("/v1/units", params={"profile": "none"}).status_code == 404
    sums = ann.http.get("/v1/unit-statistics").json()
    assert (sums["libraries"], sums["units"]) == (1, len(library["units"]))
    assert [one["op"] for one in sums["ops"]] == ["Conv+Relu"]
    assert bob.http.get("/v1/unit-statistics").json()["libraries"] == 0
    assert listed(ann, "tables") == []
    tables(ann, model, "x:2x3x11x13")
    (shape,) = listed(ann, "tables")
    assert (shape["model"], shape["requests"], len(shape["tables"])) == (model, 1, 1)
    assert shape["dims"] == {"listed_n": 2, "listed_h": 11, "listed_w": 13}
    (table,) = shape["tables"]
    assert (table["signature"], table["shape"]) == (library["signature"], [2, 8, 11, 13])
    assert table["bytes"] > 0
    assert {tuple(tile) for tile in table["tiles"]} <= {tuple(one["tile"]) for one in library["units"]}
    (again,) = listed(ann, "tables", shape="x:2x3x11x13", profile="edge4", model=model)
    assert (again["dims"], again["requests"], len(again["tables"])) == (shape["dims"], 1, 1)
    assert listed(ann, "tables", shape="x:1x3x2x2") == listed(bob, "tables") == []
    # the packages of models whose tables were never asked for are not opened
    unasked, _ = packaged(ann, named("listed2"), dims=ranges("listed2"))
    assert [one["model"] for one in listed(ann, "tables", shape="x:2x3x11x13")] == [model]
    (same,) = listed(ann, "tables", shape="x:2x3x11x13", model=unasked)
    assert (same["requests"], len(same["tables"])) == (0, 1)
    assert bob.http.get("/v1/tables", params={"model": model}).status_code == 404
    for api in (ann, bob):
        api.http.close()


def test_a_library_whose_record_alone_was_evicted_is_listed(service: EmbeddedService) -> None:
    """It was missing from lists and sums until it was built again."""
    api = Api(service.url, new_key(service, "evicted"))
    packaged(api, named("evicted"), dims=ranges("evicted"))
    (library,) = listed(api)
    cache = connect(service.cache_url)
    cache.delete(use_key(library_key_of(library["id"])))
    assert api.http.get("/v1/unit-statistics").json()["units"] == len(library["units"])
    (again,) = listed(api)
    assert again == library | {"hits": 0, "created_at": again["created_at"]}
    assert again["created_at"] > library["created_at"]
    cache.close()
    api.http.close()


def test_nobody_sees_when_or_how_often_others_use_the_same_units(service: EmbeddedService) -> None:
    ann, bob = (Api(service.url, new_key(service, f"unseen-{name}")) for name in ("ann", "bob"))
    packaged(ann, named("unseen"), dims=ranges("unseen"))
    packaged(ann, named("unseen2"), dims=ranges("unseen2"))
    before = listed(ann)
    assert before[0]["hits"] >= 1
    packaged(bob, named("unseen3"), dims=ranges("unseen3"))
    assert listed(ann) == before
    assert [one["hits"] for one in listed(bob)] == [1]
    assert bob.http.get("/v1/unit-statistics").json()["hits"] == 1
    for api in (ann, bob):
        api.http.close()


def test_who_is_answered_from_the_result_cache_sees_the_units(service: EmbeddedService) -> None:
    ann, bob = (Api(service.url, new_key(service, f"known-{name}")) for name in ("ann", "bob"))
    packaged(ann, named("known"), dims=ranges("known"))
    _, job = packaged(bob, named("known"), dims=ranges("known"))
    assert job["cached"]
    assert [one["id"] for one in listed(bob)] == [one["id"] for one in listed(ann)]
    for api in (ann, bob):
        api.http.close()


def test_units_have_a_strong_etag_and_damaged_ones_are_not_sent(service: EmbeddedService) -> None:
    api = Api(service.url, new_key(service, "tags"))
    packaged(api, named("tags"), dims=ranges("tags"))
    (library,) = listed(api)
    path = f"/v1/units/{library['id']}"
    answer = api.http.get(path)
    tag = answer.headers["etag"]
    assert tag == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    again = api.http.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    key, values = decode_bundle(answer.content)
    cache, hurt = connect(service.cache_url, text=False), next(one for one in values if one != key)
    cache.set(f"tessera:{hurt}", values[hurt][:-1] + b"!")
    assert api.http.get(path).json()["code"] == "unknown_units"
    # the bytes there decide nothing: what is brought is built again
    binary = {"Content-Type": "application/octet-stream"}
    assert api.http.put(path, content=answer.content, headers=binary).status_code == 204
    assert api.http.get(path).content == answer.content
    api.http.close()


HEADER = {"size": "", "resident_bytes": 0, "graph": {"ops": [["Relu"]]}, "dtype": "float32", "units": []}


@pytest.mark.parametrize("profile", ["edge4", "\ud800", "<b>", "0" * 64])
def test_units_for_a_profile_that_is_none_are_refused(api: Api, profile: str) -> None:
    text = json.dumps({**HEADER, "signature": "s", "profile": profile}).encode()
    value = struct.pack("<4sHI32s", b"TSRL", 1, len(text), hashlib.sha256(text).digest()) + text
    bundle = struct.pack("<4sHHI", b"TSRB", 1, 1, len(value)) + value
    library = decode_bundle(bundle)[0].rpartition(":")[2]
    binary = {"Content-Type": "application/octet-stream"}
    answer = api.http.put(f"/v1/units/{library}", content=bundle, headers=binary)
    assert (answer.status_code, bool(answer.json()["hint"])) == (422, True)


@pytest.mark.parametrize("path", ["/v1/units", "/v1/tables", "/v1/unit-statistics", "/v1/units/x"])
@pytest.mark.parametrize(
    "query",
    ["op=%00&profile=%ff", "cursor=W10", "cursor=WzFlMzA5LCIiXQ", "cursor=Wy0xLjAsIiJd", "limit=0", "limit=1e3",
     "profile=" + "a" * 200, "shape=%00", "shape=x:1x1&shape=x:2x2", "model=%2e%2e", "shape=" + "x" * 1000],
)  # fmt: skip
def test_odd_queries_of_lists_are_answered_or_refused(api: Api, path: str, query: str) -> None:
    assert api.http.get(f"{path}?{query}").status_code in (200, 404, 422)


def test_a_cursor_of_another_list_is_a_place_or_refused(api: Api) -> None:
    for kind in ("models", "jobs", "profiles", "units"):
        cursor = api.http.get(f"/v1/{kind}", params={"limit": 1}).json().get("next_cursor")
        for other in ("units", "tables"):
            if cursor is not None:
                assert api.http.get(f"/v1/{other}", params={"cursor": cursor}).status_code in (200, 422)


def test_pages_of_units_have_all_of_them_once(service: EmbeddedService) -> None:
    api = Api(service.url, new_key(service, "pages"))
    for high in (20, 30, 60):
        packaged(api, named(f"p{high}"), dims={**ranges(f"p{high}"), f"p{high}_h": {"min": 1, "max": high}})
    found, cursor = [], None
    while True:
        answer = api.http.get("/v1/units", params={"limit": 1} | ({} if cursor is None else {"cursor": cursor})).json()
        found += [one["id"] for one in answer["items"]]
        cursor = answer.get("next_cursor")
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 3
    api.http.close()


@pytest.mark.slow
def test_units_survive_a_restart_and_a_flush_costs_time_only(start: Start) -> None:
    service, api = start()
    _, job = packaged(api, named("kept"), dims=ranges("kept"))
    first, built = package_bytes(api, job), figures(api)["built"]
    service.stop()
    service, api = start()
    assert len(listed(api)) == 1
    packaged(api, named("again"), dims=ranges("again"))
    assert figures(api)["built"] == built
    connect(service.cache_url).flushall()
    assert listed(api) == []
    _, job = packaged(api, named("kept"), dims=ranges("kept"))
    assert package_bytes(api, job) == first
    assert figures(api)["built"] == 2 * built


@pytest.mark.slow
def test_units_that_are_pushed_are_built_again(service: EmbeddedService) -> None:
    ann, bob = (Api(service.url, new_key(service, f"travel-{name}")) for name in ("ann", "bob"))
    packaged(ann, named("travel"), dims=ranges("travel"))
    (library,) = listed(ann)
    path = f"/v1/units/{library['id']}"
    answer = ann.http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    bundle = answer.content
    assert bob.http.get(path).status_code == 404
    cache = connect(service.cache_url, text=False)
    before = {key: cache.get(key) for key in cache.scan_iter(match="tessera:unit:*")}
    cache.delete(*before, f"tessera:library:1:{library['id']}")
    binary = {"Content-Type": "application/octet-stream"}
    key, values = decode_bundle(bundle)
    changed = forged(key, values)
    answer = bob.http.put(path, content=changed, headers=binary)
    assert (answer.status_code, answer.json()["code"]) == (422, "units_differ")
    assert not list(cache.scan_iter(match="tessera:unit:*"))
    assert listed(bob) == []
    assert bob.http.put(path, content=b"no units", headers=binary).json()["code"] == "invalid_units"
    assert bob.http.put(f"/v1/units/{'0' * 64}", content=bundle, headers=binary).json()["code"] == "wrong_units"
    assert bob.http.put(path, content=bundle, headers=binary).status_code == 204
    assert all(cache.get(f"tessera:{key}") == value for key, value in values.items())
    assert bob.http.get(path).content == bundle
    assert [one["id"] for one in listed(bob)] == [library["id"]]
    assert bob.http.put(path, content=changed, headers=binary).json()["code"] == "units_differ"
    for one in (ann, bob):
        one.http.close()


@pytest.mark.slow
def test_commands_list_units_and_tables_and_carry_units_to_another_owner(
    service: EmbeddedService, tmp_path: Path
) -> None:
    ann, bob = (new_key(service, f"commands-{name}") for name in ("ann", "bob"))
    api = Api(service.url, ann)
    model, _ = packaged(api, named("command"), dims=ranges("command"))
    tables(api, model, "x:2x3x12x14")
    api.http.close()

    def said(key: str, *words: str, code: int = 0) -> Any:
        env = {"TESSERA_KEY": key}
        plain = CliRunner().invoke(cli, [*words, "--server", service.url], env=env)
        answer = CliRunner().invoke(cli, [*words, "--server", service.url, "--json"], env=env)
        assert (plain.exit_code, answer.exit_code) == (code, code), answer.output
        assert "Traceback" not in plain.output + answer.output
        return json.loads(answer.stderr if code else answer.stdout), plain.output

    (library,), shown = said(ann, "units")
    assert "Conv+Relu" in shown
    assert library["signature"][:12] in shown
    assert said(ann, "units", "--op", "Conv+Relu", "--profile", "edge4")[0] == [library]
    assert said(ann, "units", "--op", "Relu")[0] == []
    assert said(ann, "units", "--profile", "nonesuch", code=2)[0]["code"] == "unknown_profile"
    sums, shown = said(ann, "units", "statistics")
    assert sums["units"] == len(library["units"])
    assert "Conv+Relu" in shown
    (shape,), shown = said(ann, "table", "--list", "--profile", "edge4")
    assert (shape["model"], len(shape["tables"])) == (model, 1)
    assert "command_h=12" in shown
    assert said(ann, "table", model, "--list", "--shape", "x:2x3x12x14")[0][0]["dims"] == shape["dims"]
    assert said(ann, "table", "0" * 64, "--list", code=2)[0]["code"] == "unknown_model"
    pulled, shown = said(ann, "units", "pull", str(tmp_path))
    (file,) = tmp_path.iterdir()
    assert pulled == {"libraries": 1, "bytes": file.stat().st_size}
    assert "1 libraries" in shown
    assert said(bob, "units")[0] == []
    assert said(bob, "units", "push", str(tmp_path))[0] == pulled
    assert [one["id"] for one in said(bob, "units")[0]] == [library["id"]]
    file.write_bytes(file.read_bytes()[:-1])
    assert said(bob, "units", "push", str(tmp_path), code=2)[0]["code"] == "invalid_units"


def test_lists_of_tables_go_on_past_models_that_do_not_take_the_shape(service: EmbeddedService) -> None:
    api = Api(service.url, new_key(service, "past"))
    of_words, _ = packaged(api, attention(), dims={"t": {"min": 1, "max": 24}})
    assert listed(api, "tables", shape="x:25x8") == []
    refused = api.http.get("/v1/tables", params={"shape": "x:25x8", "model": of_words})
    assert (refused.status_code, refused.json()["code"]) == (422, "extent_out_of_range")
    api.http.close()


@pytest.mark.slow
def test_a_loader_alone_runs_with_units_that_were_pulled(service: EmbeddedService, tmp_path: Path) -> None:
    """The execution host has Python, numpy, the loader, a package without units, and a folder pulled from here."""
    key = new_key(service, "execution-host")
    ann = Api(service.url, key)
    data = named("host")
    _, job = packaged(ann, data, dims=ranges("host"))
    (tmp_path / "full.package").write_bytes(package_bytes(ann, job))
    (library,) = listed(ann)
    ann.http.close()

    def tessera(*words: object) -> Result:
        answer = CliRunner().invoke(cli, list(map(str, words)), env={"TESSERA_KEY": key, "TESSERA_UNITS": None})
        assert answer.exit_code == 0, answer.output
        return answer

    units, small = tmp_path / "units", tmp_path / "small.package"
    tessera("units", "pull", units, "--server", service.url)
    assert [one.name for one in units.iterdir()] == [f"{library['id']}.units"]
    (tmp_path / "net.onnx").write_bytes(data)
    settings = [word for name, ends in ranges("host").items() for word in ("--set", f"dims.{name}={json.dumps(ends)}")]
    tessera("package", tmp_path / "net.onnx", "--profile", "edge4", *settings, "--without-units", "--out", small)

    loader = written_loader(tmp_path)
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).standard_normal((2, 3, 11, 7), dtype=np.float32))
    words = ("--inputs", tmp_path / "in.npz", "--outputs")
    ran = load(loader, small, *words, tmp_path / "small.npz", "--units", units)
    assert ran.returncode == 0, ran.stderr
    assert load(loader, tmp_path / "full.package", *words, tmp_path / "full.npz").returncode == 0
    assert (tmp_path / "small.npz").read_bytes() == (tmp_path / "full.npz").read_bytes()

    file = units / f"{library['id']}.units"
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    damaged = load(loader, small, "--units", units)
    file.write_bytes(other_library(service, key))
    foreign = load(loader, small, "--units", units)
    file.unlink()
    missing = load(loader, small, "--units", units)
    for refused, why in ((damaged, "damaged"), (foreign, "is another library"), (missing, "missing in")):
        assert refused.returncode == 2
        assert why in refused.stderr
        assert library["id"] in refused.stderr
        assert "tessera units pull" in refused.stderr


def other_library(service: EmbeddedService, key: str) -> bytes:
    """A sound bundle of a routine of the same owner at another size."""
    with_key = Api(service.url, key)
    known = {one["id"] for one in listed(with_key)}
    packaged(with_key, named("larger"), dims={**ranges("larger"), "larger_h": {"min": 1, "max": 90}})
    (other,) = (one["id"] for one in listed(with_key) if one["id"] not in known)
    content = with_key.http.get(f"/v1/units/{other}").content
    with_key.http.close()
    return content


def forged(key: str, values: dict[str, bytes]) -> bytes:
    """The bundle with a unit that claims another memory need, its checksum right."""
    name = next(one for one in values if one != key)
    head, body = values[name][:10], values[name][42:]
    other = body.replace(b'"weight_bytes":', b'"weight_bytes":1', 1)
    length = int.from_bytes(head[6:10], "little") + 1
    value = head[:6] + length.to_bytes(4, "little") + hashlib.sha256(other).digest() + other
    return encode_bundle(key, {**values, name: value})
