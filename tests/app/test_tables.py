"""SHAPE-7: tables in the cache, single flights, counts; real Redis, all in this process."""

from __future__ import annotations

import mmap
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import redis

from app.jobs.identity import Identity
from app.jobs.queue import create_celery
from app.redis_urls import connect
from app.settings import Settings
from app.store import DirectoryStore, document_store
from app.tables import simple_tables
from app.tables.answer_counts import AnswerCounts
from app.tables.buckets import WORTH, BucketChoice, choice, served
from app.tables.cache import TableCache, optimise_lock, simple_lock, value_key
from app.tables.counts import MAX_SHAPES, REQUESTS, CountedAnswer, TableCounts, answered, made
from app.tables.document import tables_document
from app.tables.lookup import TableLookup
from app.tables.open_packages import OpenPackage, OpenPackages
from app.tables.optimising_delay import Pace
from app.tables.request_queue import LINE_UP_S, OPTIMISE_TASK, Wanted, WantedTables
from app.tables.table_encoding import StoredTable, decoded, encoded, is_of, restored
from compiler.compile import compile_package
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.shapes.package import write_package
from compiler.shapes.table import check_cover
from tests.service.models import images
from worker.optimise import Optimiser

IDENTITY = Identity(version="0", store="here")
SHORT = IDENTITY.queues()[0]

DIMS = {"n": 1, "h": 20, "w": 13}


def package_bytes(most: int, tables: Sequence[dict[str, int]] = (), **changes: Any) -> bytes:
    """A package of images up to `most` of each dimension; `changes`: of its libraries, which make it none of ours."""
    ranges = {name: {"min": 1, "max": most} for name in DIMS}
    source = ModelSource.from_bytes(images(), name="images.onnx")
    options = parse_options({"dims": ranges, "tables": list(tables)})
    made = compile_package(source, builtin_profile("edge4"), options)
    file = opened(made.model.graph.source, source)
    model = replace(made.model, libraries=tuple(replace(one, **changes) for one in made.model.libraries))
    return b"".join(bytes(p) for p in write_package(model, made.tables, lambda one: materialise(one, file)))


@pytest.fixture(scope="module")
def image_package() -> bytes:
    return package_bytes(24)


@dataclass
class Desk:
    """What API processes and workers have, over one Redis; each lookup has connections of its own."""

    url: str
    settings: Settings
    packages: OpenPackages
    package: OpenPackage
    pace: Pace = field(default_factory=Pace)

    @cached_property
    def answers(self) -> AnswerCounts:
        """What all lookups count with."""
        return AnswerCounts(self.counts(), self.pace)

    def cache(self) -> TableCache:
        return TableCache(connect(self.url, text=False), self.settings)

    def counts(self) -> TableCounts:
        return TableCounts(connect(self.url), self.settings)

    def lookup(self) -> TableLookup:
        return TableLookup(
            cache=self.cache(),
            wanted=WantedTables(connect(self.url), IDENTITY),
            counts=self.answers,
            buckets=self.buckets(),
            pace=self.pace,
            settings=self.settings,
        )

    def buckets(self) -> BucketChoice:
        return BucketChoice(client=connect(self.url), counts=self.counts(), settings=self.settings)

    def optimiser(self) -> Optimiser:
        return Optimiser(
            cache=self.cache(),
            wanted=WantedTables(connect(self.url), IDENTITY),
            counts=self.counts(),
            buckets=self.buckets(),
            packages=self.packages,
        )

    def work(self, lookup: TableLookup) -> None:
        """Make all tables that are wanted."""
        self.answers.send()
        optimiser = self.optimiser()
        while wanted := lookup.wanted.claim():
            for one in wanted:
                assert optimiser.run(one, "worker") == "optimised"

    def figure(self, name: str) -> int:
        self.answers.send()
        return self.counts().of(self.package.digest, 1).counts.get(name, 0)


@pytest.fixture
def desk(client: redis.Redis, redis_url: str, tmp_path: Path, image_package: bytes) -> Desk:
    assert client.dbsize() == 0
    settings = Settings(data_dir=tmp_path, table_lock_s=5.0, optimise_lock_s=30.0)
    store = document_store(settings.store_dir)
    packages = OpenPackages(store, 2)
    return Desk(redis_url, settings, packages, packages.get(store.put(image_package)))


