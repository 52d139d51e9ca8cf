"""When the plan of a job can be read, as a share of the job: `python -m tests.bench plan-first`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from app.jobs.records import events_key
from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from tests.service.harness import Api, light_model, settings

_RUNS = 3


def run() -> None:
    """Prints seconds until the plan and the end of ResNet-50's job on `cluster4x4`, since a worker took it up."""
    print("run  plan s  end s  share")
    for number in range(1, _RUNS + 1):
        plan_s, end_s = _measured()
        print(f"{number:3}  {plan_s:6.1f}  {end_s:5.1f}  {plan_s / end_s:5.0%}")


def _measured() -> tuple[float, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedService(settings(Path(folder) / "data", lease_s=30)) as service,
    ):
        service.wait_until()
        api = Api(service.url)
        job = api.submit(api.upload(light_model("resnet50").read_bytes()))
        assert api.finished(job, 600)["state"] == "succeeded"
        assert service.broker_url is not None
        with connect(service.broker_url) as broker:
            found: Any = broker.xrange(events_key(job))
        api.http.close()
    events = [(int(number.partition("-")[0]) / 1000, json.loads(fields["data"])) for number, fields in found]
    begun = next(time for time, event in events if event["state"] == "running")
    planned = next(time for time, event in events if event["planned"])
    return planned - begun, events[-1][0] - begun
