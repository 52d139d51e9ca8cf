"""Buckets by histograms of requests: shapes served, tables kept, cycles over exact tables, bytes (SHAPE-5).

`python -m tests.bench.buckets` (or `python -m tests.bench buckets`). Lookup, optimiser and cache as in the service,
over a real Redis, in one process; workers make what is wanted after every 40 requests.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

import numpy as np
import structlog

from app.jobs.identity import Identity
from app.redis_urls import connect
from app.settings import Settings
from app.store import document_store
from app.supervisor.redis_server import RedisServer, Role
from app.tables import simple_tables
from app.tables.answer_counts import AnswerCounts
from app.tables.buckets import BucketChoice
from app.tables.cache import TableCache, value_key
from app.tables.counts import TableCounts
from app.tables.document import tables_document, tables_json
from app.tables.lookup import TableLookup
from app.tables.open_packages import OpenPackage, OpenPackages
from app.tables.optimised_tables import settled
from app.tables.optimising_delay import Pace
from app.tables.request_queue import WantedTables
from compiler.compile import compile_package
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.shapes.extents import Range
from compiler.shapes.legal import shape_at
from compiler.shapes.package import write_package
from tests.exported import exported_models
from tests.service.models import images
from worker.optimise import Optimiser

_PROFILES: Final = ("edge4", "cluster4x4")
_EXPORTED: Final = ("super_resolution_dynamo.onnx", "bert_dynamo.onnx")
_IMAGES: Final = {"n": 4, "h": 256, "w": 256}
# Requests between which workers make what is wanted; of the first as many nothing is counted.
_TURN: Final = 40
_REQUESTS: Final = 400
# Bucket-hits that an optimised table is made for, to compare.
_EXACT: Final = 40
_MANY: Final = 10_000
_CURVE: Final = (100, 1_000, 2_000, 5_000, 10_000)


def run() -> None:
    """One row per model, profile and histogram; then the bytes of the cache."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    found = {model.file: model for model in exported_models()}
    models = {"conv + relu": (images(), _IMAGES)} | {
        name.removesuffix("_dynamo.onnx"): (found[name].read(), dict(found[name].dims)) for name in _EXPORTED
    }
    print(f"\n### {_REQUESTS} requests, of which the first {_TURN} choose buckets\n")
    print(
        "| profile | model | histogram | shapes | served by buckets | new shapes served | tables "
        "| per shape and routine | over simple, mean | worst | over optimised, mean | 95 % | worst |\n|---|---|---|"
        + "---:|"
        * 10
    )
    for profile in _PROFILES:
        for name, (data, maxima) in models.items():
            for histogram in ("uniform", "log-normal", "trace"):
                with _desk(data, profile, maxima) as desk:
                    desk.print_row(profile, name, histogram)
    _print_bytes(images())


