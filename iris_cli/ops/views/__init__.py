"""What screens show: the cluster, a job, its history, as values that `render` draws."""
