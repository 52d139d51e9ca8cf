"""The FastAPI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from app import problems
from app.access import AccessMiddleware
from app.comparisons.endpoints import router as comparisons
from app.compilations.endpoints import router as compilations
from app.context import create_context
from app.documentation import install_documentation
from app.health.endpoints import router as health
from app.health.figures import RequestFigures
from app.jobs.endpoints import router as jobs
from app.known_answers_middleware import KnownAnswersMiddleware
from app.middleware import RequestMiddleware
from app.models.endpoints import router as models
from app.profiles.endpoints import router as profiles
from app.settings import Settings
from app.simulations.endpoints import router as simulations
from app.stopping import LOOPS_S
from app.sweeps.endpoints import router as sweeps
from app.tables.endpoints import router as tables
from app.units.endpoints import router as units
from compiler.version import COMPILER_VERSION


def create_app(settings: Settings) -> FastAPI:
    """The application for these settings; it connects when it is served."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context = create_context(settings)
        app.state.context = context
        context.relay.start()
        context.collector.start()
        context.opener.start()
        try:
            yield
        finally:
            ends_at = time.monotonic() + LOOPS_S
            loops = (context.opener, context.relay, context.collector)
            for loop in loops:
                loop.stop()
            for loop in loops:
                loop.wait(max(0.0, ends_at - time.monotonic()))
            await context.broker_exchanges.aclose()
            await context.cache_exchanges.aclose()
            await context.events.aclose()
            context.broker.close()
            context.cache.close()
            context.table_bytes.close()
            context.packages.close()

    # Scripts and styles of the documentation page come from the package: no CDN (API-4).
    app: FastAPI = FastAPIOffline(
        docs_url=None,
        redoc_url=None,
        title="Tessera",
        version=COMPILER_VERSION,
        summary="A neural-network compiler offered as a service.",
        lifespan=lifespan,
    )
    app.state.requests = requests = RequestFigures()
    app.state.refusals = requests.refusals
    problems.install(app)
    app.add_middleware(KnownAnswersMiddleware)
    app.add_middleware(AccessMiddleware, settings=settings, refusals=requests.refusals)
    # outside, so that refusals have a request id and are logged
    app.add_middleware(RequestMiddleware, figures=requests)
    install_documentation(app)
    for router in (models, tables, units, profiles, compilations, simulations, sweeps, comparisons, jobs, health):
        app.include_router(router)

    return app
