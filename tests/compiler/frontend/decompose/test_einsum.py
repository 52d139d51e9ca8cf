"""Einsum as matrix products: values by the definitions against numpy (IMPORT-5)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from compiler.errors import ModelError
from tests.compiler.frontend.decompose.replacing import agree, replacement, results

EQUATIONS = """ij,jk->ik bij,bjk->bik ij,kj->ik bhid,bhjd->bhij bhij,bjhd->bihd ij->ji ij->i ij->ji ijk->ki
i,i-> i,j->ij ij,ij->ij bij,bij->b ...ij,...jk->...ik ...i,...i->... ij...,jk->ik... ij,jk,kl->il ijk,jil->kl
bij,j ij,j->ij abc,cd,b->ad ij,k->k b...d,d...e->b...e ii->i bii->bi iji->ji ii,ij->j iii-> bii ...ii,i->...i"""


@pytest.mark.parametrize("equation", EQUATIONS.split())
def test_an_einsum_of_products_keeps_its_values(equation: str) -> None:
    """IMPORT-5: Einsum that is a matrix product, with permutations, sums and outer products around it."""
    random = np.random.default_rng(3)
    extents = {label: size for size, label in enumerate("abcdehijkl", start=2)}
    feeds = {}
    for number, part in enumerate(equation.split("->")[0].split(",")):
        before, _, after = part.partition("...")
        hidden = (2, 3) if "..." in part else ()
        shape = (*(extents[c] for c in before), *hidden, *(extents[c] for c in after))
        feeds[f"x{number}"] = random.standard_normal(shape).astype(np.float32)
    node = helper.make_node("Einsum", list(feeds), ["y"], equation=equation)
    values, _ = results(node, feeds, 13)
    agree(values["y"], np.einsum(equation, *feeds.values()), 1e-4)


@settings(max_examples=80)
@given(st.data())
def test_any_einsum_of_two_operands_without_diagonals_keeps_its_values(data: st.DataObject) -> None:
    letters = st.lists(st.sampled_from("abcd"), max_size=4, unique=True)
    left, right = data.draw(letters), data.draw(letters)
    both = sorted({*left, *right})
    out = data.draw(st.lists(st.sampled_from(both), unique=True)) if both else []
    extents = {label: data.draw(st.integers(1, 3)) for label in both}
    equation = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    random = np.random.default_rng(5)
    feeds = {
        name: np.asarray(random.standard_normal([extents[c] for c in part]), dtype=np.float32)
        for name, part in (("a", left), ("b", right))
    }
    values, _ = results(helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation), feeds, 12)
    agree(values["y"], np.asarray(np.einsum(equation, *feeds.values()), dtype=np.float32), 1e-4)


@pytest.mark.parametrize(("a", "b"), [((2, 1, 3, 4), (1, 5, 4, 2)), ((5, 3, 4), (2, 1, 4, 2)), ((3, 4), (2, 5, 4, 2))])
def test_an_ellipsis_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    feeds = {"a": np.ones(a, np.float32), "b": np.arange(np.prod(b), dtype=np.float32).reshape(b)}
    values, used = results(helper.make_node("Einsum", ["a", "b"], ["y"], equation="...ij,...jk->...ik"), feeds, 12)
    agree(values["y"], np.matmul(feeds["a"], feeds["b"]))
    assert used["MatMul"] == 1


def test_an_einsum_in_the_order_of_a_product_is_the_product_alone() -> None:
    feeds = {"a": np.ones((2, 3, 4), np.float32), "b": np.ones((2, 4, 5), np.float32)}
    _, used = results(helper.make_node("Einsum", ["a", "b"], ["y"], equation="bij,bjk->bik"), feeds, 12)
    assert used == Counter(MatMul=1, Identity=1)


@pytest.mark.parametrize("equation", ["ij->iij", "ij,jk->iik"])
def test_an_einsum_whose_result_has_a_label_twice_is_left_to_the_host(equation: str) -> None:
    feeds = {f"x{i}": np.ones((2, 2), np.float32) for i in range(equation.count(",") + 1)}
    assert replacement(helper.make_node("Einsum", list(feeds), ["y"], equation=equation), feeds, 12, ()) is None


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "i,jk->ik", "i1,1j->ij", "", "ij,jk->ik", "ij,kj->iz"])
def test_an_equation_that_does_not_fit_its_operands_is_the_models_fault(equation: str) -> None:
    feeds = {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 3), np.float32)}
    with pytest.raises(ModelError) as caught:
        replacement(helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation), feeds, 12, ())
    assert caught.value.code == "invalid_model"
