"""Runners of cycles: the background loop, `iris watch`, `iris wait` and cron."""
