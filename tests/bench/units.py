"""The library of shape units that models share: units built and reused, seconds, keys and bytes (SHAPE-1).

`python -m tests.bench.units`. A renamed model, and twenty models of two families compiled one after another over a real
Redis: each without stored units, with those that the models before it left, and once more.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean
from time import perf_counter
from typing import Final, cast

import redis

from app.redis_urls import connect
from app.settings import Settings
from app.supervisor.redis_server import RedisServer, Role
from app.units.unit_cache import UnitCache
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.pipeline import SilentObserver, build_shape_pipeline, run_passes
from compiler.profile import builtin_profile
from compiler.shapes.model import ShapeModel
from compiler.shapes.stored_units import NoStoredUnits, StoredUnits
from compiler.threads import one_thread
from tests.compiler.shapes.dynamic import Ranges
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.compiler.shapes.test_canonical_routine import renamed, table_keys
from tests.models import Model

PROFILE: Final = "cluster4x4"
_WORDS: Final[Ranges] = {"batch": (1, 8), "length": (1, 512)}
_IMAGES: Final[Ranges] = {"height": (33, 513), "width": (33, 513)}
_SMALL: Final[Ranges] = {"batch": (1, 3), "height": (4, 17), "width": (4, 17)}


def cnn(blocks: int) -> Model:
    """A strided stem, and residual blocks over images of free height and width."""
    model = Model()
    x = model.input([1, 3, "height", "width"], "image")
    x = model.relu(model.norm(model.conv(x, 3, 16, 3, stride=2), 16))
    for _ in range(blocks):
        inner = model.relu(model.norm(model.conv(x, 16, 16, 3), 16))
        x = model.relu(model.node("Add", [model.norm(model.conv(inner, 16, 16, 3), 16), x]))
    model.output(model.node("Flatten", [model.node("GlobalAveragePool", [x])]))
    return model


def encoder(layers: int, heads: int) -> Callable[[], Model]:
    """A transformer encoder."""
    return lambda: encoder_layer(hidden=64, heads=heads, layers=layers, words=1000, places=512)


FAMILIES: Final[dict[str, tuple[Callable[[], Model], Ranges]]] = {
    **{f"encoder, {n} layers, {h} heads": (encoder(n, h), _WORDS) for h in (2, 4) for n in (1, 2, 3, 4, 6)},
    **{f"CNN, {n} blocks": ((lambda n=n: cnn(n)), _IMAGES) for n in range(1, 11)},  # type: ignore[misc]
}


def run() -> None:
    """Print all figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lock = stack.enter_context((folder / "lock").open("w"))
        server = RedisServer(Role.CACHE, folder, folder, lock.fileno())
        server.start()
        stack.callback(server.child.wait, 0)
        server.wait_until_ready()
        text, data = connect(server.url), connect(server.url, text=False)
        stored = UnitCache(data, text, Settings(data_dir=folder), ("",))
        _print_renamed(stored, text)
        text.flushall()
        _print_small()
        _print_families(stored, text)
        _print_keys(text)
        _print_flush(stored, text)


def _compiled(
    source: ModelSource, ranges: Ranges, stored: StoredUnits | None = None
) -> tuple[ShapeModel, float, float]:
    """A model, and the seconds of its pass `shape-units` and of the whole shape pipeline without checks of values."""
    dims = {name: {"min": low, "max": high} for name, (low, high) in ranges.items()}
    options = parse_options({"dims": dims, "verify": "none"})
    with one_thread():
        passes = build_shape_pipeline(source, builtin_profile(PROFILE), options, stored or NoStoredUnits())
        begin = perf_counter()
        model, timings = run_passes(passes, source, SilentObserver())
        whole = perf_counter() - begin
    assert isinstance(model, ShapeModel)
    return model, sum(one.duration_s for one in timings if one.name == "shape-units"), whole


def _source(build: Callable[[], Model]) -> ModelSource:
    return ModelSource.from_bytes(build().data())


def _counts(client: redis.Redis) -> tuple[int, int]:
    built, found = cast(list[str | None], client.hmget("tessera:counts", ["units:built", "units:found"]))
    return int(built or 0), int(found or 0)