def only_key(desk: Desk) -> str:
    (asked,) = desk.package.asked(DIMS)
    return asked.key


def test_a_stored_table_comes_back_and_nothing_else_does(desk: Desk) -> None:
    (asked,) = desk.package.asked(DIMS)
    table = simple_tables.simple(desk.package, asked)
    value = encoded(asked.key, table)
    assert decoded(asked.key, value) == table
    assert table.calls == sum(int(np.prod([axis.count for axis in run.axes])) for run in table.runs)
    assert decoded("another key", value) is None
    assert decoded(asked.key, None) is None
    for damaged in (b"", value[:-1], value + b"\0", b"T9" + value[2:], value[:2] + b"o" + value[3:]):
        assert decoded(asked.key, damaged) is None
    for place in range(3, len(value)):
        assert decoded(asked.key, value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]) is None
    assert is_of(table, desk.package.model.libraries[0].units, (1, 20, 13))
    assert len(value) < 80 * len(table.runs) + 40


def test_a_miss_makes_the_simple_table_and_a_worker_puts_the_optimised_one_in_its_place(desk: Desk) -> None:
    lookup = desk.lookup()
    (first,) = lookup.find(desk.package, DIMS)
    assert (first.cache, first.table.kind, first.table.optimised_cycles) == ("miss", "simple", None)
    (again,) = lookup.find(desk.package, DIMS)
    assert (again.cache, again.table) == ("hit", first.table)
    (wanted,) = lookup.wanted.claim()  # wanted once, though asked for twice
    assert (wanted.key, wanted.package) == (first.asked.key, desk.package.digest)
    assert desk.optimiser().run(wanted, "worker") == "optimised"
    (best,) = lookup.find(desk.package, DIMS)
    assert (best.cache, best.table.kind, best.table.settled) == ("hit", "optimised", True)
    assert best.table.simple_cycles == first.table.cycles
    assert best.table.cycles == best.table.optimised_cycles
    assert best.table.cycles <= first.table.cycles
    assert lookup.wanted.waiting() == 0
    assert desk.optimiser().run(wanted, "worker") == "known"  # delivered twice
    figures = (answered("miss", "simple"), answered("hit", "simple"), answered("hit", "optimised"))
    assert [desk.figure(name) for name in figures] == [1, 1, 1]
    assert (desk.figure(made("simple")), desk.figure(made("optimised"))) == (1, 1)


def test_a_table_that_travels_in_the_package_is_answered_without_the_cache(desk: Desk, client: redis.Redis) -> None:
    """Redis has been told nothing of it, and nobody is asked to make it better."""
    lookup = desk.lookup()
    lookup.find(desk.package, DIMS)
    desk.work(lookup)
    (made,) = lookup.find(desk.package, DIMS)
    client.flushdb()
    store = document_store(desk.settings.store_dir)
    package = desk.packages.get(store.put(package_bytes(24, [DIMS])))
    (found,) = lookup.find(package, DIMS)
    assert (found.cache, found.table.kind, found.table.settled) == ("hit", "optimised", True)
    assert found.table == made.table
    assert not client.keys(value_key("*"))
    assert lookup.wanted.waiting() == 0
    desk.answers.send()
    counted = desk.counts().of(package.digest, 1)
    assert (counted.counts[answered("hit", "optimised")], counted.shapes) == (1, (((20, 1, 13), 1),))
    # other shapes go the way of all
    (other,) = lookup.find(package, {**DIMS, "h": 19})
    assert (other.cache, lookup.wanted.waiting()) == ("miss", 1)


