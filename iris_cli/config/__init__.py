"""From `cluster.yaml` and job files to values: strict, and every problem at once."""
