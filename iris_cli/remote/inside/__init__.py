"""The program `iris` for tasks: one file of standard-library Python that a probe writes to the worker."""
