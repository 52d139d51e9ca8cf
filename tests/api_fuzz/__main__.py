"""`python -m tests.api_fuzz`: Schemathesis against a service that holds one of each kind of thing."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from string import Template
from typing import Final

from app.keys.owners import LOCAL_WORD
from app.supervisor.service import EmbeddedService
from tests.profiles import profile_values
from tests.service.harness import Api, conv_chain, new_key, settings
from tests.service.models import images

CONFIGURATION: Final = Path(__file__).parent / "schemathesis.toml"

_SEPARATOR: Final = '", "'  # of several ids in one list of the configuration

_BY_LUCK: Final = ("putModel", "putUnits")  # their bodies are those that their URLs say


def main() -> int:
    """Runs Schemathesis, with its own options too; 0 if every answer was one that the description states."""
    parser = argparse.ArgumentParser(prog="python -m tests.api_fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="requests of each operation and phase [200]")
    parser.add_argument("--seed", type=int, default=1, help="of what is generated [1]")
    arguments, more = parser.parse_known_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(
            EmbeddedService(settings(folder, max_upload_bytes=4_000_000, max_wait_s=10.0, require_keys="always"))
        )
        service.wait_until()
        key = new_key(service, "fuzz", LOCAL_WORD)
        api = Api(service.url, key)
        configuration = folder / "schemathesis.toml"
        configuration.write_text(Template(CONFIGURATION.read_text()).substitute(things(api), key=key))
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            f"--config-file={configuration}",
            "run",
            f"{service.url}/openapi.json",
            f"--max-examples={arguments.examples}",
            f"--seed={arguments.seed}",
            *more,
        ]
        before = successes(api)
        code = subprocess.run(command, cwd=folder).returncode
        made = successes(api) - before
        unanswered = [name for name, where in operations(api) if where not in made and name not in _BY_LUCK]
        if unanswered:
            print(f"Never answered but with errors, so not tried in earnest: {', '.join(unanswered)}")
        return code or len(unanswered)


def things(api: Api) -> dict[str, str]:
    """Makes one of each kind of thing, and returns their ids by their names in the configuration."""
    model, ranges_model = api.upload(conv_chain(2)), api.upload(images())
    ranges = {name: {"min": 1, "max": 240} for name in ("n", "h", "w")}  # the description's example is within
    profile, *spare_profiles = (
        str(api.http.post("/v1/profiles", json={**profile_values("edge4"), "name": name}).json()["digest"])
        for name in ("mine", "spare", "another", "third", "fourth")
    )
    sweep = {"model": model, "profiles": ["edge4"], "grid": {"nram": ["256KiB", "512KiB"]}}
    jobs = {
        "compilation": api.submit(model, "edge4"),
        "ranges": api.submit(ranges_model, "edge4", dims=ranges, verify="none"),
        "failed": api.submit(api.upload(b"no network"), "edge4"),
        "sweep": str(api.http.post("/v1/sweeps", json=sweep).json()["id"]),
    }
    spare = [api.submit(model, "edge4", start_rule=rule) for rule in ("A", "B")]
    spare += [api.submit(model, name) for name in ("cluster4x4", "manycore2x64")]
    for job in (*jobs.values(), *spare):
        api.finished(job)
    simulation = api.http.post("/v1/simulations", json={"job": jobs["compilation"]}).json()
    api.finished(simulation["id"])
    return {
        **jobs,
        "simulation": str(simulation["id"]),
        "model": model,
        "ranges_model": ranges_model,
        "profile": profile,
        "spare_jobs": _SEPARATOR.join(spare),
        "spare_models": _SEPARATOR.join(api.upload(b"no network " + letter) for letter in (b"a", b"b", b"c", b"d")),
        "spare_profiles": _SEPARATOR.join(spare_profiles),
        "library": str(api.http.get("/v1/units").json()["items"][0]["id"]),
        "cursor": str(api.http.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"]),
    }


def successes(api: Api) -> Counter[tuple[str, str]]:
    """How many requests of each method and path had success, by what the service counted."""
    pattern = r'http_request_seconds_count\{method="(\w+)",route="([^"]+)",status="[23]..\"} (\S+)'
    found = re.findall(pattern, api.http.get("/metrics").text)
    return sum((Counter({(method, path): int(float(count))}) for method, path, count in found), Counter())


def operations(api: Api) -> Iterator[tuple[str, tuple[str, str]]]:
    """The operations of the description, with their methods and paths."""
    for path, methods in api.http.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield operation["operationId"], (method.upper(), path)


if __name__ == "__main__":
    sys.exit(main())
