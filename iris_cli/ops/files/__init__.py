"""Files of tasks: workspaces packed, outputs pulled, what is left removed."""
