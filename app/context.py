"""Shared state of the endpoints: made when the application starts, and given to each request as its sender's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import BoundedSemaphore
from typing import Annotated, Final

import redis
import redis.asyncio
from anyio import CapacityLimiter
from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from app.blob_pins import BlobPins
from app.cache_losses import CacheLosses
from app.collector import Collector, CollectorThread
from app.jobs.events import ANSWER_S
from app.jobs.identity import Identity
from app.jobs.records import Records
from app.jobs.rekey import Rekeyer
from app.jobs.relay import Relay
from app.jobs.results import ResultCache
from app.keys.keys import Keys
from app.keys.owners import Owner
from app.keys.service import Gate
from app.keys.use import RequestRates, UploadPlaces
from app.known_answers import KnownAnswers
from app.redis_urls import API_PATIENCE_S, CACHE_PATIENCE_S, connect, connect_async
from app.settings import Settings
from app.shared_exchanges import SharedExchanges
from app.simulations import listings, traces
from app.store import BlobStore, StoreHooks
from app.stores import open_stores
from app.tables.answer_counts import AnswerCounts
from app.tables.buckets import BucketChoice
from app.tables.cache import TableCache
from app.tables.counts import TableCounts
from app.tables.lookup import TableLookup
from app.tables.open_packages import OpenPackages
from app.tables.opener import PackageOpener
from app.tables.optimising_delay import Pace
from app.tables.request_queue import WantedTables
from app.units import rebuild
from app.units.unit_cache import UnitCache
from compiler.profile import builtin_names, builtin_profile, profile_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Settings, connections and the stores (uploaded models; documents) of one application.

    Services show, find and change what belongs to `owner` alone.
    """

    settings: Settings
    models: BlobStore
    store: BlobStore
    broker: redis.Redis
    cache: redis.Redis
    events: redis.asyncio.Redis
    broker_exchanges: SharedExchanges
    cache_exchanges: SharedExchanges
    known: KnownAnswers
    answer_counts: AnswerCounts
    records: Records
    results: ResultCache
    relay: Relay
    collector: CollectorThread
    trace_makers: BoundedSemaphore
    listing_makers: BoundedSemaphore
    units: UnitCache
    unit_makers: BoundedSemaphore
    probes: CapacityLimiter
    packages: OpenPackages
    opener: PackageOpener
    tables: TableLookup
    table_counts: TableCounts
    table_bytes: redis.Redis
    builtin_digests: Mapping[str, str]
    gate: Gate
    uploads: UploadPlaces
    owner: Owner


def create_context(settings: Settings) -> Context:
    """Connect lazily: nothing is sent before the first request."""
    if settings.broker_url is None or settings.cache_url is None:
        raise ValueError("the API needs TESSERA_BROKER_URL and TESSERA_CACHE_URL")
    broker = connect(settings.broker_url, patience_s=API_PATIENCE_S)
    cache = connect(settings.cache_url, patience_s=CACHE_PATIENCE_S)
    identity = Identity.present(settings)
    records, losses = Records(broker, settings, identity), CacheLosses(broker)
    stores = open_stores(
        settings,
        models=StoreHooks(damaged=records.count_damaged),  # who uploads one pins it, and its owner's quota with it
        documents=StoreHooks(damaged=records.count_damaged, pin=BlobPins(records, settings.pin_s).pin),
        patient=False,
    )
    store = stores.documents
    results = ResultCache(cache, settings, store, losses)
    table_bytes = connect(settings.cache_url, text=False, patience_s=CACHE_PATIENCE_S)
    relay_broker = connect(settings.broker_url)
    pace = Pace()
    relay_records = Records(relay_broker, settings, identity)
    rekeyer = Rekeyer(
        records=relay_records, results=results, models=stores.models, store=store, rekey_after_s=settings.rekey_after_s
    )
    answer_counts = AnswerCounts(TableCounts(relay_broker, settings), pace)
    relay = Relay(relay_records, WantedTables(relay_broker, identity), rekeyer, answer_counts, pace, settings)
    broker_exchanges = SharedExchanges(settings.broker_url, API_PATIENCE_S)
    cache_exchanges = SharedExchanges(settings.cache_url, CACHE_PATIENCE_S)
    packages = OpenPackages(store, settings.open_packages)
    table_counts = TableCounts(broker, settings)
    return Context(
        settings=settings,
        models=stores.models,
        store=store,
        broker=broker,
        cache=cache,
        events=connect_async(settings.broker_url, ANSWER_S),
        broker_exchanges=broker_exchanges,
        cache_exchanges=cache_exchanges,
        known=KnownAnswers(settings.known_answers_bytes),
        answer_counts=answer_counts,
        records=records,
        results=results,
        relay=relay,
        collector=CollectorThread(
            Collector(
                records=Records(relay_broker, settings, identity),
                cache=connect(settings.cache_url),
                stores=open_stores(settings),
                settings=settings,
            ),
        ),
        probes=CapacityLimiter(20),
        trace_makers=BoundedSemaphore(traces.AT_ONCE),
        listing_makers=BoundedSemaphore(listings.AT_ONCE),
        units=UnitCache(table_bytes, broker, settings),
        unit_makers=BoundedSemaphore(rebuild.AT_ONCE),
        packages=packages,
        opener=PackageOpener(broker, packages, settings.relay_interval_s),
        tables=TableLookup(
            cache=TableCache(table_bytes, settings, losses),
            wanted=WantedTables(broker, identity),
            counts=answer_counts,
            buckets=BucketChoice(client=broker, counts=table_counts, settings=settings),
            pace=pace,
            settings=settings,
        ),
        table_counts=table_counts,
        table_bytes=table_bytes,
        builtin_digests={name: profile_digest(builtin_profile(name)) for name in builtin_names()},
        gate=Gate(
            keys=Keys(broker, settings),
            broker=broker_exchanges,
            rates=RequestRates(cache_exchanges, losses),
            settings=settings,
        ),
        uploads=UploadPlaces(),
        owner=Owner(),
    )


# This only describes keys for OpenAPI; the gate reads them.
_BEARER: Final = HTTPBearer(
    scheme_name="key",
    bearerFormat="tessera_ID_SECRET",
    description="Needed wherever the service listens beyond loopback (docs/service.md)",
    auto_error=False,
)


async def _of_nobody(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


async def _of_sender(request: Request, _: Annotated[object, Security(_BEARER)]) -> Context:
    context = await _of_nobody(request)
    owner = await context.gate.sender(request.scope)
    return context if owner == context.owner else replace(context, owner=owner)


# Whoever needs the context needs a key where keys are required: no endpoint can forget to ask for it.
ContextDependency = Annotated[Context, Depends(_of_sender)]
# For answers that say nothing of any owner.
OpenContextDependency = Annotated[Context, Depends(_of_nobody)]
