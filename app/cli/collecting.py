"""Reaches the records and stores of a service for `tessera store`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import redis

from app.cli.serving import read_settings
from app.collector import Collected, Collector
from app.errors import UnavailableError
from app.jobs.identity import Identity
from app.jobs.records import Records
from app.redis_urls import connect
from app.stores import open_stores
from app.supervisor.redis_server import Role, socket_url


def collected(data_dir: Path | None, *, dry_run: bool) -> Collected:
    """What is removed from the stores of the running service; raises UnavailableError if it does not run."""
    settings = read_settings({} if data_dir is None else {"data_dir": data_dir})
    broker_url, cache_url = settings.broker_url, settings.cache_url
    if broker_url is None or cache_url is None:
        folder = settings.data_dir.absolute()
        broker_url, cache_url = socket_url(folder / Role.BROKER.value), socket_url(folder / Role.CACHE.value)
    collector = Collector(
        records=Records(connect(broker_url, patience_s=5.0), settings, Identity.present(settings)),
        cache=connect(cache_url, patience_s=5.0),
        stores=open_stores(settings),
        settings=settings,
    )
    with suppress(redis.ConnectionError):
        # records of another service would say that nothing here is needed
        if collector.records.has_api():
            return collector.collect(dry_run=dry_run)
    raise UnavailableError(
        "the service whose store this is does not run, so nobody knows what is needed",
        code="not_running",
        stage="store",
        actual=str(settings.data_dir) if settings.embedded else "TESSERA_BROKER_URL, TESSERA_CACHE_URL",
        hint="Start `tessera serve`, or say where its data is with --data-dir",
    )