def test_counts_that_another_thread_is_sending_are_waited_for(desk: Desk) -> None:
    """Statistics were read between the moment at which the relay took the counts and the one at which they arrived."""
    taken, go = threading.Event(), threading.Event()

    class Slow(TableCounts):
        def add_all(self, answers: Mapping[CountedAnswer, int]) -> None:
            taken.set()
            go.wait(60)
            super().add_all(answers)

    answers = AnswerCounts(Slow(connect(desk.url), desk.settings), Pace())
    answers.add("p", {REQUESTS: 1}, (1, 2), owner="")
    with ThreadPoolExecutor(2) as pool:
        relay = pool.submit(answers.send)
        assert taken.wait(60)
        reader = pool.submit(answers.send)
        with pytest.raises(TimeoutError):
            reader.result(timeout=0.2)
        go.set()
        reader.result()
        assert desk.counts().count("p", REQUESTS) == 1
        relay.result()


def test_threads_of_several_processes_make_a_table_once(desk: Desk) -> None:
    lookups = [desk.lookup() for _ in range(4)]
    barrier = threading.Barrier(24)

    def ask(number: int) -> Any:
        barrier.wait()
        return lookups[number % 4].find(desk.package, DIMS)[0].table

    with ThreadPoolExecutor(24) as pool:
        tables = list(pool.map(ask, range(24)))
    assert all(table == tables[0] for table in tables)
    assert (desk.figure(made("simple")), lookups[0].wanted.waiting()) == (1, 1)


def test_the_lock_of_a_process_that_died_runs_out(desk: Desk, client: redis.Redis) -> None:
    client.set(simple_lock(only_key(desk)), "dead", px=300)
    (found,) = desk.lookup().find(desk.package, DIMS)
    assert (found.cache, desk.figure(made("simple"))) == ("miss", 1)


def test_a_lock_that_never_ends_holds_nobody_for_ever(desk: Desk, client: redis.Redis) -> None:
    desk.settings = desk.settings.model_copy(update={"table_lock_s": 0.1})
    client.set(simple_lock(only_key(desk)), "hung", px=60_000)
    (found,) = desk.lookup().find(desk.package, DIMS)
    assert found.table.kind == "simple"


def test_a_damaged_or_foreign_value_is_a_miss_and_is_mended(desk: Desk, client: redis.Redis) -> None:
    lookup = desk.lookup()
    (first,) = lookup.find(desk.package, DIMS)
    for value in (b"", b"foreign", b"T1o" + bytes(40), encoded("elsewhere", first.table)):
        client.set(value_key(first.asked.key), value)
        (found,) = lookup.find(desk.package, DIMS)
        assert (found.cache, found.table) == ("miss", first.table)
        assert lookup.find(desk.package, DIMS)[0].cache == "hit"


def strange_tables(table: StoredTable) -> dict[str, StoredTable]:
    """Tables that are well-formed, under digests that are right, and none of the routine's."""
    run, axis = table.runs[0], table.runs[0].axes[0]
    runs = {
        "no such unit": msgspec.structs.replace(run, unit=40),
        "unit below 0": msgspec.structs.replace(run, unit=-1),
        "shares more loops than there are": msgspec.structs.replace(run, shared=3),
        "fewer axes": msgspec.structs.replace(run, axes=run.axes[:2]),
        "order of two axes": msgspec.structs.replace(run, order=(0, 1)),
        "order of an axis twice": msgspec.structs.replace(run, order=(0, 1, 1)),
        "order of another axis": msgspec.structs.replace(run, order=(0, 1, 3)),
    }
    axes = {
        "begins before the tensor": {"start": -1},
        "ends behind it": {"count": 2**40},
        "no length": {"length": 0},
        "no calls": {"count": 0},
        "no such mode": {"mode": 5},
        "longer than 64 bits": {"length": 2**63},
    }
    for name, change in axes.items():
        wrong = msgspec.structs.replace(axis, **change)
        runs[name] = msgspec.structs.replace(run, axes=(wrong, *run.axes[1:]))
    found = {name: msgspec.structs.replace(table, runs=(one, *table.runs[1:])) for name, one in runs.items()}
    found["of another shape"] = msgspec.structs.replace(table, shape=(1, 20, 14))
    found["of fewer axes"] = msgspec.structs.replace(table, shape=(1, 20))
    found["below cost"] = msgspec.structs.replace(table, simple_cycles=-1.0)
    found["of no cost"] = msgspec.structs.replace(table, simple_cycles=float("nan"))
    found["of endless runs"] = msgspec.structs.replace(table, runs=table.runs * 5000)
    return found


