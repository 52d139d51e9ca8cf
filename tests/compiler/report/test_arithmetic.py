"""The element types of the chips' products, and what of a quantised model is in floats or on the host (IMPORT-9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.compile import plan_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.report.headline import headline
from compiler.report.plan import Plan
from tests.models import Model
from tests.profiles import profile_values
from tests.quantised.forms import form


def planned(model: Model, profile: str | Profile = "edge4", **options: Any) -> Plan:
    chip = builtin_profile(profile) if isinstance(profile, str) else profile
    return plan_model(model.data(), chip, parse_options({"fusion": "rules", **options})).plan


def arithmetic_line(plan: Plan) -> str:
    (line,) = (line for line in headline(plan) if line.label == "Arithmetic")
    return line.text


class Network(Model):
    """Quantised values by one scale, and products of them."""

    def scale(self) -> list[str]:
        return [self.constant(0.05, dtype=np.float32), self.constant(0, dtype=np.int8)]

    def through_integers(self, x: str) -> str:
        """A float tensor as it comes out of 8 bits."""
        quantised = self.node("QuantizeLinear", [x, *self.scale()])
        return self.node("DequantizeLinear", [quantised, *self.scale()])

    def stored(self, *shape: int) -> str:
        """A weight that is stored as int8."""
        values = self.constant(self.random.integers(-9, 9, shape), dtype=np.int8)
        return self.node("DequantizeLinear", [values, *self.scale()])

    def product(self, x: str, weight: str, name: str) -> str:
        return self.node("MatMul", [x, weight], name=name)


def mixed() -> Network:
    """A product of integers, then an activation, a product by a float weight, and one by what is computed in floats."""
    model = Network()
    x = model.through_integers(model.input([4, 16], "x"))
    x = model.through_integers(model.product(x, model.stored(16, 16), "whole"))
    x = model.through_integers(model.node("Sigmoid", [x]))
    by_floats = model.product(x, model.weight(16, 16), "by_floats")
    model.output(model.product(model.node("Softmax", [by_floats]), model.stored(16, 16), "of_softmax"))
    return model


def test_products_in_floats_are_named_with_their_reasons_and_their_work() -> None:
    """IMPORT-9: the plan's headline says in which element types the products are computed."""
    plan = planned(mixed())
    arithmetic = plan.arithmetic
    assert arithmetic.is_quantised
    assert arithmetic.macs == {"float32": 2 * 4 * 16 * 16, "int8": 4 * 16 * 16}
    assert [(found.nodes, found.macs, found.dtype) for found in arithmetic.float_products] == [
        (("by_floats",), 1024, "float32"),
        (("of_softmax",), 1024, "float32"),
    ]
    first, second = (found.reason for found in arithmetic.float_products)
    assert first == "a factor is a float constant, not of 8-bit integers"
    assert second == "a factor is a float result of Softmax, which the model does not quantise"
    assert arithmetic.float_ops == {"DequantizeLinear": 1, "QuantizeLinear": 1, "Sigmoid": 1, "Softmax": 1}
    assert arithmetic_line(plan) == (
        f"float32 (67 %) and int8 (33 %); float32 in by_floats, because {first}; float32 in of_softmax, because"
        f" {second}; other ops in floats: DequantizeLinear (1), QuantizeLinear (1), Sigmoid (1), Softmax (1)"
    )


@pytest.mark.parametrize("chip", ["polar4x4", "metaproto-df"])
def test_float_products_of_a_quantised_model_are_the_hosts_on_a_chip_of_integers(chip: str) -> None:
    """IMPORT-9: named in the headline with the reason."""
    plan = planned(mixed(), chip)
    assert plan.arithmetic.macs == {"int8": 1024}
    assert plan.arithmetic.float_products == ()
    assert plan.native.host_macs == 2048
    assert (
        "int8; the host multiplies in by_floats, of_softmax, because the profile has no matrix array for element type"
        " float32 (it has int8)" in arithmetic_line(plan)
    )


def test_a_chip_without_an_array_for_integers_says_so() -> None:
    values = profile_values("edge4")
    for table in ("arrays", "pj_per_mac"):
        del values["matrix"][table]["int8"]
    plan = planned(mixed(), profile_from_values(values))
    assert set(plan.arithmetic.macs) == {"float32"}
    (found,) = plan.arithmetic.float_products
    assert found.nodes == ("whole", "by_floats", "of_softmax")
    assert found.reason == "the profile has no matrix array for element type int8"


def test_a_network_in_integers_alone_and_one_of_floats_name_one_type() -> None:
    model = Network()
    x = model.through_integers(model.input([4, 16], "x"))
    model.output(model.product(x, model.stored(16, 16), "whole"))
    assert arithmetic_line(planned(model)) == "int8; other ops in floats: QuantizeLinear (1)"
    floats = Model()
    floats.output(floats.node("MatMul", [floats.input([4, 16], "x"), floats.weight(16, 16)]))
    plan = planned(floats)
    assert (arithmetic_line(plan), plan.arithmetic.is_quantised, plan.arithmetic.float_ops) == ("float32", False, {})
    assert arithmetic_line(planned(floats, precision="int8")).startswith("int8; a what-if")


def test_a_softmax_between_conversions_is_said_to_compute_in_floats() -> None:
    model = Network()
    x = model.through_integers(
        model.product(model.through_integers(model.input([4, 16], "x")), model.stored(16, 16), "a")
    )
    x = model.through_integers(model.node("Softmax", [x]))
    model.output(model.product(x, model.stored(16, 16), "b"))
    plan = planned(model)
    assert plan.arithmetic.float_ops == {"QuantizeLinear": 1, "Softmax": 1}
    assert arithmetic_line(plan) == "int8; other ops in floats: QuantizeLinear (1), Softmax (1)"


def test_a_product_that_is_rounded_and_read_in_floats_too_multiplies_integers() -> None:
    """Its float result is rounded by an op of its own."""
    model = Network()
    product = model.product(model.through_integers(model.input([4, 16], "x")), model.stored(16, 16), "a")
    model.output(model.product(model.through_integers(product), model.stored(16, 16), "b"))
    model.output(model.node("Exp", [product]))
    plan = planned(model)
    assert plan.arithmetic.macs == {"int8": 2 * 4 * 16 * 16}
    assert plan.arithmetic.float_ops == {"Exp": 1, "QuantizeLinear": 2}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("constant_data", "the first factor is a constant"),
        ("wide_activations", "a factor is of int16, not of 8-bit integers"),
    ],
)
def test_products_of_integers_that_stay_in_floats_say_why(name: str, reason: str) -> None:
    data = form(name).model().SerializeToString()
    plan = plan_model(data, builtin_profile("edge4"), parse_options({"fusion": "rules"})).plan
    assert [found.reason for found in plan.arithmetic.float_products] == [reason]
