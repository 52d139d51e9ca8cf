"""A box's copy as strided runs: what one transfer can do, and how many of them it takes (PROG-1)."""

from __future__ import annotations

from compiler.errors import InternalError
from compiler.program.program import MAX_COUNTS

# Bytes of a run, how often it repeats, and its strides on either side.
Runs = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
# Runs with the offsets of the first one on either side.
Moves = tuple[tuple[Runs, int, int], ...]


def moves_of(lengths: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], element_bytes: int) -> Moves:
    """A box's copy as runs, with their offsets on either side.

    Axes that are dense on both sides join the run; of what is left neighbours join where their strides allow; more
    than MAX_COUNTS dimensions become several commands.
    """
    axes = [i for i, length in enumerate(lengths) if length > 1]
    axes.sort(key=lambda i: (-source[i], -target[i]))
    dims: list[tuple[int, int, int]] = []
    for axis in axes:
        length, a, b = lengths[axis], source[axis], target[axis]
        if dims and dims[-1][1] == a * length and dims[-1][2] == b * length:
            dims[-1] = (dims[-1][0] * length, a, b)
        else:
            dims.append((length, a, b))
    run = element_bytes
    if dims and dims[-1][1] == dims[-1][2] == element_bytes:
        run *= dims.pop()[0]
    extra, dims = dims[: max(0, len(dims) - MAX_COUNTS)], dims[max(0, len(dims) - MAX_COUNTS) :]
    offsets = [(0, 0)]
    for length, a, b in extra:
        offsets = [(x + i * a, y + i * b) for x, y in offsets for i in range(length)]
    fill = MAX_COUNTS - len(dims)
    counts = (*([1] * fill), *(d[0] for d in dims))
    source_strides = (*([0] * fill), *(d[1] for d in dims))
    target_strides = (*([0] * fill), *(d[2] for d in dims))
    if run <= 0:
        raise InternalError("a transfer of nothing", stage="program", actual=str(lengths))
    return tuple(((run, counts, source_strides, target_strides), x, y) for x, y in offsets)
