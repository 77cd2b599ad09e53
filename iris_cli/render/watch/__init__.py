"""A cluster that is watched: a calm screen on a terminal, elsewhere a line for each change."""
