"""`python -m worker`: one Celery worker with the settings of the environment."""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from app.telemetry import send_nothing
from compiler.garbage import collection_paused

if TYPE_CHECKING:
    from app.settings import Settings


def main() -> None:
    """Starts the worker and runs until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m worker", description="Tessera's worker.")
    parser.add_argument("--queues", default="short,long", help="which queues to serve [short,long]")
    kinds = parser.parse_args().queues.split(",")
    # Before numpy is imported: a BLAS thread pool in the parent would not survive the fork into the children.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    send_nothing()

    # Loaded once here and shared by every child: the compiler and its machine code. Neither starts a thread.
    with collection_paused():
        import compiler.kernels  # noqa: F401
        import worker.optimise
        import worker.task  # noqa: F401
        from app.jobs.identity import QUEUE_KINDS, Identity
        from app.logs import configure_logging
        from app.private_files import UMASK, close_to_others
        from app.settings import Settings
        from compiler.version import COMPILER_VERSION
        from worker.app import Worker
    gc.freeze()  # loaded modules stay; children share their pages as long as no search for garbage writes to them

    settings = Settings()
    configure_logging(settings.log_level, "worker")
    os.umask(UMASK)
    close_to_others(settings.data_dir)
    unknown = next((kind for kind in kinds if kind not in QUEUE_KINDS), None)
    if unknown is not None:
        parser.error(f"there is no queue {unknown!r}: choose from {', '.join(QUEUE_KINDS)}")
    celery = Worker(settings, Identity(version=COMPILER_VERSION, store=_store_id(settings)), kinds).celery()
    celery.worker_main(
        [
            "--quiet",
            "worker",
            "--pool=prefork",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
            f"--loglevel={settings.log_level}",
        ]
    )


def _store_id(settings: Settings) -> str:
    """The id of the store; of a bucket it is read by another process, since its library leaves threads behind.

    A thread would not survive the fork into the children.
    """
    from app.stores import store_id

    if settings.store_url is None:
        return store_id(settings)
    asked = subprocess.run([sys.executable, "-m", "app.stores"], stdout=subprocess.PIPE, text=True, check=True)
    return asked.stdout.strip()


if __name__ == "__main__":
    main()
