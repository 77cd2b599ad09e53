"""Explanations why tasks and gangs are pending, the change that would place them, and the texts."""
