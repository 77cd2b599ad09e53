"""Workers, probes and commands run on them."""
