"""`iris cluster import`: what there is, from wherever it is told, into `cluster.yaml`."""
