"""`python -m app.documents`: writes openapi.json, supported-ops.md, rules.md, schemas, tables in other pages."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from app.comparisons.compare import ComparisonDocument
from app.main import create_app
from app.metrics import table
from app.settings import Settings
from app.simulations.report import SimulationReport
from app.sweeps.report import SweepReport
from app.sweeps.sizing import SizeReport
from app.tables.document import TablesDocument
from compiler.frontend.supported import supported_ops
from compiler.option_descriptions import options_table
from compiler.profile import Profile
from compiler.profile.annotated import reference
from compiler.profile.field_descriptions import json_schema
from compiler.report.plan import Plan, Report
from compiler.report.rules_page import rules_page

_DOCS: Final = Path(__file__).parent.parent / "docs"
# Text between these marks of a page is generated.
_FIELDS: Final = ("<!-- fields of the schema: written by make openapi -->", "<!-- end of the fields -->")
_METRICS: Final = ("<!-- metrics: written by make openapi -->", "<!-- end of the metrics -->")
_OPTIONS: Final = ("<!-- options: written by make openapi -->", "<!-- end of the options -->")
_SCHEMAS: Final[dict[str, type[msgspec.Struct]]] = {
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
    """The files by their path under docs/, with their generated text."""
    with tempfile.TemporaryDirectory() as folder:
        # No connection is made: the documents depend on the code alone.
        nowhere = "redis://localhost:1/0"
        settings = Settings(broker_url=nowhere, cache_url=nowhere, data_dir=Path(folder))
        texts = {"openapi.json": _text(create_app(settings).openapi())}
    texts["supported-ops.md"] = supported_ops()
    texts["rules.md"] = rules_page()
    texts["profiles.md"] = _with((_DOCS / "profiles.md").read_text(), _FIELDS, reference())
    texts["service.md"] = _with((_DOCS / "service.md").read_text(), _METRICS, table())
    texts["plan.md"] = _with((_DOCS / "plan.md").read_text(), _OPTIONS, options_table())
    for name, kind in _SCHEMAS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema(kind)}
        texts[f"schemas/{name}.json"] = _text(schema)
    return texts


def main() -> None:
    """Writes every document."""
    for name, text in documents().items():
        path = _DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _with(page: str, marks: tuple[str, str], text: str) -> str:
    """The page with the present text between two marks."""
    begin, end = marks
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _text(values: object) -> str:
    return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
