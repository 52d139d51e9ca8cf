"""The keys of a service, as the broker's Redis holds them: a key's secret is known to its holder alone.

No FastAPI here: the command line uses this module too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import msgspec
import redis

from app.errors import ConflictError, KeyRequiredError, NotFoundError
from app.keys.owners import LIMITS, LOCAL, LOCAL_WORD, Limits, Owner
from app.settings import Settings
from compiler.errors import RequestError, printable

_LIST: Final = "tessera:keys"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FORM: Final = re.compile(r"tessera_([0-9a-f]{16})_([0-9a-f]{64})")
# No secret has this digest, so an id that does not exist is answered as a wrong secret is, and takes as long.
_OF_NO_SECRET: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key without its secret; `limits` are its own, the settings give the others."""

    id: str
    name: str
    owner: str
    created_ms: int
    revoked_ms: int | None
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentKey:
    """The parts of a key as a request brings it; those of no key if it is none."""

    id: str = "0" * 16
    secret: str = "0" * 64

    @classmethod
    def of(cls, text: str) -> Self:
        """The parts of a text."""
        match = _FORM.fullmatch(text)
        return cls(id=match[1], secret=match[2]) if match else cls()

    @property
    def record(self) -> str:
        """Where the record of its id is, if there is such a key."""
        return _record(self.id)


class Keys:
    """Makes, finds, lists and revokes keys. Raises redis.RedisError if the broker does not answer."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._redis = client
        self._defaults = Limits(
            stored_bytes=settings.key_stored_bytes,
            stored_items=settings.key_stored_items,
            waiting_jobs=settings.key_waiting_jobs,
            sweep_points=settings.key_sweep_points,
            uploads=settings.key_uploads,
            requests_per_minute=settings.key_requests_per_minute,
        )

    def create(self, name: str, owner: str | None, limits: Mapping[str, int]) -> tuple[Key, str]:
        """Makes a key; the text is what its holder sends, and is not kept.

        Without an owner the key's name is the owner. Raises RequestError for a name that cannot be one, ConflictError
        if a key that holds has the name.
        """
        named = _checked("name", name)
        whose = named if owner is None else _checked("owner", owner)
        if any(key.name == named and key.revoked_ms is None for key in self.all()):
            raise ConflictError(
                f"there is a key {named!r} already",
                code="key_exists",
                actual=named,
                hint=f"Choose another name (--owner {whose} gives the new key the same owner), or revoke that key",
            )
        key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
        key = Key(
            id=key_id,
            name=named,
            owner=LOCAL if whose == LOCAL_WORD else whose,
            created_ms=int(time.time() * 1000),
            revoked_ms=None,
            limits=dict(limits),
        )
        pipeline = self._redis.pipeline(transaction=True)
        fields: dict[Any, Any] = {
            "owner": key.owner,
            "name": key.name,
            "sha256": _sha256(secret),
            "created_ms": str(key.created_ms),
            "limits": msgspec.json.encode(key.limits).decode(),
        }
        pipeline.hset(_record(key_id), mapping=fields)
        pipeline.zadd(_LIST, {key_id: key.created_ms})
        pipeline.execute()
        return key, f"tessera_{key_id}_{secret}"

    def all(self) -> list[Key]:
        """The keys, oldest first, with those that were revoked."""
        ids = cast(list[str], self._redis.zrange(_LIST, 0, -1))
        pipeline = self._redis.pipeline(transaction=False)
        for key_id in ids:
            pipeline.hgetall(_record(key_id))
        return [_key(key_id, fields) for key_id, fields in zip(ids, pipeline.execute(), strict=True) if fields]

    def revoke(self, name: str) -> Key:
        """Revokes a key by its id or name, from the next request on; raises NotFoundError."""
        found = next((key for key in self.all() if key.revoked_ms is None and name in (key.id, key.name)), None)
        if found is None:
            raise NotFoundError(
                f"there is no key {printable(name, 80)} that could be revoked",
                code="unknown_key",
                actual=printable(name, 80),
                hint="`tessera keys list` shows the keys",
            )
        self._redis.hset(_record(found.id), "revoked_ms", str(int(time.time() * 1000)))
        return found

    def holder(self, sent: SentKey, fields: Mapping[str, str]) -> Owner:
        """Who sent a key, by the record of its id, with its limits.

        Raises KeyRequiredError, in one way for every key that does not hold.
        """
        is_right = hmac.compare_digest(fields.get("sha256", _OF_NO_SECRET), _sha256(sent.secret))
        if not is_right or "revoked_ms" in fields:
            raise KeyRequiredError(
                "the key is not valid",
                code="invalid_key",
                stage="request",
                hint="Check that the key is complete, and ask the operator whether it was revoked",
            )
        own = msgspec.json.decode(fields["limits"], type=dict[str, int])
        limits = msgspec.structs.replace(self._defaults, **{name: own[name] for name in LIMITS if name in own})
        return Owner(name=fields["owner"], key=sent.id, limits=limits)


def _record(key_id: str) -> str:
    return f"tessera:key:{key_id}"


def _sha256(secret: str) -> str:
    # a secret of 256 random bits cannot be guessed from its digest, so a slow hash would add nothing
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(key_id: str, fields: Mapping[str, str]) -> Key:
    return Key(
        id=key_id,
        name=fields["name"],
        owner=fields["owner"],
        created_ms=int(fields["created_ms"]),
        revoked_ms=int(fields["revoked_ms"]) if "revoked_ms" in fields else None,
        limits=msgspec.json.decode(fields["limits"], type=dict[str, int]),
    )


def _checked(what: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise RequestError(
            f"{printable(text, 80)!r} cannot be the {what} of a key",
            code="invalid_name",
            actual=printable(text, 80),
            limit="up to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
        )
    return text
