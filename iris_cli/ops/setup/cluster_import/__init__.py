"""Import of slices and hosts into `cluster.yaml` for `iris cluster import`."""
