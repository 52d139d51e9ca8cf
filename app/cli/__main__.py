"""`python -m app.cli`: the command `tessera`."""

from __future__ import annotations

from app.cli.console_script import run

if __name__ == "__main__":
    run()
