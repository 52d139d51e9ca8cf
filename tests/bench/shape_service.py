"""Tables over HTTP on the real service: the first answer for a shape, cached answers, and memory over 10,000 shapes.

`python -m tests.bench shape-service`; takes some minutes, most of them waiting for optimised tables.
"""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from app.jobs.identity import Identity
from app.redis_urls import connect
from app.supervisor.service import EmbeddedService
from app.tables.request_queue import WantedTables
from tests.exported import exported_models
from tests.service.harness import Api, kill, settings, until
from tests.service.models import images

_PROFILE: Final = "edge4"
_EXPORTED: Final = ("super_resolution_dynamo.onnx", "bert_dynamo.onnx", "gpt2_dynamo.onnx")
_IMAGES: Final = {"n": 4, "h": 256, "w": 256}
# Shapes of each model that are asked for the first time: rounds, between which workers make what is wanted, and shapes
# of a round; then answers from the cache.
_ROUNDS: Final = 8
_OF_ROUND: Final = 50
_CACHED: Final = 1000
_CURVE: Final = (0, 100, 1000, 2000, 5000, 10_000)
_PATIENCE_S: Final = 1800.0
_MIB: Final = 1024 * 1024


def run() -> None:
    """Latencies of four models, then the memory of API and Redis as more and more shapes are asked for."""
    found = {model.file: model for model in exported_models()}
    models = {"conv + relu": (images(), _IMAGES)} | {
        name: (found[name].read(), dict(found[name].dims)) for name in _EXPORTED
    }
    print(f"\n### Tables over HTTP on loopback, `{_PROFILE}`, one worker: ms\n")
    gc.freeze()  # what is loaded here: looking through it for garbage would count as a server's 40 ms
    firsts = "at once | after a restart | misses | p50 | p99 | bucket-hits | p50 | p99"
    cached = "cached, p50 | p99 | bare handler, p50 | p99"
    print(f"| model | routines | {firsts} | {cached} | processor, first | cached |\n|---|" + "---:|" * 15)
    for name, (data, maxima) in models.items():
        with _service() as (service, api):
            _latencies(name, service, api, data, maxima)
    _memory()


