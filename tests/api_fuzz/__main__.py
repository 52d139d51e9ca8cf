"""`python -m tests.api_fuzz`: Schemathesis against a service that holds one of each kind of thing."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from string import Template
from typing import Final

from app.supervisor.service import EmbeddedService
from tests.profiles import profile_values
from tests.service.harness import Api, conv_chain, settings
from tests.service.models import images

CONFIGURATION: Final = Path(__file__).parent / "schemathesis.toml"


def main() -> int:
    """Runs Schemathesis; its exit code says whether every answer was one that the description states."""
    parser = argparse.ArgumentParser(prog="python -m tests.api_fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="requests of each operation and phase [200]")
    parser.add_argument("--seed", type=int, default=1, help="of what is generated [1]")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(EmbeddedService(settings(folder, max_upload_bytes=4_000_000, max_wait_s=2.0)))
        service.wait_until()
        configuration = folder / "schemathesis.toml"
        configuration.write_text(Template(CONFIGURATION.read_text()).substitute(things(Api(service.url))))
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            f"--config-file={configuration}",
            "run",
            f"{service.url}/openapi.json",
            f"--max-examples={arguments.examples}",
            f"--seed={arguments.seed}",
        ]
        return subprocess.run(command, cwd=folder).returncode


def things(api: Api) -> dict[str, str]:
    """Makes one of each kind of thing, and returns their ids by their names in the configuration."""
    model, ranges_model = api.upload(conv_chain(2)), api.upload(images())
    ranges = {name: {"min": 1, "max": 24} for name in ("n", "h", "w")}
    profile = api.http.post("/v1/profiles", json={**profile_values("edge4"), "name": "mine"}).json()
    sweep = {"model": model, "profiles": ["edge4"], "grid": {"nram": ["256KiB", "512KiB"]}}
    jobs = {
        "compilation": api.submit(model, "edge4"),
        "ranges": api.submit(ranges_model, "edge4", dims=ranges, verify="none"),
        "failed": api.submit(api.upload(b"no network"), "edge4"),
        "sweep": str(api.http.post("/v1/sweeps", json=sweep).json()["id"]),
    }
    for job in jobs.values():
        api.finished(job)
    simulation = api.http.post("/v1/simulations", json={"job": jobs["compilation"]}).json()
    api.finished(simulation["id"])
    return {
        **jobs,
        "simulation": str(simulation["id"]),
        "model": model,
        "ranges_model": ranges_model,
        "profile": str(profile["digest"]),
        "cursor": str(api.http.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"]),
    }


if __name__ == "__main__":
    sys.exit(main())
