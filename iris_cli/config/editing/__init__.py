"""Edit `cluster.yaml` the way a person would: change single lines and keep all other bytes."""
