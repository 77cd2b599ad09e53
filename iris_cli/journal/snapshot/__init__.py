"""`snapshot.json`: the cluster as of one line of the log, so only later lines need to be replayed.

Earlier snapshots are kept in the archive; each has the jobs that ended since the one before it. All of them are only
caches: a damaged one is ignored, and the log is replayed instead.
"""

from iris_cli.journal.snapshot.cache import EVERY_LINES, SnapshotCache

__all__ = ["EVERY_LINES", "SnapshotCache"]
