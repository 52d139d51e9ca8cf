"""Quantised ops that fit no core: as conversions and float ops, which other passes take apart (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.frontend.integers import RunInIntegers
from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.normalisations import SplitNormalisations
from compiler.partition.reductions import SplitReductions
from compiler.partition.spelled_out import SpellOut
from compiler.profile import builtin_profile
from tests.models import import_graph
from tests.quantised.forms import Net


def taken_apart(make: Callable[[Net], None]) -> Graph:
    """A quantised model after the passes, verified."""
    net, profile = Net(), builtin_profile("edge4")
    make(net)
    data = net.model().SerializeToString()
    candidates = SegmentCompilers(profile, Options()).of
    graph = RunInIntegers(source=ModelSource.from_bytes(data), arrays=("int8",)).run(import_graph(data))
    graph = SpellOut(profile=profile, candidates=candidates).run(graph)
    graph = SplitNormalisations(profile=profile, candidates=candidates).run(graph)
    graph = SplitReductions(profile=profile, candidates=candidates).run(graph)
    verify_graph(graph)
    return graph


def _softmax(net: Net) -> None:
    net.result(net.q(net.node("Softmax", net.dq(net.input(1, 2_000_000, kind=np.int8), 0.05), axis=-1), 1e-6))


def _instance_norm(net: Net) -> None:
    x = net.dq(net.input(1, 2, 1500, 1500, kind=np.int8), 0.05)
    net.result(net.q(net.node("InstanceNormalization", x, net.bias(2), net.bias(2)), 0.03))


def _mean(net: Net) -> None:
    x = net.dq(net.input(1, 2, 1500, 1500, kind=np.int8), 0.05)
    net.result(net.q(net.node("ReduceMean", x, axes=[2, 3]), 0.03))


@pytest.mark.parametrize(
    ("make", "reductions"), [(_softmax, "ReduceMax"), (_instance_norm, "ReduceMean"), (_mean, "ReduceMean")]
)
def test_quantised_ops_over_more_than_a_core_holds_are_taken_apart(
    make: Callable[[Net], None], reductions: str
) -> None:
    kinds = [op.kind for op in taken_apart(make).ops]
    assert (kinds[0], kinds[-1]) == ("DequantizeLinear", "QuantizeLinear")
    assert kinds.count(reductions) > 1
    assert not any(kind.startswith("Quantised") for kind in kinds)


def test_a_quantised_softmax_that_fits_a_core_stays_one() -> None:
    def make(net: Net) -> None:
        net.result(net.q(net.node("Softmax", net.dq(net.input(4, 100, kind=np.int8), 0.05), axis=-1), 1 / 127))

    assert [op.kind for op in taken_apart(make).ops] == ["QuantisedSoftmax"]
