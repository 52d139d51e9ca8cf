"""Programs of tables: modelled and simulated cycles, simple and optimised tables, beside plans for the one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from compiler.check_shapes import checked_dims
from compiler.compile import compile_model, compile_shapes
from compiler.errors import TesseraError
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.program.executable import ChipSegment, Executable
from compiler.program.loops.time import time_of
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.model import ShapeModel
from compiler.shapes.optimised import best_table
from compiler.shapes.table import ShapeTable
from tests.exported import ExportedModel, exported_models

CHIPS = ("cluster4x4", "edge4")
_EXPORTER = "dynamo"

Tables = Sequence[ShapeTable | None]


def run() -> None:
    """Print one row per network, chip and shape: the largest, and one in the middle of the ranges."""
    print(
        "\n| network | chip | shape | simple tables, cycles | modelled / simulated | optimised / simple, modelled "
        "| simulated | plan's cycles | tables / plan |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    ratios: dict[tuple[str, str], list[float]] = {}
    for chip in CHIPS:
        for exported in exported_models():
            if exported.exporter == _EXPORTER and exported.dims:
                for name, ratio in _print_model(exported, chip):
                    ratios.setdefault((chip, name), []).append(ratio)
    print("\n| chip | ratio | networks and shapes | geometric mean | least | most |")
    print("|---|---|---:|---:|---:|---:|")
    for (chip, name), found in ratios.items():
        mean = exp(sum(map(log, found)) / len(found))
        print(f"| {chip} | {name} | {len(found)} | {mean:.2f} | {min(found):.2f} | {max(found):.2f} |")


def _print_model(exported: ExportedModel, chip: str) -> list[tuple[str, float]]:
    source, profile = ModelSource.from_bytes(exported.read()), builtin_profile(chip)
    options = {"dims": {name: {"min": 1, "max": high} for name, high in exported.dims.items()}, "verify": "none"}
    try:
        model = compile_shapes(source, profile, parse_options(options))
    except TesseraError as error:
        print(f"| {exported.network} | {chip} | refused: {error.code} | | | | | | |")
        return []
    found = []
    for dims in (dict(exported.dims), checked_dims(model.ranges)[-1]):
        found += _print_shape(exported.network, model, profile, source, dims)
    return found


def _print_shape(
    network: str, model: ShapeModel, profile: Profile, source: ModelSource, dims: Mapping[str, int]
) -> list[tuple[str, float]]:
    file = opened(model.graph.source, source)
    simple = simple_tables(model, dims)
    optimised = [_best(model, number, dims, table) for number, table in enumerate(simple)]
    modelled = [_modelled(model, dims, tables) for tables in (simple, optimised)]
    simulated = [_simulated(instantiate(model, dims, tables, file), profile) for tables in (simple, optimised)]
    plan = compile_model(source, profile, parse_options({"dims": dict(dims), "verify": "none"})).executable
    assert plan is not None
    cycles = _simulated(plan, profile)
    ratios = {
        "modelled / simulated": modelled[0] / simulated[0],
        "optimised / simple, modelled": modelled[1] / modelled[0],
        "optimised / simple, simulated": simulated[1] / simulated[0],
        "tables / plan": min(simulated) / cycles,
    }
    texts = [f"{ratio:.2f}" for ratio in ratios.values()]
    shape = ", ".join(f"{name} {extent}" for name, extent in dims.items())
    print(
        f"| {network} | {profile.name} | {shape} | {simulated[0]:,.0f} | {texts[0]} | {texts[1]} | {texts[2]} "
        f"| {cycles:,.0f} | {texts[3]} |",
        flush=True,
    )
    return list(ratios.items())


def _best(model: ShapeModel, number: int, dims: Mapping[str, int], simple: ShapeTable | None) -> ShapeTable | None:
    if simple is None:
        return None
    library, cost = model.libraries[number], model.cost_at(number, model.problem(number, dims))
    return best_table(library.units, cost, simple.shape, model.cores, library.loaders)


def _modelled(model: ShapeModel, dims: Mapping[str, int], tables: Tables) -> float:
    """Cycles of all routines, one after another, by the model that tables are chosen by."""
    cycles = (
        model.one_call_cycles(number, model.problem(number, dims)) if table is None else table.cost_cycles
        for number, table in enumerate(tables)
    )
    return sum(cycles) / model.cores


def _simulated(executable: Executable, profile: Profile) -> float:
    """Cycles of the chips' programs, one after another; what the host runs is left out."""
    programs = (segment.program for segment in executable.segments if isinstance(segment, ChipSegment))
    return sum(time_of(program, profile).cycles for program in programs)
