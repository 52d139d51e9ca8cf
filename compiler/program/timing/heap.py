"""A heap in arrays: several may lie in the same two, each from its `base` on."""

from __future__ import annotations

from typing import Any

from compiler.machine_code import compiled


@compiled(allocates=False)
def push(times: Any, keys: Any, base: int, count: int, time: int, key: int) -> int:
    """Put an entry on a heap of `count`, ordered by time and then by key; the new count."""
    place = count
    while place > 0:
        parent = (place - 1) >> 1
        at = base + parent
        if times[at] < time or (times[at] == time and keys[at] <= key):
            break
        times[base + place], keys[base + place] = times[at], keys[at]
        place = parent
    times[base + place], keys[base + place] = time, key
    return count + 1


@compiled(allocates=False)
def replace_first(times: Any, keys: Any, base: int, count: int, time: int, key: int) -> None:
    """Take the first entry off a heap of `count` and put another on it."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        at, other = base + child, base + child + 1
        if child + 1 < count and (times[other] < times[at] or (times[other] == times[at] and keys[other] < keys[at])):
            child, at = child + 1, other
        if time < times[at] or (time == times[at] and key <= keys[at]):
            break
        times[base + place], keys[base + place] = times[at], keys[at]
        place = child
    times[base + place], keys[base + place] = time, key


@compiled(allocates=False)
def drop(times: Any, keys: Any, base: int, count: int) -> int:
    """Take the first entry off the heap; the new count."""
    count -= 1
    replace_first(times, keys, base, count, times[base + count], keys[base + count])
    return count
