"""Check-ups as lines."""
