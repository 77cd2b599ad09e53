"""Pulled files and removed ones."""
