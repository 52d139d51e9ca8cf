"""The base of all op kinds: shape inference, box projection, work, class, limits and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from compiler.errors import InternalError, ModelError
from compiler.ir.box import AxisMap
from compiler.ir.graph import Attribute, Tensor
from compiler.ir.symbol import Tie, is_always_least, unknown_extent
from compiler.ir.ties import UnequalExtentsError
from compiler.ops.slab import Box, Slab, contains, inside, is_empty, lengths
from compiler.units import numpy_dtype

Array = NDArray[np.generic]
# For each input, one map per axis; None for an omitted input.
Access = tuple[tuple[AxisMap, ...] | None, ...]

FLOATS: Final = ("float32", "float16", "bfloat16")
INTEGERS: Final = ("int8", "uint8", "int32", "int64")
NUMBERS: Final = (*FLOATS, *INTEGERS)
# The element types that the accelerator holds (IMPORT-5).
NATIVE_DTYPES: Final = (*NUMBERS, "bool")


class OpClass(StrEnum):
    """The op classes that fusion rules refer to (SPEC sections 1 and 5.3)."""

    MAIN = "main"
    SCALAR = "scalar"
    VECTOR = "vector"
    MOVEMENT = "movement"
    VIEW = "view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work per element of the output. `summing`: vector operations that the parts of a sum share, the others follow the
    last one; `joining`: more for each part that the array does not add up itself."""

    macs: Fraction = Fraction(0)
    vector_ops: Fraction = Fraction(0)
    summing: Fraction = Fraction(0)
    joining: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShape:
    """The op on a matrix unit: `groups` products of `out_channels` × `in_channels` × `taps`, per pixel."""

    groups: int
    out_channels: int
    in_channels: int
    taps: int


