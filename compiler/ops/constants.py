"""Elements of constants, computed by op definitions alone, without the import of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import InternalError
from compiler.ir.constant import Constant, Derived, Literal, Opaque, Splat, Stored
from compiler.ir.graph import Tensor
from compiler.ops import OP_KINDS
from compiler.ops.base import Call, default_axes
from compiler.units import numpy_dtype

# The opset for calls that compute constants; their attributes are complete in any opset.
_OPSET: Final = 23


def constant_values(constant: Constant, data: memoryview) -> NDArray[Any]:
    """The elements of a constant as a read-only array; `data` holds the stored ones."""
    dtype, of = numpy_dtype(constant.dtype), constant.data
    match of:
        case Splat():
            return np.broadcast_to(np.frombuffer(of.value, dtype=dtype)[0], constant.shape)
        case Stored():
            return np.frombuffer(data[of.offset : of.offset + of.size_bytes], dtype=dtype).reshape(constant.shape)
        case Literal():
            return np.frombuffer(of.data, dtype=dtype).reshape(constant.shape)
        case Opaque():
            raise InternalError(f"values of type {constant.dtype} are the host's alone", stage="package")
    result = by_definition(constant, of, [constant_values(part, data) for part in of.inputs])
    return result.astype(dtype, copy=False).reshape(constant.shape)


def by_definition(constant: Constant, data: Derived, inputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The elements of a derived constant, computed by the definition of its op."""

    def tensor(part: Constant, name: str) -> Tensor:
        return Tensor(name=name, shape=part.shape, dtype=part.dtype, axes=default_axes(len(part.shape)), constant=part)

    kind = OP_KINDS.get(data.function)
    if kind is None:
        raise InternalError(f"no derived constant {data.function!r}", stage="import")
    call = Call(
        op_type=data.function,
        node=data.function,
        attributes=dict(data.attributes),
        inputs=tuple(tensor(part, f"input {index}") for index, part in enumerate(data.inputs)),
        opset=_OPSET,
        output=tensor(constant, "output"),
    )
    result = kind.evaluate(call, tuple(inputs))
    if result is None:
        raise InternalError(f"derived constant {data.function!r} has no evaluation", stage="import")
    return np.asarray(result)
