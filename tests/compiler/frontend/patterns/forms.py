"""Patterns as exporters and people write them; `x` is the input, `m` the model under construction."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from tests.compiler.frontend.patterns.harness import (
    Build,
    s,
)
from tests.models import Model


def gelu_half_last(m: Model, x: str) -> str:
    """TorchScript: x · (1 + erf(x / √2)) · 0.5."""
    t = m.node("Add", [m.node("Erf", [m.node("Div", [x, s(m, sqrt(2))])]), s(m, 1)])
    return m.node("Mul", [m.node("Mul", [x, t]), s(m, 0.5)])


def gelu_half_on_x(m: Model, x: str) -> str:
    """Written by hand: x · 0.5 · (1 + erf(x / √2))."""
    t = m.node("Add", [s(m, 1), m.node("Erf", [m.node("Mul", [s(m, 1 / sqrt(2)), x])])])
    return m.node("Mul", [t, m.node("Mul", [x, s(m, 0.5)])])


def gelu_half_on_sum(m: Model, x: str) -> str:
    """Dynamo: x · (0.5 · (erf(x / √2) + 1)); constants of shape [1]."""
    root = s(m, 1.4142, shape=(1,))
    t = m.node("Add", [m.node("Erf", [m.node("Div", [x, root])]), s(m, 1, shape=(1, 1))])
    return m.node("Mul", [x, m.node("Mul", [s(m, 0.5, shape=(1,)), t])])


def gelu_halved_by_division(m: Model, x: str) -> str:
    t = m.node("Add", [m.node("Erf", [m.node("Mul", [x, s(m, 0.70710678)])]), s(m, 1)])
    return m.node("Mul", [m.node("Div", [x, s(m, 2)]), t])


def gelu_as_sum(m: Model, x: str) -> str:
    """x / 2 + x / 2 · erf(x / √2)."""
    half = m.node("Mul", [x, s(m, 0.5)])
    return m.node("Sum", [half, m.node("Mul", [half, m.node("Erf", [m.node("Div", [x, s(m, sqrt(2))])])])])


def gelu_tanh_power(m: Model, x: str) -> str:
    """GPT-2: 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))."""
    cube = m.node("Mul", [m.node("Pow", [x, s(m, 3)]), s(m, 0.044715)])
    t = m.node("Tanh", [m.node("Mul", [m.node("Add", [x, cube]), s(m, sqrt(2 / pi))])])
    return m.node("Mul", [m.node("Mul", [x, s(m, 0.5)]), m.node("Add", [t, s(m, 1)])])


def gelu_tanh_products(m: Model, x: str) -> str:
    """TorchScript's own: the cube by products, the half last."""
    cube = m.node("Mul", [s(m, 0.044715), m.node("Mul", [x, m.node("Mul", [x, x])])])
    t = m.node("Tanh", [m.node("Mul", [s(m, 0.79788456), m.node("Add", [x, cube])])])
    return m.node("Mul", [s(m, 0.5), m.node("Mul", [x, m.node("Add", [s(m, 1), t])])])


def gelu_tanh_factored(m: Model, x: str) -> str:
    """The fast form: tanh(0.79788 · x · (1 + 0.044715 · x · x))."""
    inner = m.node("Add", [m.node("Mul", [m.node("Mul", [x, s(m, 0.044715)]), x]), s(m, 1)])
    t = m.node("Tanh", [m.node("Mul", [m.node("Mul", [x, s(m, 0.7978845608)]), inner])])
    return m.node("Mul", [m.node("Mul", [x, s(m, 0.5)]), m.node("Add", [t, s(m, 1)])])


def silu(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("Sigmoid", [x])])


def silu_turned(m: Model, x: str) -> str:
    return m.node("Mul", [m.node("Sigmoid", [x]), x])


def quick_gelu(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("Sigmoid", [m.node("Mul", [s(m, 1.702), x])])])


def hard_swish_old(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])


def six(m: Model, x: str) -> str:
    """relu6(x + 3)."""
    return m.node("Clip", [m.node("Add", [x, s(m, 3)]), s(m, 0), s(m, 6)])


def hard_swish_by_hand(m: Model, x: str) -> str:
    return m.node("Div", [m.node("Mul", [x, six(m, x)]), s(m, 6)])


def hard_swish_gated(m: Model, x: str) -> str:
    return m.node("Mul", [m.node("Mul", [six(m, x), s(m, 1 / 6)]), x])


def hard_sigmoid_by_hand(m: Model, x: str) -> str:
    return m.node("Div", [six(m, x), s(m, 6)])


def hard_sigmoid_keras(m: Model, x: str) -> str:
    return m.node("Clip", [m.node("Add", [m.node("Mul", [x, s(m, 0.2)]), s(m, 0.5)]), s(m, 0), s(m, 1)])


def mean(m: Model, x: str, *axes: int, keepdims: int = 1) -> str:
    return m.node("ReduceMean", [x], axes=list(axes), keepdims=keepdims)


def affine(m: Model, x: str, *shape: int) -> str:
    return m.node("Add", [m.node("Mul", [x, m.weight(*shape)]), m.weight(*shape)])


def layer_norm(m: Model, x: str) -> str:
    """TorchScript: the difference computed once, the square a power."""
    d = m.node("Sub", [x, mean(m, x, -1)])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), -1), s(m, 1e-5)])
    return affine(m, m.node("Div", [d, m.node("Sqrt", [v])]), 8)


