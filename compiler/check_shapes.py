"""The pass that runs a model for ranges of shapes at some of them and compares it with ONNX Runtime (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from compiler.errors import InternalError, RequestError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.ops.host_form import with_hosts_at
from compiler.options import Options
from compiler.shapes.extents import Range
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.model import ShapeModel
from compiler.simulator.value_check import check_values


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckShapes:
    """Pass: programs of the least shape and of one in the middle are made, proved, run and compared (option verify)."""

    name: str = "check-shapes"
    source: ModelSource
    options: Options

    def run(self, model: ShapeModel) -> ShapeModel:
        """The model as it is; raises InternalError naming the output and the shape whose values are off.

        Raises RequestError where nothing could be compared, and the check was not left out.
        """
        if self.options.verify == "none":
            return model
        if self.options.batch is not None:
            raise RequestError(
                "units of a model that was rewritten for another batch cannot be checked: the model takes one image",
                code="invalid_option",
                stage=self.name,
                actual=f"batch={self.options.batch}",
                limit="verify=none, or no option batch",
                hint="Leave the check out with verify=none, or export the model with a dynamic batch",
            )
        source = opened(model.graph.source, self.source)
        for dims in checked_dims(model.ranges):
            graph = with_hosts_at(graph_at(model.graph, dims, lambda constant: materialise(constant, source)))
            executable = instantiate(model, dims, simple_tables(model, dims), source)
            check = check_values(executable, graph, self.source)
            worst = check.worst
            if worst is not None and not check.holds:
                shape = ", ".join(f"{name} = {extent}" for name, extent in dims.items())
                raise InternalError(
                    f"the program computes other values than the model at {shape}: {worst.tensor!r} is off",
                    stage=self.name,
                    actual=f"{worst.max_error:g} (got {worst.got}, expected {worst.expected})",
                    limit=f"{worst.limit:g}",
                    hint="This is a defect of Tessera; option verify=none compiles without the check",
                )
        return model


def checked_dims(ranges: Mapping[str, Range]) -> tuple[dict[str, int], ...]:
    """The least dimensions, and those in the middle of the ranges by their logarithms."""
    least = {name: one.low for name, one in ranges.items()}
    middle = {
        name: one.low + (max(one.low, round(sqrt(one.low * one.high))) - one.low) // one.step * one.step
        for name, one in ranges.items()
    }
    return (least,) if least == middle else (least, middle)
