"""First steps with iris: create a configuration, import hosts, show the next steps."""
