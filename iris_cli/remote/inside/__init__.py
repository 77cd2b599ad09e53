"""The program `iris` of tasks: one file of standard-library Python, which a probe writes to the worker."""