def test_a_table_that_is_none_of_the_routine_is_a_miss_and_is_mended(desk: Desk, client: redis.Redis) -> None:
    lookup, optimiser = desk.lookup(), desk.optimiser()
    (first,) = lookup.find(desk.package, DIMS)
    (wanted,) = lookup.wanted.claim()
    key = first.asked.key
    for name, strange in strange_tables(first.table).items():
        client.set(value_key(key), encoded(key, strange))
        (found,) = lookup.find(desk.package, DIMS)
        assert (found.cache, found.table) == ("miss", first.table), name
        assert lookup.find(desk.package, DIMS)[0].cache == "hit"
        tables_document(desk.package, DIMS, [found])
        settled = msgspec.structs.replace(
            strange, kind="optimised", settled=True, optimised_cycles=strange.simple_cycles
        )
        client.set(value_key(key), encoded(key, settled))
        assert optimiser.run(wanted, "worker") == "optimised", name
        client.delete(value_key(key))
        lookup.find(desk.package, DIMS)


def test_a_simple_table_never_takes_the_place_of_an_optimised_one(desk: Desk) -> None:
    cache, key = desk.cache(), only_key(desk)
    simple = simple_tables.simple(desk.package, desk.package.asked(DIMS)[0])
    best = msgspec.structs.replace(simple, kind="optimised", settled=True, optimised_cycles=1.0)
    before = cache.read([key])
    cache.put({key: simple}, before, "api")
    with_simple = cache.read([key])
    assert with_simple[key].table == simple
    cache.put({key: best}, with_simple, "worker")
    for found in (before, with_simple):  # who looked before the swap and writes after it
        cache.put({key: simple}, found, "api")
        assert cache.read([key])[key].table == best


def test_values_expire_so_that_redis_may_drop_them(desk: Desk, client: redis.Redis) -> None:
    lookup = desk.lookup()
    (found,) = lookup.find(desk.package, DIMS)
    assert 0 < client.pttl(value_key(found.asked.key)) <= desk.settings.keep_table_s * 1000
    assert 0 < client.pttl(optimise_lock(found.asked.key)) <= desk.settings.optimise_lock_s * 1000
    client.flushdb()
    (again,) = lookup.find(desk.package, DIMS)
    assert (again.cache, again.table) == ("miss", found.table)


def test_an_optimisation_is_done_by_one_worker_and_one_whose_lock_ran_out_is_asked_for_again(
    desk: Desk, client: redis.Redis
) -> None:
    lookup = desk.lookup()
    lookup.find(desk.package, DIMS)
    (wanted,) = lookup.wanted.claim()
    assert desk.cache().begin(wanted.key, "killed worker")
    assert desk.optimiser().run(wanted, "other") == "duplicate"
    (still,) = lookup.find(desk.package, DIMS)
    assert (still.cache, still.table.kind, lookup.wanted.waiting()) == ("hit", "simple", 0)
    client.delete(optimise_lock(wanted.key))  # what its expiry does
    lookup.find(desk.package, DIMS)
    assert lookup.wanted.claim() == [wanted]
    assert desk.optimiser().run(wanted, "other") == "optimised"


def test_a_flush_during_an_optimisation_loses_nothing(desk: Desk, client: redis.Redis) -> None:
    lookup = desk.lookup()
    (first,) = lookup.find(desk.package, DIMS)
    (wanted,) = lookup.wanted.claim()
    client.flushdb()
    assert desk.optimiser().run(wanted, "worker") == "optimised"
    (best,) = lookup.find(desk.package, DIMS)
    assert (best.cache, best.table.kind, best.table.simple_cycles) == ("hit", "optimised", first.table.cycles)


def test_a_wanted_table_of_another_version_or_of_a_lost_package_is_left(desk: Desk) -> None:
    lookup = desk.lookup()
    lookup.find(desk.package, DIMS)
    (wanted,) = lookup.wanted.claim()
    optimiser = desk.optimiser()
    assert optimiser.run(msgspec.structs.replace(wanted, key="of another version"), "worker") == "stale"
    assert optimiser.run(msgspec.structs.replace(wanted, package="0" * 64), "worker") == "refused"


