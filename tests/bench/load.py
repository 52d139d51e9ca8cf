"""What the service bears: `python -m tests.bench.load [answers] [uploads] [starts]`; without words all three.

- *answers*: requests per second and latencies of cached answers, beside a bare FastAPI handler with one Redis read that
  answers the same bytes (`bare_service.py`), in turn, from a client in a process of its own (`http_load.py`);
- *uploads*: the memory of the API while many large models arrive at once;
- *starts*: milliseconds from an accepted job to its start on an idle service, beside the disk's own time for a sync.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import psutil

from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from tests.bench.durable import synced_ms
from tests.bench.http_load import Answers, Round
from tests.service.harness import Api, conv_chain, light_model, settings, until
from tests.service.models import images

_CONNECTIONS: Final = 8
_ROUNDS: Final = 9
_REQUESTS: Final = 1500
_SHAPE: Final = "x:2x3x225x199"
_UPLOADS: Final = 50
_UPLOAD_BYTES: Final = 100_000_000
_STARTS: Final = 60
_MIB: Final = 1024 * 1024
_PATIENCE_S: Final = 600.0


def answers() -> None:
    """Print requests per second and latencies of cached answers."""
    with _service() as (service, api):
        targets = _targets(api)
        store: Any = connect(service.cache_url, text=False)
        for name, (target, headers) in targets.items():
            answer = api.http.get(target, headers=headers)
            assert answer.status_code == (304 if headers else 200), answer.text
            store.set(f"bench:{_key(name)}", answer.content)
        port = int(service.url.rpartition(":")[2])
        command = [sys.executable, "-m", "tests.bench.bare_service", service.cache_url]
        with _process(command) as bare, _Client(port) as ours, _Client(int(_line(bare))) as theirs:
            print(
                f"\n### Cached answers: {_CONNECTIONS} connections, {_ROUNDS} rounds of {_REQUESTS} requests in turn\n"
            )
            late = "p50, ms | bare | p99, ms | bare | ratio"
            print(f"| answer | bytes | requests/s | bare | ratio | {late} | processor, µs | bare |")
            print("|---|" + "---:|" * 11)
            for name, (target, headers) in targets.items():
                pairs: list[tuple[Answers, Answers]] = []
                api_s = bare_s = 0.0
                for number in range(_ROUNDS + 1):
                    if number == 1:  # the first round warms up
                        api_s, bare_s, pairs = busy_s(service.pids["api"]), busy_s(bare.pid), []
                    pairs.append((ours.ask(target, headers), theirs.ask(f"/{_key(name)}", headers)))
                each = (busy_s(service.pids["api"]) - api_s, busy_s(bare.pid) - bare_s)
                processor = " | ".join(f"{1e6 * seconds / _ROUNDS / _REQUESTS:,.0f}" for seconds in each)
                size = len(store.get(f"bench:{_key(name)}"))
                print(f"| {name} | {size:,} | {_cells(pairs)} | {processor} |", flush=True)
        store.close()


def _targets(api: Api) -> dict[str, tuple[str, dict[str, str]]]:
    """What is asked for: name, target and headers."""
    model = api.upload(light_model("squeezenet").read_bytes(), "squeezenet.onnx")
    job = api.finished(api.submit(model, "edge4", verify="none"), _PATIENCE_S)["id"]
    plan = f"/v1/jobs/{job}/plan"
    tag = {"If-None-Match": api.http.get(plan).headers["ETag"]}
    flexible = api.upload(images(), "images.onnx")
    dims = {name: {"min": 1, "max": most} for name, most in {"n": 4, "h": 256, "w": 256}.items()}
    api.finished(api.submit(flexible, "edge4", dims=dims, verify="none"), _PATIENCE_S)
    table = f"/v1/models/{flexible}/tables?" + urlencode({"profile": "edge4", "shape": _SHAPE})
    until(lambda: api.http.get(table).json()["kind"] == "optimised", "the optimised tables", _PATIENCE_S)
    api.http.get(table).raise_for_status()
    return {"plan": (plan, {}), "plan, 304": (plan, tag), "job": (f"/v1/jobs/{job}", {}), "table": (table, {})}


def busy_s(pid: int) -> float:
    """Processor time that a process has had, whatever else the machine does."""
    return sum(psutil.Process(pid).cpu_times()[:2])


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _cells(pairs: Sequence[tuple[Answers, Answers]]) -> str:
    """The medians over the rounds: of the figures, and of the ratios within a round."""
    ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
    median = statistics.median
    rate = median(one.per_s / other.per_s for one, other in pairs)
    late = median(_percentile(one, 99) / _percentile(other, 99) for one, other in pairs)
    cells = [f"{median(one.per_s for one in side):,.0f}" for side in (ours, theirs)] + [f"{rate:.2f}"]
    for percent in (50, 99):
        cells += [f"{median(_percentile(one, percent) for one in side):.1f}" for side in (ours, theirs)]
    return " | ".join([*cells, f"{late:.2f}"])


def _percentile(found: Answers, percent: int) -> float:
    rising = sorted(found.ms)
    return rising[min(len(rising) - 1, len(rising) * percent // 100)]


class _Client:
    """A client process for one server."""

    def __init__(self, port: int) -> None:
        self._process = _process([sys.executable, "-m", "tests.bench.http_load", str(port), str(_CONNECTIONS)])

    def ask(self, target: str, headers: Mapping[str, str]) -> Answers:
        """One round."""
        asked = Round(target=target, headers=dict(headers), requests=_REQUESTS)
        assert self._child.stdin is not None
        self._child.stdin.write(msgspec.json.encode(asked) + b"\n")
        self._child.stdin.flush()
        found = msgspec.json.decode(_line(self._child), type=Answers)
        assert set(found.statuses) == {304 if headers else 200}, found.statuses
        return found

    def __enter__(self) -> _Client:
        self._child = self._process.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._process.__exit__(*details)


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # in a session of its own, as the service's processes are: Linux shares its time among sessions
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            yield child
        finally:
            child.terminate()


def _line(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().decode()


def uploads() -> None:
    """Print the memory of the API while large models arrive at once."""
    piece = secrets.token_bytes(_MIB)
    with _service() as (service, api):
        api.upload(conv_chain(2))  # what is loaded at the first upload counts as the beginning
        process = psutil.Process(service.pids["api"])
        before, peak, ended = process.memory_info().rss, [0], threading.Event()

        def watch() -> None:
            while not ended.wait(0.02):
                peak[0] = max(peak[0], process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        port = int(service.url.rpartition(":")[2])
        begun = time.perf_counter()
        with ThreadPoolExecutor(_UPLOADS) as pool:
            found = list(pool.map(lambda number: _upload(port, number, piece), range(_UPLOADS)))
        seconds = time.perf_counter() - begun
        ended.set()
        watcher.join()
    assert found == [201] * _UPLOADS, found
    total = _UPLOADS * _UPLOAD_BYTES
    print(f"\n### {_UPLOADS} uploads of {_UPLOAD_BYTES:,} bytes at once\n")
    print("| API before, MiB | at most | s | MB/s | a plain writer, MB/s |\n|---:|---:|---:|---:|---:|")
    figures = (f"{before / _MIB:.0f}", f"{peak[0] / _MIB:.0f}", f"{seconds:.1f}", f"{total / seconds / 1e6:.0f}")
    print(f"| {' | '.join(figures)} | {_written_per_s(piece) / 1e6:.0f} |", flush=True)


def _upload(port: int, number: int, piece: bytes) -> int:
    """The status of an upload of bytes of its own."""
    head = f"POST /v1/models?name=m{number} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {_UPLOAD_BYTES}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
        connection.sendall(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode())
        own = number.to_bytes(8, "big")
        connection.sendall(own)
        left = _UPLOAD_BYTES - len(own)
        while left:
            left -= connection.send(memoryview(piece)[:left])
        return int(connection.recv(4096).split()[1])


def _written_per_s(piece: bytes) -> float:
    """Bytes per second that one writer brings to this disk, synced at the end of each file."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        begun = time.perf_counter()
        for number in range(10):
            with (Path(folder) / str(number)).open("wb", buffering=0) as file:
                for _ in range(_UPLOAD_BYTES // len(piece)):
                    file.write(piece)
                os.fsync(file.fileno())
        return 10 * (_UPLOAD_BYTES // len(piece)) * len(piece) / (time.perf_counter() - begun)


def starts() -> None:
    """Print how long after its acceptance a job starts, on an idle service."""
    waits: list[float] = []
    answered: list[float] = []
    with _service() as (service, api):
        model = api.upload(conv_chain(2))
        for number in range(_STARTS + 5):
            begun = time.perf_counter()
            job = api.submit(model, "edge4", verify="none", min_macs=number)
            answered.append(1000 * (time.perf_counter() - begun))
            found = api.finished(job)
            created, started = (datetime.fromisoformat(found[name]) for name in ("created_at", "started_at"))
            waits.append(1000 * (started - created).total_seconds())
            time.sleep(0.05)  # the service rests
        sync = synced_ms(service.data_dir)
    print("\n### From an accepted job to its start, an idle service, one worker: ms\n")
    print("| what | median | 99th percentile |\n|---|---:|---:|")
    rows = {"accepted to started": waits[5:], "the answer to the request": answered[5:], "a bare sync": sync}
    for what, values in rows.items():
        print(f"| {what} | {statistics.median(values):.1f} | {statistics.quantiles(values, n=100)[98]:.1f} |")


@contextmanager
def _service() -> Iterator[tuple[EmbeddedService, Api]]:
    """The service with its own settings, on the disk of the home directory."""
    with (
        tempfile.TemporaryDirectory(dir=Path.home()) as folder,
        EmbeddedService(settings(Path(folder), lease_s=4.0, first_resend_s=2.0)) as service,
    ):
        service.wait_until()
        api = Api(service.url)
        yield service, api
        api.http.close()


PARTS: Final = {"answers": answers, "uploads": uploads, "starts": starts}


def main(names: Sequence[str]) -> None:
    """Print the tables of the named parts, or of all."""
    for name in names or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
