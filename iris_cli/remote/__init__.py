"""Access to workers: SSH, host keys, and the shell library that runs on them. Makes no decisions."""
