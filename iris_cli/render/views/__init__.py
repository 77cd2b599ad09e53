"""The cluster, a job and its history as tables."""