@dataclass(frozen=True, slots=True)
class Window:
    """The window over input 0, [N, C, spatial...], that an op reads for each output position.

    Along spatial axis a, tap k of output position p reads element p·strides[a] − pads[a] + k·dilations[a]. Positions
    outside the tensor are padding. Each tap reads all channels of the op, or of the group in a grouped op.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One use of an op kind: its attributes, its inputs (None where omitted) and its node.

    `maps` caches the definition's `access`, for calls that compute many boxes. `met` is for ops with a window: the
    element that each tap reads at each output position, [N, C, kernel..., extents...]. It replaces the values of
    input 0; only the type and shape of input 0 are then used.
    """

    op_type: str
    node: str
    attributes: Mapping[str, Attribute]
    inputs: tuple[Tensor | None, ...]
    opset: int
    output: Tensor | None = None
    values: Mapping[int, Array] = field(default_factory=dict)
    maps: Access | None = None
    met: Array | None = None

    @property
    def result(self) -> Tensor:
        """The output's type; raises InternalError for a call without an output."""
        if self.output is None:
            raise InternalError("an op is asked for its output's type before that is known", node=self.node)
        return self.output

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
        """The values of constant input `index`; raises ModelError if they are unknown at compile time."""
        if index not in self.values:
            tensor = self.tensor(index)
            self.fail(
                f"{what} (input {index}, {tensor.name!r}) is not known at compile time",
                code="unsupported_op",
                hint="Only constant values are supported here in this version",
            )
        return self.values[index]

    def constant_integers(self, index: int, what: str) -> tuple[int, ...]:
        """The values of constant input `index` as a list of integers; extents that vary stay `Dim`s."""
        if self.value(index, what).ndim > 1:
            self.fail(f"{what} (input {index}) must be a list", actual=self.value(index, what).shape, limit="1 axis")
        return tuple(v if isinstance(v, int) else int(v) for v in self.value(index, what).reshape(-1).tolist())

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
        """An axis attribute as an index in [0, rank)."""
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
        ties: tuple[Tie, ...] = (),
    ) -> NoReturn:
        """Raise the ModelError that names this node; with `ties`, what would have to be equal for the op to be one."""
        raise (partial(UnequalExtentsError, ties=ties) if ties else ModelError)(
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
    """The result of inference: the output's type, and the op in its IR form.

    `attributes` are complete and resolved (no automatic padding, no negative axes). `inputs` are the positions of
    the inputs that the op still reads. `kind` is the IR kind. If `source` is set, the output is that input unchanged
    (Identity) and no op remains.
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]
    kind: str
    inputs: tuple[int, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of a definition: enforced on calls and printed in the documentation (IMPORT-5).

    `text` states the condition ("spatial axes are 1 to 3"). `check` gets the call with its ONNX attributes and
    returns the offending value, or None if the condition holds. Limits with `on_chip_only` do not apply to evaluation
    at compile time.
    """

    text: str
    check: Callable[[Call], object | None]
    on_chip_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the accelerator does not run a legal call: `reason` is the condition, `actual` the value that breaks it."""

    reason: str
    actual: object


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDescription:
    """One row of the generated list of native ops; its texts are those of the enforced limits."""

    op_type: str
    op_class: OpClass
    dtypes: tuple[str, ...]
    constant_inputs: tuple[str, ...]
    constraints: tuple[str, ...]


def wrong_dtype(index: int, tensor: Tensor, allowed: tuple[str, ...]) -> Refusal:
    """The refusal of input `index` for its element type."""
    return Refusal(reason=f"input {index} is of {' or '.join(allowed)}", actual=tensor.dtype)


def unknown_constant(call: Call, constant_inputs: Mapping[int, str]) -> Refusal | None:
    """The refusal of the first input that must be constant and is not; None if all are."""
    for index, what in constant_inputs.items():
        if call.has(index) and index not in call.values:
            return Refusal(
                reason=f"{what} (input {index}) is known at compile time",
                actual=f"{call.tensor(index).name} is computed or given at run time",
            )
    return None


class OpKind(ABC):
    """The definition of one op kind; instances are stateless and shared.

    `infer` raises ModelError for illegal ONNX. Limits of the accelerator on legal ONNX are data: `dtypes` are the
    element types of the inputs (`input_dtypes` for single inputs that differ), `constant_inputs` the inputs whose
    values must be known at compile time, `constraints` all other limits.
    """

    op_class: ClassVar[OpClass]
    # True if the output may overwrite an input of the same size that no other op needs (element-wise ops).
    in_place: ClassVar[bool] = False
    # True if `compute` turns the boxes that `access` demands for an output box into exactly that box.
    is_local: ClassVar[bool] = False
    dtypes: tuple[str, ...] = NATIVE_DTYPES
    input_dtypes: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    constant_inputs: Mapping[int, str] = MappingProxyType({})
    constraints: tuple[Constraint, ...] = ()

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def unsupported(self, call: Call, *, any_dtype: bool = False) -> Refusal | None:
        """The first limit that the call breaks; None if the accelerator runs it. Call it before `infer`.

        `any_dtype` lifts the limits on element types, for evaluation at compile time. Raises ModelError if the call is
        too malformed to check a limit.
        """
        for index, tensor in enumerate(call.inputs):
            if tensor is None or index in self.constant_inputs or any_dtype:
                continue
            allowed = self.input_dtypes.get(index, self.dtypes)
            if tensor.dtype not in allowed:
                return wrong_dtype(index, tensor, allowed)
        unknown = unknown_constant(call, self.constant_inputs)
        if unknown is not None:
            return unknown
        for constraint in self.constraints:
            if constraint.on_chip_only and any_dtype:
                continue
            actual = constraint.check(call)
            if actual is not None:
                return Refusal(reason=constraint.text, actual=actual)
        return None

    def describe(self) -> KindDescription:
        """The kind's limits for the documentation."""
        return KindDescription(
            op_type=self.kind,
            op_class=self.op_class,
            dtypes=self.dtypes,
            constant_inputs=tuple(f"{what} (input {index})" for index, what in self.constant_inputs.items()),
            constraints=(
                *(f"input {index} is of {' or '.join(types)}" for index, types in self.input_dtypes.items()),
                *(constraint.text for constraint in self.constraints),
            ),
        )

    def gathered(self, call: Call) -> tuple[int, ...]:
        """Positions of inputs that are read from DRAM through indices given by another input.

        The transfer engine reads one element per output element. Such an input is not staged as a weight; only the
        elements read count.
        """
        del call
        return ()

    @abstractmethod
    def infer(self, call: Call) -> Inferred:
        """The output's type and the resolved op; raises ModelError naming the node if the call is illegal."""

    @abstractmethod
    def access(self, call: Call) -> Access:
        """The maps from the output's box to each axis of each input; the call has its output."""

    def work(self, call: Call) -> Work:
        """Work per output element; the call has its output."""
        del call
        return Work()

    def matrix(self, call: Call) -> MatrixShape | None:
        """The op's shape on the matrix unit, None if it does not run there."""
        del call
        return None

    def array_type(self, call: Call) -> str:
        """The element type in which an array of the matrix unit multiplies the op's factors."""
        return call.tensor(0).dtype

    def overlap(self, call: Call) -> tuple[int, ...]:
        """Kernel − stride per windowed axis (FUSE-19); empty if the op has no window."""
        del call
        return ()

    def window(self, call: Call) -> Window | None:
        """The window over input 0, from resolved attributes; None if the op has none."""
        del call
        return None

    def padding_value(self, call: Call) -> float:
        """The value that the window reads outside the input."""
        del call
        return 0

    def evaluate(self, call: Call, arrays: tuple[Array | None, ...]) -> Array | None:
        """The output's values, computed by numpy; `call` is that of an IR op.

        None if an input's values are not given. Infinities and NaN follow ONNX, without warnings.
        """
        given = tuple(array for array in arrays if array is not None)
        if call.output is None or len(given) < sum(tensor is not None for tensor in call.inputs):
            return None
        with np.errstate(all="ignore"):
            return self.compute(call, given)

    @abstractmethod
    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        """The computation behind `evaluate`; the call has its output, and all inputs have values."""

    def compute_box(
        self, call: Call, box: Box, operands: tuple[Slab | None, ...], *, gathered: Slab | None = None
    ) -> Array:
        """The box `box` of the output, from the boxes of the operands that `access` demands for it (SIM-1).

        `call` is that of the whole op. Operands may be larger than demanded; they are None where omitted or where
        nothing is demanded. For an op that reads an input through indices, `gathered` holds the elements read, on the
        output's axes, and that input's operand is None. The result equals that box of `compute` (floats up to the
        order of summation) and may share memory with an operand. Raises InternalError if a demanded element is missing.
        """
        if gathered is not None:
            raise InternalError(f"{self.kind} reads nothing through indices", node=call.node)
        if is_empty(box):
            return np.zeros(lengths(box), dtype=numpy_dtype(call.result.dtype))
        around = self.enclosing(call, box)
        needed = self.demanded(call, box)
        for index, (slab, ranges) in enumerate(zip(operands, needed, strict=True)):
            is_met = call.met is not None and index == 0
            if (slab is None or slab.ranges != ranges) and not is_met:
                self._check_held(call, index, slab, ranges)
        wider = needed if around == box else self.demanded(call, around)
        with np.errstate(all="ignore"):
            result = self.compute(self.local_call(call, around, wider), _arrays(call, operands, wider))
        return result if around == box else result[inside(box, around)]

    def demanded(self, call: Call, box: Box) -> tuple[Box | None, ...]:
        """The box of each operand that a box of the output needs, by `access`; None for an omitted operand."""
        return tuple(
            None
            if maps is None or tensor is None
            else tuple(
                axis_map.project_one(*((0, 1) if axis_map.axis is None else box[axis_map.axis]), extent)
                for axis_map, extent in zip(maps, tensor.shape, strict=True)
            )
            for tensor, maps in zip(call.inputs, call.maps or self.access(call), strict=True)
        )

    def enclosing(self, call: Call, box: Box) -> Box:
        """The box around `box` that is computed and then cut; elements that operands lack count as 0.

        For a local kind it is `box` itself. For others the default is the whole output, which is always correct.
        """
        return box if self.is_local else tuple((0, extent) for extent in call.result.shape)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        """The attributes for `compute` on the operand boxes `needed`, so that it returns the box `box`."""
        del box, needed
        return call.attributes

    def local_call(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Call:
        """The call on boxes of the operands, as if they were whole tensors."""
        return Call(
            op_type=call.op_type,
            node=call.node,
            attributes=self.local_attributes(call, box, needed),
            inputs=tuple(
                None if tensor is None or ranges is None else _resized(tensor, lengths(ranges))
                for tensor, ranges in zip(call.inputs, needed, strict=False)
            ),
            opset=call.opset,
            output=_resized(call.result, lengths(box)),
            values=call.values,
            met=call.met,
        )

    def _check_held(self, call: Call, index: int, slab: Slab | None, ranges: Box | None) -> None:
        if ranges is None or is_empty(ranges) or (slab is not None and contains(slab.ranges, ranges)):
            return
        actual = "nothing" if slab is None else slab.ranges
        raise InternalError(f"operand {index} lacks values of its box", node=call.node, actual=actual, limit=ranges)


def _resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name=tensor.name, shape=shape, dtype=tensor.dtype, axes=tensor.axes)


def _arrays(call: Call, operands: tuple[Slab | None, ...], needed: tuple[Box | None, ...]) -> tuple[Array, ...]:
    """The values of the boxes `needed`, one per given input; 0 where an operand has none."""
    return tuple(
        slab.spread(ranges) if slab is not None else np.zeros(lengths(ranges), dtype=numpy_dtype(tensor.dtype))
        for tensor, slab, ranges in zip(call.inputs, operands, needed, strict=False)
        if tensor is not None and ranges is not None
    )


def from_front(position: int, extent: int) -> int:
    """A position along an axis, counted from the front; negative positions count from the end."""
    if is_always_least(0, position):
        return position
    return position + extent if is_always_least(position, -1) else unknown_extent(position + extent * (position < 0))


DEFAULT_AXES = ((), ("C",), ("N", "C"), ("N", "H", "C"), ("N", "C", "H", "W"), ("N", "C", "D", "H", "W"))


def default_axes(rank: int) -> tuple[str, ...]:
    """Default axis names for a rank."""
    if rank < len(DEFAULT_AXES):
        return DEFAULT_AXES[rank]
    return ("N", *(f"A{index}" for index in range(1, rank - 1)), "C")


def spatial_axes(rank: int) -> tuple[str, ...]:
    """Axis names of a convolution's or pooling's tensors of `rank` axes; above 5 axes only passes create them."""
    return ("N", "C", *(f"A{index}" for index in range(2, rank - 3)), *("D", "H", "W")[max(0, 5 - rank) :])
