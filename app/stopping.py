"""How long the API may take for its stop: one definition for the process itself and for those who end it (API-2)."""

from __future__ import annotations

from typing import Final

ANSWERS_S: Final = 2
"""For requests that are being answered; those that still wait are then answered 503."""
LOOPS_S: Final = 1.0
"""For the present rounds of the relay and of the opener together; they are abandoned after that."""
API_STOP_S: Final = ANSWERS_S + LOOPS_S + 1.0
"""For everything; whoever stops the API kills it after this time."""
