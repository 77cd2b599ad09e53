"""Packing a directory of the operator, so that it can go with the tasks of a job."""
