"""The broker's Redis for a command: of the URLs in the settings, of a service that runs, or started for the command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from app.errors import SetupError
from app.private_files import close_to_others, private_folder, unusable
from app.redis_urls import connect
from app.settings import Settings
from app.supervisor.lock import DirectoryLock
from app.supervisor.redis_server import RedisServer, Role


@contextmanager
def open_broker(settings: Settings) -> Iterator[redis.Redis]:
    """Connects to the broker; a data directory that no service uses is locked, and its server is stopped again.

    Raises SetupError if the directory cannot be used or another command uses it, redis.RedisError if no server answers.
    """
    if settings.broker_url is not None:
        yield from _connected(settings.broker_url)
        return
    directory = settings.data_dir.absolute()
    try:
        close_to_others(directory)
        for folder in (directory, directory / "logs"):
            private_folder(folder)
    except OSError as error:
        raise unusable(directory, error) from None
    lock = DirectoryLock(directory)
    try:
        lock.acquire()
    except SetupError as error:
        if error.code != "data_dir_in_use":
            raise
        yield from _connected(RedisServer(Role.BROKER, directory / Role.BROKER.value, directory / "logs", -1).url)
        return
    try:
        server = RedisServer(Role.BROKER, directory / Role.BROKER.value, directory / "logs", lock.descriptor)
        server.start()
        try:
            server.wait_until_ready()
            yield from _connected(server.url)
        finally:
            server.child.signal(signal.SIGTERM)
            server.child.wait(5.0)
            server.remove_socket()
    finally:
        lock.release()


def _connected(url: str) -> Iterator[redis.Redis]:
    client = connect(url)
    try:
        yield client
    finally:
        client.close()
