"""Normalisation: rewrites that shorten the graph and keep its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from compiler.frontend.constant_values import derive
from compiler.ir.constant import Constant
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import default_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldBatchNorm:
    """Pass: folds a BatchNormalization into the weight and bias of the convolution before it (IMPORT-2).

    1. The convolution's weight, and its bias if any, are constants; no other op reads the weight, which is not
       quantised: it would become floats.
    2. All four parameters of the normalisation are constants.
    3. The normalisation is the only reader of the convolution's result, which is no graph output.
    The values are described, not computed: y = (W·scale/√(var+ε))·x + shift + (bias − mean)·scale/√(var+ε).
    """

    name: str = "fold-batchnorm"

    def run(self, graph: Graph) -> Graph:
        """The graph with every such pair replaced by one convolution."""
        tensors = dict(graph.tensors)
        replaced: dict[int, Op] = {}
        dropped: set[int] = set()
        for index, norm in enumerate(graph.ops):
            if norm.kind != "BatchNormalization":
                continue
            producer = graph.producer.get(norm.inputs[0])
            if producer is None or not self._holds(graph, producer, norm):
                continue
            conv = graph.ops[producer]
            weight, bias = _fold(graph, conv, norm)
            weight_name, bias_name = _fresh(f"{norm.output}/weight", tensors), _fresh(f"{norm.output}/bias", tensors)
            for name, constant in ((weight_name, weight), (bias_name, bias)):
                tensors[name] = Tensor(
                    name=name,
                    shape=constant.shape,
                    dtype=constant.dtype,
                    axes=default_axes(len(constant.shape)),
                    constant=constant,
                )
            replaced[producer] = replace(
                conv,
                inputs=(conv.inputs[0], weight_name, bias_name),
                output=norm.output,
                origin=conv.origin + norm.origin,
            )
            dropped.add(index)
        ops = tuple(replaced.get(i, op) for i, op in enumerate(graph.ops) if i not in dropped)
        names = {name for op in ops for name in (*op.inputs, op.output)} | set(graph.outputs)
        return replace(
            graph,
            ops=ops,
            tensors=MappingProxyType({name: t for name, t in tensors.items() if name in names}),
        )

    def _holds(self, graph: Graph, producer: int, norm: Op) -> bool:
        conv = graph.ops[producer]
        if conv.kind != "Conv" or conv.output in graph.outputs or len(graph.consumers[conv.output]) != 1:
            return False
        constants = (*conv.inputs[1:], *norm.inputs[1:])
        if any(name and graph.tensors[name].constant is None for name in constants):
            return False
        weight = graph.tensors[conv.inputs[1]]
        return weight.stored_dtype == weight.dtype and len(graph.consumers[weight.name]) == 1


def _fresh(name: str, taken: Mapping[str, Tensor]) -> str:
    while name in taken:
        name += "'"
    return name


def _fold(graph: Graph, conv: Op, norm: Op) -> tuple[Constant, Constant]:
    def constant(name: str) -> Constant:
        found = graph.tensors[name].constant
        if found is None:
            raise AssertionError(name)
        return found

    scale, shift, mean, variance = (constant(name) for name in norm.inputs[1:])
    epsilon = dict(norm.attributes)["epsilon"]
    attributes = {"epsilon": float(epsilon) if isinstance(epsilon, float | int) else 1e-5}
    weight = constant(conv.inputs[1])
    bias = (constant(conv.inputs[2]),) if len(conv.inputs) > 2 and conv.inputs[2] else ()
    return (
        derive("batchnorm_weight", (weight, scale, variance), weight.shape, attributes),
        derive("batchnorm_bias", (scale, shift, mean, variance, *bias), scale.shape, attributes),
    )
