"""How the time of each pass grows with the number of nodes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile


def chain(length: int) -> bytes:
    """A model of `length` alternating 3×3 convolutions (8 channels) and Relus on a 1×8×32×32 input."""
    weights, nodes = [], []
    value = "x"
    for index in range(length):
        result = f"v{index}"
        if index % 2:
            nodes.append(helper.make_node("Relu", [value], [result]))
        else:
            weight = f"w{index}"
            weights.append(numpy_helper.from_array(np.ones((8, 8, 3, 3), dtype=np.float32), weight))
            nodes.append(helper.make_node("Conv", [value, weight], [result], pads=[1, 1, 1, 1]))
        value = result
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 32, 32])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1, 8, 32, 32])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def recurrence(steps: int) -> bytes:
    """A model of steps of Mul, Add and Exp on a 1×16×8×8 input, in which each step reads the one before (3 ops each).

    Each step's Exp is an output.
    """
    weights, nodes, results = [], [], []
    state = "x"
    for index in range(steps):
        names = [f"{kind}{index}" for kind in ("factor", "term")]
        weights += [numpy_helper.from_array(np.full((1, 16, 1, 1), 0.5, dtype=np.float32), name) for name in names]
        nodes += [
            helper.make_node("Mul", [state, names[0]], [f"scaled{index}"]),
            helper.make_node("Add", [f"scaled{index}", names[1]], [f"state{index}"]),
            helper.make_node("Exp", [f"state{index}"], [f"y{index}"]),
        ]
        state = f"state{index}"
        results.append(helper.make_tensor_value_info(f"y{index}", TensorProto.FLOAT, [1, 16, 8, 8]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])]
    graph = helper.make_graph(nodes, "recurrence", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def run() -> None:
    """Print seconds per pass for chains of growing length."""
    profile = builtin_profile("cluster4x4")
    print("\n### Seconds per pass, chain of convolutions and Relus, `cluster4x4`\n")
    header_written = False
    for length in (100, 300, 1000):
        compilation = compile_model(chain(length), profile)
        if not header_written:
            print("| nodes | " + " | ".join(timing.name for timing in compilation.timings) + " | total |")
            print("|---:|" + "---:|" * (len(compilation.timings) + 1))
            header_written = True
        seconds = [timing.duration_s for timing in compilation.timings]
        print(f"| {length} | " + " | ".join(f"{s:.3f}" for s in seconds) + f" | {sum(seconds):.3f} |")
