"""The emulator as a process: `python -m tests.support.tpu_emulator`.

It reads its settings as a JSON object from the first line of stdin (which may be empty), prints its address as another
one, and ends when stdin ends. If the settings have a directory `machines`, nodes are SSH hosts with files in it;
otherwise they have only addresses.
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
