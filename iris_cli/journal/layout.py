"""The names of the files in the state directory."""

from pathlib import Path
from typing import Final

LOG: Final = "events.jsonl"
ARCHIVE: Final = "archive"  # a directory of former logs and former snapshots
HEAD: Final = "HEAD"
LOCK: Final = "lock"
HOLDER: Final = "lock.json"
NETWORK_WARNED: Final = "network-file-system"  # content: the type of file system about which iris has warned
SNAPSHOT: Final = "snapshot.json"
HEARTBEAT: Final = "heartbeat.json"
HEARTBEAT_LOCK: Final = "heartbeat.lock"  # held while the heartbeat is read and written
LOOP_ORDER: Final = "loop.json"  # the operator's order to the background loop
LOOP_LOG: Final = "loop.log"  # the output of the background loop
RUNNERS: Final = "runners"  # a directory: a locked file for each process that runs cycles
CLIENTS: Final = "run"  # a directory: a locked file for each client whose terminal shows a job
NOTICES: Final = "notices.json"  # the state of notifications
NOTICES_LOCK: Final = "notices.lock"
KNOWN_HOSTS: Final = "known_hosts"
TASK_LOGS: Final = "logs"  # a directory: copies of the output of attempts
LOGS_DUE: Final = "logs-due"  # a directory: a file for each attempt whose output must still be copied
WORKSPACES: Final = "workspaces"  # a directory: packed workspaces
LINES: Final = "lines"  # a directory: packed lines of `--each-line`
PACKED_SUFFIX: Final = ".tar.gz"  # follows a hash, in `workspaces` and `lines`
PART_SUFFIX: Final = ".part"  # suffix of a large file that is being written, or whose writer was killed
TORN_PREFIX: Final = "torn-"  # followed by a time: the unfinished last line of a log
DAMAGED_PREFIX: Final = f"{LOG}.damaged-"  # followed by a time: a log before it was salvaged
OLD_SUFFIX: Final = ".old-"  # between the name of a segment that is no longer read and a time


def archived_snapshot_path(directory: Path, seq: int) -> Path:
    return directory / ARCHIVE / f"snapshot-{seq:012}.json"
