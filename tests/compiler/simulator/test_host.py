"""Host segments run as the model says, with what the graph says that they need and nothing else (IMPORT-6, SIM-1)."""

from __future__ import annotations

import sys
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.errors import InternalError, ModelError
from compiler.frontend.runtimes import run_model
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.simulator.host import host_reads, host_runs, random_tensors, run_host, value_of_constant
from compiler.simulator.reference import reference_of_graph, run_reference
from tests.models import Model

FLOAT, INT, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
X = np.array([[3.0, -1.0, 2.0]], np.float32)


def host_ops(graph: Graph) -> tuple[int, ...]:
    """The indices of all host ops."""
    return tuple(sorted(graph.on_host))


def run(model: Model, feeds: dict[str, Any]) -> dict[str, Any]:
    """What all host ops of a model without chip ops between them make, from inputs and constants."""
    graph, source = model.graph(), ModelSource.from_bytes(model.data())
    values = dict(feeds)
    for name in host_reads(graph, host_ops(graph)):
        constant = graph.tensors[name].constant
        if constant is not None:
            values[name] = value_of_constant(constant, source)
    return run_host(graph, values, host_ops(graph))


def test_results_come_by_tensor_name_those_of_one_node_together() -> None:
    model = Model()
    model.nodes_out("TopK", [model.input([1, 3], "x"), model.ints(2)], ["values", "places"], sorted=0)
    model.output("values")
    model.output("places", INT)
    found = run(model, {"x": X})
    assert {name: value.tolist() for name, value in found.items()} == {"values": [[2, 3]], "places": [[2, 0]]}


def test_nodes_that_follow_each_other_run_as_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    models = []

    def counted(model: Any, *arguments: Any, **named: Any) -> Any:
        models.append([node.op_type for node in model.graph.node])
        return run_model(model, *arguments, **named)

    monkeypatch.setattr("compiler.simulator.host.run_model", counted)
    model = Model()
    first = model.node("Unique", [model.input([1, 3], "x")])
    model.output(model.node("NonZero", [first]), INT)
    found = run(model, {"x": X})
    assert models == [["Unique", "NonZero"]]
    assert found[first].tolist() == [-1, 2, 3]


def test_sequences_pass_between_nodes_and_between_segments_an_empty_one_too() -> None:
    """A chip op between them splits the host's nodes; its input and the sequence are both given from outside."""
    model = Model()
    x = model.input([2, 3], "x")
    first = model.input([], "first", INT)
    filled = model.node("SequenceInsert", [model.node("SequenceEmpty", [], dtype=FLOAT), x, first], out="filled")
    empty = model.node("SequenceErase", [filled, first], out="empty")
    y = model.node("Neg", [x], out="y")
    more = model.node("SequenceInsert", [filled, y])
    model.output(model.node("ConcatFromSequence", [more], out="all", axis=0))
    model.output(model.node("SequenceLength", [empty], out="none"), INT)
    graph, source = model.graph(), ModelSource.from_bytes(model.data())
    feeds: dict[str, Any] = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "first": np.array(0)}
    assert [on_host for on_host, _ in host_runs(graph, range(len(graph.ops)))].count(True) == 2
    found = reference_of_graph(graph, source, feeds)
    assert found["all"].tolist() == [*feeds["x"].tolist(), *(-feeds["x"]).tolist()]
    assert found["none"].tolist() == 0
    assert [part.shape for part in found["filled"]] == [(2, 3)]
    alone = next(index for index, op in enumerate(graph.ops) if op.output == "none")
    assert run_host(graph, {"empty": []}, [alone])["none"].tolist() == 0


