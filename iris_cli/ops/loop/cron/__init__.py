"""Scheduled cycles for `iris cron`, from the crontab or a systemd timer."""
