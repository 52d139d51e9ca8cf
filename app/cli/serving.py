"""`tessera serve` and `tessera demo`: the embedded service in the foreground."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console

from app.errors import SetupError
from app.settings import Settings
from compiler.errors import RequestError, printable

if TYPE_CHECKING:
    from app.supervisor.service import EmbeddedService
    from compiler.report.plan import Plan


def serve(host: str | None, port: int | None, data_dir: Path | None) -> None:
    """Starts the service and runs until Ctrl-C or SIGTERM."""
    settings = read_settings(
        {name: value for name, value in (("host", host), ("port", port), ("data_dir", data_dir)) if value is not None}
    )
    if not settings.embedded:
        raise SetupError(
            "TESSERA_BROKER_URL and TESSERA_CACHE_URL are set, so nothing is embedded",
            code="not_embedded",
            stage="setup",
            hint="Start `python -m app.server` and `python -m worker`, or unset both",
        )
    from app.supervisor.service import EmbeddedService  # slow to import: a wrong setting is answered first

    console = Console(highlight=False, markup=False)
    ended = threading.Event()
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda _, __: ended.set())
    begun = time.monotonic()
    with EmbeddedService(settings) as service:
        # Printed as soon as the port is open: early callers wait for the answer instead of being refused.
        console.print(f"Tessera listens on        {service.url}")
        console.print(f"interactive documentation {service.url}/docs")
        console.print(f"data and logs in          {settings.data_dir}")
        if settings.keys_required:
            console.print("every request needs a key  `tessera keys create NAME` makes one (docs/service.md)")
        if _ready_unless(ended, service):
            console.print(f"ready after {time.monotonic() - begun:.1f} s; Ctrl-C stops it")
        ended.wait()
        console.print("stopping")


def demo(model: Path, profile: str) -> None:
    """Runs one compilation from upload to result on a temporary service."""
    from app.cli.compiling import follow
    from app.cli.saved_results import of_job
    from app.client.client import Client
    from app.printing.plan_table import PlanFirst
    from app.supervisor.service import EmbeddedService

    console = Console(highlight=False, markup=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service is always stopped and removed
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tessera-demo-") as folder:
        settings = read_settings(
            {
                "data_dir": Path(folder),
                "host": "127.0.0.1",
                "port": 0,
                "allowed_hosts": "",
                "require_keys": "auto",
                "broker_url": None,
                "cache_url": None,
                "store_url": None,
            }
        )
        with EmbeddedService(settings) as service, Client(service.url, key="") as client:
            service.wait_until("/livez")
            console.print(f"embedded service on {service.url} (Redis, a Celery worker and the API)")
            uploaded = client.upload_model(model)
            console.print(f"uploaded {uploaded.name}, {uploaded.size_bytes:,} bytes")
            job = client.submit(uploaded, profile)
            table = PlanFirst(console)

            def show(plan: Plan) -> None:
                console.print(f"planned {time.monotonic() - begun:.1f} s after the start\n")
                table.show(plan)

            job = follow(client, job, f"{uploaded.name} for {profile}", console, show=show)
            console.print(f"job {job.id} {job.state} {time.monotonic() - begun:.1f} s after the start\n")
            found = of_job(client, job.id)
            table.finish(found.plan, found.report)
        console.print("stopped; `tessera serve` keeps it running")


def read_settings(given: dict[str, object]) -> Settings:
    """The environment's settings with some replaced; raises RequestError for an invalid value."""
    try:
        return Settings.model_validate({**Settings().model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        name = "TESSERA_" + "_".join(map(str, first["loc"])).upper() if first["loc"] else "the settings"
        raise RequestError(
            f"{name}: {first['msg']}",
            code="invalid_setting",
            actual=printable(str(first["input"]), 80),
            hint="docs/service.md describes the settings; unset it for the default",
        ) from None


def _ready_unless(ended: threading.Event, service: EmbeddedService) -> bool:
    """Waits until ready; Ctrl-C interrupts at once."""
    failure: list[SetupError] = []

    def wait() -> None:
        try:
            service.wait_until()
        except SetupError as error:
            failure.append(error)

    waiter = threading.Thread(target=wait, name="ready", daemon=True)
    waiter.start()
    while waiter.is_alive() and not ended.is_set():
        waiter.join(0.05)
    if failure and not ended.is_set():
        raise failure[0]
    return not ended.is_set()
