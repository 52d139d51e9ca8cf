"""Quantised models in the forms of many tools: compiled, they multiply in int8 and have the reference's values."""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np
import onnx
import pytest

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.quantised.forms import FORMS, form
from tests.quantised.reference import run

_CHIPS: Final = ("edge4", "polar4x4", "metaproto-df")
# Forms in which a product stays in float, with the cause.
_FLOAT: Final = {
    "padded_by_no_integer": "a Pad puts floats around the data that no integer stands for",
    "concatenated_data_of_two_scales": "a Concat of floats stands between the conversions and the product",
    "wide_activations": "the data are int16",
    "constant_data": "the first factor is a constant",
}


@pytest.mark.matrix(first=6, rest=14)
@pytest.mark.parametrize(("name", "chip"), list(product(sorted(FORMS), _CHIPS)))
def test_a_form_has_the_values_of_the_reference(name: str, chip: str) -> None:
    net = form(name)
    model = net.model()
    onnx.checker.check_model(model)
    compilation = compile_model(model.SerializeToString(), builtin_profile(chip), parse_options({"fusion": "rules"}))
    assert [output for output in compilation.report.values.outputs if not output.holds] == []
    is_float = name in _FLOAT
    has_floats = "float32" in builtin_profile(chip).matrix.arrays
    macs = set(compilation.plan.arithmetic.macs)
    assert ("float32" in macs) == (is_float and has_floats), macs
    assert is_float or macs == {"int8"}
    assert compilation.executable is not None
    found = run_executable(compilation.executable, net.inputs)
    for output, expected in run(model, net.inputs).items():
        assert (found[output].dtype, found[output].shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind in "iu":
            np.testing.assert_array_equal(found[output], expected)
            assert expected.size == 1 or len(np.unique(expected)) > 2, "a result that no error changes"
        else:
            size = max(1, float(np.abs(expected).max()))
            np.testing.assert_allclose(found[output], expected, rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize("name", sorted(_FLOAT))
def test_float_products_are_an_error_of_strict_on_a_chip_of_integers(name: str) -> None:
    """IMPORT-7: the error names the element type and what the chip has."""
    with pytest.raises(ModelError, match=r"no matrix array for element type float32 \(it has int8\)"):
        compile_model(
            form(name).model().SerializeToString(), builtin_profile("polar4x4"), parse_options({"strict": True})
        )
