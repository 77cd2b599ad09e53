"""Notifications about jobs, as configured by `notify:` in `cluster.yaml`."""
