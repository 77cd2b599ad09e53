"""A whole cluster from one seed: the real core, operations and journal over a world that can be made to fail."""
