"""Devices, chips and shapes: what one task needs, and what an accelerator type has."""
