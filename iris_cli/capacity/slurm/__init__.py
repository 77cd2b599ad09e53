"""Slices that are allocations of a Slurm cluster. iris uses Slurm's commands."""
