"""The pass that makes tables beforehand: for the shapes that option `tables` names, or for the only one (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.errors import LimitError
from compiler.options import Options
from compiler.shapes.model import ShapeModel
from compiler.shapes.optimised import best_table
from compiler.shapes.prepared import MAX_RUNS_IN_ALL, PreparedModel, ShapeTables
from compiler.shapes.table import ShapeTable, check_cover


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTables:
    """Pass: the best tables of every routine at some shapes, each proved to cover its shape."""

    name: str = "tables"
    options: Options

    def run(self, model: ShapeModel) -> PreparedModel:
        """Raises RequestError for dimensions at which the model is none, LimitError for tables of too many runs."""
        known: dict[tuple[int, tuple[int, ...]], tuple[ShapeTable | None, float]] = {}
        made: list[ShapeTables] = []
        for dims in self._shapes(model):
            model.check(dims)
            found = [_best(model, number, dims, known) for number in range(len(model.libraries))]
            made.append(
                ShapeTables(
                    dims=dims,
                    tables=tuple(table for table, _ in found),
                    simple_cycles=tuple(cycles for _, cycles in found),
                )
            )
            runs = sum(len(table.runs) for table, _ in known.values() if table is not None)
            if runs > MAX_RUNS_IN_ALL:
                raise LimitError(
                    "the tables that are made beforehand are too large",
                    code="too_many_tables",
                    stage=self.name,
                    actual=f"{runs} runs for {len(made)} shapes",
                    limit=f"{MAX_RUNS_IN_ALL} runs",
                    hint="Name fewer shapes in option tables",
                )
        return PreparedModel(model=model, tables=tuple(made))

    def _shapes(self, model: ShapeModel) -> list[dict[str, int]]:
        """The dimensions named, each once, without those that nothing depends on; a static model has one shape."""
        if not model.ranges:
            return [{}]
        shapes = [
            {name: given.get(name, one.high) for name, one in model.ranges.items()} for given in self.options.tables
        ]
        return [dims for number, dims in enumerate(shapes) if dims not in shapes[:number]]


def _best(
    model: ShapeModel,
    number: int,
    dims: Mapping[str, int],
    known: dict[tuple[int, tuple[int, ...]], tuple[ShapeTable | None, float]],
) -> tuple[ShapeTable | None, float]:
    """The best table of a routine, as of routines like it, and what the simple one costs."""
    problem = model.problem(number, dims)
    key = (model.alike[number], problem)
    if key not in known:
        known[key] = _made(model, number, problem)
    return known[key]


def _made(model: ShapeModel, number: int, problem: tuple[int, ...]) -> tuple[ShapeTable | None, float]:
    library = model.libraries[number]
    simple = model.simple_table(number, problem)
    if simple is None:
        return None, model.one_call_cycles(number, problem)
    table = best_table(library.units, model.cost_at(number, problem), simple.shape, model.cores, library.loaders)
    check_cover(table)
    return table, simple.cost_cycles
