"""The embedded service (API-2): Redis, worker and API as supervised children of one process."""
