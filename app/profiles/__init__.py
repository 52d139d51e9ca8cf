"""Hardware profiles: the built-in ones and those of users (API-3)."""
