"""Stated shapes at which each tail mode is cheaper than the other two (SHAPE-4)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from compiler.errors import RequestError
from compiler.frontend.source import opened
from compiler.program.executable import Executable
from compiler.shapes.instantiate import instantiate
from compiler.shapes.table import ShapeTable
from compiler.shapes.tails import TailMode
from tests.compiler.shapes.dynamic import Compiled
from tests.models import Model

PROFILE: Final = "edge4"
MODES: Final = (TailMode.FULL_RANGE, TailMode.TAIL_RANGE, TailMode.DISCARD)


@dataclass(frozen=True, kw_only=True)
class TailCase:
    """A model of one routine with free rows, and a number of rows at which `mode` is the cheapest for their tail."""

    name: str
    model: Model
    most_rows: int
    rows: int
    mode: TailMode

    def compiled(self) -> Compiled:
        """The model for 1 to `most_rows` rows."""
        return Compiled.of(self.model, {"rows": (1, self.most_rows)}, PROFILE)


def tail_cases() -> tuple[TailCase, ...]:
    """One case for each mode."""
    return (
        TailCase(name="MatMul 256 × 16", model=_product(256, 16), most_rows=200, rows=121, mode=TailMode.FULL_RANGE),
        TailCase(name="MatMul 256 × 256", model=_product(256, 256), most_rows=200, rows=116, mode=TailMode.TAIL_RANGE),
        TailCase(name="Exp", model=_exp(), most_rows=1000, rows=352, mode=TailMode.DISCARD),
    )


def tables_by_mode(of: Compiled, rows: int) -> dict[TailMode | None, ShapeTable]:
    """The simple table with each mode demanded for the tail of the rows, and with none demanded (None)."""
    (library,) = of.model.libraries
    problem = of.model.problem(0, {"rows": rows})
    shape = tuple(problem[axis] for axis in library.routine.tiled)
    chooser, others = of.model.chooser(0, problem), (None,) * (len(shape) - 1)
    found: dict[TailMode | None, ShapeTable] = {None: chooser.table(shape)}
    for mode in MODES:
        with suppress(RequestError):
            found[mode] = chooser.table(shape, (mode, *others))
    return found


def executable(of: Compiled, rows: int, table: ShapeTable) -> Executable:
    """The program of a table."""
    return instantiate(of.model, {"rows": rows}, (table,), opened(of.model.graph.source, of.source))


def _product(depth: int, columns: int) -> Model:
    model = Model()
    x = model.input(["rows", depth], "x")
    model.output(model.relu(model.node("MatMul", [x, model.weight(depth, columns)])))
    return model


def _exp() -> Model:
    model = Model()
    model.output(model.node("Exp", [model.input(["rows"], "x")]))
    return model
