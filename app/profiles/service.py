"""Operations on profiles: each is immutable and known by the digest of its canonical form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from app.context import Context
from app.errors import ConflictError, NotFoundError
from app.http import decode_cursor, encode_cursor
from app.jobs.records import owned
from app.keys.use import too_many_items
from app.listing import page
from app.profiles.schemas import ProfilePage, ProfileSummary
from app.store import is_digest
from compiler.errors import RequestError, did_you_mean, printable
from compiler.profile import (
    Profile,
    builtin_names,
    builtin_profile,
    parse_profile,
    profile_digest,
    profile_json,
)


def create(context: Context, data: bytes) -> tuple[ProfileSummary, bool]:
    """Stores a user's profile from YAML or JSON; True if it is new.

    Raises ProfileError naming the field, ConflictError for the name of a built-in profile, QuotaError for one too many.
    """
    profile = parse_profile(data)
    if profile.name in builtin_names() and profile != builtin_profile(profile.name):
        raise ConflictError(
            f"{printable(profile.name, 80)!r} is the name of a built-in profile",
            code="profile_name_taken",
            stage="profile",
            actual=printable(profile.name, 80),
            hint="Give the profile another name",
        )
    if profile.name in builtin_names():  # an identical profile is known already and listed once
        return ProfileSummary(name=profile.name, digest=profile_digest(profile), builtin=True), False
    digest = keep(context, profile)
    owner = context.owner
    answer, number = context.records.register_profile(digest, profile.name, owner=owner.name, limits=owner.limits)
    if answer == "crowded":
        raise too_many_items(owner, number)
    return _user_summary(digest, {"name": profile.name, "created_ms": str(number)}), answer == "new"


def keep(context: Context, profile: Profile) -> str:
    """Stores the canonical form where the worker reads it; returns its digest."""
    return context.store.keep(profile_json(profile))


def resolve(context: Context, name: str) -> Profile:
    """A profile by name (built-in or a user's latest of that name) or digest; raises RequestError."""
    if name in builtin_names():
        return builtin_profile(name)
    digest = name if is_digest(name) else context.broker.hget(_key(context, "profile-names"), name)
    if isinstance(digest, str):
        known = context.broker.exists(_key(context, f"profile:{digest}"))
        if known and context.store.ready(digest):
            return parse_profile(context.store.read(digest))
        for builtin in map(builtin_profile, builtin_names()):
            if profile_digest(builtin) == digest:
                return builtin
    names = ", ".join(builtin_names())
    raise RequestError(
        f"unknown profile {printable(name, 80)!r}",
        code="unknown_profile",
        stage="profile",
        actual=printable(name, 80),
        hint=(
            f"{did_you_mean(name, builtin_names())} Built-in profiles: {names};"
            " upload others with POST /v1/profiles, or give a profile file on the command line"
        ).lstrip(),
    )


def get(context: Context, name: str) -> Profile:
    """As `resolve`, for a URL: raises NotFoundError."""
    try:
        return resolve(context, name)
    except RequestError as error:
        raise NotFoundError(
            error.message, code=error.code, stage=error.stage, actual=error.actual, hint=error.hint
        ) from None


def listed(context: Context, cursor: str | None, limit: int) -> ProfilePage:
    """A page of the profiles: the built-in ones come first, and are counted like any."""
    names = builtin_names()
    seen = 0 if cursor is None else _builtins_seen(cursor)
    shown = () if seen is None else names[seen : seen + limit]
    items = [ProfileSummary(name=name, digest=context.builtin_digests[name], builtin=True) for name in shown]
    if seen is not None and len(shown) == limit:
        more = seen + limit < len(names) or context.broker.exists(_key(context, "profiles"))
        return ProfilePage(items=items, next_cursor=encode_cursor((-1.0 - seen - limit, "")) if more else None)
    rows, following = page(
        context.broker, _key(context, "profiles"), cursor if seen is None else None, limit - len(shown)
    )
    for digest, _ in rows:
        fields = cast(dict[str, str], context.broker.hgetall(_key(context, f"profile:{digest}")))
        if fields:
            items.append(_user_summary(digest, fields))
    return ProfilePage(items=items, next_cursor=following)


def delete(context: Context, name: str) -> None:
    """Deletes a user's profile by name or digest; raises NotFoundError, or ConflictError for a built-in one.

    The file stays, because accepted jobs still read it.
    """
    profile = get(context, name)
    if profile.name in builtin_names():
        raise ConflictError(
            f"{printable(profile.name, 80)!r} is a built-in profile and cannot be deleted",
            code="builtin_profile",
            stage="profile",
            actual=printable(profile.name, 80),
            hint="Only uploaded profiles can be deleted; GET /v1/profiles lists both",
        )
    context.records.delete_profile(profile_digest(profile), owner=context.owner.name)


def _key(context: Context, name: str) -> str:
    return owned(context.owner.name, name)


def _builtins_seen(cursor: str) -> int | None:
    """The number of built-in profiles on the earlier pages; None if the cursor is among users' profiles.

    Positions of built-in profiles are negative, so they differ from every time.
    """
    position = decode_cursor(cursor)[0]
    return None if position >= 0 else min(int(-1 - position), len(builtin_names()))


def _user_summary(digest: str, fields: dict[str, str]) -> ProfileSummary:
    created_at = datetime.fromtimestamp(int(fields["created_ms"]) / 1000, UTC)
    return ProfileSummary(name=fields["name"], digest=digest, builtin=False, created_at=created_at)