def _print_renamed(stored: UnitCache, client: redis.Redis) -> None:
    dims = {"batch": "B", "height": "HH", "width": "WW"}
    ranges: Ranges = {"batch": (1, 4), "height": (4, 224), "width": (4, 224)}
    first, *_ = _compiled(_source(residual_network), ranges, stored)
    built, _ = _counts(client)
    others = {dims[name]: ends for name, ends in ranges.items()}
    second, *_ = _compiled(renamed(residual_network(), dims), others, stored)
    again, found = _counts(client)
    extents = range(4, 225, 20)
    shapes = [{"batch": b, "height": h, "width": w} for b in (1, 4) for h in extents for w in extents]
    hits = 0
    for at in shapes:
        there = {dims[name]: extent for name, extent in at.items()}
        hits += table_keys(second, there) <= table_keys(first, at)
    print("### The same network under other names\n")
    print(f"First model: {built} units built. Renamed: {again - built} built, {found} found.")
    print(f"Shapes whose tables the first model had made all: {hits} of {len(shapes)}.\n")


def _print_small() -> None:
    model, *_ = _compiled(_source(residual_network), _SMALL)
    units = [len(library.tiles) for library in model.libraries]
    print(f"### Small ranges: height and width of 4 to 17\n\n{sum(units)} units in {len(units)} routines: {units}.\n")


def _print_families(stored: UnitCache, client: redis.Redis) -> None:
    print("### Two families, one model after another\n")
    print("Seconds of the pass `shape-units`, and in brackets of the whole shape pipeline.\n")
    print("| model | routines | units built | units found | without | with those before | again |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    seconds: list[tuple[float, float, float]] = []
    for name, (build, ranges) in FAMILIES.items():
        source = _source(build)
        model, *without = _compiled(source, ranges)
        before = _counts(client)
        _, *shared = _compiled(source, ranges, stored)
        built, found = (now - then for now, then in zip(_counts(client), before, strict=True))
        _, *again = _compiled(source, ranges, stored)
        seconds.append((without[0], shared[0], again[0]))
        times = " | ".join(f"{units:.2f} ({whole:.2f})" for units, whole in (without, shared, again))
        print(f"| {name} | {len(model.libraries)} | {built} | {found} | {times} |", flush=True)
    sums = [sum(row[column] for row in seconds) for column in range(3)]
    ratios = [geometric_mean([row[column] / row[0] for row in seconds]) for column in (1, 2)]
    print(f"| sum | | | | {' | '.join(f'{one:.1f}' for one in sums)} |\n")
    print(f"Geometric means over the time without: {ratios[0]:.2f} with those before, {ratios[1]:.2f} again.\n")


def _print_keys(client: redis.Redis) -> None:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for key in client.scan_iter(count=1000):
        name = str(key)
        kind = ":".join(name.split(":")[:2]) + (":*:use" if name.endswith(":use") else "")
        counts[kind] += 1
        sizes[kind] += client.memory_usage(name) or 0
    print("### What lies in Redis then\n\n| keys | number | bytes in memory |\n|---|---:|---:|")
    for kind in sorted(counts):
        print(f"| `{kind}` | {counts[kind]:,} | {sizes[kind]:,} |")
    print()


def _print_flush(stored: UnitCache, client: redis.Redis) -> None:
    names = [name for name in FAMILIES if name in ("encoder, 6 layers, 4 heads", "CNN, 10 blocks")]
    print("### FLUSHALL: seconds of the pass\n\n| model | s warm | s after the flush | s then |\n|---|---:|---:|---:|")
    sources = {name: _source(FAMILIES[name][0]) for name in names}
    warm = {name: _compiled(source, FAMILIES[name][1], stored)[1] for name, source in sources.items()}
    client.flushall()
    for name, source in sources.items():
        cold, then = [_compiled(source, FAMILIES[name][1], stored)[1] for _ in range(2)]
        print(f"| {name} | {warm[name]:.2f} | {cold:.2f} | {then:.2f} |")


if __name__ == "__main__":
    run()
