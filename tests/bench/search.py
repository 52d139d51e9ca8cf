"""What `search` finds and how long it takes: N-2, N-3, the light models, and growth with the number of ops (FUSE-O).

`python -m tests.bench search [n2 | n3 | floors | light | exported | growth ...]`; without names all six.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log, prod
from time import perf_counter
from types import MappingProxyType
from typing import Final

from compiler.compile import compile_model, plan_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.boundaries import crossings, reason_text, tensors_text
from compiler.report.plan import Plan
from tests.bench.prices import pinned
from tests.bench.scaling import chain, recurrence
from tests.compiler.planning import objective_of
from tests.exported import exported_models
from tests.models import LIGHT_NAMES, light_path
from tests.networks import fsrcnn

_OBJECTIVES: Final = ("latency", "dram_bytes", "energy", "edp")
_LIGHT_PROFILES: Final = ("cluster4x4", "edge4", "manycore2x64")
_NEAR: Final = 1.05
_MIB: Final = 2**20
# N-3: energy in pJ and cycles of SET, and what is wished for of DRAM bytes / floor and of energy x delay / SET's.
_SET: Final = MappingProxyType({"resnet50": (3.926e9, 2.092e6), "inception_v1": (1.281e9, 0.611e6)})
_WISHED: Final = MappingProxyType(
    {("resnet50", "dram_bytes"): 1.005, ("resnet50", "edp"): 0.75, ("inception_v1", "edp"): 0.85}
)
_GROWTH: Final = (1_000, 3_000, 10_000)
_STEPS: Final = (20, 40, 80, 160)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, and the seconds until it was there: all passes up to it, and those of fusion alone."""

    plan: Plan
    seconds: float
    fusion_s: float

    @property
    def cycles(self) -> int:
        """Cycles of all segments."""
        return sum(segment.cycles for segment in self.plan.segments)

    @property
    def energy_pj(self) -> float:
        """Energy in pJ."""
        return self.plan.totals.energy_j * 1e12

    def value(self, objective: str) -> float:
        """The objective's value."""
        return objective_of(self.plan, objective)


def planned(data: bytes, profile: str, **options: object) -> Planned:
    """A model's plan for a built-in profile, by search unless options say otherwise, without programs."""
    begin = perf_counter()
    compilation = plan_model(data, builtin_profile(profile), parse_options({"fusion": "search", **options}))
    seconds = perf_counter() - begin
    fusion = sum(timing.duration_s for timing in compilation.timings if timing.name == "fuse")
    return Planned(plan=compilation.plan, seconds=seconds, fusion_s=fusion)


def light(name: str) -> bytes:
    """A light model's file."""
    return light_path(name).read_bytes()


def run(names: tuple[str, ...] = ()) -> None:
    """Print the tables asked for, or all of them."""
    for name in names or TABLES:
        TABLES[name]()


def own_best_of_fsrcnn() -> None:
    """N-2: FSRCNN, our best plan against our own price of the published best schedule, tiles of 4 x 72 with caches."""
    print("\n### N-2: FSRCNN 960 x 540, int8, metaproto-df: own best against 4 x 72 as pinned\n")
    print("| objective | plan | energy mJ | Mcycles | DRAM bytes | groups | tile | value / pinned | s | fusion s |")
    print("|---|---|" + "---:|" * 8)
    model = fsrcnn()
    data = model.SerializeToString()
    schedule = pinned(model, {"W": 4, "H": 72}, {"H": "cached", "W": "cached"})
    for objective in ("energy", "latency"):
        reference = planned(data, "metaproto-df", schedule=schedule, precision="int8", objective=objective)
        own = planned(data, "metaproto-df", precision="int8", objective=objective)
        for what, found in (("4 x 72 pinned", reference), ("own", own)):
            groups = [group for segment in found.plan.segments for group in segment.groups]
            tiles = ", ".join("x".join(map(str, group.tiling.tile)) for group in groups)
            ratio = found.value(objective) / reference.value(objective)
            print(
                f"| {objective} | {what} | {found.energy_pj / 1e9:.4f} | {found.cycles / 1e6:.4f} "
                f"| {found.plan.totals.dram_bytes:,} | {len(groups)} | {tiles} | {ratio:.4f} | {found.seconds:.2f} "
                f"| {found.fusion_s:.2f} |"
            )


