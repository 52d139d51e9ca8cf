"""LSTM, GRU and RNN of a short, fixed length as products and element-wise ops, step by step.

By gate the products with the inputs of all steps are one MatMul; each step adds the product with the state before. A
state that begins at zero is left out of the first step. Values on the way have three axes: steps, batch, hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx

from compiler.frontend.decompose.node_builder import MAX_UNROLLED, Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, Call

# What one step becomes at most, constants aside: nodes. Peepholes of an LSTM add three products and three sums.
_NODES_OF_STEP: Final = MappingProxyType({"LSTM": 21, "GRU": 17, "RNN": 4})
_NODES_OF_PEEPHOLES: Final = 6
# ... and lengths of sequences a question which of them run, and a choice per state.
_NODES_OF_LENGTHS: Final = MappingProxyType({"LSTM": 3, "GRU": 2, "RNN": 2})
_GATES: Final = MappingProxyType({"LSTM": 4, "GRU": 3, "RNN": 1})
_DEFAULTS: Final = MappingProxyType({"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)})
# Functions by name in small letters, for names are compared so.
_FUNCTIONS: Final = MappingProxyType(
    {name.lower(): name for name in ("HardSigmoid", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}
)
# Those with parameters: alpha and beta where the node gives none.
_PARAMETERS: Final = MappingProxyType({"HardSigmoid": (0.2, 0.5)})
# Whether each direction begins at the end.
_WAYS: Final = MappingProxyType({"forward": (False,), "reverse": (True,), "bidirectional": (False, True)})
_LENGTHS, _STATE, _CELL, _PEEPHOLES = 4, 5, 6, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    """What gates and states go through: an operator with its attributes."""

    kind: str
    attributes: tuple[tuple[str, float], ...] = ()

    def of(self, nodes: NodeList, value: str) -> str:
        """The function of a value."""
        attributes: dict[str, Any] = dict(self.attributes)
        return nodes.add(self.kind, value, **attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What all steps of one direction read: names of constants, functions.

    `recurrent` multiplies the state, by gate [hidden, hidden]. `resets_after`: a GRU resets the product instead of the
    state; `late_bias` is what it adds before it does. `peepholes` are those of the gates in, out and forget.
    """

    functions: tuple[_Function, ...]
    recurrent: tuple[str, ...]
    resets_after: bool
    late_bias: str | None
    peepholes: tuple[str, ...]

    def summed(self, nodes: NodeList, given: _Given, gate: int, state: str | None) -> str:
        """What a gate is given in a step, and its product with the state before."""
        if state is None:
            return given(gate)
        return nodes.add("Add", given(gate), nodes.add("MatMul", state, self.recurrent[gate]))


# The products of a step's inputs for a gate.
_Given = Callable[[int], str]
_Step = Callable[[NodeList, _Way, _Given, "str | None", "str | None"], "tuple[str, str | None]"]


def _lstm(nodes: NodeList, way: _Way, given: _Given, state: str | None, cell: str | None) -> tuple[str, str | None]:
    """One step: the state and the cell after it."""
    gate, candidate, leaving = way.functions
    taken, out = (way.summed(nodes, given, number, state) for number in range(2))
    forget = None if cell is None else way.summed(nodes, given, 2, state)
    if way.peepholes and cell is not None:
        assert forget is not None
        taken = nodes.add("Add", taken, nodes.add("Mul", cell, way.peepholes[0]))
        forget = nodes.add("Add", forget, nodes.add("Mul", cell, way.peepholes[2]))
    after = nodes.add("Mul", gate.of(nodes, taken), candidate.of(nodes, way.summed(nodes, given, 3, state)))
    if cell is not None:
        assert forget is not None
        after = nodes.add("Add", nodes.add("Mul", gate.of(nodes, forget), cell), after)
    if way.peepholes:
        out = nodes.add("Add", out, nodes.add("Mul", after, way.peepholes[1]))
    return nodes.add("Mul", gate.of(nodes, out), leaving.of(nodes, after)), after


