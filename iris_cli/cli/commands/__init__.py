"""One file for each command, or group of commands."""
