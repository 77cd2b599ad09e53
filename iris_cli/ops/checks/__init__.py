"""Checks of `iris doctor`."""
