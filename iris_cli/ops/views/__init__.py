"""Data of the screens: cluster, jobs and history as values for `render`."""
