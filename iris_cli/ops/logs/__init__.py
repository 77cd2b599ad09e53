"""Output of tasks: read, follow, compare; stacks of their threads."""
