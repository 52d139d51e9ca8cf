"""Lists of shape units (API-3): an owner sees the libraries that the own compilations used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, cast

import redis

from app.context import Context
from app.errors import NotFoundError
from app.http import encode_cursor
from app.listing import page
from app.profiles import service as profiles
from app.store import is_digest
from app.units.rebuild import rebuilt_bundle
from app.units.schemas import OpUnits, Unit, UnitLibrary, UnitPage, UnitStatistics
from app.units.unit_cache import hits_field, list_key, use_key, value_key
from compiler.errors import RequestError, printable
from compiler.profile import profile_digest
from compiler.shapes.unit_bundle import decode_bundle, encode_bundle
from compiler.shapes.unit_encoding import DamagedUnitError, StoredLibrary, check_value, decode_library
from compiler.unit_key import library_key_of

# Records that one request looks at; a list that is filtered goes on in the next page.
SCANNED: Final = 500
# Libraries that statistics count.
_COUNTED: Final = 5_000

_FIELDS: Final = ("op", "signature", "size", "dtype", "profile", "made_ms", "units", "bytes")

Record = dict[str, str]


def listed(context: Context, op: str | None, profile: str | None, cursor: str | None, limit: int) -> UnitPage:
    """A page of libraries, those used latest first, of ops and a profile if these are given.

    Raises NotFoundError for an unknown profile, RequestError for a cursor that this service did not issue.
    """
    wanted = None if profile is None else _digest_of(context, profile)
    rows, following = page(context.cache, list_key(context.owner.name), cursor, SCANNED)
    items: list[UnitLibrary] = []
    records = _records(context, [name for name, _ in rows])
    for number, (library, used_ms) in enumerate(rows):
        record = records.get(library)
        if record is not None and op in (None, record["op"]) and wanted in (None, record["profile"]):
            found = _library(context, library, record, used_ms)
            items += [] if found is None else [found]
        if len(items) == limit and number + 1 < len(rows):
            return UnitPage(items=items, next_cursor=encode_cursor((rows[number][1], rows[number][0])))
    return UnitPage(items=items, next_cursor=following)


def statistics(context: Context) -> UnitStatistics:
    """What the owner's compilations used latest, by ops."""
    names = cast(list[str], context.cache.zrevrange(list_key(context.owner.name), 0, _COUNTED - 1))
    by_op: dict[str, OpUnits] = {}
    for record in _records(context, names).values():
        one = by_op.setdefault(record["op"], OpUnits(op=record["op"], libraries=0, units=0, bytes=0, hits=0))
        one.libraries += 1
        for field in ("units", "bytes", "hits"):
            setattr(one, field, getattr(one, field) + int(record[field]))
    ops = sorted(by_op.values(), key=lambda one: (-one.bytes, one.op))
    sums = {field: sum(getattr(one, field) for one in ops) for field in ("libraries", "units", "bytes", "hits")}
    return UnitStatistics(**sums, ops=ops)


def _digest_of(context: Context, profile: str) -> str:
    if is_digest(profile):
        return profile
    return context.builtin_digests.get(profile) or profile_digest(profiles.get(context, profile))


def _records(context: Context, names: Sequence[str]) -> dict[str, Record]:
    """The records of libraries that are there, with the owner's hits; one that was lost alone begins again."""
    pipeline = context.cache.pipeline(transaction=False)
    for name in names:
        pipeline.hmget(use_key(name), [*_FIELDS, hits_field(context.owner.name)])
    found: dict[str, Record] = {}
    for name, (*values, hits) in zip(names, cast(list[list[Any]], pipeline.execute()), strict=True):
        record = _restored(context, name) if None in values else dict(zip(_FIELDS, values, strict=True))
        if record is not None:
            found[name] = {**record, "hits": hits or "0"}
    return found


