"""The data model of a cluster: jobs, tasks, workers, slices, and their derived properties."""
