"""`python -m app.server`: the API process."""

from __future__ import annotations

import argparse
import socket

import uvicorn

from app.logs import configure_logging
from app.main import create_app
from app.settings import Settings


def main() -> None:
    """Serve until told to stop, at the address of the settings or on a socket that was inherited."""
    parser = argparse.ArgumentParser(prog="python -m app.server", description="Tessera's API.")
    parser.add_argument("--listen-fd", type=int, help="an inherited listening socket")
    arguments = parser.parse_args()
    settings = Settings()
    configure_logging(settings.log_level, "api")
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    sockets = None if arguments.listen_fd is None else [socket.socket(fileno=arguments.listen_fd)]
    uvicorn.Server(config).run(sockets=sockets)


if __name__ == "__main__":
    main()
