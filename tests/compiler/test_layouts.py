"""Option `layout`: whole compilations in each order of feature maps, with values, and what the plan says of tables."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from compiler.compile import Compilation, compile_model, compile_package
from compiler.errors import RequestError
from compiler.ir.layout import Layout
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model

OTHERS = ["NCHW", "CNHW"]


def network() -> bytes:
    """Windows of all kinds over two images, two outputs, and a product of what they become."""
    model = Model()
    x = model.input([2, 12, 17, 19], "x")
    x = model.relu(model.conv(x, 12, 16, bias=True))
    x = model.conv(x, 16, 16, group=16)
    x = model.conv(x, 16, 32, group=4, stride=2)
    x = model.conv(x, 32, 24, dilation=2)
    x = model.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = model.node("ConvTranspose", [x, model.weight(24, 10, 3, 3)], strides=[2, 2], pads=[1, 1, 1, 1])
    x = model.output(model.conv(x, 10, 40, kernel=1, stride=2))
    x = model.node("AveragePool", [x], kernel_shape=[2, 2], strides=[1, 1])
    x = model.node("Flatten", [model.node("GlobalAveragePool", [x])])
    model.output(model.node("Gemm", [x, model.weight(40, 7)]))
    return model.data()


def attention() -> bytes:
    """Products of matrices that lie as maps do, with heads in front of rows."""
    model = Model()
    x = model.input([2, 20, 32], "x")
    x = model.node("Reshape", [model.node("MatMul", [x, model.weight(32, 32)]), model.ints(2, 20, 4, 8)])
    x = model.node("Transpose", [x], perm=[0, 2, 1, 3])
    scores = model.node("MatMul", [x, model.node("Transpose", [x], perm=[0, 1, 3, 2])])
    x = model.node("MatMul", [model.node("Softmax", [scores], axis=-1), x])
    x = model.node("Reshape", [model.node("Transpose", [x], perm=[0, 2, 1, 3]), model.ints(2, 20, 32)])
    model.output(model.node("MatMul", [x, model.weight(32, 16)]))
    return model.data()


def compiled(data: bytes, profile: str, **options: Any) -> Compilation:
    """A compilation whose values hold."""
    found = compile_model(data, builtin_profile(profile), parse_options({"fusion": "rules", **options}))
    values = found.report.values
    assert values is not None
    assert values.checked
    assert values.outputs
    assert all(output.holds for output in values.outputs)
    return found


def tables(found: Compilation) -> list[Any]:
    """What the plan says of each op's address tables."""
    ops = (op for segment in found.plan.segments for group in segment.groups for op in group.ops)
    return [op.addresses for op in ops if op.addresses is not None]


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("layout", OTHERS)
@pytest.mark.parametrize("profile", ["cluster4x4", "edge4"])
def test_values_hold_in_every_layout_and_the_plan_tells_of_its_tables(profile: str, layout: Layout) -> None:
    """ADDR-1, ADDR-4, ADDR-5: with the same tiles the same bytes pass the DRAM, but for tables."""
    usual = compiled(network(), profile)
    other = compiled(network(), profile, layout=layout, schedule=msgspec.to_builtins(usual.plan))
    assert other.plan.totals.dram_bytes == usual.plan.totals.dram_bytes
    # all with windows but the transposed convolution
    assert len(tables(other)) == len(tables(usual)) == 7
    for mine, its in zip(tables(other), tables(usual), strict=True):
        assert (mine.layout, its.layout, its.channels) == (layout, "NHWC", 1)
        assert (mine.positions, mine.taps) == (its.positions, its.taps)
        assert mine.channels > 1
        assert mine.bytes > its.bytes
        assert mine.lines_per_position > its.lines_per_position


@pytest.mark.parametrize("layout", OTHERS)
def test_products_hold_in_every_layout(layout: Layout) -> None:
    assert not tables(compiled(attention(), "cluster4x4", layout=layout))


def test_a_package_of_dynamic_shapes_refuses_another_layout() -> None:
    model = Model()
    model.output(model.conv(model.input(["batch", 4, 8, 8], "x"), 4, 4))
    options = parse_options({"layout": "NCHW", "dims": {"batch": {"min": 1, "max": 4}}})
    with pytest.raises(RequestError, match="option layout cannot be NCHW") as caught:
        compile_package(model.data(), builtin_profile("edge4"), options)
    assert (caught.value.actual, caught.value.limit) == ("NCHW", "NHWC")
    assert "at the maxima" in str(caught.value.hint)
    compiled(model.data(), "edge4", layout="NCHW", dims={"batch": {"min": 1, "max": 4}})
