"""Providers of slices: the port, and one module per provider."""
