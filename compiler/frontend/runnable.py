"""Rewrites of an ONNX model for ONNX Runtime: what it refuses, what crashes its process, wrong or coarse sums.

In: a model. Out: one that means the same, or the model itself if there is nothing to rewrite. Bodies of functions are
looked at for version numbers and gaps only: their element types are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import onnx
from onnx import TensorProto, helper

from compiler.frontend.inline_functions import all_nodes, subgraphs
from compiler.frontend.read import UNSAID_OPSET, plain_domain


class _Product(NamedTuple):
    """Which operands are the factors, and the zero point of the second; a first one of None is uint8."""

    first: int | None
    second: int
    zero: int


# The pinned ONNX Runtime's newest versions; it takes the newest operator set if a model names none.
_NEWEST_IR: Final = 13
_NEWEST_OPSET: Final = UNSAID_OPSET
# Integers whose smallest value divided by -1 traps in the processor; smaller ones are widened.
_TRAPPING: Final = (TensorProto.INT32, TensorProto.INT64)
# Products whose sums are exact in 32 bits, by domain and type.
_PRODUCTS: Final[Mapping[tuple[str, str], _Product]] = MappingProxyType(
    {
        ("", "ConvInteger"): _Product(0, 1, 3),
        ("", "MatMulInteger"): _Product(0, 1, 3),
        ("com.microsoft", "DynamicQuantizeMatMul"): _Product(None, 1, 3),
        ("com.microsoft", "MatMulIntegerToFloat"): _Product(0, 1, 5),
        ("com.microsoft", "QAttention"): _Product(0, 1, 7),
    }
)
# Attributes that allow ONNX Runtime to round the data of a product to 8 bits first, which it then does.
_COARSE: Final[Mapping[tuple[str, str], str]] = MappingProxyType({("com.microsoft", "MatMulNBits"): "accuracy_level"})
# The first operator set whose arithmetic broadcasts.
_BROADCASTS: Final = 7


def without_faults(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without nodes that end the process of ONNX Runtime, or whose sums it gets wrong or rounds."""
    return _with_safe_integers(_without_gaps(_with_exact_products(model)))


def restamped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with lower version numbers that ONNX Runtime reads, if they define all its operators the same way.

    An operator set holds the newest definition of each operator up to its version. If no used operator changed after
    the older set, both sets mean the same.
    """
    opsets = {plain_domain(entry.domain): entry.version for entry in model.opset_import}
    newest = opsets.get("", UNSAID_OPSET)
    if model.ir_version <= _NEWEST_IR and newest <= _NEWEST_OPSET:
        return model
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    types = {node.op_type for node in all_nodes(nodes) if plain_domain(node.domain) == ""}
    try:
        same = all(onnx.defs.get_schema(kind, newest, "").since_version <= _NEWEST_OPSET for kind in types)
    except onnx.defs.SchemaError:
        return model
    if not same:
        return model
    copy = _copy(model)
    copy.ir_version = min(model.ir_version, _NEWEST_IR)
    for entry in (*copy.opset_import, *(e for function in copy.functions for e in function.opset_import)):
        if plain_domain(entry.domain) == "":
            entry.version = min(entry.version, _NEWEST_OPSET)
    return copy


def _with_functions(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """All nodes of the model, those of its functions and of subgraphs included."""
    return list(all_nodes([*model.graph.node, *(node for function in model.functions for node in function.node)]))


def _with_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without permissions to compute a product less exactly than its element types do."""

    def coarse(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, onnx.AttributeProto]]:
        return [
            (node, attribute)
            for node in _with_functions(model)
            for attribute in node.attribute
            if attribute.name == _COARSE.get((plain_domain(node.domain), node.op_type))
        ]

    if not coarse(model):
        return model
    copy = _copy(model)
    for node, attribute in coarse(copy):
        node.attribute.remove(attribute)
    return copy


