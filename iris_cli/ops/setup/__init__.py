"""The first steps: a configuration, an import of hosts, a demo, what to do next."""
