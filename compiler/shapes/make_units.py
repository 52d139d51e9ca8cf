"""The pass that makes a graph with dynamic dimensions a model for all their extents (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compiler.errors import LimitError, RequestError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.ir.graph import Graph
from compiler.options import DimRange, Options
from compiler.profile.schema import Profile
from compiler.program.lower import no_programs
from compiler.shapes.build import build_model
from compiler.shapes.extents import Range
from compiler.shapes.model import ShapeModel
from compiler.shapes.stored_units import NoStoredUnits, StoredUnits


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeUnits:
    """Pass: routines, and a library of shape units for each."""

    name: str = "shape-units"
    source: ModelSource
    profile: Profile
    options: Options
    stored: StoredUnits = field(default_factory=NoStoredUnits)
    by_default: bool = False

    def run(self, graph: Graph) -> ShapeModel:
        """Raises RequestError for options that tables do not have, LimitError for a profile that has no programs and
        where an op has no unit that fits.
        """
        if self.options.precision != "model":
            raise RequestError(
                "a planning what-if has no tables: they are made to be run",
                code="invalid_option",
                stage=self.name,
                actual=f"precision={self.options.precision}",
                limit="precision=model",
                hint="Leave out option precision; the profile needs an array for the model's own element types",
            )
        reason = no_programs(self.profile)
        if reason:
            raise LimitError(
                f"tables are made to be run, and the profile has no programs: {reason}",
                code="no_tables_for_profile",
                stage=self.name,
                actual=f"weights.compression={self.profile.weights.compression}",
                limit="weights.compression=1",
                hint="Raise weights.compression in the profile to 1",
            )
        model = build_model(
            graph,
            self.profile,
            _mentioned(graph, ranges_of(graph, self.options)),
            self.options,
            self.source.name,
            self.source.sha256,
            lambda constant: materialise(constant, opened(graph.source, self.source)),
            self.stored,
        )
        return replace(model, has_default_ranges=self.by_default)


def ranges_of(graph: Graph, options: Options) -> dict[str, Range]:
    """The ranges of a graph's dynamic dimensions; one that is given a single extent has no other."""
    ranges = {}
    for name in sorted(graph.dims):
        given = options.dims[name]
        if isinstance(given, DimRange):
            # the last step may not reach the maximum
            high = given.max - (given.max - given.min) % given.step
            ranges[name] = Range(low=given.min, high=high, step=given.step)
        else:
            ranges[name] = Range(low=given, high=given)
    return ranges


def _mentioned(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges of those dimensions that anything of the graph depends on.

    One that only inputs have which nothing reads is no dimension of the graph: no input that is left would say it.
    """
    expressions = [one for tensor in graph.tensors.values() for _, one in (*tensor.symbols, *tensor.element_symbols)]
    expressions += [one for op in graph.ops for _, _, one in op.symbols]
    found = frozenset[str]().union(*(one.symbols for one in expressions))
    return {name: one for name, one in ranges.items() if name in found}
