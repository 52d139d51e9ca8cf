"""`python -m app.cli`: the command `tessera`."""

from __future__ import annotations

from app.cli.entry import run

if __name__ == "__main__":
    run()
