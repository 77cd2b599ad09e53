"""Edit `cluster.yaml` as a person would do: change single lines, and keep all other bytes."""
