"""Operations on the tables of a model (API-3). The model itself is never read here, only its package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, get_args

from app.context import Context
from app.errors import NotFoundError
from app.jobs.records import owned
from app.known_answers import Basis
from app.models import service as models
from app.profiles import service as profiles
from app.store import is_digest
from app.tables.counts import REQUESTS, answered, made
from app.tables.document import TablesDocument, tables_document
from app.tables.lookup import Hit
from app.tables.open_packages import OpenPackage
from app.tables.schemas import AnswerCount, ShapeCount, TableStatistics
from app.tables.table_encoding import Kind
from compiler.errors import RequestError, printable
from compiler.profile import profile_digest
from compiler.program.errors import ExecutableError

_SHAPES_SHOWN: Final = 100


def tables(context: Context, model: str, profile: str, shapes: Sequence[str]) -> tuple[TablesDocument, Basis | None]:
    """The tables of a model for shapes of its inputs, and what they follow from if they will stay as they are.

    Raises NotFoundError for an unknown model or profile and without a package, RequestError for shapes outside of the
    package's ranges.
    """
    opened = package_of(context, model, profile)
    dims = opened.model.dims_of_words(shapes)
    found = context.tables.find(opened, dims, owner=context.owner.name)
    basis = None
    wanted = _digest_of(context, profile)  # another name may get another profile
    if wanted is not None and all(one.cache == "hit" and one.table.settled for one in found):
        command = ("HGET", owned(context.owner.name, f"model:{model}:packages"), wanted)
        basis = Basis(command=command, found=opened.digest)
    return tables_document(opened, dims, found), basis


def statistics(context: Context, model: str, profile: str) -> TableStatistics:
    """Statistics of the requests for a model's package; raises NotFoundError as `tables`."""
    opened = package_of(context, model, profile)
    context.answer_counts.send()
    figures = context.table_counts.of(opened.digest, _SHAPES_SHOWN, owner=context.owner.name)
    names = sorted(opened.model.ranges)
    return TableStatistics(
        package=opened.digest,
        requests=figures.counts.get(REQUESTS, 0),
        answered=[
            AnswerCount(cache=cache, kind=kind, tables=figures.counts.get(answered(cache, kind), 0))
            for cache in get_args(Hit)
            for kind in get_args(Kind)
        ],
        simple_made=context.table_counts.count(opened.digest, made("simple")),
        optimised_made=context.table_counts.count(opened.digest, made("optimised")),
        shapes=[
            ShapeCount(dims=dict(zip(names, extents, strict=True)), requests=count) for extents, count in figures.shapes
        ],
    )


def package_of(context: Context, model: str, profile: str) -> OpenPackage:
    """The newest package of a model for a profile by name or digest."""
    digest = _package_digest(context, model, profile)
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


def _package_digest(context: Context, model: str, profile: str) -> str | None:
    if not is_digest(model):
        return None
    wanted = _digest_of(context, profile) or profile_digest(profiles.get(context, profile))
    found = context.broker.hget(owned(context.owner.name, f"model:{model}:packages"), wanted)
    return found if isinstance(found, str) else None


def _digest_of(context: Context, profile: str) -> str | None:
    """The digest of a profile that always has this name, None for one of a user."""
    return profile if is_digest(profile) else context.builtin_digests.get(profile)


def _no_package(profile: str, reason: str) -> NotFoundError:
    return NotFoundError(
        f"the model has no package for profile {printable(profile, 80)!r}: {reason}",
        code="no_package",
        stage="shapes",
        actual=printable(profile, 80),
        hint="Compile the model for this profile; a model of fixed shapes with option tables=[{}]",
    )