def _without_gaps(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name for each result that BatchNormalization omits.

    ONNX Runtime writes running statistics without checking that they are wanted, which crashes the process.
    """

    def gaps(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, int]]:
        return [
            (node, index)
            for node in _with_functions(model)
            if node.op_type == "BatchNormalization" and plain_domain(node.domain) == ""
            for index, name in enumerate(node.output)
            if not name
        ]

    if not gaps(model):
        return model
    copy = _copy(model)
    for number, (node, index) in enumerate(gaps(copy)):
        node.output[index] = f"{node.output[0]}/left out {number}"
    return copy


def _with_safe_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with integer divisions by 1 in place of -1, and integer products of unsigned factors.

    Quotients then take the divisor's sign: the smallest integer divided by -1 so gives itself, as where integers wrap
    around. Of products uint8 × int8 ONNX Runtime adds pairs in 16 bits, and saturates, on processors without VNNI.
    """
    opset = max((e.version for e in model.opset_import if plain_domain(e.domain) == ""), default=UNSAID_OPSET)
    if opset < _BROADCASTS or not any(_divides(node) or _is_product(node) for node in all_nodes(model.graph.node)):
        return model
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return model
    return typed if _guard(typed.graph, {}) else model


def _guard(graph: onnx.GraphProto, outer: Mapping[str, int]) -> int:
    """Makes integers of a graph and of the graphs inside it safe, in place; returns the number of changed nodes."""
    types = dict(outer)
    types |= {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    count = 0
    for node in graph.node:
        count += sum(_guard(inner, types) for inner in subgraphs(node))
        kinds = [types.get(name, TensorProto.UNDEFINED) for name in node.input]
        safe = [node]
        if _divides(node) and kinds[1] in _TRAPPING:
            safe = _guarded(node, kinds[1])
        elif _is_mixed(node, kinds):
            safe = _unsigned(node, _PRODUCTS[plain_domain(node.domain), node.op_type])
        count += len(safe) > 1
        nodes.extend(safe)
    if count:
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)
    return count


def _guarded(node: onnx.NodeProto, kind: int) -> list[onnx.NodeProto]:
    """A division of integers of type `kind`, and the nodes that find out where the divisor is -1."""
    result, divisor = node.output[0], node.input[1]
    made = {name: f"{result}/guard/{name}" for name in ("least", "two", "one", "is", "twice", "safe", "sign", "part")}
    constants = [
        helper.make_node("Constant", [], [made[name]], value=helper.make_tensor(name, kind, [], [value]))
        for name, value in (("least", -1), ("two", 2), ("one", 1))
    ]
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[1] = made["safe"]
    copy.output[0] = made["part"]
    return [
        *constants,
        helper.make_node("Equal", [divisor, made["least"]], [f"{made['is']} so"]),
        helper.make_node("Cast", [f"{made['is']} so"], [made["is"]], to=kind),
        helper.make_node("Mul", [made["is"], made["two"]], [made["twice"]]),
        helper.make_node("Add", [divisor, made["twice"]], [made["safe"]]),
        copy,
        helper.make_node("Sub", [made["one"], made["twice"]], [made["sign"]]),
        helper.make_node("Mul", [made["part"], made["sign"]], [result]),
    ]


def _divides(node: onnx.NodeProto) -> bool:
    return node.op_type in ("Div", "Mod") and plain_domain(node.domain) == "" and len(node.input) == 2


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _is_product(node: onnx.NodeProto) -> bool:
    return (plain_domain(node.domain), node.op_type) in _PRODUCTS


def _is_mixed(node: onnx.NodeProto, kinds: Sequence[int]) -> bool:
    """True for a product uint8 × int8; `kinds`: the types of the node's inputs."""
    product = _PRODUCTS.get((plain_domain(node.domain), node.op_type))
    if product is None or len(kinds) <= product.second or kinds[product.second] != TensorProto.INT8:
        return False
    return product.first is None or kinds[product.first] == TensorProto.UINT8


def _unsigned(node: onnx.NodeProto, product: _Product) -> list[onnx.NodeProto]:
    """A product uint8 × int8 with 128 added to the second factor and its zero point: its sums stay as they are."""
    result = node.output[0]
    offset = helper.make_node("Constant", [], [f"{result}/offset"], value=_scalar(TensorProto.INT32, 128))
    copy, nodes = onnx.NodeProto(), [offset]
    copy.CopyFrom(node)
    copy.input.extend([""] * (product.zero + 1 - len(copy.input)))
    for place in (product.second, product.zero):
        made = [f"{result}/unsigned {place}/{name}" for name in ("wide", "moved", "factor")]
        if not copy.input[place]:
            nodes.append(helper.make_node("Constant", [], made[2:], value=_scalar(TensorProto.UINT8, 128)))
        else:
            nodes += [
                helper.make_node("Cast", [copy.input[place]], made[:1], to=TensorProto.INT32),
                helper.make_node("Add", [made[0], offset.output[0]], made[1:2]),
                helper.make_node("Cast", made[1:2], made[2:], to=TensorProto.UINT8),
            ]
        copy.input[place] = made[2]
    return [*nodes, copy]


def _scalar(kind: int, value: int) -> TensorProto:
    return helper.make_tensor("value", kind, [], [value])
