"""First steps: create a configuration, import hosts, show the next steps."""
