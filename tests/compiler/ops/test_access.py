"""Access of every kind by brute force: whatever input element changes an output, its box has it (TILE-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from compiler.ops import OP_KINDS
from compiler.ops.base import Call, Inferred
from tests.compiler.ops.calls import Values, call_of_node, resolved
from tests.compiler.ops.cases import CASES, Build, built, feeds_of, floats, ints, use
from tests.models import Model

# Here the projected box of a single output element is exactly the hull of what that element depends on.
TIGHT = (
    *("Add broadcast", "Where", "Conv", "Conv grouped", "ConvTranspose", "MatMul", "MatMul by vector", "Gemm"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "ReduceSum", "ReduceSum over two", "Softmax", "Transpose"),
    *("Concat", "Slice", "Pad", "Expand", "Gather one position", "Gather the first", "Gather every second"),
    *("Resize", "Squeeze", "Unsqueeze", "BatchNormalization", "LayerNormalization broadcast"),
    *("GroupNormalization", "DequantizeLinear by axis", "Mean broadcast"),
)


def prepared(model: Model) -> tuple[onnx.NodeProto, Call, Inferred, list[Values]]:
    """The last node, its call, what it becomes, and values of the inputs that the op of the IR keeps."""
    node = model.nodes[-1]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.initializers}
    values = feeds_of(model) | constants
    call = call_of_node(node, values, model.opset, constants=[i for i, n in enumerate(node.input) if n in constants])
    kind = OP_KINDS[node.op_type]
    assert kind.unsupported(call) is None
    inferred = kind.infer(call)
    return node, call, inferred, [values[node.input[i]].copy() for i in inferred.inputs]


def disturbances(array: Values) -> Iterator[Values]:
    """Arrays that differ from `array` in one element, element by element, twice each."""
    for element in range(array.size):
        for change in (1, -1):
            other = array.copy()
            flat = other.reshape(-1)
            if array.dtype.kind == "b":
                flat[element] = not flat[element]
            elif array.dtype.kind in "iu":
                flat[element] = (int(flat[element]) + change) % 3
            else:
                flat[element] += change * 100
            yield other


def dependence(call: Call, inferred: Inferred, arrays: list[Values], position: int) -> Values:
    """[output element, input element]: True where changing the one changed the other."""
    op, kind = resolved(call, inferred), OP_KINDS[inferred.kind]
    base = np.asarray(kind.evaluate(op, tuple(arrays))).reshape(-1)
    result = np.zeros((base.size, arrays[position].size), dtype=np.bool_)
    for number, other in enumerate(disturbances(arrays[position])):
        given = tuple(other if i == position else array for i, array in enumerate(arrays))
        changed = np.asarray(kind.evaluate(op, given)).reshape(-1)
        same = (changed == base) | ((changed != changed) & (base != base))
        result[:, number // 2] |= ~same
    return result


def check(build: Build, *, tight: bool = False, opset: int = 23) -> None:
    """Compare the projection of every output element with what it depends on."""
    _, call, inferred, arrays = prepared(built(build, opset=opset))
    if inferred.source is not None:
        return
    op = resolved(call, inferred)
    for position, maps in enumerate(OP_KINDS[inferred.kind].access(op)):
        assert maps is not None
        array = arrays[position]
        assert len(maps) == array.ndim
        # at a border not all taps of a kernel meet the input, yet it is read whole
        exact = tight and not (position == 1 and inferred.kind.startswith("Conv"))
        depends = dependence(call, inferred, arrays, position)
        for number, output in enumerate(np.ndindex(*inferred.shape)):
            needed = np.argwhere(depends[number].reshape(array.shape))
            if not len(needed):
                continue
            for axis, axis_map in enumerate(maps):
                at = 0 if axis_map.axis is None else output[axis_map.axis]
                found = axis_map.project_one(at, at + 1, array.shape[axis])
                wanted = (int(needed[:, axis].min()), int(needed[:, axis].max()) + 1)
                text = f"output {output} needs {wanted} of axis {axis} of input {position}, projected {found}"
                assert found[0] <= wanted[0], text
                assert wanted[1] <= found[1], text
                assert not exact or found == wanted, text


@pytest.mark.matrix(first=45, rest=90)
@pytest.mark.parametrize("case", sorted(CASES))
def test_the_box_of_an_output_element_has_all_that_changes_it(case: str) -> None:
    """TILE-1, per kind, by its own evaluation."""
    check(CASES[case], tight=case in TIGHT)


def test_every_kind_has_a_case() -> None:
    assert {case.split()[0] for case in CASES} == set(OP_KINDS)
    assert set(TIGHT) <= set(CASES)


TRANSFORMATIONS = "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn"
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil"


@settings(max_examples=150)
@given(st.data())
def test_resizing_reads_inside_its_box_in_every_mode(data: st.DataObject) -> None:
    """IMPORT-5: every coordinate transformation and rounding, scales and sizes."""
    attributes: dict[str, Any] = {
        "mode": data.draw(st.sampled_from(["nearest", "linear"])),
        "coordinate_transformation_mode": data.draw(st.sampled_from(TRANSFORMATIONS.split())),
        "nearest_mode": data.draw(st.sampled_from(ROUNDINGS.split())),
    }
    shape = [data.draw(st.integers(1, 6)) for _ in range(2)]
    if data.draw(st.booleans()):
        given_as: tuple[Any, ...] = (None, None, ints(*(data.draw(st.integers(1, 9)) for _ in shape)))
    else:
        scales = [data.draw(st.sampled_from([0.5, 0.6, 0.75, 1, 1.3333334, 1.5, 2, 2.7, 3])) for _ in shape]
        assume(all(int(extent * scale) for extent, scale in zip(shape, scales, strict=True)))
        given_as = (None, floats(*scales))
    # only sizes and scales whose corners are even are run
    if attributes["coordinate_transformation_mode"] == "align_corners" and len(given_as) == 2:
        attributes["coordinate_transformation_mode"] = "half_pixel"
    opset = 11 if attributes["coordinate_transformation_mode"] == "tf_half_pixel_for_nn" else 19
    build = use("Resize", shape, *given_as, **attributes)
    if opset == 11:
        build = use("Resize", shape, floats(), *given_as[1:], **attributes)
    check(build, opset=opset)


@settings(max_examples=60)
@given(st.data())
def test_old_broadcasting_along_an_axis_reads_inside_its_box(data: st.DataObject) -> None:
    """Operator sets before 7: the second input's axes begin at attribute `axis` of the first."""
    shape = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    axis = data.draw(st.integers(0, len(shape) - 1))
    part = shape[axis : data.draw(st.integers(axis + 1, len(shape)))]
    kind = data.draw(st.sampled_from(["Add", "Mul", "Pow"]))
    check(use(kind, shape, part, broadcast=1, axis=axis), tight=True, opset=6)


def test_inputs_of_one_shape_have_one_access() -> None:
    """Of 300 sums of all values before them the accesses took 50 MiB."""
    model = Model()
    wide, long = (model.input(shape) for shape in ([2, 3], [1, 3]))
    model.node("Sum", [wide, long, wide, wide, long], name="sum")
    _, call, inferred, _ = prepared(model)
    first, second, *others = OP_KINDS[inferred.kind].access(resolved(call, inferred))
    assert first != second
    assert [maps is first or maps is second for maps in others] == [True] * 3