def on_a_mesh() -> None:
    """N-3: DRAM bytes against the floor, and energy x delay against SET's, by price and for what is lowered."""
    print("\n### N-3: batch 1, int8, polar4x4\n")
    print(
        "| network | objective | DRAM bytes | / floor | energy pJ | cycles | energy x delay / SET | wished | groups "
        "| s | fusion s | lowered: bytes / floor | energy x delay / SET by price | simulated |"
    )
    print("|---|---|" + "---:|" * 12)
    for (network, objective), wished in _WISHED.items():
        found = planned(light(network), "polar4x4", precision="int8", objective=objective)
        totals = found.plan.totals
        product = found.energy_pj * found.cycles / prod(_SET[network])
        groups = sum(len(segment.groups) for segment in found.plan.segments)
        print(
            f"| {network} | {objective} | {totals.dram_bytes:,} | {totals.dram_bytes / totals.dram_bytes_floor:.4f} "
            f"| {found.energy_pj:.4g} | {found.cycles:,} | {product:.4f} | {wished} | {groups} | {found.seconds:.2f} "
            f"| {found.fusion_s:.2f} {_lowered(network, objective)}|"
        )


def _lowered(network: str, objective: str) -> str:
    """The last columns of N-3: of the plan whose programs are taken (SCHED-7)."""
    options = parse_options({"precision": "int8", "objective": objective, "verify": "none"})
    profile = builtin_profile("polar4x4")
    totals = compile_model(light(network), profile, options).plan.totals
    energy_j, latency_s = totals.simulated_energy_j, totals.simulated_latency_s
    assert energy_j is not None
    assert latency_s is not None
    products = [
        its_energy_j * 1e12 * its_latency_s * profile.clock_hz / prod(_SET[network])
        for its_energy_j, its_latency_s in ((totals.energy_j, totals.latency_s), (energy_j, latency_s))
    ]
    return f"| {totals.dram_bytes / totals.dram_bytes_floor:.4f} | {products[0]:.4f} | {products[1]:.4f} "


def above_floors() -> None:
    """What of each light model's least DRAM bytes lies above the floor on `polar4x4`, and why (N-3)."""
    print("\n### DRAM bytes above the floor, int8, polar4x4, objective dram_bytes\n")
    print("| network | / floor | least of its class | above the floor, bytes | between or of | reason |")
    print("|---|---:|---|---:|---|---|")
    for name in LIGHT_NAMES:
        plan = planned(light(name), "polar4x4", precision="int8", objective="dram_bytes").plan
        searched = [segment.search for segment in plan.segments if segment.search is not None]
        least = "yes" if searched and all(one.is_least for one in searched) else "not proven"
        head = f"| {name} | {plan.totals.dram_bytes / plan.totals.dram_bytes_floor:.4f} | {least} |"
        for crossing in crossings(plan):
            reasons = dict.fromkeys(reason_text(edge, plan) for edge in crossing.edges if edge.consumer is not None)
            between = f"{' and '.join(crossing.groups)}: {tensors_text(crossing)}"
            print(f"{head} {crossing.size_bytes:,} | {between} | {'; '.join(reasons)} |")
            head = "| | | |"
        for entry in plan.gap.entries:
            if entry.kind != "intermediates":
                size = entry.read_bytes + entry.written_bytes
                print(f"{head} {size:,} | {entry.kind} of {entry.name} | {entry.why} |")
                head = "| | | |"


def light_models() -> None:
    """The light models: every objective against rules, none, floor and reference; what lies above the floor."""
    _matrix("Light models", {name: (light(name), {}) for name in LIGHT_NAMES})


def exported_networks() -> None:
    """The same for the exported networks at the maxima of their dynamic dims, each from the newer of its exporters."""
    models = {model.network: model for model in exported_models() if model.exporter == "dynamo"}
    _matrix("Exported networks", {name: (model.read(), {"dims": model.dims}) for name, model in models.items()})


