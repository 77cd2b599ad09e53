"""Whom to tell what happens to jobs, as `notify:` in `cluster.yaml` says."""
