"""Slices made on demand: when to make one, how it is set up, and when to give it back."""
