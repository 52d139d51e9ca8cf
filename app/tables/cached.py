"""Lists of cached tables: those of shapes that an owner asked for, model by model (SHAPE-1, API-3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from app.context import Context
from app.jobs.records import owned
from app.models import service as models
from app.models.schemas import Model
from app.profiles import service as profiles
from app.store import is_digest
from app.tables.counts import MAX_SHAPES
from app.tables.open_packages import OpenPackage
from app.tables.schemas import CachedShape, CachedTable, CachedTablePage
from compiler.errors import LimitError, RequestError
from compiler.profile import profile_digest
from compiler.program.errors import ExecutableError

# Shapes of one package that are shown, those asked for most.
_SHAPES: Final = 20
# Models in a page; it ends earlier once this much time has passed, for packages may have to be opened.
MAX_MODELS: Final = 20
_TURN_S: Final = 0.5


def cached_tables(
    context: Context, shapes: Sequence[str], profile: str | None, model: str | None, cursor: str | None, limit: int
) -> CachedTablePage:
    """A page of the owner's models with their cached tables, of one shape or of those asked for most.

    Raises NotFoundError for an unknown model or profile, RequestError for shapes that the model `model` does not take.
    """
    context.answer_counts.send()
    wanted = None if profile is None else _digest_of(context, profile)
    if model is not None:
        items, following = _of_model(context, models.get(context, model), wanted, shapes, is_named=True), None
    else:
        items, following = _of_models(context, wanted, shapes, cursor, limit)
    return CachedTablePage(items=[item for item in items if item.tables], next_cursor=following)


def _of_models(
    context: Context, wanted: str | None, shapes: Sequence[str], cursor: str | None, limit: int
) -> tuple[list[CachedShape], str | None]:
    """The cached tables of at most so many models, of fewer when time is up; and the cursor of the next model."""
    items: list[CachedShape] = []
    ends_at = time.monotonic() + _TURN_S
    for _ in range(limit):
        page_of_one = models.listed(context, cursor, 1)
        for one in page_of_one.items:
            items += _of_model(context, one, wanted, shapes, is_named=False)
        cursor = page_of_one.next_cursor
        if cursor is None or time.monotonic() >= ends_at:
            break
    return items, cursor


def _of_model(
    context: Context, model: Model, wanted: str | None, shapes: Sequence[str], *, is_named: bool
) -> list[CachedShape]:
    """The cached tables of a model's packages, for all profiles or for one by its digest."""
    packages = cast(dict[str, str], context.broker.hgetall(owned(context.owner.name, f"model:{model.id}:packages")))
    return [
        found
        for of_profile, digest in sorted(packages.items())
        if wanted in (None, of_profile)
        for found in _of_package(context, digest, model, shapes, is_named=is_named)
    ]


def _digest_of(context: Context, profile: str) -> str:
    if is_digest(profile):
        return profile
    return context.builtin_digests.get(profile) or profile_digest(profiles.get(context, profile))


def _opened(context: Context, digest: str) -> OpenPackage | None:
    """A package; None for one that is gone, or was made by another version."""
    try:
        return context.packages.get(digest)
    except (FileNotFoundError, ExecutableError, RequestError):
        return None


def _of_package(
    context: Context, digest: str, model: Model, shapes: Sequence[str], *, is_named: bool
) -> list[CachedShape]:
    """The cached tables of a package for the shapes that are looked for, and how often the owner asked for these."""
    counts = context.table_counts.of(digest, MAX_SHAPES if shapes else _SHAPES, owner=context.owner.name).shapes
    # opening a package takes long, and puts another out of memory: not for a shape that nobody may have asked for
    opened = _opened(context, digest) if counts or is_named else None
    if opened is None:
        return []
    names = sorted(opened.model.ranges)
    asked = [(dict(zip(names, extents, strict=True)), count) for extents, count in counts]
    try:
        if shapes:
            dims = opened.model.dims_of_words(shapes)
            asked = [(dims, next((count for known, count in asked if known == dims), 0))]
        return [_shape(context, opened, model.id, model.name, dims, count) for dims, count in asked]
    except (LimitError, RequestError):  # a shape of another model
        if is_named:
            raise
        return []


def _shape(
    context: Context, opened: OpenPackage, model: str, name: str, dims: Mapping[str, int], requests: int
) -> CachedShape:
    asked = opened.asked(dims)
    cache = context.tables.cache
    keys = list(dict.fromkeys(one.key for one in asked))
    entries, ages = cache.read(keys), cache.ages_s(keys)
    tables: dict[str, CachedTable] = {}
    for one in asked:
        entry = entries[one.key]
        if entry.table is None or entry.value is None or one.key in tables:
            continue
        library, units = opened.model.libraries[one.routine], _units(entry.table.runs)
        tables[one.key] = CachedTable(
            op="+".join(opened.model.graph.ops[op].kind for op in library.routine.ops),
            signature=library.units.signature,
            shape=list(one.problem),
            kind=entry.table.kind,
            tiles=[list(library.tiles[number]) for number in units if number < len(library.tiles)],
            bytes=len(entry.value),
            age_s=ages[one.key],
        )
    return CachedShape(
        model=model,
        name=name,
        profile=opened.model.profile_digest,
        dims=dict(dims),
        requests=requests,
        tables=list(tables.values()),
    )


def _units(runs: Sequence[Any]) -> list[int]:
    return sorted({int(run.unit) for run in runs})