@pytest.mark.parametrize("full", [True, False])
def test_optionals_pass_between_segments_as_values_or_none(full: bool) -> None:
    model = Model()
    kind = helper.make_tensor_type_proto(FLOAT, [1, 3])
    x, wanted = model.input([1, 3], "x"), model.input([], "wanted", BOOL)
    result = [helper.make_value_info("its", helper.make_optional_type_proto(kind))]
    branches = {
        "then_branch": helper.make_graph([helper.make_node("Optional", [x], ["its"])], "full", [], result),
        "else_branch": helper.make_graph([helper.make_node("Optional", [], ["its"], type=kind)], "none", [], result),
    }
    held = model.node("If", [wanted], out="held", **branches)
    model.output(model.node("OptionalHasElement", [held], out="has"), BOOL)
    model.output(model.relu(x))
    graph = model.graph()
    first, second = host_ops(graph)
    made = run_host(graph, {"x": X, "wanted": np.array(full)}, [first])
    assert (made["held"] is not None) is full
    assert run_host(graph, made, [second])["has"].tolist() is full


def test_text_stays_on_the_host() -> None:
    model = Model(opset=20, ir_version=9)
    both = model.node("StringConcat", [model.input([2], "t", STRING), model.constant(np.array(["b"], object), "k")])
    model.output(both, STRING)
    found = run(model, {"t": np.array(["a", "c"], object)})
    assert found[both].tolist() == ["ab", "cb"]


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_gets_what_it_captures_under_the_graphs_names(flag: bool) -> None:
    """`alias` is another name of `x` in the model; in the graph there is only `x`."""
    model = Model()
    alias = model.node("Identity", [model.input([1, 3], "x")], out="alias")
    branches = [
        helper.make_graph(
            [helper.make_node(op, [alias], ["r"])], op, [], [helper.make_tensor_value_info("r", FLOAT, None)]
        )
        for op in ("Abs", "Neg")
    ]
    c = model.input([], "c", BOOL)
    model.output(model.node("If", [c], out="y", then_branch=branches[0], else_branch=branches[1]))
    found = run(model, {"x": X, "c": np.array(flag)})
    assert found["y"].tolist() == (np.abs(X) if flag else -X).tolist()


def test_a_node_that_onnx_runtime_lacks_goes_to_onnx_reference_and_its_neighbours_do_not() -> None:
    """float16 Det has no kernel in ONNX Runtime; the nodes around it run."""
    model = Model(opset=22, ir_version=10)
    half = TensorProto.FLOAT16
    x = model.input([1, 3, 3], "x", half)
    det = model.node("Det", [x], out="det")
    model.output(model.node("Unique", [model.node("Cast", [det], to=FLOAT)], out="u"))
    model.output(model.node("NonZero", [det], out="n"), INT)
    graph, source = model.graph(), ModelSource.from_bytes(model.data())
    found = reference_of_graph(graph, source, {"x": 2 * np.eye(3, dtype=np.float16)[None]})
    assert found["u"].tolist() == [8]


def test_a_fourier_transform_is_as_exact_as_onnx_reference() -> None:
    """ONNX Runtime sums sines in float32 where the length is no power of two: 1e-6 of the largest and more."""
    model = Model(opset=20, ir_version=9)
    signal = np.arange(1090, dtype=np.float32).reshape(1, 1090, 1)
    model.output(model.node("DFT", [model.input([1, 1090, 1], "x")], out="y"))
    found = run(model, {"x": signal})["y"]
    exact = np.fft.fft(signal[0, :, 0].astype(np.float64))
    assert np.abs(found[0, :, 0] + 1j * found[0, :, 1] - exact).max() < 2e-7 * np.abs(exact).max()