def test_tables_are_handed_out_as_there_is_room_and_jobs_go_first(desk: Desk, client: redis.Redis) -> None:
    lookup = desk.lookup()
    for height in range(1, 21):
        lookup.find(desk.package, {**DIMS, "h": height})
    client.rpush(SHORT, *["a message of a job"] * 2)
    assert lookup.wanted.claim() == []
    client.lpop(SHORT)
    assert (len(lookup.wanted.claim()), lookup.wanted.waiting()) == (16, 4)
    assert (len(lookup.wanted.claim()), lookup.wanted.waiting()) == (4, 0)


def test_while_jobs_wait_one_message_of_tables_lines_up(desk: Desk, client: redis.Redis) -> None:
    lookup = desk.lookup()
    now_s = 100.0
    wanted = WantedTables(connect(desk.url), IDENTITY, clock=lambda: now_s)
    for height in range(1, 21):
        lookup.find(desk.package, {**DIMS, "h": height})
    jobs = ["a message of a job"] * 40
    client.rpush(SHORT, *jobs)
    assert wanted.claim() == []
    now_s += LINE_UP_S
    assert len(wanted.claim()) == 16
    celery = create_celery(Settings(broker_url=desk.url, cache_url=desk.url), [SHORT])
    celery.send_task(OPTIMISE_TASK, args=([],), queue=SHORT)
    celery.close()
    now_s += LINE_UP_S
    assert (wanted.claim(), wanted.waiting()) == ([], 4)  # it is still in line
    client.delete(SHORT)
    client.rpush(SHORT, *jobs)
    assert len(wanted.claim()) == 4


def test_a_message_of_tables_ends_after_its_turn_and_the_rest_is_wanted_first(desk: Desk) -> None:
    lookup = desk.lookup()
    for height in range(1, 21):
        lookup.find(desk.package, {**DIMS, "h": height})
    tables = lookup.wanted.claim()
    ticks = count()
    replace(desk.optimiser(), clock=lambda: next(ticks) / 20).take_turn(tables, "worker")
    made_now = desk.figure(made("optimised"))
    assert 0 < made_now < len(tables)
    assert lookup.wanted.waiting() == 20 - made_now
    assert lookup.wanted.claim()[: len(tables) - made_now] == tables[made_now:]


def test_a_table_that_fails_as_nobody_foresaw_takes_no_others_along(desk: Desk) -> None:
    lookup = desk.lookup()
    for height in range(1, 4):
        lookup.find(desk.package, {**DIMS, "h": height})
    first, second, third = lookup.wanted.claim()
    strange = msgspec.structs.replace(second, routine=99)
    with pytest.raises(IndexError):
        desk.optimiser().take_turn([first, strange, third], "worker")
    assert lookup.wanted.claim() == [third]
    assert desk.optimiser().run(second, "other") == "optimised"  # no lock is left


def test_tables_are_answered_though_the_broker_takes_no_more(desk: Desk, client: redis.Redis) -> None:
    """Each request was 503 `records_full`, because it could not be counted."""
    wanted, counts = WantedTables(client, IDENTITY), desk.counts()
    client.config_set("maxmemory", 1)
    try:
        counts.add("p" * 64, {REQUESTS: 1}, [1, 2])
        wanted.add([Wanted(key="k", package="p" * 64, routine=0, problem=(1,))])
    finally:
        client.config_set("maxmemory", "1gb")
    assert (counts.totals(), wanted.waiting()) == ({}, 0)


def test_a_table_is_made_better_though_the_broker_keeps_no_buckets(desk: Desk, client: redis.Redis) -> None:
    """The worker's task failed."""
    counts = desk.counts()
    for height in range(1, 24):
        for width in (5, 6):
            counts.add(desk.package.digest, {REQUESTS: 1}, (height, 1, width))
    client.config_set("maxmemory", 1)
    try:
        desk.buckets().choose_if_due(desk.package)
    finally:
        client.config_set("maxmemory", "1gb")
    assert desk.buckets().of(desk.package.digest) is None
    desk.buckets().choose_if_due(desk.package)
    assert desk.buckets().of(desk.package.digest) is not None


