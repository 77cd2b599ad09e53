"""Edit `cluster.yaml`: change single lines, and keep all other bytes."""
