"""`python -m app.server`: the API process."""

from __future__ import annotations

import argparse
import gc
import os
import socket
import sys
from functools import partial

from app.telemetry import send_nothing
from compiler.garbage import collection_paused

# Seconds after which a computing thread lets another thread run. An answer's thread waits for Redis several times, and
# each time for the relay's thread: with Python's default of 5 ms, this would be most of the response time.
_TURN_S = 0.0005


def main() -> None:
    """Serves until told to stop, at the address of the settings or on an inherited socket."""
    parser = argparse.ArgumentParser(prog="python -m app.server", description="Tessera's API.")
    parser.add_argument("--listen-fd", type=int, help="an inherited listening socket")
    arguments = parser.parse_args()
    sys.setswitchinterval(_TURN_S)
    send_nothing()
    # what the imports make stays: looking for garbage among it takes a fifth of the start
    with collection_paused():
        import uvicorn

        from app import stopping
        from app.bounded_protocol import BACKLOG, BoundedProtocol, connections
        from app.decoded_types import prepare_decoded_types
        from app.logs import configure_logging
        from app.main import create_app
        from app.private_files import UMASK, close_to_others
        from app.settings import Settings

        settings = Settings()
        configure_logging(settings.log_level, "api")
        os.umask(UMASK)
        close_to_others(settings.data_dir)
        app = create_app(settings)
        prepare_decoded_types()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is told by Host and the key, which no proxy makes up
        timeout_graceful_shutdown=stopping.ANSWERS_S,
        http=partial(BoundedProtocol, connections(settings, app.state.refusals)),  # type: ignore[arg-type]
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]
    )
    gc.freeze()  # loaded modules stay: scanning them for garbage takes 20 ms each time
    sockets = None if arguments.listen_fd is None else [socket.socket(fileno=arguments.listen_fd)]
    uvicorn.Server(config).run(sockets=sockets)


if __name__ == "__main__":
    main()
