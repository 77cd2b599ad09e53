"""Commands: one module per command or group."""