def run_answers() -> None:
    """Processor time of the thread that gives first answers, as the service does but for HTTP."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    found = {model.file: model for model in exported_models()}
    models = {"conv + relu": (images(), _IMAGES)} | {
        name.removesuffix("_dynamo.onnx"): (found[name].read(), dict(found[name].dims))
        for name in (*_EXPORTED, "gpt2_dynamo.onnx")
    }
    print("\n### First answers for new shapes, edge4: ms of the processor\n")
    print("| model | misses | p50 | p99 | bucket-hits | p50 | p99 |\n|---|" + "---:|" * 6)
    for name, (data, maxima) in models.items():
        with _desk(data, "edge4", maxima) as desk:
            spent = desk.first_answers_ms(_shapes(maxima, _REQUESTS))
        cells = (f"{len(spent[cache])} | {_percentiles(spent[cache])}" for cache in ("miss", "bucket-hit"))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def drawn(histogram: str, ranges: Mapping[str, Range], dice: random.Random) -> dict[str, int]:
    """Dimensions of one request. `trace`: most are short, one of ten has any length, some come again."""
    dims = {}
    again = random.Random(dice.randrange(8)) if histogram == "trace" and dice.random() < 0.3 else dice
    for name, one in ranges.items():
        if histogram == "uniform" or (histogram == "trace" and again.random() < 0.1):
            extent = again.randint(one.low, one.high)
        elif histogram == "log-normal":
            extent = round(math.exp(again.gauss(math.log(one.low * one.high) / 2, 0.6)))
        else:
            extent = round(one.low + (one.high - one.low) * min(1.0, (again.paretovariate(1.2) - 1) / 8))
        dims[name] = min(one.high, max(one.low, extent))
    return dims


@dataclass(frozen=True, kw_only=True, eq=False)
class _Desk:
    """A package, its cache and what serves and makes tables."""

    url: str
    settings: Settings
    packages: OpenPackages
    package: OpenPackage
    lookup: TableLookup
    optimiser: Optimiser

    def work(self) -> None:
        """Make all tables that are wanted."""
        self.lookup.counts.send()
        while wanted := self.lookup.wanted.claim():
            for one in wanted:
                self.optimiser.run(one, "worker")

    def first_answers_ms(self, shapes: Sequence[Mapping[str, int]]) -> dict[str, list[float]]:
        """What the answers for shapes take, by what their tables are; workers make what is wanted after every turn."""
        model = self.package.model
        for asked in self.package.asked({name: one.high for name, one in model.ranges.items()}):
            simple_tables.simple(self.package, asked)  # as the API's thread that opens packages
        gc.collect()
        gc.freeze()
        spent: dict[str, list[float]] = {"miss": [], "bucket-hit": [], "hit": []}
        for number, dims in enumerate(shapes):
            if number % _TURN == 0:
                self.work()
            inputs = {name: shape_at(model.graph.tensors[name], dims) for name in model.graph.inputs}
            words = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in inputs.items()]
            begun = thread_time()
            known = model.dims_of_words(words)
            document = tables_document(self.package, known, self.lookup.find(self.package, known))
            hashlib.sha256(tables_json(document)).hexdigest()
            spent[document.cache].append((thread_time() - begun) * 1000)
        gc.unfreeze()
        return spent

    def print_row(self, profile: str, name: str, histogram: str) -> None:
        """Ask for shapes and print what served them."""
        dice = random.Random(7)
        known: set[tuple[int, ...]] = set()
        answers = {"hit": 0, "bucket-hit": 0, "miss": 0}
        new = {"hit": 0, "bucket-hit": 0, "miss": 0}
        over: list[tuple[float, float | None]] = []
        for number in range(_REQUESTS):
            if number % _TURN == 0:
                self.work()
            dims = drawn(histogram, self.package.model.ranges, dice)
            found = self.lookup.find(self.package, dims)
            shape = tuple(dims.values())
            if number >= _TURN:
                for one in found:
                    if one.table.shape:
                        answers[one.cache] += 1
                        if shape not in known:
                            new[one.cache] += 1
                    if one.cache == "bucket-hit":
                        simple = simple_tables.simple(self.package, one.asked)
                        exact = None
                        if len(over) < _EXACT * len(found):
                            exact = one.table.cycles / settled(self.package, one.asked, simple).cycles
                        over.append((one.table.cycles / simple.cycles, exact))
            known.add(shape)
        self.work()
        tables = sum(1 for _ in connect(self.url).scan_iter(value_key("*"), count=1000))
        routines = len({one for one in self.package.model.alike if self.package.model.libraries[one].routine.tiled})
        simple_over = np.array([one for one, _ in over]) - 1
        exact_over = np.array([one for _, one in over if one is not None]) - 1
        cells = (
            f"{answers['bucket-hit'] / sum(answers.values()):.0%}",
            f"{new['bucket-hit'] / sum(new.values()):.0%}" if sum(new.values()) else "",
            f"{tables:,}",
            f"{tables / len(known) / routines:.2f}",
            f"{simple_over.mean():+.1%}",
            f"{simple_over.max():+.1%}",
            f"{exact_over.mean():+.1%}",
            f"{np.percentile(exact_over, 95):+.1%}",
            f"{exact_over.max():+.1%}",
        )
        print(f"| {profile} | {name} | {histogram} | {len(known)} | {' | '.join(cells)} |", flush=True)


def _shapes(maxima: Mapping[str, int], most: int) -> list[dict[str, int]]:
    """So many distinct shapes in a random order, or all that there are."""
    dice, count = random.Random(7), min(most, math.prod(maxima.values()))
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        found.setdefault(tuple(dice.randint(1, extent) for extent in maxima.values()))
    return [dict(zip(maxima, extents, strict=True)) for extents in found]


def _percentiles(times: Sequence[float]) -> str:
    rising = sorted(times)
    return f"{rising[len(rising) // 2]:.2f} | {rising[len(rising) * 99 // 100]:.2f}" if rising else "|"


def _print_bytes(data: bytes) -> None:
    """The bytes of the cache over many distinct shapes, and what answers take in this process."""
    print(f"\n### The cache over {_MANY:,} distinct shapes (conv + relu, edge4, uniform)\n")
    print("| shapes | tables | bytes of the cache | per shape | µs per answer |\n|---:|---:|---:|---:|---:|")
    with _desk(data, "edge4", _IMAGES) as desk:
        client, dice = connect(desk.url), random.Random(11)
        known: set[tuple[int, ...]] = set()
        spent = 0.0
        while len(known) < _MANY:
            dims = drawn("uniform", desk.package.model.ranges, dice)
            if tuple(dims.values()) in known:
                continue
            known.add(tuple(dims.values()))
            begun = perf_counter()
            desk.lookup.find(desk.package, dims)
            spent += perf_counter() - begun
            if len(known) % _TURN == 0:
                desk.work()
            if len(known) in _CURVE:
                keys = list(client.scan_iter(value_key("*"), count=1000))
                size = sum(client.memory_usage(key) or 0 for key in keys)
                each = spent / len(known) * 1e6
                print(
                    f"| {len(known):,} | {len(keys):,} | {size:,} | {size / len(known):.1f} | {each:.0f} |", flush=True
                )


@contextmanager
def _desk(data: bytes, profile: str, maxima: Mapping[str, int]) -> Iterator[_Desk]:
    """A package of a model for dimensions from 1 to their maxima, and an empty Redis."""
    source = ModelSource.from_bytes(data)
    dims = {name: {"min": 1, "max": most} for name, most in maxima.items()}
    compiled = compile_package(source, builtin_profile(profile), parse_options({"dims": dims}))
    file = opened(compiled.model.graph.source, source)
    package = write_package(compiled.model, compiled.tables, lambda one: materialise(one, file))
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "lock").open("w") as lock:
        server = RedisServer(Role.BROKER, Path(folder), Path(folder), lock.fileno())
        server.start()
        server.wait_until_ready()
        settings = Settings(data_dir=Path(folder))
        store = document_store(settings.store_dir)
        packages = OpenPackages(store, 1)
        counts = TableCounts(connect(server.url), settings)
        cache = TableCache(connect(server.url, text=False), settings)
        wanted = WantedTables(connect(server.url), Identity(version="0", store="here"))
        buckets = BucketChoice(client=connect(server.url), counts=counts, settings=settings)
        pace = Pace()
        answers = AnswerCounts(counts, pace)
        yield _Desk(
            url=server.url,
            settings=settings,
            packages=packages,
            package=packages.get(store.put(b"".join(bytes(piece) for piece in package))),
            lookup=TableLookup(
                cache=cache, wanted=wanted, counts=answers, buckets=buckets, pace=pace, settings=settings
            ),
            optimiser=Optimiser(cache=cache, wanted=wanted, counts=counts, buckets=buckets, packages=packages),
        )
        packages.close()
        server.child.wait(0)


if __name__ == "__main__":
    run()
