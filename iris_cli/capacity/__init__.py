"""Providers of slices: their common interface, and one package per provider."""
