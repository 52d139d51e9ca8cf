"""Operations on the tables of a model (API-3). The model itself is never read here, only its package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from fastapi.concurrency import run_in_threadpool

from app.context import Context
from app.errors import NotFoundError
from app.jobs.records import owned
from app.models import service as models
from app.profiles import service as profiles
from app.store import is_digest
from app.tables.counts import REQUESTS, answered, made
from app.tables.document import tables_document
from app.tables.known_tables import TablesAnswer, tables_answer
from app.tables.lookup import Hit
from app.tables.open_packages import OpenPackage
from app.tables.schemas import AnswerCount, ShapeCount, TableStatistics
from app.tables.table_encoding import Kind
from compiler.errors import RequestError, printable
from compiler.profile import profile_digest
from compiler.program.errors import ExecutableError

_SHAPES_SHOWN: Final = 100


async def tables(context: Context, model: str, profile: str, shapes: Sequence[str]) -> TablesAnswer:
    """The tables of a model for shapes of its inputs.

    Raises NotFoundError for an unknown model or profile and without a package, RequestError for shapes outside of the
    package's ranges.
    """
    digest = await _package_digest(context, model, profile)
    known = None if digest is None else context.known_tables.get(digest, shapes, context.owner.name)
    if known is not None:
        context.tables.pace.asked()
        return known
    answer, package, is_final = await run_in_threadpool(_found, context, model, profile, digest, shapes)
    if is_final:
        context.known_tables.put(package, shapes, answer)
    return answer


def _found(
    context: Context, model: str, profile: str, digest: str | None, shapes: Sequence[str]
) -> tuple[TablesAnswer, str, bool]:
    """The tables as found or made now, the digest of their package, and whether they will stay as they are."""
    opened = _package(context, model, profile, digest)
    dims = opened.model.dims_of_words(shapes)
    found = context.tables.find(opened, dims, owner=context.owner.name)
    is_final = all(one.cache == "hit" and one.table.settled for one in found)
    return tables_answer(tables_document(opened, dims, found)), opened.digest, is_final


async def statistics(context: Context, model: str, profile: str) -> TableStatistics:
    """Statistics of the requests for a model's package; raises NotFoundError as `tables`."""
    digest = await _package_digest(context, model, profile)
    return await run_in_threadpool(_statistics, context, model, profile, digest)


def _statistics(context: Context, model: str, profile: str, digest: str | None) -> TableStatistics:
    opened = _package(context, model, profile, digest)
    context.known_tables.send_counts()
    figures = context.tables.counts.of(opened.digest, _SHAPES_SHOWN, owner=context.owner.name)
    names = sorted(opened.model.ranges)
    return TableStatistics(
        package=opened.digest,
        requests=figures.counts.get(REQUESTS, 0),
        answered=[
            AnswerCount(cache=cache, kind=kind, tables=figures.counts.get(answered(cache, kind), 0))
            for cache in get_args(Hit)
            for kind in get_args(Kind)
        ],
        simple_made=context.tables.counts.count(opened.digest, made("simple")),
        optimised_made=context.tables.counts.count(opened.digest, made("optimised")),
        shapes=[
            ShapeCount(dims=dict(zip(names, extents, strict=True)), requests=count) for extents, count in figures.shapes
        ],
    )


def _package(context: Context, model: str, profile: str, digest: str | None) -> OpenPackage:
    """The package of a digest, the newest one of a model for a profile by name or digest."""
    if digest is None:
        models.get(context, model)
        profiles.get(context, profile)
        raise _no_package(profile, "none was made")
    try:
        return context.packages.get(digest)
    except FileNotFoundError:
        raise _no_package(profile, "it is gone from the store") from None
    except (ExecutableError, RequestError) as error:  # made by another version of the compiler
        raise _no_package(profile, error.message) from None


async def _package_digest(context: Context, model: str, profile: str) -> str | None:
    if not is_digest(model):
        return None
    wanted = profile if is_digest(profile) else context.builtin_digests.get(profile)
    if wanted is None:
        wanted = profile_digest(await run_in_threadpool(profiles.get, context, profile))
    return await context.reads.hget(owned(context.owner.name, f"model:{model}:packages"), wanted)


def _no_package(profile: str, reason: str) -> NotFoundError:
    return NotFoundError(
        f"the model has no package for profile {printable(profile, 80)!r}: {reason}",
        code="no_package",
        stage="shapes",
        actual=printable(profile, 80),
        hint="Compile the model for this profile with ranges of its dynamic dimensions: option dims",
    )
