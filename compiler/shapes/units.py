"""The shape units of one op signature: the tile shapes there are, and the lengths each accepts (SHAPE-1, SHAPE-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import RequestError

# Axes of a result that calls are cut along (SHAPE-2).
MAX_TILED_AXES: Final = 4

Lengths = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitSet:
    """Units of one signature, one per row of `extents` and `lows`, in the order of `ids`.

    extents[u, a]: the tile of unit u along tiled axis a. lows[u, a]: the least length it accepts there when the length
    is given with the call; equal to the extent where the length is fixed.
    """

    signature: str
    dtype: str
    ids: tuple[str, ...]
    extents: Lengths
    lows: Lengths

    @classmethod
    def of(
        cls,
        *,
        signature: str,
        dtype: str,
        ids: tuple[str, ...],
        extents: Any,
        lows: Any = None,
    ) -> UnitSet:
        """Checked units; without `lows` all lengths are fixed. Raises RequestError for units that cannot be."""
        tiles = np.array(extents, dtype=np.int64)
        least = tiles.copy() if lows is None else np.array(lows, dtype=np.int64)
        if tiles.ndim != 2 or not 1 <= tiles.shape[1] <= MAX_TILED_AXES or not len(tiles):
            raise _refused(signature, "extents are no table of units by axes", tiles.shape, "1 to 4 axes, 1 unit")
        if least.shape != tiles.shape or len(ids) != len(tiles) or len(set(ids)) != len(ids):
            raise _refused(signature, "ids, extents and lows do not name the same units", len(ids), len(tiles))
        if (tiles < 1).any() or (least < 0).any() or (least > tiles).any():
            raise _refused(signature, "a unit accepts no length", int(tiles.min()), "0 <= low <= extent, extent >= 1")
        for array in (tiles, least):
            array.flags.writeable = False
        return cls(signature=signature, dtype=dtype, ids=ids, extents=tiles, lows=least)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def rank(self) -> int:
        """How many axes are tiled."""
        return int(self.extents.shape[1])

    def chosen(self, numbers: Any) -> UnitSet:
        """Some of the units, in the order of `numbers`."""
        rows = np.asarray(numbers, dtype=np.int64)
        return UnitSet.of(
            signature=self.signature,
            dtype=self.dtype,
            ids=tuple(self.ids[row] for row in rows.tolist()),
            extents=self.extents[rows],
            lows=self.lows[rows],
        )


def checked_shape(units: UnitSet, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A data shape over the tiled axes as it is; raises RequestError if its axes or lengths cannot be."""
    if len(shape) != units.rank or any(length < 0 for length in shape):
        raise _refused(units.signature, "the shape does not fit the units' tiled axes", shape, f"{units.rank} axes")
    return shape


def _refused(signature: str, message: str, actual: object, limit: object) -> RequestError:
    return RequestError(
        message, code="invalid_units", stage="shapes", op_type=signature, actual=str(actual), limit=limit
    )
