"""What each option of a compilation takes and means: for help, error hints and docs/plan.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An option in words: its values with the default first, its meaning, and an example for `--set`.

    `unit` is that of an amount, one of `quantities.UNITS`; "" for other options.
    """

    values: str
    meaning: str
    example: str
    unit: str = ""


# In the order of `Options`; the meaning is Markdown.
DESCRIPTIONS: Final[Mapping[str, Described]] = MappingProxyType(
    {
        "objective": Described(
            values="latency, dram_bytes, energy, edp",
            meaning="What the plan minimises; `edp` is energy × latency.",
            example="objective=energy",
        ),
        "fusion": Described(
            values="search, rules, none",
            meaning="How groups are found: least cost, greedy growth under rules, layer by layer.",
            example="fusion=rules",
        ),
        "start_rule": Described(
            values="A, B", meaning="For `fusion=rules`: where a group starts.", example="start_rule=B"
        ),
        "profit": Described(
            values="any, all, or a list of FUSE-5, 6, 7",
            meaning="For `fusion=rules`: which profit rules must hold.",
            example="profit=all",
        ),
        "rules": Described(
            values="an object or a list",
            meaning="Switch, limit, order and add fusion rules, by name or id ([rules.md](rules.md)).",
            example="rules.FUSE-19.limit=6",
        ),
        "split": Described(
            values="exact, top-down, bottom-up",
            meaning="The SRAM tile: the largest that fits; cut from the whole until it fits; grown from an image,"
            " row or position while it fits.",
            example="split=top-down",
        ),
        "granularity": Described(
            values="[0.5], or up to 64 ratios",
            meaning="For `split=top-down`: what each cut keeps of an axis, a number or `3/4`; the last repeats.",
            example="granularity=[0.5,0.75]",
        ),
        "order": Described(
            values='["N", "H", "W"], or other axes',
            meaning="For `split=top-down`: the order in which axes are cut, others after. Bottom-up grows the last axis"
            " first.",
            example='order=["H","W"]',
        ),
        "split_cycle": Described(
            values="true, false",
            meaning="For `split=top-down`: whether axes are cut in turn, or one until it is used up.",
            example="split_cycle=false",
        ),
        "halo": Described(
            values="auto, recompute, cached, exchange",
            meaning="How overlaps of neighbouring tiles (halos) are provided.",
            example="halo=cached",
        ),
        "placement": Described(
            values="auto, bands, columns, blocks, quadrants, checkerboard, row-major, z-order",
            meaning="How tiles are dealt to units.",
            example="placement=bands",
        ),
        "schedule": Described(
            values="an object; a file on the command line",
            meaning="A pinned schedule, or the plan.json to take it from ([plan.md](plan.md#pinned-schedules)).",
            example="schedule=plan.json",
        ),
        "partition": Described(
            values="auto, or a list of nodes",
            meaning="Cut after these nodes; merging keeps these cuts.",
            example='partition=["conv3"]',
        ),
        "merge": Described(
            values="optimal, forward-greedy, forward, pairwise, thresholds, bidirectional, none",
            meaning="How neighbouring segments are merged ([plan.md](plan.md#merging)).",
            example="merge=forward",
        ),
        **{
            f"{end}_{what}": Described(
                values="a number",
                meaning=f"Limit of merging: {least} {words} of a segment{only}.",
                example=f"{end}_{what}={example}",
                unit="B" if what == "weight_bytes" else "",
            )
            for what, words, example in (
                ("macs", "multiply-accumulates", "1000000"),
                ("weight_bytes", "bytes of weights", "1MiB"),
                ("vector_nodes", "nodes on the vector unit", "8"),
            )
            for end, least, only in (("min", "the fewest", "; for `merge=thresholds`"), ("max", "the most", ""))
        },
        "chips": Described(
            values="balanced, single, one-each",
            meaning="How segments are dealt to chips.",
            example="chips=single",
        ),
        "strict": Described(
            values="false, true", meaning="Whether an op on the host is an error.", example="strict=true"
        ),
        "degraded": Described(
            values="allow, error",
            meaning="Whether nodes that Tessera fails on are planned in a simpler way. `strict` implies `error`.",
            example="degraded=error",
        ),
        "precision": Described(
            values="model, int8, float16",
            meaning="A what-if: plans as if float tensors had 1 or 2 bytes and biases 4, integers as they are. Outputs"
            " cannot be verified. Quantised models run in integers without it.",
            example="precision=int8",
        ),
        "layout": Described(
            values="NHWC, NCHW, CNHW",
            meaning="The memory order of feature maps, on chip and in DRAM. Matrices keep their rows packed."
            " Packages of dynamic shapes take `NHWC`.",
            example="layout=NCHW",
        ),
        "verify": Described(
            values="values, none",
            meaning="Whether programs are run and outputs compared with the model's.",
            example="verify=none",
        ),
        "batch": Described(
            values="a whole number from 1 to 65536",
            meaning="Images per batch, for a model with inputs for one. An op that mixes images is named and refused.",
            example="batch=4",
        ),
        "dims": Described(
            values="an object",
            meaning="Each dynamic dimension's extent (0: without elements, such as an empty past), or"
            ' `{"min", "max", "step"}`, planned at `max`; without any,'
            " ranges that follow from the model ([packages.md](packages.md#default-ranges)).",
            example="dims.batch=1",
        ),
        "tables": Described(
            values="a list of shapes",
            meaning="Up to 64 shapes whose tables are made with the package; `[{}]` for a model of fixed shapes.",
            example='tables=[{"batch": 2}]',
        ),
        "time_limit_s": Described(
            values="a time",
            meaning="Ends the job after this time. It never changes a result.",
            example="time_limit_s=60s",
            unit="s",
        ),
        "memory_limit_bytes": Described(
            values="a size",
            meaning="Ends the job where it needs more memory. It never changes a result.",
            example="memory_limit_bytes=4GiB",
            unit="B",
        ),
    }
)


def options_table() -> str:
    """The options as a table in Markdown."""
    rows = (f"| `{name}` | {one.values} | {one.meaning} |" for name, one in DESCRIPTIONS.items())
    return "\n".join(["| option | values | meaning |", "|---|---|---|", *rows])
