"""Hardware profiles: schema, built-ins as data, loading with errors that name the field."""

from compiler.profile.load import (
    builtin_names,
    builtin_profile,
    parse_profile,
    profile_digest,
    profile_json,
)
from compiler.profile.schema import Profile

__all__ = ["Profile", "builtin_names", "builtin_profile", "parse_profile", "profile_digest", "profile_json"]
