"""The state directory: the event log, its lock, and the files next to the log."""
