"""Print the output of tasks, their differences and their stacks."""
