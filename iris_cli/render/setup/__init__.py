"""First steps as lines."""
