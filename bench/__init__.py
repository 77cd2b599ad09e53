"""Benchmarks of the speed and memory of iris, each against a reference from the same run."""
