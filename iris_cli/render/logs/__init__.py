"""Output of tasks, folded and compared."""
