"""The work of a run, made from a seed: compilations of small models, and what is made from them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tests.service.harness import conv_chain
from tests.service.models import images, network, sentences

_PROFILES: Final = ("edge4", "cluster4x4")
_CHANCES: Final = {
    "compilation": 9,
    "package": 2,
    "simulation": 4,  # of values
    "sweep": 3,
    "table": 2,  # of a package, once it is optimised
    "trace": 2,  # of simulated time, and the listing
    "upload": 2,  # of a model of its own, which is deleted after its compilation
}
_RANGES: Final = {
    "images": {name: {"min": 1, "max": most} for name, most in (("n", 2), ("h", 24), ("w", 24))},
    "sentences": {"t": {"min": 1, "max": 40}},
}
TABLE_SHAPES: Final = {"images": ("x:1x3x13x14", "x:2x3x20x9"), "sentences": ("x:7x16", "x:33x16")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job to ask for; two jobs of equal work give the same bytes."""

    kind: str
    model: str
    """A name of `model_bytes`."""
    profile: str
    number: int
    """Makes work distinct: a limit that no group reaches, a seed, the values of a grid."""


@lru_cache(maxsize=64)
def model_bytes(name: str) -> bytes:
    """A model by name: `chain-LENGTH`, `once-EXTENT`, `network`, `images` or `sentences`."""
    made = {"network": lambda: network().data(), "images": images, "sentences": sentences}
    kind, _, number = name.partition("-")
    if kind == "once":
        return conv_chain(2, extent=int(number))
    return conv_chain(int(number)) if kind == "chain" else made[name]()


def body(work: Work, model: str, compilation: str | None) -> tuple[str, dict[str, Any]]:
    """The path and the JSON of the request, by the model's id and, for a simulation, the job of its executable.

    Tables and traces are read from the job that they are based on, and ask for none of their own.
    """
    limit = {"FUSE-19": {"limit": 1_000_000 + work.number}}
    if work.kind == "simulation":
        return "/v1/simulations", {"job": compilation, "seed": work.number}
    if work.kind == "sweep":
        sizes = [f"{128 + 8 * ((work.number + step) % 64)}KiB" for step in range(3)]
        return "/v1/sweeps", {"model": model, "profiles": [work.profile], "grid": {"nram": sizes}}
    options: dict[str, Any] = {"rules": limit}
    if work.kind == "package":
        options |= {"dims": _RANGES[work.model], "verify": "none"}
    return "/v1/compilations", {"model": model, "profile": work.profile, "options": options}


def base_of(work: Work) -> Work | None:
    """The work whose result this one needs: the executable of a simulation and of a trace, the package of a table."""
    kind = {"simulation": "compilation", "trace": "compilation", "table": "package"}.get(work.kind)
    return None if kind is None else Work(kind=kind, model=work.model, profile=work.profile, number=0)


def plan(seed: int, jobs: int) -> list[Work]:
    """The work of a run, in the order in which it is asked for; some of it twice."""
    dice = random.Random(seed)
    kinds, chances = list(_CHANCES), list(_CHANCES.values())
    found: list[Work] = []
    for number in range(1, jobs + 1):
        lasting = [work for work in found if work.kind != "upload"]
        if lasting and dice.random() < 0.1:
            found.append(dice.choice(lasting))  # the same again: shares the work or finds it in the cache
            continue
        kind = dice.choices(kinds, chances)[0]
        if kind in ("package", "table"):
            model = dice.choice(tuple(_RANGES))
        elif kind == "upload":
            model = f"once-{16 + number}"
        elif kind == "compilation":
            model = dice.choice(("network", "chain-2", "chain-6", "chain-12", "chain-30"))
        else:
            model = dice.choice(("network", "chain-2", "chain-4"))
        found.append(Work(kind=kind, model=model, profile=dice.choice(_PROFILES), number=number))
    return found
