"""Checks of the graphs inside If, Loop and Scan that onnx.checker omits (IMPORT-4)."""

from __future__ import annotations

import onnx

from compiler.errors import ModelError


def check_bodies(node: onnx.NodeProto, name: str) -> None:
    """Raises ModelError unless the bodies of a control-flow node have the inputs and outputs that it passes."""
    graphs = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH and not a.ref_attr_name}
    if not graphs:
        return
    outputs = len(node.output)
    match node.op_type:
        case "If":
            for branch, graph in graphs.items():
                _expect(node, name, f"{branch} has inputs", len(graph.input), 0)
                _expect(node, name, f"{branch} has another number of outputs than the If", len(graph.output), outputs)
        case "Loop":
            body = graphs["body"]
            carried = len(node.input) - 2
            _expect(node, name, "the body has a wrong number of inputs", len(body.input), 2 + carried)
            _expect(node, name, "the body has a wrong number of outputs", len(body.output), 1 + outputs)
            if outputs < carried:
                _expect(node, name, "the loop hands out fewer values than it carries", outputs, carried)
        case "Scan":
            body = graphs["body"]
            scanned = next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)
            if not 1 <= scanned <= len(node.input):
                _expect(node, name, "num_scan_inputs is out of bounds", scanned, f"1 to {len(node.input)}")
            if len(body.input) not in (len(node.input), len(node.input) - 1):
                # opset 8 has one more input, the lengths of the sequences
                _expect(node, name, "the body has a wrong number of inputs", len(body.input), len(node.input))
            _expect(node, name, "the body has a wrong number of outputs", len(body.output), outputs)


def _expect(node: onnx.NodeProto, name: str, message: str, actual: int, limit: object) -> None:
    if actual != limit:
        raise ModelError(
            message,
            code="invalid_model",
            stage="import",
            node=name,
            op_type=node.op_type,
            actual=actual,
            limit=limit,
        )
