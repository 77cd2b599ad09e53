"""`snapshot.json`: what a log comes to at one of its lines, so that only what follows needs to be replayed.

Snapshots of earlier moments are kept in the archive; each has the jobs that ended since the one before it. All of them
are caches and nothing else: if anything is wrong with one, it is ignored, and the log is replayed instead.
"""

from iris_cli.journal.snapshot.cache import EVERY_LINES, SnapshotCache

__all__ = ["EVERY_LINES", "SnapshotCache"]
