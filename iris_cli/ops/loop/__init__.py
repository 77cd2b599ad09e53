"""Runners of cycles: the background loop, and the locks that make each runner visible."""
