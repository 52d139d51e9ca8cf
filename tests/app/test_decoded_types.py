"""API-2: types are ready before threads decode them; a process dies of two that decode a new one at once."""

from __future__ import annotations

import subprocess
import sys

# Large enough that all threads come while the first one is still looking at the type.
_PROGRAM = """
import sys, threading
import msgspec
from app.decoded_types import prepare_decoded_types

sys.setswitchinterval(0.0005)
fields = {f"f{number}": tuple[int, ...] for number in range(40)}
parts = {f"p{number}": msgspec.defstruct(f"P{number}", list(fields.items())) for number in range(40)}
whole = msgspec.defstruct("Whole", list(parts.items()))
data = {part: dict.fromkeys(fields, [1, 2]) for part in parts}
prepare_decoded_types()
barrier, decoded = threading.Barrier(8), []

def decode():
    barrier.wait()
    decoded.append(msgspec.convert(data, whole))

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(decoded))
"""


def test_threads_may_decode_a_type_at_once_after_it_was_prepared() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "8\n"), ran.stderr
