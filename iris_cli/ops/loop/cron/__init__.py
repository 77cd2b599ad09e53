"""`iris cron`: cycles that run by themselves, from the crontab or by a timer of systemd."""
