"""What every op kind says of itself, in one place: shapes, projection, work, class, legality, evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from compiler.errors import ModelError
from compiler.ir.box import WHOLE, AxisMap, same
from compiler.ir.graph import Attribute, Tensor

Array = NDArray[np.generic]
# For each input, one map per axis; None for an omitted input.
Access = tuple[tuple[AxisMap, ...] | None, ...]


class OpClass(StrEnum):
    """The classes that fusion rules speak of (SPEC sections 1 and 5.3)."""

    MAIN = "main"
    SCALAR = "scalar"
    VECTOR = "vector"
    MOVEMENT = "movement"
    VIEW = "view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work per element of the output: multiply-accumulates and vector operations (exact, hence fractions)."""

    macs: Fraction = Fraction(0)
    vector_ops: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShape:
    """How the op lies on a matrix unit: `groups` products of `out_channels` × `in_channels` × `taps`, per pixel."""

    groups: int
    out_channels: int
    in_channels: int
    taps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One use of an op kind: its attributes, its inputs (None where omitted), and where it stands."""

    op_type: str
    node: str
    attributes: Mapping[str, Attribute]
    inputs: tuple[Tensor | None, ...]
    opset: int
    output: Tensor | None = None
    values: Mapping[int, Array] = field(default_factory=dict)

    def tensor(self, index: int) -> Tensor:
        """Input `index`; raises ModelError if the node does not have it."""
        if index < len(self.inputs):
            found = self.inputs[index]
            if found is not None:
                return found
        self.fail(f"input {index} is missing", code="missing_input")

    def has(self, index: int) -> bool:
        """True if input `index` is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int, what: str) -> Array:
        """The values of constant input `index`; raises ModelError if they are not known at compile time."""
        if index not in self.values:
            tensor = self.tensor(index)
            self.fail(
                f"{what} (input {index}, {tensor.name!r}) is not known at compile time",
                code="unsupported_op",
                hint="Only constant values are supported here in this version",
            )
        return self.values[index]

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """A list-of-integers attribute."""
        value = self.attributes.get(name, default)
        if value is None:
            return None
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            self.fail(f"attribute {name} must be a list of integers", actual=value)
        return tuple(int(item) for item in value)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            self.fail(f"attribute {name} must be an integer", actual=value)
        return value

    def number(self, name: str, default: float) -> float:
        """A number attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float):
            self.fail(f"attribute {name} must be a number", actual=value)
        return float(value)

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            self.fail(f"attribute {name} must be text", actual=value)
        return value

    def axis(self, name: str, default: int, rank: int) -> int:
        """An axis attribute brought into [0, rank)."""
        return self.within(self.integer(name, default), rank, name)

    def within(self, axis: int, rank: int, name: str = "axis") -> int:
        """`axis` counted from the front; raises ModelError outside [−rank, rank)."""
        if not -rank <= axis < rank:
            self.fail(f"{name} is outside the tensor's axes", actual=axis, limit=f"-{rank} to {rank - 1}")
        return axis % rank

    def fail(
        self,
        message: str,
        *,
        code: str = "invalid_model",
        actual: object | None = None,
        limit: object | None = None,
        hint: str | None = None,
    ) -> NoReturn:
        """Raise the ModelError that names this node."""
        raise ModelError(
            message,
            code=code,
            stage="import",
            node=self.node,
            op_type=self.op_type,
            actual=actual,
            limit=limit,
            hint=hint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """What a call produces: the output's type, and the op as the IR keeps it.

    `attributes` are complete and resolved (no automatic padding, no negative axes); `inputs` are the positions of
    the inputs that the op still reads; `kind` is the IR kind. `source` set means that the output is that input
    unchanged (Identity), so no op remains.
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]
    kind: str
    inputs: tuple[int, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    source: int | None = None


class OpKind(ABC):
    """The definition of one op kind; instances are stateless and shared."""

    op_class: ClassVar[OpClass]
    # True if the output may overwrite an input of the same size that nobody else needs (element-wise ops).
    in_place: ClassVar[bool] = False

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @abstractmethod
    def infer(self, call: Call) -> Inferred:
        """The output's type and the resolved op; raises ModelError naming the node where the call is not legal."""

    @abstractmethod
    def access(self, call: Call) -> Access:
        """For each input and axis, the map from the output's box; the call has its output."""

    def work(self, call: Call) -> Work:
        """Work per output element; the call has its output."""
        del call
        return Work()

    def matrix(self, call: Call) -> MatrixShape | None:
        """The op's shape on the matrix unit, None if it does not run there."""
        del call
        return None

    def overlap(self, call: Call) -> tuple[int, ...]:
        """Kernel − stride per windowed axis (FUSE-19); empty if the op has no window."""
        del call
        return ()

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        """The output's values for given inputs; None if the kind has no evaluation at compile time."""
        del call, arrays
        return None


def broadcast_access(shape: tuple[int, ...], output: tuple[int, ...]) -> tuple[AxisMap, ...]:
    """Access of a numpy-broadcast input: trailing axes align, an axis that is repeated is needed whole."""
    lead = len(output) - len(shape)
    return tuple(same(lead + index) if extent == output[lead + index] else WHOLE for index, extent in enumerate(shape))


def broadcast_shapes(call: Call, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The numpy broadcast of shapes; raises ModelError naming both where they do not fit."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for index, extent in enumerate(shape, start=rank - len(shape)):
            if extent != 1 and result[index] not in (1, extent):
                call.fail("shapes cannot be broadcast together", actual=" and ".join(map(str, shapes)))
            if extent != 1:
                result[index] = extent
    return tuple(result)


DEFAULT_AXES = (
    (),
    ("C",),
    ("N", "C"),
    ("N", "H", "C"),
    ("N", "C", "H", "W"),
    ("N", "C", "D", "H", "W"),
)


def default_axes(rank: int) -> tuple[str, ...]:
    """Axis names of a tensor of which nothing but the rank is known."""
    if rank < len(DEFAULT_AXES):
        return DEFAULT_AXES[rank]
    return ("N", *(f"A{index}" for index in range(1, rank - 1)), "C")


def spatial_axes(rank: int) -> tuple[str, ...]:
    """Axis names of a convolution's or pooling's tensors of `rank` axes (3 to 5)."""
    return ("N", "C", *("D", "H", "W")[5 - rank :])
