"""Slices as allocations of a Slurm cluster, through Slurm's own commands."""
