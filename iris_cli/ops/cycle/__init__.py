"""Scheduling cycle: poll workers, record ended attempts, place pending tasks, start and stop tasks over SSH."""
