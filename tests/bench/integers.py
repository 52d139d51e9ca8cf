"""Quantised networks in integers: shares, values, bytes, time and energy, beside the float network (issue 28).

docs/benchmarks/0028-integers.md. `integers [NETWORK[/FORM] ...] [CHIP ...]`: some networks on some chips. Both are
compiled for latency, with values checked; cycles and energy are simulated and leave the host out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compiler.compile import Compilation, compile_model
from compiler.errors import TesseraError
from compiler.frontend.source import ModelSource
from compiler.ops.quantised import ARRAY_TYPE
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.quantised.models import FORMS, NETWORKS, dims, float_model, quantised_file

# A classifier, a light one, two detection heads, an encoder in both forms, a vision transformer.
CASES: Final[tuple[str, ...]] = (
    "light_resnet50/int8",
    "mobilenet_v2_dynamo/int8",
    "feature_pyramid_dynamo/int8",
    "yolo_dynamo/int8",
    "bert_dynamo/int8",
    "bert_dynamo/dynamic",
    "vit_dynamo/int8",
)
CHIPS: Final = ("metaproto-df", "polar4x4", "edge4", "cluster4x4")
# The chips that have arrays for floats too, so that the float network is compared.
_COMPARED: Final = ("edge4", "cluster4x4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a compilation came to, chips alone; `macs` by element type, `host` apart."""

    macs: Mapping[str, int]
    host_macs: int
    host_nodes: int
    verdict: str
    dram_bytes: int
    cycles: int
    energy_j: float

    @classmethod
    def of(cls, compilation: Compilation) -> Measured:
        """From plan and report."""
        plan, report = compilation.plan, compilation.report
        assert plan.totals.simulated_energy_j is not None
        return cls(
            macs=plan.arithmetic.macs,
            host_macs=plan.native.host_macs,
            host_nodes=plan.native.host_nodes,
            verdict=_verdict(compilation),
            dram_bytes=plan.totals.dram_bytes,
            cycles=sum(program.simulated_cycles for program in report.programs),
            energy_j=plan.totals.simulated_energy_j,
        )

    @property
    def in_integers(self) -> float:
        """The share of all multiply-accumulates, the host's too, that the chips do in eight bits."""
        return self.macs.get(ARRAY_TYPE, 0) / max(1, sum(self.macs.values()) + self.host_macs)


def measured(source: ModelSource, network: str, chip: str) -> Measured:
    """A network compiled for a chip and judged; raises TesseraError where that is refused."""
    options: dict[str, object] = {"fusion": "search", "objective": "latency"}
    if found := dims(network):
        options["dims"] = found
    return Measured.of(compile_model(source, builtin_profile(chip), parse_options(options)))


def _verdict(compilation: Compilation) -> str:
    """How the outputs' values were judged, in short."""
    values = compilation.report.values
    if not values.checked:
        return f"not checked: {values.reason}"
    if any(output.holds is False for output in values.outputs):
        return "wrong"
    verdicts = Counter("not judged" if output.holds is None else output.verdict for output in values.outputs)
    how = ", ".join(f"{verdict} ({count})" if len(verdicts) > 1 else verdict for verdict, count in verdicts.items())
    return how if set(verdicts) == {"not judged"} else f"right: {how}"


def run(names: Sequence[str] = ()) -> None:
    """Print one row per network and chip, and one with the float network's figures where the chip multiplies floats."""
    chosen = [case for name in names if name not in CHIPS for case in _cases(name)] or list(CASES)
    chips = [name for name in names if name in CHIPS] or list(CHIPS)
    print("\n### Quantised networks\n")
    print("| network | chip | MACs in int8 | MACs elsewhere | host nodes | values | DRAM | cycles | energy, µJ |")
    print("|---|---|---:|---|---:|---|---:|---:|---:|", flush=True)
    found = {}
    for case in chosen:
        network = case.split("/")[0]
        form = next(form for form in FORMS if case.endswith(f"/{form}"))
        source = ModelSource.from_bytes(quantised_file(network, form).read_bytes())
        for chip in chips:
            try:
                made = found[case, chip] = measured(source, network, chip)
            except TesseraError as error:
                print(f"| {case} | {chip} | {error.code}: {error.message} |", flush=True)
                continue
            print(f"| {case} | {chip} | {made.in_integers:.2%} | {_others(made)} | {_figures(made)} |", flush=True)
    print("\n### Beside the float network: float, and quantised / float\n")
    print(
        "| network | chip | values of float | DRAM | cycles | energy, µJ | DRAM ratio | cycles ratio | energy ratio |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
    floats: dict[tuple[str, str], Measured] = {}
    for (case, chip), quantised in found.items():
        if chip not in _COMPARED:
            continue
        network = case.split("/")[0]
        if (network, chip) not in floats:
            source = ModelSource.from_bytes(float_model(network).SerializeToString(deterministic=True))
            floats[network, chip] = measured(source, network, chip)
        plain = floats[network, chip]
        print(
            f"| {case} | {chip} | {plain.verdict} | {_kib(plain.dram_bytes)} | {plain.cycles:,} "
            f"| {plain.energy_j * 1e6:,.1f} | {quantised.dram_bytes / plain.dram_bytes:.3f} "
            f"| {quantised.cycles / plain.cycles:.3f} | {quantised.energy_j / plain.energy_j:.3f} |",
            flush=True,
        )


def _figures(made: Measured) -> str:
    return (
        f"{made.host_nodes} | {made.verdict} | {_kib(made.dram_bytes)} | {made.cycles:,} | {made.energy_j * 1e6:,.1f}"
    )


def _others(made: Measured) -> str:
    """Where the other multiply-accumulates are done, by share."""
    whole = sum(made.macs.values()) + made.host_macs
    parts = [(dtype, count) for dtype, count in made.macs.items() if dtype != ARRAY_TYPE]
    parts += [("host", made.host_macs)]
    return ", ".join(f"{name} {count / whole:.2%}" for name, count in parts if count) or "0"


def _kib(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.1f} KiB"


def _cases(name: str) -> list[str]:
    """The cases of a name: a network's, or the one of a form; raises ValueError for what is not known."""
    found = [case for case in CASES if case.split("/")[0] == name]
    found += [case for network in NETWORKS for form in FORMS if (case := f"{network}/{form}") == name]
    if not found:
        raise ValueError(f"unknown network or chip {name}; known: {', '.join((*NETWORKS, *CHIPS))}")
    return found
