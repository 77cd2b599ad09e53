"""Measurements of the speed and the memory of iris, each against a reference of the same run."""
