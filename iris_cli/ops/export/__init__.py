"""Export of a job to another engine: a JobSet for Kubernetes, a batch script for Slurm."""
