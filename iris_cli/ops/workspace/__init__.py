"""Workspaces: a local directory packed for the tasks of a job."""
