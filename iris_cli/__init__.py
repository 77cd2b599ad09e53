"""iris: run jobs on the TPU slices (or any SSH hosts) you already have."""

__version__ = "0.1.0"
