"""Snapshots (`snapshot.json`): the cluster after one line of the log, so that only later lines are replayed.

The archive has earlier snapshots. Each of them has the jobs that ended after the previous snapshot. Snapshots are only
caches. If a snapshot is damaged, the log is replayed instead.
"""
