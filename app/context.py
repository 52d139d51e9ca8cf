"""What the endpoints share: one object, made when the application starts."""

from __future__ import annotations

from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Annotated

import redis
import redis.asyncio
from fastapi import Depends, Request

from app.jobs.records import Records
from app.jobs.relay import Relay
from app.jobs.results import ResultCache
from app.redis_urls import connect, connect_async
from app.settings import Settings
from app.simulations import traces
from app.store import BlobStore, document_store, model_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Settings, connections and the stores (uploaded models; documents) of one application."""

    settings: Settings
    models: BlobStore
    store: BlobStore
    broker: redis.Redis
    cache: redis.Redis
    events: redis.asyncio.Redis
    records: Records
    results: ResultCache
    relay: Relay
    trace_makers: BoundedSemaphore


def create_context(settings: Settings) -> Context:
    """Connect lazily: nothing is sent before the first request."""
    if settings.broker_url is None or settings.cache_url is None:
        raise ValueError("the API needs TESSERA_BROKER_URL and TESSERA_CACHE_URL")
    store = document_store(settings.store_dir)
    broker, cache = connect(settings.broker_url), connect(settings.cache_url)
    records = Records(broker, settings)
    return Context(
        settings=settings,
        models=model_store(settings.store_dir),
        store=store,
        broker=broker,
        cache=cache,
        events=connect_async(settings.broker_url),
        records=records,
        results=ResultCache(cache, settings, store),
        relay=Relay(Records(connect(settings.broker_url), settings), settings),
        trace_makers=BoundedSemaphore(traces.AT_ONCE),
    )


def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


ContextDependency = Annotated[Context, Depends(_context)]
