"""What a cluster consists of: jobs, tasks, workers, slices, and the rules that always hold of them."""
