"""Who makes slices: the port, and one module for each provider."""
