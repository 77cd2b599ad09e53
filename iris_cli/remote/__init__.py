"""The way to the workers: SSH, host keys, and the shell library that runs there. It decides nothing."""
