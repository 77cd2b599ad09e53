"""How whoever tells is told to end at once."""

from __future__ import annotations

from threading import Event

Cut = Event
"""Set when nobody waits any longer."""