def _restored(context: Context, name: str) -> Record | None:
    """The record of a library whose own was evicted, from its value; None if that is lost too."""
    found = _stored(context, name)
    if found is None:
        return None
    library, size_bytes, sizes = found
    return context.units.restore_record(name, library.labels, len(sizes), size_bytes + sum(sizes))


def _stored(context: Context, name: str) -> tuple[StoredLibrary, int, list[int]] | None:
    """A library, its bytes and those of its units, 0 for one that was lost; None if the library was lost."""
    value = context.table_bytes.get(value_key(name))
    if not isinstance(value, bytes):
        return None
    try:
        library = decode_library(value)
    except DamagedUnitError:
        return None
    pipeline: redis.client.Pipeline = context.table_bytes.pipeline(transaction=False)
    for key in library.unit_keys:
        pipeline.strlen(value_key(key))
    return library, len(value), cast(list[int], pipeline.execute())


def _library(context: Context, name: str, record: Record, used_ms: float) -> UnitLibrary | None:
    """A library with its units; None if its value was lost."""
    found = _stored(context, name)
    if found is None:
        return None
    stored, size_bytes, sizes = found
    ids: list[Any] = list(stored.header.get("ids", ()))
    return UnitLibrary(
        id=name.rpartition(":")[2],
        op=record["op"],
        signature=record["signature"],
        size=record["size"],
        dtype=record["dtype"],
        profile=record["profile"],
        hits=int(record["hits"]),
        bytes=size_bytes + sum(sizes),
        created_at=_time(record["made_ms"]),
        used_at=_time(used_ms),
        units=[
            Unit(id=str(one), tile=list(tile), bytes=size)
            for one, tile, size in zip(ids, stored.tiles, sizes, strict=True)
            if size
        ],
    )


def _time(milliseconds: str | float) -> datetime:
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


def bundle(context: Context, library_id: str) -> bytes:
    """A library with its units as one file; raises NotFoundError for one that is lost or not in the owner's list."""
    key = library_key_of(library_id)
    values: dict[str, bytes] = {}
    if is_digest(library_id) and context.cache.zscore(list_key(context.owner.name), key) is not None:
        units = context.units.for_owners([context.owner.name])
        values = dict(units.get_many([key]))
        with suppress(DamagedUnitError, KeyError):
            values |= units.get_many(decode_library(values[key]).unit_keys)
            for value in values.values():
                check_value(value)
            return encode_bundle(key, values)
    raise NotFoundError(
        f"there are no shape units {printable(library_id, 80)}",
        code="unknown_units",
        actual=printable(library_id, 80),
        hint="List them with GET /v1/units",
    )


def push(context: Context, library_id: str, data: bytes) -> bool:
    """Store a library that came from elsewhere, once this server has built it again byte for byte; True if it is new.

    Raises RequestError for bytes that are no library, of another id or profile, or that the compiler does not make.
    """
    key, given = decode_bundle(data)
    if key != library_key_of(library_id):
        raise _refused("the bytes are units of another id", "wrong_units", key.rpartition(":")[2], library_id)
    library = decode_library(given[key])
    if not is_digest(library.about.profile):
        raise _refused("the units are for no profile", "invalid_units", library.about.profile, "a profile's digest")
    units = context.units.for_owners([context.owner.name])
    # other bytes there may be damaged ones: what the compiler makes decides
    is_new = dict(units.get_many(list(given))) != given
    if is_new:
        profile = profiles.resolve(context, library.about.profile)
        own, built = decode_bundle(rebuilt_bundle(given[key], profile, context.unit_makers))
        if (own, built) != (key, given):
            raise _refused("this server builds other units for that routine", "units_differ", "other bytes", "the same")
        units.put_many(key, built, library.labels)
    else:
        units.note([key])
    return is_new


def _refused(message: str, code: str, actual: str, limit: str) -> RequestError:
    return RequestError(
        message,
        code=code,
        stage="units",
        actual=printable(actual, 80),
        limit=printable(limit, 80),
        hint="Push units that the same version of Tessera made for this profile",
    )
