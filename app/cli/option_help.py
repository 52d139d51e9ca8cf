"""`tessera options`: what the options of a compilation take and mean."""

from __future__ import annotations

import json
import re
import sys

from rich.console import Console

from app.printing.text_table import print_text
from compiler.errors import RequestError, did_you_mean, printable
from compiler.option_descriptions import DESCRIPTIONS
from compiler.rules import RULES

# Marks of Markdown, which a terminal does not show.
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def print_options(name: str | None, *, as_json: bool) -> None:
    """Prints all options, or one with its example; raises RequestError for an unknown one."""
    if name is not None and name not in DESCRIPTIONS:
        raise RequestError(
            f"unknown option {printable(name, 60)!r}",
            code="unknown_option",
            actual=printable(name, 60),
            hint=did_you_mean(name, DESCRIPTIONS) or "`tessera options` lists the options",
        )
    shown = {key: one for key, one in DESCRIPTIONS.items() if name in (None, key)}
    if as_json:
        fields = ("values", "meaning", "example")
        values = {key: {field: getattr(one, field) for field in fields} for key, one in shown.items()}
        sys.stdout.write(json.dumps(values) + "\n")
        return
    console = Console(markup=False, highlight=False)
    for key, one in shown.items():
        print_text(f"{key}: {one.values}", console, style="bold")
        print_text(_LINK.sub(r"docs/\2", one.meaning).replace("`", ""), console, indent=4)
        print_text(f"Example: --set '{one.example}'", console, indent=4)
        if key == "rules":
            rules = ", ".join(f"{rule.name} ({rule.id})" for rule in RULES if rule.id.startswith("FUSE-"))
            print_text(f"Rules: {rules}", console, indent=4)