def _gru(nodes: NodeList, way: _Way, given: _Given, state: str | None, _: str | None) -> tuple[str, str | None]:
    """One step: the state after it; the update gate says how much of the one before remains."""
    gate, candidate = way.functions
    update, new = gate.of(nodes, way.summed(nodes, given, 0, state)), given(2)
    back = nodes.add("MatMul", state, way.recurrent[2]) if way.resets_after and state is not None else None
    if way.late_bias is not None:
        back = way.late_bias if back is None else nodes.add("Add", back, way.late_bias)
    if back is not None or state is not None:
        reset = gate.of(nodes, way.summed(nodes, given, 1, state))
        if back is None:
            assert state is not None
            again = nodes.add("MatMul", nodes.add("Mul", reset, state), way.recurrent[2])
        else:
            again = nodes.add("Mul", reset, back)
        new = nodes.add("Add", new, again)
    new = candidate.of(nodes, new)
    if state is None:
        return nodes.add("Sub", new, nodes.add("Mul", update, new)), None
    return nodes.add("Add", new, nodes.add("Mul", update, nodes.add("Sub", state, new))), None


def _rnn(nodes: NodeList, way: _Way, given: _Given, state: str | None, _: str | None) -> tuple[str, str | None]:
    """One step: the state after it."""
    return way.functions[0].of(nodes, way.summed(nodes, given, 0, state)), None


_STEPS: Final[Mapping[str, _Step]] = MappingProxyType({"LSTM": _lstm, "GRU": _gru, "RNN": _rnn})


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Both directions read the same inputs; results are stacked along the axis of directions."""
    ways = _ways(call)
    extents = [call.tensor(index).shape for index in range(3)]
    if any(len(shape) != 3 for shape in extents):
        call.fail("inputs 0 to 2 must have 3 axes", actual=extents)
    hidden = int(extents[2][2])
    if extents[1][:2] != (len(ways), _GATES[node.op_type] * hidden) or extents[2][:2] != extents[1][:2]:
        call.fail("inputs 1 and 2 must have one row per direction and gate", actual=extents[1:])
    if (said := call.integer("hidden_size", hidden)) != hidden:
        call.fail("hidden_size must be the last extent of input 2", actual=said, limit=hidden)
    _check_others(node, call, (len(ways), extents[0][1], hidden))
    ends, running = [], _running(node, call, nodes)
    for number, backwards in enumerate(ways):
        given, way = _products(node, call, nodes, number, hidden)
        state, cell = (_begin(node, call, nodes, index, number) for index in (_STATE, _CELL))
        if running is not None and (state or cell):
            # of a sequence without any step ONNX Runtime says that it ends in zeros
            runs = nodes.add("Gather", running, nodes.integers([0]), axis=0)
            state, cell = (_kept(nodes, call, runs, value, None) for value in (state, cell))
        made = []
        steps = range(int(extents[0][0]))
        for step in reversed(steps) if backwards else steps:
            now = partial(_at_step, nodes, given, step)
            before = (state, cell)
            state, cell = _STEPS[node.op_type](nodes, way, now, state, cell)
            if running is not None:
                runs = nodes.add("Gather", running, nodes.integers([step]), axis=0)
                state, cell = (_kept(nodes, call, runs, *pair) for pair in zip((state, cell), before, strict=True))
                assert state is not None
            made.append(state)
        every = _joined(nodes, made[::-1] if backwards else made, 0)
        ends.append((every if running is None else _kept(nodes, call, running, every, None), state, cell))
    whole, states, cells = zip(*ends, strict=True)
    results = ([nodes.unsqueeze(value, 1) for value in whole], states, cells)
    for out, values, axis in zip(node.output, results, (1, 0, 0), strict=False):
        if out:
            nodes.add("Identity", _joined(nodes, values, axis), out=out)


def _running(node: onnx.NodeProto, call: Call, nodes: NodeList) -> str | None:
    """Whether each sequence still runs in a step, [steps, batch, 1]; None if all have full length."""
    if not _is_short(call):
        return None
    steps = nodes.constant(np.arange(int(call.tensor(0).shape[0]), dtype=np.int32).reshape(-1, 1, 1))
    return nodes.add("Less", steps, nodes.unsqueeze(node.input[_LENGTHS], 0, 2))


def _kept(nodes: NodeList, call: Call, runs: str, value: str | None, other: str | None) -> str | None:
    """The value of sequences that run, of others what they had; zero if there is no other."""
    if value is None:
        return None
    return nodes.add("Where", runs, value, other or nodes.number(0, call.tensor(0).dtype))


def _is_short(call: Call) -> bool:
    """Whether sequences may end early: their lengths are known at run time only, or not all that of the steps."""
    if not call.has(_LENGTHS):
        return False
    known = call.values.get(_LENGTHS)
    return known is None or any(length != call.tensor(0).shape[0] for length in known.reshape(-1))


def _check_others(node: onnx.NodeProto, call: Call, state: tuple[int, ...]) -> None:
    """ModelError unless bias, lengths, states and peepholes have the extents that the others say; `state`: its own."""
    ways, batch, hidden = state
    bias = (ways, 2 * _GATES[node.op_type] * hidden)
    others = {3: bias, _LENGTHS: (batch,), _STATE: state, _CELL: state, _PEEPHOLES: (ways, 3 * hidden)}
    for index, wanted in others.items():
        if not call.has(index):
            continue
        shape = call.tensor(index).shape
        # extents that vary are compared where they have a value
        pairs = list(zip(shape, wanted, strict=False))
        known = [pair for pair in pairs if not any(isinstance(extent, Dim) for extent in pair)]
        if len(shape) != len(wanted) or any(one != other for one, other in known):
            call.fail(f"input {index} must fit the others", actual=shape, limit=wanted)


def _at_step(nodes: NodeList, given: Sequence[str], step: int, gate: int) -> str:
    """What one step takes of a gate's products."""
    return nodes.add("Gather", given[gate], nodes.integers([step]), axis=0)


