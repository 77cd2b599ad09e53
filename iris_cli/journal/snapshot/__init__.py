"""`snapshot.json`: what a log comes to at one of its lines, so that only what follows needs to be replayed.

A cache and nothing else. Whatever is wrong with it, it is ignored, and the log is replayed instead.
"""

from iris_cli.journal.snapshot.cache import EVERY_LINES, SnapshotCache

__all__ = ["EVERY_LINES", "SnapshotCache"]
