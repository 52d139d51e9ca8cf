"""`python -m worker`: one Celery worker with the settings of the environment."""

from __future__ import annotations

import argparse
import os


def main() -> None:
    """Starts the worker and runs until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m worker", description="Tessera's worker.")
    parser.add_argument("--queues", default="short,long", help="which queues to serve [short,long]")
    kinds = parser.parse_args().queues.split(",")
    # Before numpy is imported: a BLAS thread pool in the parent would not survive the fork into the children.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

    # Loaded once here and shared by every child: the compiler and its machine code. Neither starts a thread.
    import compiler.kernels  # noqa: F401
    import worker.optimise
    import worker.task  # noqa: F401
    from app.jobs.identity import QUEUE_KINDS, Identity
    from app.logs import configure_logging
    from app.private_files import UMASK, close_to_others
    from app.settings import Settings
    from worker.app import Worker

    settings = Settings()
    configure_logging(settings.log_level, "worker")
    os.umask(UMASK)
    close_to_others(settings.data_dir)
    unknown = next((kind for kind in kinds if kind not in QUEUE_KINDS), None)
    if unknown is not None:
        parser.error(f"there is no queue {unknown!r}: choose from {', '.join(QUEUE_KINDS)}")
    celery = Worker(settings, Identity.present(settings), kinds).celery()
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


if __name__ == "__main__":
    main()
