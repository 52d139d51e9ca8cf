"""Turns itself into a supervised child: asks Linux to be killed with its parent, then executes the given program.

The child's files are for this user alone.

Run as a script, isolated (`python -I -S launch.py SIGNAL PARENT PROGRAM...`), so that the supervisor, which has
threads, runs no code between fork and exec. The request to Linux survives the exec.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Sets the death signal and calls exec."""
    sig, parent, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sig, 0, 0, 0)
    os.umask(0o077)  # app.private_files, which is not importable here
    if os.getppid() != parent:  # the parent died before this line
        sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
