"""What it costs that a job is on disk before it is acknowledged: `python -m tests.bench.durable`.

One real broker, its `appendfsync` changed between rounds; milliseconds of `Records.accept`, beside a bare sync of a
small file on the same disk.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from app.jobs.identity import Identity
from app.jobs.records import JobRequest, Records
from app.redis_urls import connect
from app.settings import Settings
from app.supervisor.redis_server import RedisServer, Role

ROUNDS, JOBS = 5, 100
_MODEL = "a" * 64


def request(job: str) -> JobRequest:
    """A job of its own computation."""
    return JobRequest(
        job=job,
        content=f"content-{job}",
        model=_MODEL,
        model_name="net.onnx",
        profile="b" * 64,
        profile_name="p",
        options="{}",
        queue="short",
        time_limit_s=60,
        memory_limit_bytes=1000,
        compiler_version="0",
        request_id="",
    )


def accepted_ms(records: Records, prefix: str) -> list[float]:
    """Milliseconds of each of JOBS acceptances, one after the other."""
    found = []
    for number in range(JOBS):
        begun = time.perf_counter()
        records.accept(request(f"{prefix}-{number}"))
        found.append(1000 * (time.perf_counter() - begun))
    return found


def synced_ms(folder: Path) -> list[float]:
    """Milliseconds of writing and syncing a little, JOBS times."""
    found = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(JOBS):
            begun = time.perf_counter()
            file.write(bytes(512))
            os.fdatasync(file.fileno())
            found.append(1000 * (time.perf_counter() - begun))
    return found


def main() -> None:
    """Print the table."""
    times: dict[str, list[float]] = {"everysec": [], "always": [], "bare sync": []}
    with tempfile.TemporaryDirectory(dir=Path.home()) as name, (Path(name) / "lock").open("w") as lock:
        folder = Path(name)
        server = RedisServer(Role.BROKER, folder / "redis", folder, lock.fileno())
        server.start()
        server.wait_until_ready()
        client: Any = connect(server.url)
        records = Records(client, Settings(), Identity(version="0", store="here"))
        records.pin_model(_MODEL)
        records.register_model(_MODEL, "net.onnx", 1)
        for number in range(ROUNDS):
            for policy in ("everysec", "always"):
                client.config_set("appendfsync", policy)
                times[policy] += accepted_ms(records, f"{policy}-{number}")
            times["bare sync"] += synced_ms(folder)
        client.close()
        server.child.wait(0)
        server.remove_socket()
    print("| what | median ms | 99th percentile ms |\n|---|---:|---:|")
    for what, values in times.items():
        cuts = statistics.quantiles(values, n=100)
        print(f"| {what} | {statistics.median(values):.2f} | {cuts[98]:.2f} |")
    print(f"\nalways / everysec: {statistics.median(times['always']) / statistics.median(times['everysec']):.2f}")


if __name__ == "__main__":
    main()
