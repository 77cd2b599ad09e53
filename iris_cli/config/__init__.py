"""Parse `cluster.yaml` and job files into values: strict, reporting all problems at once."""