def _products(node: onnx.NodeProto, call: Call, nodes: NodeList, way: int, hidden: int) -> tuple[tuple[str, ...], _Way]:
    """By gate one direction's products of all steps with the bias, [steps, batch, hidden]; and what its steps read.

    Gates have products of their own: a core that makes some channels of one has the same channels of all others, so
    between cores goes only the state.
    """
    number, kind = nodes.number(way, "int64"), node.op_type
    parts = [hidden] * _GATES[kind]
    weights, recurrent = (
        [
            nodes.transpose(its, (1, 0))
            for its in nodes.split(nodes.add("Gather", node.input[index], number, axis=0), 0, parts)
        ]
        for index in (1, 2)
    )
    products, late = [nodes.add("MatMul", node.input[0], its) for its in weights], None
    resets_after = kind == "GRU" and call.integer("linear_before_reset", 0) != 0
    if call.has(3):
        both = nodes.split(nodes.add("Gather", node.input[3], number, axis=0), 0, parts * 2)
        biases = [nodes.add("Add", *pair) for pair in zip(both[: len(parts)], both[len(parts) :], strict=True)]
        if resets_after:
            biases[2], late = both[2], both[5]
        products = [nodes.add("Add", *pair) for pair in zip(products, biases, strict=True)]
    peepholes: Sequence[str] = ()
    if kind == "LSTM" and call.has(_PEEPHOLES):
        peepholes = nodes.split(nodes.add("Gather", node.input[_PEEPHOLES], number, axis=0), 0, [hidden] * 3)
    count = len(_DEFAULTS[kind])
    return tuple(products), _Way(
        functions=_functions(node, call)[way * count : (way + 1) * count],
        recurrent=tuple(recurrent),
        resets_after=resets_after,
        late_bias=late,
        peepholes=tuple(peepholes),
    )


def _begin(node: onnx.NodeProto, call: Call, nodes: NodeList, index: int, way: int) -> str | None:
    """The first state of a direction, [1, batch, hidden]; None where it is zero."""
    if not call.has(index) or (index in call.values and not np.any(call.values[index])):
        return None
    return nodes.add("Gather", node.input[index], nodes.integers([way]), axis=0)


def _joined(nodes: NodeList, values: Sequence[str], axis: int) -> str:
    return values[0] if len(values) == 1 else nodes.add("Concat", *values, axis=axis)


def _ways(call: Call) -> tuple[bool, ...]:
    """Of each direction, whether it begins at the end."""
    name = call.text("direction", "forward")
    if name not in _WAYS:
        call.fail("direction is unknown", actual=name, limit=", ".join(_WAYS))
    return _WAYS[name]


