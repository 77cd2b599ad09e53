"""The output of tasks: read, follow, compare; and the stacks of their threads."""
