"""Loads and validates profiles: built-ins and users' own (PROF-1, PROF-4)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import msgspec
import yaml

from compiler.errors import ProfileError, RequestError, did_you_mean, printable
from compiler.profile.check import MAX_FAULTS, Fault, checked
from compiler.profile.plain_yaml import BoundError, integer, number, read_yaml, too_deep
from compiler.profile.schema import Profile

MAX_PROFILE_BYTES: Final = 65_536
# An error names this many invalid fields beside the first; `tessera profiles check` shows all.
_OTHERS_NAMED: Final = 5


def builtin_names() -> tuple[str, ...]:
    """The names of the built-in profiles, sorted."""
    folder = resources.files("compiler.profile") / "builtin"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def builtin_profile(name: str) -> Profile:
    """A built-in profile; raises RequestError for an unknown name, listing those that exist."""
    names = builtin_names()
    if name not in names:
        raise RequestError(
            f"unknown profile {printable(name, 80)!r}",
            code="unknown_profile",
            actual=printable(name, 80),
            hint=f"{did_you_mean(name, names)} Built-in profiles: {', '.join(names)}; or give a profile file".lstrip(),
        )
    data = (resources.files("compiler.profile") / "builtin" / f"{name}.yaml").read_bytes()
    return parse_profile(data, origin=name)


def parse_profile(data: bytes, *, origin: str = "profile") -> Profile:
    """Parses a profile from YAML or JSON; raises ProfileError with the field's path, value and permitted values."""
    return profile_from_values(profile_values(data, origin=origin), origin=origin)


def profile_values(data: bytes, *, origin: str = "profile") -> dict[str, Any]:
    """Reads the values in a YAML or JSON text, unchecked; raises ProfileError if it is neither or too large."""
    if len(data) > MAX_PROFILE_BYTES:
        raise ProfileError(
            f"{origin}: the profile is too large", stage="profile", actual=len(data), limit=MAX_PROFILE_BYTES
        )
    try:
        values = _read(data)
    except BoundError as error:
        raise ProfileError(f"{origin}: the profile has {error}", stage="profile", limit=error.limit) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ProfileError(
            f"{origin}: neither YAML nor JSON: {printable(' '.join(str(error).split()), 200)}",
            stage="profile",
        ) from None
    if not isinstance(values, dict):
        raise ProfileError(
            f"{origin}: a profile is an object", stage="profile", actual=type(values).__name__, limit="object"
        )
    return values


def _read(data: bytes) -> object:
    """Reads a JSON or YAML text. JSON comes first, because YAML forbids tabs as indentation."""
    if data.lstrip()[:1] == b"{":
        try:
            return json.loads(data, object_pairs_hook=_unique, parse_int=integer, parse_float=number)
        except json.JSONDecodeError:
            pass  # YAML's flow style also begins with a brace.
        except RecursionError:
            raise too_deep() from None
    return read_yaml(data)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"field {printable(twice, 60)!r} is given twice")
    return values


def profile_from_values(values: dict[str, Any], *, origin: str = "profile") -> Profile:
    """Makes a profile from plain values; raises ProfileError as parse_profile does."""
    profile, faults = checked(values)
    if profile is None:
        raise _faulty(origin, faults)
    return profile


def _faulty(origin: str, faults: Sequence[Fault]) -> ProfileError:
    """The error for a profile with faults: the first in full, the others by path."""
    first, *others = faults
    name = first.path or "(root)"
    hints = [f"Correct the field {name} of the profile"]
    if others:
        count = f"{len(others)} more" if len(faults) < MAX_FAULTS else "many more"
        named = ", ".join(fault.path for fault in others[:_OTHERS_NAMED])
        hints.append(f"{count} to correct: {named} (`tessera profiles check FILE` lists all)")
    return ProfileError(
        f"{origin}: field {name} is not valid; allowed: {first.allowed}",
        stage="profile",
        actual=first.found,
        limit=first.allowed,
        hint=f"{first.hint} {'; '.join(hints)}".lstrip(),
    )


def profile_json(profile: Profile) -> bytes:
    """The profile's canonical form: JSON with sorted keys and every default written out."""
    return json.dumps(msgspec.to_builtins(profile), sort_keys=True, separators=(",", ":")).encode()


def profile_digest(profile: Profile) -> str:
    """SHA-256 of the canonical form: the profile's identity (PROF-1)."""
    return hashlib.sha256(profile_json(profile)).hexdigest()