@pytest.mark.slow
def test_shapes_are_counted_in_bounded_memory_and_frequent_ones_are_kept(desk: Desk, client: redis.Redis) -> None:
    counts = desk.counts()
    for _ in range(50):
        counts.add("p", {}, (7, 7))
    for height in range(MAX_SHAPES + 100):
        counts.add("p", {}, (height, 1000))
    assert client.zcard("tessera:package:p:shapes") == MAX_SHAPES
    figures = counts.of("p", 3)
    assert figures.shapes[0] == ((7, 7), 50)
    assert [count for _, count in figures.shapes[1:]] == [2, 2]  # took over the place of one that was seen once


def warmed(desk: Desk, count: int = 40) -> TableLookup:
    """A lookup of a package for which buckets were chosen by shapes of any size."""
    lookup, dice = desk.lookup(), random.Random(5)
    for _ in range(count):
        lookup.find(desk.package, {name: dice.randint(1, one.high) for name, one in desk.package.model.ranges.items()})
    desk.work(lookup)
    return lookup


def fresh_shapes(desk: Desk, count: int) -> list[dict[str, int]]:
    dice = random.Random(6)
    return [{name: dice.randint(1, one.high) for name, one in desk.package.model.ranges.items()} for _ in range(count)]


def test_after_warm_up_most_shapes_are_served_by_buckets_and_keep_no_tables(desk: Desk, client: redis.Redis) -> None:
    lookup = warmed(desk)
    before = set(client.keys(value_key("*")))
    served = 0
    for dims in fresh_shapes(desk, 60):
        (own,) = desk.package.asked(dims)
        (found,) = lookup.find(desk.package, dims)
        simple = simple_tables.simple(desk.package, own).cycles
        table = restored(found.table, desk.package.model.libraries[0].units)
        check_cover(table)
        assert found.table.cycles <= WORTH * simple
        if found.cache == "bucket-hit":
            served += 1
            assert not client.exists(value_key(own.key))
    assert served >= 45
    # tables of buckets, and those of the few shapes that none serves
    assert len(set(client.keys(value_key("*"))) - before) < 30


def test_a_bucket_whose_table_was_lost_is_made_again_and_serves_the_next(desk: Desk, client: redis.Redis) -> None:
    lookup = warmed(desk)
    dims = next(one for one in fresh_shapes(desk, 60) if lookup.find(desk.package, one)[0].cache == "bucket-hit")
    client.delete(*client.keys(value_key("*")))
    first, second = (lookup.find(desk.package, dims)[0] for _ in range(2))
    assert (first.cache, second.cache) == ("miss", "bucket-hit")
    assert first.table == second.table
    assert len(client.keys(value_key("*"))) == 1
    # so does one that is damaged, or no table of the routine
    (key,) = client.keys(value_key("*"))
    client.set(key, b"T1 and nothing else")
    assert [lookup.find(desk.package, dims)[0].cache for _ in range(2)] == ["miss", "bucket-hit"]
    assert lookup.find(desk.package, dims)[0].table == first.table


def test_a_shape_above_the_largest_is_served_by_no_bucket(desk: Desk) -> None:
    lookup = warmed(desk)
    buckets = desk.buckets().of(desk.package.digest)
    assert buckets is not None
    dims = next(one for one in fresh_shapes(desk, 60) if lookup.find(desk.package, one)[0].cache == "bucket-hit")
    (asked,) = desk.package.asked(dims)
    assert choice(desk.package, asked, buckets.grids[0]) is not None
    larger = replace(asked, problem=(*asked.problem[:-1], 1000))
    assert choice(desk.package, larger, buckets.grids[0]) is None


def test_a_shape_that_is_asked_for_often_gets_tables_of_its_own(desk: Desk) -> None:
    lookup = warmed(desk)
    dims = next(one for one in fresh_shapes(desk, 60) if lookup.find(desk.package, one)[0].cache == "bucket-hit")
    found = []
    for _ in range(9):
        desk.answers.send()
        found.append(lookup.find(desk.package, dims)[0].cache)
    assert found == ["bucket-hit"] * 7 + ["miss", "hit"]
    desk.work(lookup)
    assert lookup.find(desk.package, dims)[0].table.kind == "optimised"


