"""The zoo: `python -m tests.zoo export|compile|table|keep`; see README.md beside this file."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path

DEFAULT_FOLDER = Path(".zoo")
TABLE = Path("docs/benchmarks/0014-zoo.md")


def main(words: list[str]) -> int:
    """Run one step."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("step", choices=("export", "compile", "table", "keep"))
    parser.add_argument("names", nargs="*", help="patterns of names; all without")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="cache of models and results")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side")
    parser.add_argument("--again", action="store_true", help="do the named ones anew")
    parser.add_argument("--chip", action="append", default=[], help="compile for these chips only")
    parser.add_argument("--table", type=Path, default=TABLE, help="the page that is written")
    chosen = parser.parse_intermixed_args(words)

    def wanted(name: str) -> bool:
        return not chosen.names or any(fnmatch.fnmatch(name, pattern) for pattern in chosen.names)

    models = chosen.folder / "models"
    if chosen.step == "export":
        from tests.zoo.catalogue import networks
        from tests.zoo.exporting import export_all
        from tests.zoo.people import collect, shipped

        selected = [network for network in networks() if wanted(network.name)]
        again = [network.name for network in selected] if chosen.again else []
        files = [file for file in shipped() if wanted(file.name)]
        collect(files, models, again=[file.name for file in files] if chosen.again else [], workers=chosen.workers)
        export_all(selected, models, again=again, workers=chosen.workers)
    if chosen.step == "compile":
        from tests.zoo.compiling import compile_all
        from tests.zoo.exporting import records

        found = {name: record for name, record in records(models).items() if wanted(name)}
        compile_all(
            found, models, chosen.folder / "results", again=chosen.again, workers=chosen.workers, chips=chosen.chip
        )
    if chosen.step == "keep":
        from tests.zoo.kept import keep

        keep(models)
    if chosen.step in ("compile", "table"):
        _write_table(models, chosen.folder / "results", chosen.table)
    return 0


def _write_table(models: Path, results: Path, path: Path) -> None:
    """Write the page anew from what lies in the cache, and print what changed since the last."""
    from tests.zoo.compiling import commit, compiler_digest, results_of
    from tests.zoo.exporting import records
    from tests.zoo.table import changes, page

    known, digest = list(records(models).values()), compiler_digest()
    before = path.read_text() if path.exists() else ""
    after = page(known, results_of(results, known, digest), compiler=f"{commit()} ({digest})")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(after)
    said = changes(before, after)
    print("\n".join(said) if said else "nothing changed", flush=True)
    print(f"table: {path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
