"""The names of the files in the state directory."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LOG: Final = "events.jsonl"
ARCHIVE: Final = "archive"  # a directory: what was moved out of the log
HEAD: Final = "HEAD"
LOCK: Final = "lock"
HOLDER: Final = "lock.json"
NETWORK_TOLD: Final = "network-file-system"  # its type, when the operator was warned of it
SNAPSHOT: Final = "snapshot.json"
HEARTBEAT: Final = "heartbeat.json"
HEARTBEAT_LOCK: Final = "heartbeat.lock"  # held while it is read and written
LOOP_ORDER: Final = "loop.json"  # what the operator said about the background loop
LOOP_LOG: Final = "loop.log"  # what the loop did
RUNNERS: Final = "runners"  # a directory: a locked file for each process that runs cycles
CLIENTS: Final = "run"  # a directory: a locked file for each client on whose terminal a job runs
NOTICES: Final = "notices.json"  # what was told to whom
NOTICES_LOCK: Final = "notices.lock"
KNOWN_HOSTS: Final = "known_hosts"
TASK_LOGS: Final = "logs"
LOGS_DUE: Final = "logs-due"  # a directory: a file for each attempt whose output is to be copied
WORKSPACES: Final = "workspaces"
LINES: Final = "lines"
PACKED_SUFFIX: Final = ".tar.gz"  # behind a hash, in `workspaces` and `lines`
DRAFT_SUFFIX: Final = ".tmp"  # of a small file that is being written, or whose writer was killed
PART_SUFFIX: Final = ".part"  # of one that is still being written, or whose writer was killed
TORN_PREFIX: Final = "torn-"  # and a time: the unfinished end of a log
DAMAGED_PREFIX: Final = f"{LOG}.damaged-"  # and a time: a log as it was before it was salvaged
OLD_SUFFIX: Final = ".old-"  # and a time, behind the name of a segment: nobody reads it any more


def moment_path(directory: Path, seq: int) -> Path:
    """Where the archive has the snapshot of an earlier moment."""
    return directory / ARCHIVE / f"snapshot-{seq:012}.json"
