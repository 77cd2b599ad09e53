"""A job as another engine runs it: a JobSet for Kubernetes, a batch script for Slurm."""
