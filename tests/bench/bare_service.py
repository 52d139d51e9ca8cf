"""The yardstick of `tests.bench.load`: FastAPI and Redis, under uvicorn with the options of `app.server`.

`python -m tests.bench.bare_service REDIS_URL`; prints the port that it listens on. `/KEY` answers the bytes under the
key `bench:KEY` after one read, `/records/KEY` after two: of a record that names their digest, then of the bytes. Both
answer 304 if `If-None-Match` is given, the second one after the read of the record.
"""

from __future__ import annotations

import gc
import socket
import sys
from typing import Any

import redis.asyncio
import uvicorn
from fastapi import FastAPI, Request, Response

from app.redis_urls import client_url


def main() -> None:
    """Serve until told to stop."""
    client: Any = redis.asyncio.Redis.from_url(client_url(sys.argv[1]))
    app = FastAPI()

    @app.get("/{key}")
    async def get(request: Request, key: str) -> Response:
        body = await client.get(f"bench:{key}")
        if "if-none-match" in request.headers:
            return Response(status_code=304)
        return Response(body, media_type="application/json")

    @app.get("/records/{key}")
    async def get_by_record(request: Request, key: str) -> Response:
        digest = (await client.get(f"bench:record:{key}")).decode()
        headers = {"ETag": f'"{digest}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(await client.get(f"bench:{digest}"), media_type="application/json", headers=headers)

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    gc.freeze()
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none")).run(sockets=[listener])


if __name__ == "__main__":
    main()
