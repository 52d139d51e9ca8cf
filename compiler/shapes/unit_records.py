"""Units' buffers and calls' costs as plain values and back: what packages and stored libraries have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from compiler.program.program import Level
from compiler.shapes.cost import CallCost, OperandCost
from compiler.shapes.number_arrays import ArrayWriter, float_array
from compiler.shapes.records import whole_numbers
from compiler.shapes.unit_library import Placed, UnitBuffers


def buffer_values(buffers: UnitBuffers) -> dict[str, list[Any]]:
    """The buffers of a unit by tensor: level, extents, addresses, bytes."""
    return {
        tensor: [placed.level, placed.extents, placed.addresses, placed.size_bytes]
        for tensor, placed in sorted(buffers.placed.items())
    }


def buffers_of(values: Mapping[str, Sequence[Any]], activation_bytes: int, weight_bytes: int) -> UnitBuffers:
    """The buffers that plain values say; raises KeyError, TypeError or ValueError for values that none have."""
    return UnitBuffers(
        placed=MappingProxyType(
            {
                name: Placed(
                    level=Level(level),
                    extents=whole_numbers(extents),
                    addresses=whole_numbers(addresses),
                    size_bytes=size,
                )
                for name, (level, extents, addresses, size) in values.items()
            }
        ),
        activation_bytes=activation_bytes,
        weight_bytes=weight_bytes,
    )


def cost_values(cost: CallCost, arrays: ArrayWriter) -> dict[str, Any]:
    """The costs of calls; their tables are arrays of the buffer."""
    return {
        "call_cycles": cost.call_cycles,
        "variable_cycles": cost.variable_cycles,
        "compute_cycles": cost.compute_cycles,
        "compute": [arrays.add(factor) for factor in cost.compute],
        "operands": [
            [one.start_cycles, one.move_cycles, [None if f is None else arrays.add(f) for f in one.factors]]
            for one in cost.operands
        ],
    }


def cost_of(values: Mapping[str, Any], numbers: memoryview) -> CallCost:
    """The costs that plain values say; raises KeyError, TypeError or ValueError for values that none have."""
    return CallCost(
        call_cycles=float(values["call_cycles"]),
        variable_cycles=float(values["variable_cycles"]),
        compute_cycles=float(values["compute_cycles"]),
        compute=tuple(float_array(numbers, where) for where in values["compute"]),
        operands=tuple(
            OperandCost(
                start_cycles=float(start),
                move_cycles=float(move),
                factors=tuple(None if where is None else float_array(numbers, where) for where in factors),
            )
            for start, move, factors in values["operands"]
        ),
    )
