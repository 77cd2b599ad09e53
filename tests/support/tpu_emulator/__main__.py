"""The emulator as a process of its own: `python -m tests.support.tpu_emulator`.

Reads its settings as one JSON object from the first line of stdin (a line may be empty), says where it serves as
another, and ends when stdin ends. `machines` in the settings is a directory: then nodes are SSH hosts of this machine,
which live there; without it they are on paper.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.support.tpu_emulator.cloud import Cloud
from tests.support.tpu_emulator.machines import LocalMachines
from tests.support.tpu_emulator.server import start
from tests.support.tpu_emulator.settings import Settings


def main() -> None:
    """Serve until stdin ends."""
    said = json.loads(sys.stdin.readline().strip() or "{}")
    directory = said.pop("machines", None)
    settings = Settings()
    settings.change(said)
    machines = LocalMachines(Path(directory)) if directory else None
    with start(Cloud(settings, machines=machines)) as emulator:
        sys.stdout.write(json.dumps({"url": emulator.url, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        while sys.stdin.read(1):
            pass


if __name__ == "__main__":
    main()