def test_a_package_that_onnx_reference_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """ImageDecoder decodes with Pillow."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    model = Model(opset=20, ir_version=9)
    model.output(
        model.node("ImageDecoder", [model.input([4], "x", TensorProto.UINT8)], name="decode"), TensorProto.UINT8
    )
    with pytest.raises(ModelError, match=r"ImportError.*Pillow") as caught:
        run(model, {"x": np.zeros(4, np.uint8)})
    assert caught.value.node == "decode"


def test_a_node_that_fails_is_named_and_not_its_neighbours() -> None:
    model = Model()
    x = model.input([1, 3], "x")
    kept = model.node("Unique", [x], name="fine")
    model.output(model.node("Reshape", [kept, model.input([2], "shape", INT)], name="wrong"))
    graph = model.graph()
    assert [graph.ops[index].node for index in host_ops(graph)] == ["fine", "wrong"]
    with pytest.raises(ModelError) as caught:
        run_host(graph, {"x": X, "shape": np.array([5, 7])}, host_ops(graph))
    assert (caught.value.node, caught.value.op_type, caught.value.code) == ("wrong", "Reshape", "host_node_failed")
    assert "ONNX Runtime" in str(caught.value)
    assert run_host(graph, {"x": X, "shape": np.array([3, 1])}, host_ops(graph))["v2"].shape == (3, 1)


def test_what_is_not_there_when_the_host_wants_it_is_an_error_of_ours() -> None:
    model = Model()
    model.output(model.node("Unique", [model.input([1, 3], "x")], name="unique"))
    with pytest.raises(InternalError, match="'x'") as caught:
        run_host(model.graph(), {}, [0])
    assert caught.value.node == "unique"


def test_ops_of_the_chip_are_not_run() -> None:
    model = Model()
    model.output(model.relu(model.input([1, 3], "x"), name="relu"))
    with pytest.raises(InternalError, match="not the host's"):
        run_host(model.graph(), {"x": X}, [0])


# Random nodes


def drawn() -> Model:
    """A random tensor, what is computed from it, and what is not."""
    model = Model()
    x = model.input([64], "x")
    noise = model.node("RandomNormalLike", [x], out="noise")
    model.output(model.node("Add", [noise, x], out="sum"))
    model.output(model.relu(x))
    return model


def test_random_nodes_draw_the_same_in_every_run_and_as_the_whole_model_does() -> None:
    model, feeds = drawn(), {"x": np.zeros(64, np.float32)}
    first, second = run(model, feeds), run(model, feeds)
    assert first["noise"].tolist() == second["noise"].tolist()
    assert len(set(first["noise"].tolist())) == 64
    whole = run_reference(ModelSource.from_bytes(model.data()), feeds, wanted=["noise"])
    assert whole.values["noise"].tolist() == first["noise"].tolist()


def test_a_seed_that_the_model_gives_stays() -> None:
    model = Model()
    model.output(model.node("RandomUniformLike", [model.input([9], "x")], out="n", seed=7.0))
    feeds = {"x": np.zeros(9, np.float32)}
    assert run(model, feeds)["n"].tolist() == model.run(feeds)[0].tolist()


def test_what_random_nodes_make_and_all_that_depends_on_it_is_known() -> None:
    assert random_tensors(drawn().graph()) == {"noise", "sum"}


@pytest.mark.parametrize("inside", [True, False])
def test_a_random_node_in_a_branch_makes_the_branch_random(inside: bool) -> None:
    node = helper.make_node("RandomNormal", [], ["r"], shape=[3]) if inside else helper.make_node("Abs", ["x"], ["r"])
    branch = helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("r", FLOAT, [3])])
    model = Model()
    model.input([3], "x")
    c = model.input([], "c", BOOL)
    model.output(model.node("If", [c], out="y", then_branch=branch, else_branch=branch))
    graph = model.graph()
    assert random_tensors(graph) == ({"y"} if inside else frozenset())
    values = {"c": np.array(True), "x": np.ones(3, np.float32)}
    seeded = Model()
    seeded.output(seeded.node("RandomNormal", [], shape=[3], seed=float(crc32(b"r") % 2**20)))
    expected = seeded.run({})[0] if inside else values["x"]
    assert run_host(graph, values, [0])["y"].tolist() == expected.tolist()


def test_dropout_draws_in_training() -> None:
    model = Model()
    given = [model.input([64], "x"), model.input([], "ratio"), model.input([], "training", BOOL)]
    model.output(model.node("Dropout", given, out="y"))
    assert random_tensors(model.graph()) == {"y"}
    feeds = {"x": np.ones(64, np.float32), "ratio": np.array(0.5, np.float32), "training": np.array(True)}
    first, second = run(model, feeds)["y"], run(model, feeds)["y"]
    assert first.tolist() == second.tolist()
    assert set(first.tolist()) == {0, 2}


def test_dropout_outside_training_is_not_random() -> None:
    model = Model()
    model.output(model.node("Dropout", [model.relu(model.input([64], "x"))]))
    assert random_tensors(model.graph()) == frozenset()
