"""`python -m tests.stack`: the service on six hosts; prints what happened, exit code 1 if something did not hold."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.stack.hosts import Network, namespaces
from tests.stack.scenario import Scenario
from tests.stack.stack import Stack, missing_programs


def main() -> None:
    """Goes into a namespace of its own and runs the scenario there."""
    parser = argparse.ArgumentParser(prog="python -m tests.stack", description=__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="where data and logs stay; without it they are removed")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        _enter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the hosts are always ended
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tessera-stack-"))
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    with ExitStack() as cleaning, Network(folder) as network:
        stack = Stack(network, folder)
        cleaning.callback(stack.clean_up)
        try:
            Scenario(stack, arguments.jobs, say).run()
        except AssertionError as error:
            say(f"DOES NOT HOLD: {error}")
            say(f"data and logs of the hosts: {folder}")
            sys.exit(1)
    say("HOLDS")
    if arguments.folder is None:
        shutil.rmtree(folder, ignore_errors=True)


def _enter() -> None:
    """Replaces this process by one that may make hosts; ends it with the reason if that is not permitted."""
    missing = missing_programs()
    if missing:
        sys.exit(f"install the programs {', '.join(missing)} (iproute2, util-linux, hostname, requirements/dev.txt)")
    try:
        words = namespaces()
    except PermissionError as error:
        sys.exit(str(error))
    os.execvp(words[0], [*words, sys.executable, "-m", "tests.stack", "--inside", *sys.argv[1:]])


if __name__ == "__main__":
    main()
