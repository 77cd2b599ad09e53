"""The events of the log."""
