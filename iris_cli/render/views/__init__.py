"""Tables for the cluster, for jobs and for `iris why`."""
