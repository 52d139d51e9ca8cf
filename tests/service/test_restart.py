"""API-2: when everything of the embedded service stops or is killed, all that it knew is there again (issue 24)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.keys.keys import Keys
from app.redis_urls import connect
from app.supervisor.redis_server import Role, socket_url
from tests.service.harness import Api, conv_chain, gone, kill_all, settings, tree, until
from tests.service.models import images
from tests.service.test_supervisor import served
from tests.service.test_tables import RANGES, optimised, packaged

pytestmark = [pytest.mark.service, pytest.mark.slow]
SHAPE = "x:2x3x37x29"
_LISTS = ("/v1/models", "/v1/profiles", "/v1/jobs")
_RESULTS = ("plan", "report", "executable", "package", "trace", "listing", "sweep")


def stop(processes: list[psutil.Process]) -> None:
    processes[0].send_signal(signal.SIGTERM)


def known(api: Api, table_of: str) -> dict[str, Any]:
    """All that an owner has: lists, jobs, every byte of results, and a table with where it came from."""
    found: dict[str, Any] = {path: api.http.get(path).json() for path in _LISTS}
    for summary in found["/v1/jobs"]["items"]:
        job = found[summary["id"]] = api.job(summary["id"])
        for name in _RESULTS:
            if name in job["links"]:
                answer = api.http.get(job["links"][name])
                assert answer.status_code == 200, answer.text
                found[job["links"][name]] = answer.content
        found[job["links"]["events"]] = api.http.get(job["links"]["events"]).text
    return found | {"table": optimised(api, table_of, SHAPE)}


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("end", [stop, kill_all])
def test_a_restart_of_everything_keeps_models_profiles_jobs_keys_and_tables(
    tmp_path: Path, end: Callable[[list[psutil.Process]], None]
) -> None:
    data = tmp_path / "data"

    def keys(work: Callable[[Keys], Any]) -> Any:
        broker = connect(socket_url(data / Role.BROKER.value))
        try:
            return work(Keys(broker, settings(data)))
        finally:
            broker.close()

    with served(data) as (process, local):
        _, text = keys(lambda to: to.create("ann", None, {}))
        _, dead = keys(lambda to: to.create("bob", None, {}))
        keys(lambda to: to.revoke("bob"))
        ann = Api(str(local.http.base_url), text)
        tables, chains, before = list[str](), list[str](), list[dict[str, Any]]()
        for number, api in enumerate((local, ann)):
            tables.append(packaged(api, images(8 + number))[0])
            small = api.http.get("/v1/profiles/edge4").json() | {"name": f"mine{number}"}
            assert api.http.post("/v1/profiles", json=small).status_code == 201
            chains.append(api.upload(conv_chain(8 + number)))
            api.finished(api.submit(chains[number], f"mine{number}"))
            grid = {"model": chains[number], "profiles": ["edge4"], "grid": {"nram": ["128KiB", "256KiB"]}}
            api.finished(api.http.post("/v1/sweeps", json=grid).json()["id"])
            optimised(api, tables[number], SHAPE)
            before.append(known(api, tables[number]))
        waiting = [api.submit(chain, "cluster4x4") for api, chain in zip((local, ann), chains, strict=True)]
        listed = keys(lambda to: to.all())
        processes = tree(process.pid)
        end(processes)
        until(lambda: gone(processes), "the end of every process")
        ann.http.close()

    with served(data) as (_, local):
        assert keys(lambda to: to.all()) == listed
        ann = Api(str(local.http.base_url), text)
        for job, api in zip(waiting, (local, ann), strict=True):
            assert api.finished(job)["state"] == "succeeded"
            assert api.http.delete(f"/v1/jobs/{job}").status_code == 204
        for number, api in enumerate((local, ann)):
            assert known(api, tables[number]) == before[number]
            again = api.submit(tables[number], "edge4", dims=RANGES, verify="none")
            assert api.job(again)["cached"]
        wrong = local.http.get("/v1/jobs", headers={"Authorization": f"Bearer {dead}"})
        assert wrong.status_code == 401
        ann.http.close()
