"""Cycles, the background loop and cron as lines."""
