"""Bytes and cycles of a decoder with weights of 4 bits: `python -m tests.quantised.measure_four_bits`.

docs/benchmarks/0028-integers.md. The float decoder and the one in int8 stand beside it.
"""

from __future__ import annotations

from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.quantised.four_bits import FORMS, four_bit_file
from tests.quantised.models import dims, float_model, quantised_file

_NETWORK = "llama_dynamo"


def main() -> None:
    """Print a row per form and chip."""
    models = {
        "float": float_model(_NETWORK).SerializeToString(deterministic=True),
        "int8": quantised_file(_NETWORK, "int8").read_bytes(),
        **{form: four_bit_file(form).read_bytes() for form in FORMS},
    }
    print("| form | chip | weights by type, B | DRAM, B | cycles | values |")
    print("|---|---|---|---:|---:|---|")
    for name, data in models.items():
        for chip in ("edge4", "cluster4x4"):
            made = compile_model(
                ModelSource.from_bytes(data), builtin_profile(chip), parse_options({"dims": dims(_NETWORK)})
            )
            cycles = sum(program.simulated_cycles for program in made.report.programs)
            holds = all(output.holds for output in made.report.values.outputs)
            print(
                f"| {name} | {chip} | {made.plan.arithmetic.weight_bytes} | {made.plan.totals.dram_bytes:,} "
                f"| {cycles:,.0f} | {'right' if holds else 'wrong or open'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
