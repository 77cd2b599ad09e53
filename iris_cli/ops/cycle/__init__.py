"""Scheduling cycle: poll workers, settle ended attempts, place pending tasks, start and stop tasks over SSH."""