def test_a_count_that_was_taken_over_makes_no_shape_frequent() -> None:
    """Of a full histogram a count may be too high by the requests over its size."""
    assert TableCounts.least_count(9.0, str(2 * MAX_SHAPES)) == 7
    assert TableCounts.least_count(None, None) == 0


def test_a_bucket_that_costs_too_much_serves_nobody(desk: Desk) -> None:
    (asked,) = desk.package.asked({"n": 2, "h": 24, "w": 24})
    simple = simple_tables.simple(desk.package, asked)
    again = served(desk.package, asked, simple, simple)
    assert again is not None
    assert (again.runs, again.cycles) == (simple.runs, simple.cycles)
    better = msgspec.structs.replace(simple, simple_cycles=simple.cycles / 1.06, runs=())
    assert served(desk.package, asked, simple, better) is None
    similar = msgspec.structs.replace(better, simple_cycles=simple.cycles / 1.04)
    assert served(desk.package, asked, simple, similar) is not None


def test_buckets_are_chosen_anew_when_requests_have_doubled(desk: Desk) -> None:
    counts, buckets, package = desk.counts(), desk.buckets(), desk.package.digest
    for requests, extent, chosen in ((31, 5, 0), (1, 6, 32), (31, 7, 32), (1, 8, 64)):
        for _ in range(requests):
            counts.add(package, {REQUESTS: 1}, (extent, 2, extent))
        buckets.choose_if_due(desk.package)
        found = buckets.of(package)
        assert (0 if found is None else found.requests) == chosen
    assert found is not None
    assert len(found.grids[0]) >= 1


def test_a_process_keeps_a_bounded_number_of_packages_open(tmp_path: Path) -> None:
    store = document_store(tmp_path)
    digests = [store.put(package_bytes(most)) for most in (2, 3, 4)]
    packages = OpenPackages(store, 2)
    first = packages.get(digests[0])
    assert packages.get(digests[0]) is first
    packages.get(digests[1])
    packages.get(digests[2])
    assert packages.get(digests[2]) is packages.get(digests[2])
    again = packages.get(digests[0])
    assert again is not first
    # who still holds the closed one may go on with it
    assert first.asked({"n": 1, "h": 2, "w": 2}) == again.asked({"n": 1, "h": 2, "w": 2})
    packages.close()
    with pytest.raises(FileNotFoundError):
        packages.get("0" * 64)


class SlowStore(DirectoryStore):
    """A store of which one blob can be read only when it is said."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.slow = ""
        self.reads: list[str] = []
        self.go = threading.Event()

    @contextmanager
    def mapped(self, digest: str) -> Iterator[mmap.mmap | bytes]:
        self.reads.append(digest)
        if digest == self.slow:
            self.go.wait()
        with super().mapped(digest) as data:
            yield data


def test_a_package_is_handed_out_while_another_is_opened_once_for_all_who_wait(tmp_path: Path) -> None:
    store = SlowStore(tmp_path)
    digests = [store.put(package_bytes(most)) for most in (2, 3)]
    packages = OpenPackages(store, 2)
    known = packages.get(digests[0])
    store.slow = digests[1]
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(packages.get, digests[1]) for _ in range(2)]
        try:
            assert pool.submit(packages.get, digests[0]).result(timeout=60) is known
            assert not any(one.done() for one in waiting)
        finally:
            store.go.set()
        first, second = (one.result() for one in waiting)
    assert first is second
    assert store.reads == digests


def test_no_buckets_are_chosen_where_requests_are_counted_and_their_shapes_are_forgotten(
    desk: Desk, client: redis.Redis
) -> None:
    package = desk.package.digest
    desk.counts().add(package, {REQUESTS: 100}, [20, 1, 13])
    client.delete(f"tessera:package:{package}:shapes")
    desk.buckets().choose_if_due(desk.package)
    assert desk.buckets().of(package) is None
    assert [one.cache for one in desk.lookup().find(desk.package, DIMS)] == ["miss"]