def _functions(node: onnx.NodeProto, call: Call) -> tuple[_Function, ...]:
    """The functions of all directions, as operators; those without one as they are called.

    As ONNX Runtime reads them, alphas and betas are those of the functions that have such parameters, in order.
    """
    named = call.attributes.get("activations")
    names = tuple(map(str, named)) if isinstance(named, tuple) else ()
    defaults = _DEFAULTS[node.op_type] * len(_ways(call))
    names = names or defaults
    if len(names) != len(defaults):
        call.fail("activations must be as many as all directions have", actual=len(names), limit=len(defaults))
    given = {name: list(_numbers(call, f"activation_{name}")) for name in ("alpha", "beta")}
    functions = []
    for kind in (_FUNCTIONS.get(name.lower(), name) for name in names):
        parameters = zip(given, _PARAMETERS.get(kind, ()), strict=False)
        chosen = [(name, given[name].pop(0) if given[name] else default) for name, default in parameters]
        functions.append(_Function(kind=kind, attributes=tuple(chosen)))
    return tuple(functions)


def _numbers(call: Call, name: str) -> tuple[float, ...]:
    found = call.attributes.get(name)
    return tuple(float(value) for value in found) if isinstance(found, tuple) else ()


def _other_function(node: onnx.NodeProto, call: Call) -> object | None:
    kinds = (function.kind for function in _functions(node, call))
    return next((kind for kind in kinds if kind not in _FUNCTIONS.values()), None)


def _long(node: onnx.NodeProto, call: Call) -> object | None:
    steps = (*call.tensor(0).shape, 0)[0]
    if isinstance(steps, Dim):
        return str(steps)
    return None if 0 < steps * len(_ways(call)) <= _most_steps(node.op_type) else _in_all(steps, call)


def _long_with_peepholes(node: onnx.NodeProto, call: Call) -> object | None:
    steps = call.tensor(0).shape[0]
    fits = steps * len(_ways(call)) <= _most_steps(node.op_type, _NODES_OF_PEEPHOLES)
    return None if fits or not call.has(_PEEPHOLES) else _in_all(steps, call)


def _in_all(steps: int, call: Call) -> str:
    ways = len(_ways(call))
    return f"{steps} in {ways} directions" if ways > 1 else str(steps)


def _long_of_lengths(node: onnx.NodeProto, call: Call) -> object | None:
    steps = call.tensor(0).shape[0]
    more = _NODES_OF_LENGTHS[node.op_type] + (_NODES_OF_PEEPHOLES if call.has(_PEEPHOLES) else 0)
    fits = steps * len(_ways(call)) <= _most_steps(node.op_type, more)
    return None if fits or not _is_short(call) else _in_all(steps, call)


def _illegal_length(_: onnx.NodeProto, call: Call) -> object | None:
    """A length that is known and that no sequence can have; the host says what it makes of it."""
    known = call.values.get(_LENGTHS) if call.has(_LENGTHS) else None
    lengths = () if known is None else known.reshape(-1).tolist()
    return next((length for length in lengths if not 0 < length <= call.tensor(0).shape[0]), None)


def _form(_: onnx.NodeProto, call: Call) -> object | None:
    given = {"clip": call.number("clip", 0.0), "layout": call.integer("layout", 0)}
    given["input_forget"] = call.integer("input_forget", 0)
    return next((f"{name} {value:g}" for name, value in given.items() if value), None)


def _most_steps(kind: str, more: int = 0) -> int:
    """Steps of all directions together, if each becomes `more` nodes than usual."""
    return MAX_UNROLLED // (_NODES_OF_STEP[kind] + more)


def _limits(kind: str) -> tuple[Limit, ...]:
    shorter = f"steps with peepholes are at most {_most_steps(kind, _NODES_OF_PEEPHOLES)} in all directions"
    lengths = _NODES_OF_LENGTHS[kind]
    several = f"{_most_steps(kind, lengths)} in all directions"
    if kind == "LSTM":
        several += f" ({_most_steps(kind, lengths + _NODES_OF_PEEPHOLES)} with peepholes)"
    return (
        Limit(f"the number of steps is fixed, and at most {_most_steps(kind)} in all directions together", _long),
        *((Limit(shorter, _long_with_peepholes),) if kind == "LSTM" else ()),
        Limit(f"steps of sequences of several lengths are at most {several}", _long_of_lengths),
        Limit("lengths of sequences (sequence_lens) are from 1 to the number of steps", _illegal_length),
        Limit(f"functions are {', '.join(_FUNCTIONS.values())}", _other_function),
        Limit("clip, layout and input_forget are 0", _form),
    )


RECURRENT: Final = tuple(
    Decomposition(
        op_type=kind,
        replace=_replace,
        dtypes=MappingProxyType({0: FLOATS, _LENGTHS: ("int32",)}),
        limits=_limits(kind),
    )
    for kind in _STEPS
)