def _matrix(title: str, networks: Mapping[str, tuple[bytes, Mapping[str, object]]]) -> None:
    for profile in _LIGHT_PROFILES:
        print(f"\n### {title} on `{profile}` by search\n")
        print(
            "| model | objective | plan MiB | floor MiB | reference MiB | rules MiB | none MiB | plan / floor "
            "| objective / rules | objective / none | s | fusion s | above the floor, fields |"
        )
        print("|---|---|" + "---:|" * 10 + "---|")
        for name, (data, options) in networks.items():
            for objective in _OBJECTIVES:
                print(_row(name, data, profile, {**options, "objective": objective}))


def _row(name: str, data: bytes, profile: str, options: Mapping[str, object]) -> str:
    objective = str(options["objective"])
    found, rules, none = (planned(data, profile, **{**options, "fusion": f}) for f in ("search", "rules", "none"))
    totals = found.plan.totals
    floor = totals.dram_bytes_floor
    sizes = [totals.dram_bytes, floor, totals.dram_bytes_reference]
    sizes += [other.plan.totals.dram_bytes for other in (rules, none)]
    value = found.value(objective)
    return (
        f"| {name} | {objective} | "
        + " | ".join(f"{size / _MIB:.2f}" for size in sizes)
        + f" | {totals.dram_bytes / floor:.3f} | {value / rules.value(objective):.3f} "
        f"| {value / none.value(objective):.3f} | {found.seconds:.2f} | {found.fusion_s:.2f} "
        f"| {above_floor(found.plan) if totals.dram_bytes > _NEAR * floor else ''} |"
    )


def above_floor(plan: Plan) -> str:
    """The bytes above the floor by kind, and the fields that would have to grow for the largest part of them."""
    kinds = ", ".join(f"{kind} {size / _MIB:.2f} MiB" for kind, size in plan.gap.kinds.items() if size)
    by_fields: dict[tuple[str, ...], int] = {}
    for entry in plan.gap.entries:
        by_fields[entry.fields] = by_fields.get(entry.fields, 0) + entry.read_bytes + entry.written_bytes
    fields = sorted(by_fields.items(), key=lambda item: -item[1])[:2]
    named = "; ".join(f"{' and '.join(names) or 'no field'} {size / _MIB:.2f} MiB" for names, size in fields)
    return f"{kinds} ({named})"


def growth() -> None:
    """Seconds of planning for real networks and for chains of growing length; the exponent between two lengths."""
    print("\n### Planning time by search, `cluster4x4`\n")
    print("| network | objective | ops | groups | s | fusion s | s per 1,000 ops | exponent |")
    print("|---|---|" + "---:|" * 6)
    for objective in ("latency", "edp"):
        for name in ("resnet50", "densenet121"):
            print(_growth_row(name, planned(light(name), "cluster4x4", objective=objective), objective, None))
        last: tuple[int, float] | None = None
        for length in _GROWTH:
            found = planned(chain(length), "cluster4x4", objective=objective)
            print(_growth_row(f"chain of {length:,}", found, objective, last))
            last = _ops(found), found.seconds
    last = None
    for steps in _STEPS:
        found = planned(recurrence(steps), "cluster4x4", objective="dram_bytes")
        print(_growth_row(f"recurrence of {steps} steps", found, "dram_bytes", last))
        last = _ops(found), found.seconds


def _ops(found: Planned) -> int:
    return sum(len(group.ops) for segment in found.plan.segments for group in segment.groups)


def _growth_row(name: str, found: Planned, objective: str, last: tuple[int, float] | None) -> str:
    ops, groups = _ops(found), sum(len(segment.groups) for segment in found.plan.segments)
    exponent = "" if last is None else f"{log(found.seconds / last[1]) / log(ops / last[0]):.2f}"
    return (
        f"| {name} | {objective} | {ops:,} | {groups:,} | {found.seconds:.2f} | {found.fusion_s:.2f} "
        f"| {1000 * found.seconds / ops:.2f} | {exponent} |"
    )


TABLES: Final[Mapping[str, Callable[[], None]]] = MappingProxyType(
    {
        "n2": own_best_of_fsrcnn,
        "n3": on_a_mesh,
        "floors": above_floors,
        "light": light_models,
        "exported": exported_networks,
        "growth": growth,
    }
)