def layer_norm_twice(m: Model, x: str) -> str:
    """Old TorchScript: the difference computed twice, the square a product, constants on the left, scale [1, 1, 8]."""
    average = mean(m, x, 2)
    d, e = m.node("Sub", [x, average]), m.node("Sub", [x, average])
    v = m.node("Add", [s(m, 1e-3), mean(m, m.node("Mul", [d, d]), 2)])
    n = m.node("Div", [e, m.node("Sqrt", [v])])
    return m.node("Add", [m.weight(8), m.node("Mul", [m.weight(1, 1, 8), n])])


def layer_norm_bare(m: Model, x: str) -> str:
    """No scale, no bias, over two axes, by the reciprocal root; epsilon dropped as too small."""
    d = m.node("Sub", [x, mean(m, x, 1, 2)])
    root = m.node("Pow", [mean(m, m.node("Pow", [d, s(m, 2)]), 1, 2), s(m, -0.5)])
    return m.node("Mul", [root, d])


def layer_norm_bias(m: Model, x: str) -> str:
    """A bias without a scale."""
    d = m.node("Sub", [x, mean(m, x, -1)])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), -1), s(m, 0.25)])
    n = m.node("Mul", [d, m.node("Reciprocal", [m.node("Sqrt", [v])])])
    return m.node("Add", [n, m.weight(8)])


def layer_norm_matrix(m: Model, x: str) -> str:
    """Over the last two axes, with a scale of both."""
    d = m.node("Sub", [x, mean(m, x, -2, -1)])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), -2, -1), s(m, 1e-5)])
    return affine(m, m.node("Div", [d, m.node("Sqrt", [v])]), 5, 8)


def rms_norm(m: Model, x: str) -> str:
    """Dynamo: times the reciprocal of the root."""
    v = m.node("Add", [mean(m, m.node("Pow", [x, s(m, 2)]), -1), s(m, 1e-6)])
    n = m.node("Mul", [x, m.node("Reciprocal", [m.node("Sqrt", [v])])])
    return m.node("Mul", [m.weight(8), n])


def rms_norm_one_over(m: Model, x: str) -> str:
    """TorchScript: times one over the root; no scale."""
    v = m.node("Add", [mean(m, m.node("Mul", [x, x]), -1), s(m, 1e-6)])
    return m.node("Mul", [x, m.node("Div", [s(m, 1), m.node("Sqrt", [v])])])


def rms_norm_divided(m: Model, x: str) -> str:
    v = m.node("Add", [mean(m, m.node("Pow", [x, s(m, 2)]), -1), s(m, 1e-6)])
    return m.node("Mul", [m.node("Div", [x, m.node("Sqrt", [v])]), m.weight(8)])


def softmax(m: Model, x: str) -> str:
    shifted = m.node("Sub", [x, m.node("ReduceMax", [x], axes=[1], keepdims=1)])
    e = m.node("Exp", [shifted])
    return m.node("Div", [e, m.node("ReduceSum", [e, m.ints(1)], keepdims=1)])


def softmax_unshifted(m: Model, x: str) -> str:
    e = m.node("Exp", [x])
    return m.node("Div", [e, m.node("ReduceSum", [e, m.ints(-1)], keepdims=1)])


# form -> what is recorded, and the op it becomes with its attributes
FORMS: dict[Build, tuple[str, str, dict[str, Any]]] = {
    **dict.fromkeys(
        (gelu_half_last, gelu_half_on_x, gelu_half_on_sum, gelu_halved_by_division, gelu_as_sum),
        ("gelu", "Gelu", {"approximate": "none"}),
    ),
    **dict.fromkeys(
        (gelu_tanh_power, gelu_tanh_products, gelu_tanh_factored),
        ("gelu", "Gelu", {"approximate": "tanh"}),
    ),
    silu: ("silu", "Swish", {"alpha": 1.0}),
    silu_turned: ("silu", "Swish", {"alpha": 1.0}),
    quick_gelu: ("swish", "Swish", {"alpha": 1.702}),
    hard_swish_old: ("hard-swish", "HardSwish", {}),
    hard_swish_by_hand: ("hard-swish", "HardSwish", {}),
    hard_swish_gated: ("hard-swish", "HardSwish", {}),
    hard_sigmoid_by_hand: ("hard-sigmoid", "HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    hard_sigmoid_keras: ("hard-sigmoid", "HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    layer_norm: ("layer-norm", "LayerNormalization", {"axis": 2, "epsilon": 1e-5}),
    layer_norm_twice: ("layer-norm", "LayerNormalization", {"axis": 2, "epsilon": 1e-3}),
    layer_norm_bare: ("layer-norm", "LayerNormalization", {"axis": 1, "epsilon": 0.0}),
    layer_norm_bias: ("layer-norm", "LayerNormalization", {"axis": 2, "epsilon": 0.25}),
    layer_norm_matrix: ("layer-norm", "LayerNormalization", {"axis": 1, "epsilon": 1e-5}),
    rms_norm: ("rms-norm", "RMSNormalization", {"axis": 2, "epsilon": 1e-6}),
    rms_norm_one_over: ("rms-norm", "RMSNormalization", {"axis": 2, "epsilon": 1e-6}),
    rms_norm_divided: ("rms-norm", "RMSNormalization", {"axis": 2, "epsilon": 1e-6}),
    softmax: ("softmax", "Softmax", {"axes": (1,)}),
    softmax_unshifted: ("softmax", "Softmax", {"axes": (2,)}),
}
