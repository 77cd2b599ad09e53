"""Explanations of pending entries, the change that would place them, and the wording."""
