"""`python -m app.documents`: writes docs/openapi.json, docs/supported-ops.md and the schemas in docs/schemas."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec

from app.comparisons.compare import ComparisonDocument
from app.main import create_app
from app.settings import Settings
from app.simulations.report import SimulationReport
from app.sweeps.report import SweepReport
from app.sweeps.sizing import SizeReport
from app.tables.document import TablesDocument
from compiler.frontend.supported import supported_ops
from compiler.plan import Plan, Report
from compiler.profile import Profile

_SCHEMAS = {
    "plan": Plan,
    "report": Report,
    "profile": Profile,
    "simulation": SimulationReport,
    "sweep": SweepReport,
    "size": SizeReport,
    "comparison": ComparisonDocument,
    "tables": TablesDocument,
}


def documents() -> dict[str, str]:
    """The files by their path under docs/, with the text each should have."""
    with tempfile.TemporaryDirectory() as folder:
        # No connection is made: the document is that of the code alone.
        nowhere = "redis://localhost:1/0"
        settings = Settings(broker_url=nowhere, cache_url=nowhere, data_dir=Path(folder))
        texts = {"openapi.json": _text(create_app(settings).openapi())}
    texts["supported-ops.md"] = supported_ops()
    for name, kind in _SCHEMAS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
        texts[f"schemas/{name}.json"] = _text(schema)
    return texts


def main() -> None:
    """Write every document."""
    docs = Path(__file__).parent.parent / "docs"
    for name, text in documents().items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _text(values: object) -> str:
    return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
