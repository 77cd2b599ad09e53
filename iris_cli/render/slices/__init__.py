"""Slices and scale groups as tables."""
