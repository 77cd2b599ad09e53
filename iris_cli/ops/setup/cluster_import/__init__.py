"""Import slices and hosts into `cluster.yaml` for `iris cluster import`."""