def _latencies(name: str, service: EmbeddedService, api: Api, data: bytes, maxima: Mapping[str, int]) -> None:
    asker = _Asker.compiled(api, data, maxima)
    shapes = _shapes(maxima, _ROUNDS * _OF_ROUND + 2)
    first_ms, answer = asker.timed_ms(shapes[0])
    until(lambda: asker.tables(shapes[0])["kind"] == "optimised", "the optimised tables", _PATIENCE_S)
    _restarted(service, api)
    restarted_ms, _ = asker.timed_ms(shapes[1])
    process = psutil.Process(service.pids["api"])
    by_cache: dict[str, list[float]] = {"miss": [], "bucket-hit": [], "hit": []}
    first_s = 0.0
    for begin in range(2, len(shapes), _OF_ROUND):
        _drained(service)
        busy_s = _busy_s(process)
        for shape in shapes[begin : begin + _OF_ROUND]:
            milliseconds, found = asker.timed_ms(shape)
            by_cache[found["cache"]].append(milliseconds)
        first_s += _busy_s(process) - busy_s
    _drained(service)
    until(lambda: asker.tables(shapes[0])["kind"] == "optimised", "the optimised tables", _PATIENCE_S)
    busy_s = _busy_s(process)
    hits, bare = _beside_bare(service, asker, shapes[0])
    cached_s = _busy_s(process) - busy_s
    firsts = [f"{len(by_cache[cache])} | {_percentiles(by_cache[cache])}" for cache in ("miss", "bucket-hit")]
    processor = f"{first_s / (len(shapes) - 2) * 1000:.1f} | {cached_s / _CACHED * 1000:.1f}"
    alone = (f"{first_ms:.1f}", f"{restarted_ms:.1f}")
    cells = (name, len(answer["routines"]), *alone, *firsts, _percentiles(hits), _percentiles(bare), processor)
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _beside_bare(service: EmbeddedService, asker: _Asker, dims: Mapping[str, int]) -> tuple[list[float], list[float]]:
    """Cached answers, and in turn those of a handler that reads the same bytes from Redis: milliseconds."""
    client = connect(service.cache_url, text=False)
    client.set("bench:table", asker.response(dims).content)
    client.close()
    command = [sys.executable, "-m", "tests.bench.bare_service", service.cache_url]
    hits, bare = [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as handler:
        assert handler.stdout is not None
        with httpx.Client(base_url=f"http://127.0.0.1:{int(handler.stdout.readline())}") as http:
            for _ in range(_CACHED):
                hits.append(asker.timed_ms(dims)[0])
                begun = time.perf_counter()
                http.get("/table").json()
                bare.append((time.perf_counter() - begun) * 1000)
        handler.terminate()
    return hits, bare


def _restarted(service: EmbeddedService, api: Api) -> None:
    """Another API process, a second after it is ready."""
    before = service.pids["api"]
    kill(before)
    until(lambda: service.pids["api"] != before, "another API process", _PATIENCE_S)
    until(lambda: api.http.get("/readyz").status_code == 200, "an API that is ready", _PATIENCE_S)
    time.sleep(1.0)


def _memory() -> None:
    with _service() as (service, api):
        asker = _Asker.compiled(api, images(), _IMAGES)
        asker.tables({"n": 1, "h": 1, "w": 1})
        redis = connect(service.cache_url)
        shapes = _shapes(_IMAGES, _CURVE[-1])
        print("\n### Memory over the number of shapes (conv + relu): MiB\n")
        print("| shapes asked for | tables kept | API, resident | Redis, in use | bytes of Redis per shape |")
        print("|---:|---:|---:|---:|---:|")
        begun = time.perf_counter()
        empty = _redis_bytes(redis)
        for before, count in zip((0, *_CURVE), _CURVE, strict=False):
            for shape in shapes[before:count]:
                asker.tables(shape)
            _drained(service)
            resident = psutil.Process(service.pids["api"]).memory_info().rss
            used = _redis_bytes(redis)
            each = f"{(used - empty) / count:.0f}" if count else ""
            kept = asker.statistics()["simple_made"]
            print(f"| {count:,} | {kept:,} | {resident / _MIB:.1f} | {used / _MIB:.1f} | {each} |", flush=True)
        seconds = time.perf_counter() - begun
        made = asker.statistics()
        redis.close()
    print(f"\n{made['simple_made']} simple and {made['optimised_made']} optimised tables in {seconds:.0f} s.")


class _Asker:
    """Asks for the tables of one model."""

    def __init__(self, api: Api, model: str, inputs: Mapping[str, Sequence[int | str]]) -> None:
        self._api = api
        self._path = f"/v1/models/{model}/tables"
        self._inputs = inputs

    @classmethod
    def compiled(cls, api: Api, data: bytes, maxima: Mapping[str, int]) -> _Asker:
        """Compile a model for dimensions from 1 to their maxima."""
        import onnx

        model = api.upload(data)
        dims = {name: {"min": 1, "max": most} for name, most in maxima.items()}
        job = api.finished(api.submit(model, _PROFILE, dims=dims, verify="none"), _PATIENCE_S)
        assert "package" in job["links"], job
        graph = onnx.load_from_string(data).graph
        weights = {one.name for one in graph.initializer}
        inputs: dict[str, Sequence[int | str]] = {
            one.name: [axis.dim_param or axis.dim_value for axis in one.type.tensor_type.shape.dim]
            for one in graph.input
            if one.name not in weights
        }
        return cls(api, model, inputs)

    def tables(self, dims: Mapping[str, int]) -> dict[str, Any]:
        """The answer for a shape, parsed."""
        return dict(self.response(dims).json())

    def response(self, dims: Mapping[str, int]) -> httpx.Response:
        """The answer for a shape."""
        texts = [
            f"{name}:{'x'.join(str(dims.get(str(extent), extent)) for extent in extents)}"
            for name, extents in self._inputs.items()
        ]
        answer = self._api.http.get(self._path, params={"profile": _PROFILE, "shape": texts})
        assert answer.status_code == 200, answer.text
        return answer

    def timed_ms(self, dims: Mapping[str, int]) -> tuple[float, dict[str, Any]]:
        """How long an answer takes from the request to its last byte, parsed; and the answer."""
        begun = time.perf_counter()
        found = self.tables(dims)
        return (time.perf_counter() - begun) * 1000, found

    def statistics(self) -> dict[str, Any]:
        """How often tables were made."""
        return dict(self._api.http.get(f"{self._path}/statistics", params={"profile": _PROFILE}).json())


def _shapes(maxima: Mapping[str, int], most: int) -> list[dict[str, int]]:
    """Distinct values of the dimensions, drawn with a fixed seed: so many, or all that there are."""
    dice = random.Random(7)
    count = min(most, prod(maxima.values()))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < count:
        drawn.setdefault(tuple(dice.randint(1, most) for most in maxima.values()))
    return [dict(zip(maxima, extents, strict=True)) for extents in drawn]


def _drained(service: EmbeddedService) -> None:
    """Wait until all optimised tables that were wanted are handed out; asks Redis, so that the API rests meanwhile."""
    client = connect(service.broker_url)
    wanted = WantedTables(client, Identity.present(service.settings))
    until(
        lambda: wanted.waiting() == 0 and client.llen(wanted.queue) == 0, "no more work in the background", _PATIENCE_S
    )
    client.close()


def _busy_s(process: psutil.Process) -> float:
    """Processor time that a process has had, whatever else the machine does."""
    return sum(process.cpu_times()[:2])


def _redis_bytes(client: Any) -> int:
    return int(client.info("memory")["used_memory"])


def _percentiles(times: Sequence[float]) -> str:
    """Median and 99th percentile as two cells."""
    if not times:
        return "|"
    rising = sorted(times)
    return f"{statistics.median(rising):.1f} | {rising[min(len(rising) - 1, len(rising) * 99 // 100)]:.1f}"


@contextmanager
def _service() -> Iterator[tuple[EmbeddedService, Api]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedService(settings(Path(folder), optimise_lock_s=600.0)) as service,
    ):
        service.wait_until()
        api = Api(service.url)
        yield service, api
        api.http.close()
