"""The state directory: the event log, its lock, and the files beside it."""
