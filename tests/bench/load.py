"""What the service bears: `python -m tests.bench.load [answers] [uploads] [starts]`; without words all three.

- *answers*: requests per second and latencies of cached answers, beside bare FastAPI handlers that answer the same
  bytes from Redis (`bare_service.py`), in turn, from a client in a process of its own (`http_load.py`);
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import psutil

from app.keys.keys import Keys
from app.keys.owners import LOCAL_WORD
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
    """Print requests per second and latencies of cached answers, without a key and with one."""
    with _service() as (service, api):
        store: Any = connect(service.cache_url, text=False)
        cases = [_case(api, store, *target) for target in _targets(api)]
        broker = connect(str(service.broker_url))
        _, key = Keys(broker, service.settings).create("bench", LOCAL_WORD, {"requests_per_minute": 2**31})
        broker.close()
        port = int(service.url.rpartition(":")[2])
        command = [sys.executable, "-m", "tests.bench.bare_service", service.cache_url]
        with _process(command) as bare, _Client(port) as ours, _Client(int(_line(bare))) as theirs:
            pids = service.pids["api"], bare.pid, bare.pid
            print(
                f"\n### Cached answers: {_CONNECTIONS} connections, {_ROUNDS} rounds of {_REQUESTS} requests in turn\n"
            )
            three = "{0} | bare, 1 read | bare, 2 reads"
            print(
                f"| answer | bytes | {three.format('requests/s')} | ratio | ratio | {three.format('p99, ms')} "
                f"| ratio | ratio | {three.format('processor, µs')} |"
            )
            print("|---|" + "---:|" * 14)
            for case in [*cases, *(case.with_key(key) for case in cases)]:
                asks = [
                    partial(ours.ask, case.target, case.headers),
                    partial(theirs.ask, f"/{case.key}", case.headers),
                    partial(theirs.ask, f"/records/{case.key}", case.headers),
                ]
                print(f"| {case.name} | {case.size_bytes:,} | {_cells(_rounds(asks, pids))} |", flush=True)
        store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What is asked for, and the key under which the bare handler has the same bytes."""

    name: str
    target: str
    headers: Mapping[str, str]
    key: str
    size_bytes: int

    def with_key(self, key: str) -> _Case:
        """The same question of somebody who sends a key."""
        return replace(self, name=f"{self.name}, key", headers={**self.headers, "Authorization": f"Bearer {key}"})


def _case(api: Api, store: Any, name: str, target: str, tag: str | None) -> _Case:
    body = api.http.get(target).raise_for_status().content
    key = hashlib.sha256(name.encode()).hexdigest()[:8]
    digest = hashlib.sha256(body).hexdigest() if tag is None else tag.strip('"')
    for named, value in ((key, body), (digest, body), (f"record:{key}", digest)):
        store.set(f"bench:{named}", value)
    headers = {} if tag is None else {"If-None-Match": tag}
    return _Case(name=name, target=target, headers=headers, key=key, size_bytes=0 if tag else len(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounds:
    """The answers of one server to one question, and its processor time per request."""

    answers: list[Answers]
    busy_us: float


def _rounds(asks: Sequence[Callable[[], Answers]], pids: Sequence[int]) -> list[_Rounds]:
    """Asks in turn, after one round that warms up."""
    found: list[list[Answers]] = [[] for _ in asks]
    busy = [0.0 for _ in asks]
    for number in range(_ROUNDS + 1):
        for place, (ask, pid) in enumerate(zip(asks, pids, strict=True)):
            before_s = busy_s(pid)
            answer = ask()
            if number:
                busy[place] += busy_s(pid) - before_s
                found[place].append(answer)
    return [
        _Rounds(answers=each, busy_us=1e6 * seconds / _ROUNDS / _REQUESTS)
        for each, seconds in zip(found, busy, strict=True)
    ]


def _targets(api: Api) -> list[tuple[str, str, str | None]]:
    """What is asked for: name, target and tag."""
    model = api.upload(light_model("squeezenet").read_bytes(), "squeezenet.onnx")
    job = api.finished(api.submit(model, "edge4", verify="none"), _PATIENCE_S)["id"]
    plan = f"/v1/jobs/{job}/plan"
    flexible = api.upload(images(), "images.onnx")
    dims = {name: {"min": 1, "max": most} for name, most in {"n": 4, "h": 256, "w": 256}.items()}
    api.finished(api.submit(flexible, "edge4", dims=dims, verify="none"), _PATIENCE_S)
    table = f"/v1/models/{flexible}/tables?" + urlencode({"profile": "edge4", "shape": _SHAPE})
    until(lambda: api.http.get(table).json()["kind"] == "optimised", "the optimised tables", _PATIENCE_S)
    api.http.get(table).raise_for_status()
    tag = api.http.get(plan).headers["ETag"]
    return [("plan", plan, None), ("plan, 304", plan, tag), ("job", f"/v1/jobs/{job}", None), ("table", table, None)]


def busy_s(pid: int) -> float:
    """Processor time that a process has had, whatever else the machine does."""
    return sum(psutil.Process(pid).cpu_times()[:2])


def _cells(rounds: Sequence[_Rounds]) -> str:
    """The medians over the rounds: of the figures, and of the ratios within a round, ours to the others'."""
    median = statistics.median
    cells: list[str] = []
    for figure, form in ((_per_s, ",.0f"), (partial(_percentile, percent=99), ".1f")):
        values = [[figure(answer) for answer in each.answers] for each in rounds]
        cells += [f"{median(each):{form}}" for each in values]
        for others in values[1:]:
            cells.append(f"{median(one / other for one, other in zip(values[0], others, strict=True)):.2f}")
    return " | ".join([*cells, *(f"{each.busy_us:,.0f}" for each in rounds)])


def _per_s(found: Answers) -> float:
    return found.per_s


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
        assert set(found.statuses) == {304 if "If-None-Match" in headers else 200}, found.statuses
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
        EmbeddedService(settings(Path(folder), first_resend_s=2.0)) as service,
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
