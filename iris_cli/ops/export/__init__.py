"""Export a job to another engine: as a JobSet for Kubernetes, or as a batch script for Slurm."""
