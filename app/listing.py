"""Lists in pages, newest first, over a sorted set of creation times."""

from __future__ import annotations

from typing import Annotated, Final, cast

import redis
from fastapi import Query

from app.http import decode_cursor, encode_cursor

PAGE: Final = 50
MAX_PAGE: Final = 200

Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def page(client: redis.Redis, key: str, cursor: str | None, limit: int) -> tuple[list[tuple[str, float]], str | None]:
    """Members with their times, and the cursor of the next page if there is one.

    Raises RequestError for a cursor that this service did not issue.
    """
    position = None if cursor is None else decode_cursor(cursor)
    newest: float | str = "+inf" if position is None else position[0]
    ties = 0 if position is None else client.zcount(key, position[0], position[0])
    rows = cast(
        list[tuple[str, float]],
        client.zrevrangebyscore(key, newest, "-inf", start=0, num=limit + 1 + ties, withscores=True),
    )
    if position is not None:
        rows = [row for row in rows if (row[1], row[0]) < position]
    following = encode_cursor((rows[limit - 1][1], rows[limit - 1][0])) if len(rows) > limit else None
    return rows[:limit], following
