"""`python -m worker.health`: exit code 0 if the worker of this machine sent a recent heartbeat."""

from __future__ import annotations

import os
import sys

from app.jobs.records import live_workers
from app.redis_urls import connect
from app.settings import Settings


def main() -> None:
    """Looks for the worker's heartbeat and ends with the exit code."""
    settings = Settings()
    if settings.broker_url is None:
        sys.exit("TESSERA_BROKER_URL is not set")
    client = connect(settings.broker_url)
    machine = os.uname().nodename
    sys.exit(0 if any(name.rsplit("-", 2)[0] == machine for name in live_workers(client)) else 1)


if __name__ == "__main__":
    main()
