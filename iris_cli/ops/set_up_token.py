"""By what token the set-up command of a new VM is launched."""

from __future__ import annotations

from hashlib import sha256

from iris_cli.core.ids import Token, WorkerId


def token_of(worker: WorkerId, incarnation: str) -> Token:
    """The same one whoever asks: so it runs once, whoever is killed meanwhile, and needs no place in the log."""
    return Token(sha256(f"set-up of {worker} {incarnation}".encode()).hexdigest()[:32])
