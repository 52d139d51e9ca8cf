"""Products: ops that sum over an axis of their factors, at once or in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from compiler.errors import InternalError
from compiler.ops.base import Array, Call, OpKind
from compiler.ops.compute_types import Values
from compiler.ops.slab import Box, Slab, is_empty, lengths
from compiler.units import numpy_dtype


class Product(OpKind):
    """A sum of products of its factors, the first inputs; what inputs are left finish it (a bias).

    Most have two factors, data (input 0) and weight (input 1). Sums are in float64 for floats (see `summable`), in the
    inputs' own type for integers. Partial sums returned by a call are rounded to the accumulator's type.
    """

    @abstractmethod
    def summed(self, call: Call) -> tuple[int | None, ...] | None:
        """The summed axis of each factor, None for one that every part needs whole.

        None for all if channel groups are summed separately.
        """

    def factors(self, call: Call) -> int:
        """How many of the first inputs are factors."""
        del call
        return 2

    def streamed(self, call: Call) -> tuple[int, ...]:
        """Positions of inputs that come with the tiles even where they are constants, not as weights."""
        del call
        return ()

    def summed_extent(self, call: Call) -> int:
        """Positions of the summed axis; 0 if sums are not made in parts."""
        axes = self.summed(call) or ()
        return next((call.tensor(number).shape[axis] for number, axis in enumerate(axes) if axis is not None), 0)

    @abstractmethod
    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        """The sums of products of the given factors, in the output's shape; floats in float64."""

    def joined(self, before: Array, sums: Array) -> Values:
        """The sums of two parts together."""
        return np.asarray(np.add(before, sums))

    @abstractmethod
    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        """The output from complete sums, in its element type; `others` are the inputs after the factors."""

    def accumulator(self, call: Call) -> str:
        """The element type of partial sums: float32 for floats of up to 32 bits, else the inputs' own type."""
        dtype = call.tensor(0).dtype
        return "float32" if dtype in ("float16", "bfloat16") else dtype

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        count = self.factors(call)
        return self.finished(call, self.sums(call, arrays[:count]), by_input(call, arrays)[count:])

    def compute_box(
        self,
        call: Call,
        box: Box,
        operands: tuple[Slab | None, ...],
        *,
        gathered: Slab | None = None,
        partial: bool = False,
    ) -> Array:
        """As for every kind; with `partial`, the unfinished sums over the part of the summed axis in the slabs.

        Factors must then cover the same range of that axis, and their boxes of the other axes. Data may be None where
        windows read only padding. Partial sums are `joined`; `finish` turns the total into the box.
        """
        if not partial:
            return super().compute_box(call, box, operands, gathered=gathered)
        if is_empty(box):
            return np.zeros(lengths(box), dtype=numpy_dtype(self.accumulator(call)))
        needed = self._part(call, box, operands)
        factors = [
            np.zeros(lengths(ranges), dtype=numpy_dtype(call.tensor(index).dtype)) if slab is None else slab.cut(ranges)
            for index, (slab, ranges) in enumerate(zip(operands, needed, strict=False))
        ]
        with np.errstate(all="ignore"):
            sums = self.sums(self.local_call(call, box, needed), factors)
            return sums.astype(numpy_dtype(self.accumulator(call)), copy=False)

    def finish(self, call: Call, box: Box, sums: Array, others: Sequence[Slab | None]) -> Array:
        """The finished box from its complete sums and the boxes of the inputs after the factors."""
        given: list[Array | None] = []
        for ranges, slab in zip_longest(self.demanded(call, box)[self.factors(call) :], others):
            if ranges is not None and slab is None:
                raise InternalError("the values that finish a sum are missing", node=call.node, limit=ranges)
            given.append(None if slab is None or ranges is None else slab.cut(ranges))
        with np.errstate(all="ignore"):
            return self.finished(call, sums, given)

    def _part(self, call: Call, box: Box, operands: tuple[Slab | None, ...]) -> tuple[Box, ...]:
        """The boxes of the factors that enter a partial sum."""
        axes = self.summed(call)
        if axes is None:
            raise InternalError("sums over groups are not made in parts", node=call.node)
        pairs = [(s, axis) for s, axis in zip(operands, axes, strict=False) if s is not None and axis is not None]
        found = {slab.ranges[axis] for slab, axis in pairs}
        if len(found) != 1:
            raise InternalError("factors cover different parts of a sum", node=call.node, actual=sorted(found))
        (part,) = found
        boxes = tuple(
            tuple(part if axis == summed else kept for axis, kept in enumerate(ranges or ()))
            for ranges, summed in zip(self.demanded(call, box), axes, strict=False)
        )
        if operands[0] is None and call.met is None and not is_empty(boxes[0]):
            raise InternalError("operand 0 lacks values of its box", node=call.node, actual="nothing", limit=boxes[0])
        return boxes


def by_input(call: Call, arrays: Sequence[Array]) -> tuple[Array | None, ...]:
    """The values of a call's inputs, None where one is omitted; `arrays` are those of the given ones."""
    given = iter(arrays)
    return tuple(None if tensor is None else next(given) for tensor in call.inputs)
